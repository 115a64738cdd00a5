"""The summary at the end of `ralph work`: the result of each task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from ralph.core.model import Cause
from ralph.core.text import clean
from ralph.views.agent import count
from ralph.views.console import FIX_JUDGE
from ralph.views.task_status import TaskState, task_state

if TYPE_CHECKING:
    from ralph.store.home import Home
    from ralph.work.scheduler import Work


def print_summary(home: Home, project: str, work: Work, *, as_json: bool) -> None:
    """Print the result of each task to stdout."""
    tasks, runs = home.tasks(project), home.runs()
    known = [(task, tasks.progress(task.id)) for job in work.jobs if (task := tasks.get(job.id))]
    found = [task_state(home, runs, project, task, progress) for task, progress in known]
    reason = work.halt.reason if work.halt else ""
    if as_json:
        values = {"event": "work_ended", "tasks": [to_builtins(state) for state in found], "reason": reason}
        click.echo(json.dumps(values, ensure_ascii=False))
        return
    click.echo("", err=True)
    for state in found:
        click.echo(clean(_line(state)))
    if not found:
        click.echo("Nothing to do. To create a task, see: ralph task create --help", err=True)
    if reason:
        is_unjudged = work.halt is not None and work.halt.cause is Cause.JUDGE
        hint = f"{FIX_JUDGE}, then: ralph work" if is_unjudged else "To continue: ralph work"
        click.echo(clean(f"Stopped: {reason}\n  {hint}"), err=True)


def _line(state: TaskState) -> str:
    used = f"{count(state.iterations, 'iteration')}" + (f", ${state.cost:.2f}" if state.cost else "")
    line = f"{state.status}: {state.id} {state.title} ({used})"
    if state.status == "done":
        return line + (f", merged into {state.base} as {state.merged[:10]}" if state.merged else "")
    if state.reason:
        line += f"\n  reason: {state.reason.partition(chr(10))[0]}"
    if state.branch:
        line += f"\n  branch: {state.branch}, in {state.worktree}"
    if state.status in ("failed", "cancelled"):
        line += f"\n  To retry: ralph work --task {state.id}"
    return line
