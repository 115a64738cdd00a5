"""The progress of a task: its roles, their iterations and verification results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from ralph.core import policy
from ralph.core.model import Checked, Ended, Plan, Purpose, Ran, Resume, RunAgent, RunChecks, Verdict
from ralph.core.task_model import Task, TaskProgress
from ralph.scm.worktrees import branch_of
from ralph.store.home import Home
from ralph.store.journal import JournalStep, steps
from ralph.store.runs import Run, Runs
from ralph.views.status import summary


class Verification(Struct, frozen=True):
    """The verification of one iteration."""

    iteration: int
    promise_found: bool
    verified: bool
    reason: str
    timestamp: float


class RoleRun(Struct, frozen=True):
    """One run of a role on a task."""

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
    """A task and its progress, as in `ralph status TASK --json`."""

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
    about = summary(runs, run)
    return RoleRun(
        run=run.id,
        role=run.role or "",
        state=about.outcome or about.state,
        reason=about.reason or "",
        iteration=about.iteration,
        max_iterations=about.max_iterations,
        cost=about.cost,
        tokens=about.tokens,
        seconds=about.elapsed,
        verification_results=tuple(_verifications(steps(runs.db, runs.path, run.id, looks=False))),
    )


class _Attempt(Struct):
    """An iteration and its check results in words, by the name of the check."""

    claimed: bool
    at: float
    green: dict[str, str] = field(default_factory=dict)
    red: dict[str, str] = field(default_factory=dict)

    def hear(self, verdict: Verdict, plan: Plan | None) -> None:
        """Record the verdict of a check, in place of an earlier one."""
        is_weak = verdict.degraded and not (plan and plan.allow_degraded)
        is_green = not verdict.required or (verdict.green and not is_weak)
        self.red.pop(verdict.check, None)
        words = f"{verdict.check}: {verdict.reason}" + " (degraded)" * verdict.degraded
        (self.green if is_green else self.red)[verdict.check] = words

    @property
    def reason(self) -> str:
        if self.claimed or self.red:
            return "; ".join((self.red or self.green).values())
        return "No completion promise found"


def _verifications(journal: Iterable[JournalStep]) -> Iterator[Verification]:
    attempts: dict[int, _Attempt] = {}
    number = 0
    plan: Plan | None = None
    for entry in journal:
        match entry.step:
            case Plan() as begun:
                plan = begun
            case Resume() as resume if plan is not None:
                plan = policy.rejudged(plan, resume)
            case RunAgent(purpose=Purpose.WORK) as step if isinstance(ran := entry.result, Ran):
                if ran.ended not in (Ended.INTERRUPTED, Ended.LIMIT):
                    number = step.iteration
                    attempts[number] = _Attempt(ran.claim, ran.at)
            case RunChecks() if isinstance(checked := entry.result, Checked):
                attempt = attempts.setdefault(number, _Attempt(claimed=True, at=checked.at))
                attempt.at = checked.at
                for verdict in checked.verdicts:
                    attempt.hear(verdict, plan)
    for number, each in attempts.items():
        yield Verification(number, each.claimed, each.claimed and not each.red, each.reason, each.at)
