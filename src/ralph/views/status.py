"""Runs from the store: summaries for tables and JSON, and the detail of one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from ralph.core.model import (
    Cause,
    Checked,
    Commit,
    Ended,
    Hold,
    HoldWhy,
    Outcome,
    Plan,
    Purpose,
    Ran,
    Restore,
    RunAgent,
    RunChecks,
    SandboxSpec,
    Stop,
)
from ralph.store.codec import RunBrief
from ralph.store.journal import JournalStep, steps
from ralph.store.runs import Guidance, Run, Runs
from ralph.views.lines import one_line

RUNNING, PAUSED, WAITING, CRASHED, ENDED = "running", "paused", "waiting", "crashed", "ended"


class Summary(Struct, frozen=True):
    """One run, as in `ralph status --json`. `tree`: the git tree on which the checks of a complete run passed."""

    id: str
    project: str
    directory: str
    flow: str
    state: str
    outcome: str | None
    cause: str | None
    reason: str | None
    notes: tuple[str, ...]
    iteration: int
    max_iterations: int
    cost: float
    tokens: int
    elapsed: float
    waiting_until: float | None
    created: float
    updated: float
    pid: int | None
    parent: str | None
    task: str | None
    role: str | None
    tree: str | None

    @property
    def words(self) -> str:
        """The outcome with its cause, unless the work is proved; the state of a run that is not over."""
        if self.outcome is None or self.cause in (Cause.PROVED, Cause.AUTO_APPROVED):
            return self.outcome or self.state
        return f"{self.outcome} ({self.cause})"


class VerdictSummary(Struct, frozen=True):
    """The result of one check."""

    check: str
    green: bool
    required: bool
    reason: str
    log: str


class IterationSummary(Struct, frozen=True):
    """The result of one iteration."""

    iteration: int
    agent: str
    ended: str
    exit: int | None
    claim: bool
    seconds: float
    cost: float
    tokens: int
    verdicts: tuple[VerdictSummary, ...] = ()


class Detail(Struct, frozen=True):
    summary: Summary
    agent: str
    sandbox: str
    checks: tuple[str, ...]
    prompt: str
    doing: str
    iterations: tuple[IterationSummary, ...]
    steered: tuple[Guidance, ...]

    def to_json(self) -> dict[str, Any]:
        values: dict[str, Any] = to_builtins(self)
        summary: dict[str, Any] = values.pop("summary")
        return summary | values


def guidance_words(guidance: Guidance, summary: Summary) -> str:
    """Guidance on one line, with the iteration whose prompt had it."""
    missing = "not delivered" if summary.outcome == Outcome.COMPLETE else "not delivered yet"
    when = f"iteration {guidance.iteration}" if guidance.iteration else missing
    return f"{one_line(guidance.text)} ({when})"


def summaries(runs: Runs, sum_up: Callable[[Runs, Run], Summary] | None = None) -> list[Summary]:
    """All runs, live ones first, then newest first; of the runs of tasks, only live ones.

    `sum_up` replaces `summary` for callers that cache finished runs.
    """
    sum_up = sum_up or summary
    found = [sum_up(runs, run) for run in runs.all() if run.task is None or run.is_live]
    return sorted(found, key=lambda s: s.state not in (RUNNING, PAUSED, WAITING))


def as_tree(found: list[Summary]) -> list[tuple[int, Summary]]:
    """Each run with its depth: runs that an agent started come below that agent's run."""
    below: dict[str | None, list[Summary]] = {}
    known = {s.id for s in found}
    for s in found:
        below.setdefault(s.parent if s.parent in known else None, []).append(s)
    tree: list[tuple[int, Summary]] = []
    todo = [(0, s) for s in reversed(below.get(None, []))]
    while todo:
        depth, s = todo.pop()
        tree.append((depth, s))
        todo += [(depth + 1, child) for child in reversed(below.get(s.id, []))]
    return tree


