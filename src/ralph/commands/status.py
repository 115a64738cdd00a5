"""`ralph status`: all runs, or one of them in detail."""

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
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def command(run: str | None, as_json: bool) -> int:
    """Show the runs of all projects, live ones first; with RUN or a task's id, that one in detail.

    Runs that an agent has begun itself stand below the run of that agent. Of a task there are its roles, their
    iterations, and what each verification found; its runs are listed only while they go on.

    RUN is an id, or any beginning or end of it that no other run has.
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
        from ralph.views.task_status import task_state  # git comes with it, which runs can do without

        state = task_state(home, runs, tasks.project, task, tasks.progress(task.id))
        click.echo(
            json.dumps(to_builtins(state), indent=2, ensure_ascii=False) if as_json else task_text(state)
        )
        return 0
    one = detail(runs, runs.find(run))
    click.echo(json.dumps(one.to_json(), indent=2, ensure_ascii=False) if as_json else run_text(one))
    return 0


def _count_tasks(tasks: Tasks) -> bool:
    """How many tasks of this project there are, by status; are there any?"""
    counts = tasks.counts()
    if counts:
        words = ", ".join(f"{number} {status}" for status, number in counts.items())
        click.echo(f"Tasks of this project: {words}. `ralph task list` lists them.", err=True)
    return bool(counts)
