"""How far the work on a task has come: its roles, their iterations, and what each verification found."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ralph.core.model import Checked, Ended, Purpose, Ran, RunAgent
from ralph.core.task_model import Task, TaskProgress
from ralph.scm.worktrees import branch_of
from ralph.store import codec
from ralph.store.home import Home
from ralph.store.journal import JournalRow, facts
from ralph.store.runs import Run, Runs
from ralph.views.status import state_of


class Verification(Struct, frozen=True):
    """One attempt to prove a promise."""

    iteration: int
    promise_found: bool
    verified: bool
    reason: str
    timestamp: float


class RoleRun(Struct, frozen=True):
    """One role's run at a task."""

    run: str
    role: str
    state: str
    reason: str
    iteration: int
    max_iterations: int
    cost: float
    tokens: int
    seconds: float
    verification_results: tuple[Verification, ...] = ()


class TaskState(Struct, frozen=True):
    """A task on its way, as `ralph status TASK --json` shows it."""

    id: str
    title: str
    project: str
    status: str
    role: str
    reason: str
    base: str
    branch: str
    worktree: str
    sent_back: int
    merged: str
    iterations: int
    cost: float
    tokens: int
    runs: tuple[RoleRun, ...]


def task_state(home: Home, runs: Runs, project: str, task: Task, progress: TaskProgress) -> TaskState:
    found = tuple(role_run(runs, run) for run in reversed(runs.of_task(project, task.id)))
    path = home.worktree(project, task.id, progress.attempt)
    return TaskState(
        id=task.id,
        title=task.title,
        project=project,
        status=task.status,
        role=progress.role,
        reason=progress.reason,
        base=progress.base,
        branch=branch_of(task.id, progress.attempt) if path.exists() else "",
        worktree=str(path) if path.exists() else "",
        sent_back=progress.sent_back,
        merged=progress.merged,
        iterations=sum(run.iteration for run in found),
        cost=sum(run.cost for run in found),
        tokens=sum(run.tokens for run in found),
        runs=found,
    )


def role_run(runs: Runs, run: Run) -> RoleRun:
    brief = runs.brief(run.id)
    stop = brief.stop
    state = stop.outcome if stop else state_of(brief, live=run.is_live)
    history = _History()
    for row in facts(runs.db, runs.path, run.id):
        history.hear(row)
    return RoleRun(
        run=run.id,
        role=run.role or "",
        state=state,
        reason=stop.reason if stop else "",
        iteration=brief.iteration,
        max_iterations=brief.limits.iterations,
        cost=brief.usage.cost_usd,
        tokens=brief.usage.tokens,
        seconds=brief.elapsed,
        verification_results=tuple(history.found()),
    )


class _History:
    """Gathers the verdicts of each iteration."""

    def __init__(self) -> None:
        self._iterations: dict[int, dict[str, Any]] = {}
        self._now = 0

    def hear(self, row: JournalRow) -> None:
        if row.kind == "run_agent" and row.result:
            step: RunAgent = codec.decode("run_agent", row.body)
            ran: Ran = codec.decode("ran", row.result)
            if step.purpose is Purpose.WORK and ran.ended not in (Ended.INTERRUPTED, Ended.LIMIT):
                self._now = step.iteration
                self._iterations[self._now] = {"found": ran.claim, "red": [], "green": [], "at": ran.at}
        elif row.kind == "run_checks" and row.result:
            checked: Checked = codec.decode("checked", row.result)
            about = self._iterations.setdefault(
                self._now, {"found": True, "red": [], "green": [], "at": checked.at}
            )
            about["at"] = checked.at
            for verdict in checked.verdicts:
                words = f"{verdict.check}: {verdict.reason}" + (" (degraded)" if verdict.degraded else "")
                about["green" if verdict.green or not verdict.required else "red"].append(words)

    def found(self) -> list[Verification]:
        return [
            Verification(
                number,
                about["found"],
                about["found"] and not about["red"],
                "; ".join(about["red"] or about["green"])
                if about["found"] or about["red"]
                else "No completion promise found",
                about["at"],
            )
            for number, about in self._iterations.items()
        ]
