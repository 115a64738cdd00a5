"""The output of `ralph status`: the list of runs, one run, one task."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ralph.core.board import MAX_SENT_BACK
from ralph.core.model import Cause, Stop
from ralph.core.text import clean
from ralph.views.agent import count, duration
from ralph.views.status import CRASHED, Detail, Summary, as_tree, guidance_words

if TYPE_CHECKING:
    from ralph.views.task_status import TaskState

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


def task_text(state: TaskState) -> str:
    role = f" ({state.role})" if state.role else ""
    used = count(state.iterations, "iteration") + (f", ${state.cost:.2f}" if state.cost else "")
    lines = [
        f"task       {state.id}: {state.title}",
        f"state      {state.status}{role}, {used}, sent back {state.sent_back} of {MAX_SENT_BACK} times",
    ]
    if state.reason:
        lines.append("reason     " + state.reason.replace("\n", "\n           "))
    if state.merged:
        lines.append(f"merged     into {state.base} as {state.merged[:12]}")
    if state.branch:
        lines.append(f"branch     {state.branch}, in {state.worktree}")
    for run in state.runs:
        of = f"{run.iteration}/{run.max_iterations}" if run.role != "merge" else "checks only"
        lines.append(f"{run.role:<10} {run.state}, {of}, {duration(run.seconds)} (run {run.run})")
        for v in run.verification_results:
            word = "verified" if v.verified else "failed  " if v.promise_found else "        "
            lines.append(f"  {v.iteration:>3}  {word}  {v.reason}")
    return clean("\n".join(lines))


def print_list(found: list[Summary]) -> None:
    if not found:
        click.echo('No runs yet. Start one with: ralph run -p "…"', err=True)
        return
    from ralph.views.table import print_table  # imports rich, which an empty list does not need

    print_table(
        ("run", "state", "iteration", "time", "cost", "started", "directory"),
        [
            (
                "  " * depth + s.id + (f" ({s.task} {s.role})" if s.task else ""),
                s.words,
                f"{s.iteration}/{s.max_iterations}",
                duration(s.elapsed),
                f"${s.cost:.2f}" if s.cost else "-",
                _ago(s.created),
                s.directory,
            )
            for depth, s in as_tree(found)
        ],
        STYLES,
    )


def run_text(one: Detail) -> str:
    s = one.summary
    state = Stop(Cause(s.cause), s.reason or "").headline if s.cause else s.state
    lines = [
        f"run        {s.id} ({s.flow}, started {_ago(s.created)})",
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
        claim = ", said it was done" if i.claim else ""
        about = f"agent {i.ended}, {duration(i.seconds)}{claim}" if i.agent else "checks only"
        lines.append(f"  {i.iteration:>3}  {about}")
        for v in i.verdicts:
            lines.append(f"       {'passed' if v.green else 'failed'}  {v.check} ({v.reason})")
    lines += [f"guidance   {guidance_words(steer, s)}" for steer in one.steered]
    if s.tree:
        lines.append(f"tree       {s.tree} (all required checks passed)")
    lines += [f"note       {note}" for note in s.notes]
    if s.state == CRASHED:
        lines.append(f"next       the process is gone; to continue: ralph resume {s.id}")
    return "\n".join(clean(line) for line in lines)


def _ago(at: float) -> str:
    return f"{duration(max(0.0, time.time() - at))} ago"
