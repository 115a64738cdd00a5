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
@click.option("--check", is_flag=True, help="Only say whether it could be imported.")
@click.option("--update", is_flag=True, help="Replace tasks that are there; their status and progress stay.")
@click.option("--spec", metavar="SPEC", help="For tasks without spec_id. [the name of the file]")
def import_(file: str, check: bool, update: bool, spec: str | None) -> int:
    """Read tasks from FILE, or stdin for -: a list of tasks, or `tasks:`, or one `task:`.

    All are imported or none; every problem is shown with its line. JSON is fine too. docs/tasks.md has
    examples, `ralph task export` writes one.

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
    click.echo(f"{words}: nothing is wrong. Nothing was written." if check else f"Imported {words}.")
    return 0


def _counted(number: int) -> str:
    return f"{number:,} {'task' if number == 1 else 'tasks'}"


@click.command("export")
@click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=complete_task)
@click.option("--spec", metavar="SPEC", help="Only the tasks of this spec.")
@click.option("-o", "--output", metavar="FILE", help="Write them there instead of to stdout.")
def export_(ids: tuple[str, ...], spec: str | None, output: str | None) -> int:
    """Write the tasks of this project as YAML that `ralph task import` reads: all, or those with these IDs.

    It is a list; for one ID, a single `task:`. What work has made of them is left out: iterations, times, and a status
    of work in progress.
    """
    from ralph.tasks import task_file

    with open_tasks() as tasks:
        found = [tasks.find(id) for id in dict.fromkeys(ids)] if ids else tasks.all()
    found = [task for task in found if spec in (None, task.spec_id)]
    if not found:
        raise RalphError("There are no such tasks.", "`ralph task list` lists the tasks.")
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
    """What could not be imported again as it is."""
    from ralph.tasks.edit import listed

    ids = {task.id for task in found}
    for task in found:
        if missing := [id for id in task.dependencies if id not in ids]:
            _say(f"{task.id} depends on {listed(missing)}, which is not exported.")
        if task.completion_spec is None:
            _say(f"{task.id} has no completion spec; it cannot be imported like this.")


def _say(text: str) -> None:
    click.echo(f"ralph: warning: {text}", err=True)


def _write(path: Path, text: str) -> None:
    from ralph.files.paths import real
    from ralph.store import files

    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise RalphError(f"{path} is no regular file.")
    except FileNotFoundError:
        pass
    path = real(path)
    with files.opened_directory(str(path.parent)) as directory:
        files.write(directory, path.name, text.encode())
