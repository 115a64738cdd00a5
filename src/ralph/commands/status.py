"""`ralph status`: all runs, or one of them in detail."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click
from msgspec import to_builtins

from ralph.commands.common import open_home, optional_run_argument
from ralph.core.board import MAX_SENT_BACK
from ralph.core.text import clean
from ralph.runs.location import here
from ralph.store.tasks import Tasks
from ralph.views.agent import count, duration
from ralph.views.status import CRASHED, Detail, Summary, as_tree, detail, summaries
from ralph.views.task_status import TaskState, task_state

STYLES = {
    "running": "bold green",
    "paused": "yellow",
    "waiting": "yellow",
    "crashed": "bold red",
    "complete": "green",
    "limit": "red",
    "fatal": "bold red",
    "interrupted": "yellow",
}


@click.command()
@optional_run_argument
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def command(run: str | None, as_json: bool) -> int:
    """Show the runs of all projects, live ones first; with RUN or a task's id, that one in detail.

    Runs that an agent has begun itself stand below the run of that agent. Of a task there are its roles, their
    iterations, and what each verification found; its runs are listed only while they go on.

    RUN is an id, or any beginning or end of it that no other run has.
    """
    home = open_home()
    runs, tasks = home.runs(), home.tasks(here(Path.cwd()).project)
    if run is None:
        found = summaries(runs)
        if as_json:
            click.echo(json.dumps([to_builtins(s) for s in found], indent=2, ensure_ascii=False))
        else:
            has_tasks = _count_tasks(tasks)
            if found or not has_tasks:
                _list(found)
        return 0
    if task := tasks.get(run):
        state = task_state(home, runs, tasks.project, task, tasks.progress(task.id))
        click.echo(
            json.dumps(to_builtins(state), indent=2, ensure_ascii=False) if as_json else clean(_task(state))
        )
        return 0
    one = detail(runs, runs.find(run))
    if as_json:
        click.echo(json.dumps(one.to_json(), indent=2, ensure_ascii=False))
    else:
        _detail(one)
    return 0


def _count_tasks(tasks: Tasks) -> bool:
    """How many tasks of this project there are, by status; are there any?"""
    counts = tasks.counts()
    if counts:
        words = ", ".join(f"{number} {status}" for status, number in counts.items())
        click.echo(f"Tasks of this project: {words}. `ralph task list` lists them.", err=True)
    return bool(counts)


def _task(state: TaskState) -> str:
    role = f" ({state.role})" if state.role else ""
    used = count(state.iterations, "iteration") + (f", ${state.cost:.2f}" if state.cost else "")
    lines = [
        f"task       {state.id}: {state.title}",
        f"state      {state.status}{role}, {used}, sent back {state.sent_back} of {MAX_SENT_BACK} times",
    ]
    if state.reason:
        lines.append("why        " + state.reason.replace("\n", "\n           "))
    if state.merged:
        lines.append(f"merged     into {state.base} as {state.merged[:12]}")
    if state.branch:
        lines.append(f"branch     {state.branch}, in {state.worktree}")
    for run in state.runs:
        of = f"{run.iteration}/{run.max_iterations}" if run.role != "merge" else "checks only"
        lines.append(f"{run.role:<10} {run.state}, {of}, {duration(run.seconds)} (run {run.run})")
        for v in run.verification_results:
            word = "verified" if v.verified else "RED     " if v.promise_found else "        "
            lines.append(f"  {v.iteration:>3}  {word}  {v.reason}")
    return "\n".join(lines)


def _list(found: list[Summary]) -> None:
    if not found:
        click.echo('No runs yet. Start one with: ralph run -p "…"', err=True)
        return
    from ralph.views.table import print_table

    print_table(
        ("run", "state", "iteration", "time", "cost", "began", "directory"),
        [
            (
                "  " * depth + s.id + (f" ({s.task} {s.role})" if s.task else ""),
                _state(s),
                f"{s.iteration}/{s.max_iterations}",
                duration(s.elapsed),
                f"${s.cost:.2f}" if s.cost else "-",
                ago(s.created),
                s.directory,
            )
            for depth, s in as_tree(found)
        ],
        STYLES,
    )


def _state(s: Summary) -> str:
    """The outcome in one or two words; a limit says which."""
    if s.outcome in (None, "complete"):
        return s.outcome or s.state
    return f"{s.outcome} ({s.cause})"


def _detail(one: Detail) -> None:
    s = one.summary
    state = s.state if s.outcome is None else f"{s.outcome}: {s.reason}"
    lines = [
        f"run        {s.id} ({s.flow}, began {ago(s.created)})",
        f"state      {state}" + (f" (process {s.pid}; {one.doing})" if s.pid else ""),
        f"directory  {s.directory}",
        f"agent      {one.agent}",
        f"sandbox    {one.sandbox}",
        f"prompt     {one.prompt}",
        f"guardrails {', '.join(one.checks) or 'none'}",
        f"iterations {s.iteration} of {s.max_iterations}, {duration(s.elapsed)}"
        + (f", ${s.cost:.2f}" if s.cost else "")
        + (f", {s.tokens:,} tokens" if s.tokens else ""),
    ]
    for i in one.iterations:
        claim = ", claims to be done" if i.claim else ""
        about = f"{i.ended}, {duration(i.seconds)}{claim}" if i.agent else "checks only"
        lines.append(f"  {i.iteration:>3}  {about}")
        for v in i.verdicts:
            lines.append(f"       {'green' if v.green else 'RED  '}  {v.check} ({v.reason})")
    for steer in one.steered:
        when = f"iteration {steer.iteration}" if steer.iteration else "not delivered yet"
        lines.append(f"guidance   {steer.text} ({when})")
    lines += [f"note       {note}" for note in s.notes]
    if s.state == CRASHED:
        lines.append(f"next       its process is gone; go on with: ralph resume {s.id}")
    click.echo("\n".join(clean(line) for line in lines))
    sys.stdout.flush()


def ago(at: float) -> str:
    return f"{duration(max(0.0, time.time() - at))} ago"
