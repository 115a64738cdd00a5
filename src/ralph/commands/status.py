"""`ralph status`: show all runs, or one run in detail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralph.commands.common import open_home, optional_run_argument

if TYPE_CHECKING:
    from ralph.store.tasks import Tasks


@click.command()
@optional_run_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, as_json: bool) -> int:
    """Show the runs of all projects, live ones first. With RUN or a task ID, show that one in detail.

    Runs started by an agent are listed below that agent's run. Runs of tasks are listed only while they are live;
    the details of a task show its roles, their iterations, and the result of each verification.

    RUN is a run id, or any unique prefix or suffix of one.

    \b
    ralph status
    ralph status 7f3a
    ralph status TASK-001 --json
    """
    from msgspec import to_builtins

    from ralph.commands.status_text import print_list, run_text, task_text
    from ralph.runs.location import here
    from ralph.views.status import detail, summaries

    home = open_home()
    runs, tasks = home.runs(), home.tasks(here(Path.cwd()).project)
    if run is None:
        found = summaries(runs)
        if as_json:
            click.echo(json.dumps([to_builtins(s) for s in found], indent=2, ensure_ascii=False))
        else:
            has_tasks = _count_tasks(tasks)
            if found or not has_tasks:
                print_list(found)
        return 0
    if task := tasks.get(run):
        from ralph.views.task_status import task_state  # imports git, which runs do not need

        state = task_state(home, runs, tasks.project, task, tasks.progress(task.id))
        click.echo(
            json.dumps(to_builtins(state), indent=2, ensure_ascii=False) if as_json else task_text(state)
        )
        return 0
    one = detail(runs, runs.find(run))
    click.echo(json.dumps(one.to_json(), indent=2, ensure_ascii=False) if as_json else run_text(one))
    return 0


def _count_tasks(tasks: Tasks) -> bool:
    """Print the number of tasks in this project by status; return whether there are any."""
    counts = tasks.counts()
    if counts:
        words = ", ".join(f"{number} {status}" for status, number in counts.items())
        click.echo(f"Tasks in this project: {words}. To list them: ralph task list", err=True)
    return bool(counts)
