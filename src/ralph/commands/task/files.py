"""`ralph task import` and `ralph task export`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralph.commands.common import complete_task, open_tasks, work_settings
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.core.task_model import Task


@click.command("import")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--check", is_flag=True, help="Check the file without importing anything.")
@click.option("--update", is_flag=True, help="Replace existing tasks; keeps their status and progress.")
@click.option("--spec", metavar="SPEC", help="Spec for tasks without spec_id. [the file name]")
def import_(file: str, check: bool, update: bool, spec: str | None) -> int:
    """Import tasks from a YAML or JSON FILE (-: stdin).

    The file holds a list of tasks, the same list under `tasks:`, or one task under `task:`. Either all tasks are
    imported or none, and every problem is reported with its line. For the format, see docs/tasks.md
    or the output of `ralph task export`.

    \b
    ralph task import plan.yaml --check
    ralph task import plan.yaml --update
    """
    from ralph.tasks import edit, task_file

    read = task_file.load(file, work_settings(), spec or "")
    with open_tasks() as tasks:
        added = edit.add(tasks, read.entries, update=update, check=check or bool(read.problems))
    if read.problems or added.problems:
        raise read.explained(added.problems)
    words = _counted(len(read.entries))
    if added.replaced:
        words += f" ({added.new} new, {added.replaced} replaced)"
    click.echo(f"{words}: no problems found. Nothing was imported." if check else f"Imported {words}.")
    return 0


def _counted(number: int) -> str:
    return f"{number:,} {'task' if number == 1 else 'tasks'}"


@click.command("export")
@click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=complete_task)
@click.option("--spec", metavar="SPEC", help="Export only the tasks of this spec.")
@click.option("-o", "--output", metavar="FILE", help="Output file. [stdout]")
def export_(ids: tuple[str, ...], spec: str | None, output: str | None) -> int:
    """Export tasks as YAML for `ralph task import`: the given IDs, or all tasks of this project.

    Writes a list, or a single `task:` for one ID. Progress is left out: iterations, times, and the status of work
    in progress.

    \b
    ralph task export -o tasks.yaml
    ralph task export TASK-001
    """
    from ralph.tasks import task_file

    with open_tasks() as tasks:
        found = [tasks.find(id) for id in dict.fromkeys(ids)] if ids else tasks.all()
    found = [task for task in found if spec in (None, task.spec_id)]
    if not found:
        raise RalphError("No matching tasks.", "To list the tasks: ralph task list")
    _warn(found)
    text = task_file.one_to_text(found[0]) if len(set(ids)) == 1 else task_file.to_text(found)
    if output in (None, task_file.STDIN):
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        assert output is not None
        _write(Path(output), text)
        click.echo(f"Wrote {_counted(len(found))} to {output}.", err=True)
    return 0


def _warn(found: Sequence[Task]) -> None:
    """Warn about tasks that could not be imported again as they are."""
    from ralph.tasks.edit import listed

    ids = {task.id for task in found}
    for task in found:
        if missing := [id for id in task.dependencies if id not in ids]:
            _say(f"{task.id} depends on {listed(missing)}, which is not exported.")
        if task.completion_spec is None:
            _say(f"{task.id} has no completion spec, so it cannot be imported.")


def _say(text: str) -> None:
    click.echo(f"ralph: warning: {text}", err=True)


def _write(path: Path, text: str) -> None:
    from ralph.files.paths import real
    from ralph.store import files

    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise RalphError(f"{path} is not a regular file.")
    except FileNotFoundError:
        pass
    path = real(path)
    with files.opened_directory(str(path.parent)) as directory:
        files.write(directory, path.name, text.encode())
