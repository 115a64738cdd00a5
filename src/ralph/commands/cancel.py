"""`ralph cancel`: stop a run and everything it started, or cancel a task."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralph.commands.common import open_home, run_argument
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.core.task_model import Task
    from ralph.store.home import Home
    from ralph.store.runs import Run, Runs
    from ralph.store.tasks import Tasks

PATIENCE = 15.0


@click.command()
@run_argument
def command(run: str) -> int:
    """Stop a run and everything it started.

    The agent gets SIGTERM, then SIGKILL after 5 seconds. Use `ralph resume` to continue the run later.

    With a task ID, stop working on the task. Its branch and worktree are kept; `ralph work --task ID` starts it
    again.

    \b
    ralph cancel 7f3a
    ralph cancel TASK-001
    """
    from ralph.runs.location import here

    home = open_home()
    runs, tasks = home.runs(), home.tasks(here(Path.cwd()).project)
    if task := tasks.get(run):
        return _cancel_task(home, runs, tasks, task)
    return _cancel(home, runs, runs.find(run))


def _cancel_task(home: Home, runs: Runs, tasks: Tasks, task: Task) -> int:
    from ralph.core.task_model import TaskStatus

    if task.status in (TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.CANCELLED):
        raise RalphError(
            f"Task {task.id} is not in progress: its status is {task.status}.",
            f"To reopen it: ralph task edit {task.id} --status todo",
        )
    tasks.move(task.id, TaskStatus.CANCELLED, tasks.progress(task.id))
    for run in runs.of_task(tasks.project, task.id):
        if runs.brief(run.id).stop is None:
            _cancel(home, runs, run)
    click.echo(f"Task {task.id} is cancelled.", err=True)
    return 0


def _cancel(home: Home, runs: Runs, chosen: Run) -> int:
    from ralph.runs import control

    is_live = chosen.is_live
    click.echo(control.cancel(home, runs, chosen), err=True)
    if not is_live:
        return 0
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if not runs.find(chosen.id).is_live:
            click.echo(control.cancelled(chosen.id, runs.brief(chosen.id).stop), err=True)
            return 0
        time.sleep(0.05)
    raise RalphError(
        f"Run {chosen.id} has not stopped yet.", f"To see what it is doing: ralph status {chosen.id}"
    )