def summary(runs: Runs, run: Run) -> Summary:
    brief = runs.brief(run.id)
    live = run.is_live
    stop = brief.stop
    return Summary(
        id=run.id,
        project=run.project,
        directory=run.directory,
        flow=run.flow,
        state=state_of(brief, live=live),
        outcome=stop.outcome if stop else None,
        cause=stop.cause if stop else None,
        reason=stop.reason if stop else None,
        notes=brief.stop.notes if brief.stop else brief.notes,
        iteration=brief.iteration,
        max_iterations=brief.limits.iterations,
        cost=brief.usage.cost_usd,
        tokens=brief.usage.tokens,
        elapsed=brief.elapsed,
        waiting_until=brief.hold.until if brief.hold and not stop else None,
        created=run.created,
        updated=brief.now,
        pid=run.pid if live else None,
        parent=run.parent,
        task=run.task,
        role=run.role,
        tree=(stop.tree or None) if stop else None,
    )


def state_of(brief: RunBrief, *, live: bool) -> str:
    if brief.stop:
        return ENDED
    if not live:
        return CRASHED
    if brief.paused:
        return PAUSED
    if brief.hold and brief.hold.why is not HoldWhy.RESTART:
        return WAITING
    return RUNNING


def detail(runs: Runs, run: Run, journal: Sequence[JournalStep] | None = None) -> Detail:
    """`journal`: the rows of the run, if the caller has read them already."""
    journal = list(steps(runs.db, runs.path, run.id, looks=False)) if journal is None else journal
    plan = plan_in(journal)
    return Detail(
        summary=summary(runs, run),
        agent=plan.agents[0].name if plan else "",
        sandbox=sandbox_in_words(plan.sandbox) if plan else "",
        checks=tuple(check.name for check in plan.checks) if plan else (),
        prompt=asked_of(plan) if plan else "",
        doing=_doing(journal) if run.is_live else "",
        iterations=tuple(_iterations(journal)),
        steered=tuple(runs.guidance(run.id)),
    )


def plan_in(journal: Sequence[JournalStep]) -> Plan | None:
    """The plan, which is the first row of every journal."""
    first = journal[0].step if journal else None
    return first if isinstance(first, Plan) else None


def asked_of(plan: Plan) -> str:
    """The goal of the run: its prompt file, its prompt, or the title of its task."""
    prompt = plan.prompt
    return prompt.file or prompt.text[:200] or (prompt.task.title if prompt.task else "")


def sandbox_in_words(spec: SandboxSpec) -> str:
    if spec.is_real:
        return f"{spec.backend}, network {spec.network}"
    return f"none ({spec.downgraded})" if spec.downgraded else "none"


_DOING: dict[type, str] = {
    RunAgent: "agent running",
    RunChecks: "check running",
    Hold: "waiting",
    Restore: "restoring files",
    Commit: "committing",
    Stop: "stopping",
}


def _doing(journal: Sequence[JournalStep]) -> str:
    """The current step in words."""
    last = journal[-1] if journal else None
    if last is None or not last.is_in_hand:
        return "between steps"
    since = time.strftime("%H:%M:%S", time.localtime(last.started))
    return f"{_DOING[type(last.step)]} since {since}"


def _iterations(journal: Sequence[JournalStep]) -> list[IterationSummary]:
    found: list[IterationSummary] = []
    for entry in journal:
        match entry.step:
            case RunAgent(purpose=Purpose.WORK) as step if isinstance(ran := entry.result, Ran):
                used = round(ran.took, 3), ran.usage.cost_usd, ran.usage.tokens
                found.append(
                    IterationSummary(step.iteration, ran.agent, ran.ended, ran.exit, ran.claim, *used)
                )
            case RunChecks() if isinstance(checked := entry.result, Checked):
                if not found:  # a merge: checks only, no agent
                    found.append(IterationSummary(0, "", Ended.OK, None, True, 0.0, 0.0, 0))
                verdicts = (
                    VerdictSummary(v.check, v.green, v.required, v.reason, v.log) for v in checked.verdicts
                )
                found[-1] = replace(found[-1], verdicts=(*found[-1].verdicts, *verdicts))
    return found
