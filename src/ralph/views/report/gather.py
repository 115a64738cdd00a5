"""Store -> Report: one run, or a task with all its runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from msgspec import Struct
from msgspec.structs import replace

from ralph import __version__
from ralph.core.model import ClaimKind, Outcome, Plan, Usage
from ralph.core.task_model import Task, TaskProgress
from ralph.errors import RalphError
from ralph.scm.history import History
from ralph.scm.snapshots import ref_of
from ralph.scm.worktrees import branch_of
from ralph.store.home import Home
from ralph.store.journal import steps
from ralph.store.runs import Run, Runs
from ralph.views.report.changes import changes_of
from ralph.views.report.excerpt import beginning, harmless
from ralph.views.report.model import (
    FORMAT,
    Budget,
    Changes,
    Excerpt,
    Found,
    Iteration,
    PlannedCheck,
    Proof,
    Remark,
    RemarkKind,
    Report,
    Review,
    RunReport,
    TaskFacts,
)
from ralph.views.report.story_history import MAX_FEEDBACK
from ralph.views.report.timeline import RunTimeline
from ralph.views.status import Summary, sandbox_in_words, summary

MAX_PROMPT = 4_000
MAX_GUIDANCE = 200

OpenHistory = Callable[[Run], AbstractContextManager[History]]
"""Opens the snapshots of a run, or raises an error if there are none. Passed in, as views start no processes."""


class SnapshotRef(Struct, frozen=True):
    """A tree and the ref that keeps it."""

    ref: str
    tree: str


class ReportSources(Struct, frozen=True):
    """The sources of a report."""

    home: Home
    runs: Runs
    history: OpenHistory


def report_of_run(sources: ReportSources, run: Run) -> Report:
    notes: list[str] = []
    one = _run(sources, run, notes)
    return harmless(
        Report(
            format=FORMAT,
            version=__version__,
            made=time.time(),
            subject="run",
            id=run.id,
            title=_title(one),
            state=one.state,
            outcome=one.outcome,
            cause=one.cause,
            reason=one.reason,
            project=run.project,
            began=one.began,
            updated=one.updated,
            elapsed=one.elapsed,
            used=one.used,
            count=one.count,
            runs=(one,),
            reviews=one.reviews,
            notes=tuple(notes),
        )
    )


def report_of_task(sources: ReportSources, project: str, task: Task, progress: TaskProgress) -> Report:
    notes: list[str] = []
    runs = tuple(_run(sources, run, notes) for run in reversed(sources.runs.of_task(project, task.id)))
    return harmless(
        Report(
            format=FORMAT,
            version=__version__,
            made=time.time(),
            subject="task",
            id=task.id,
            title=task.title,
            state=_state_of_task(task, runs),
            outcome="complete" if task.status == "done" else "",
            cause="",
            reason=progress.reason,
            project=project,
            began=runs[0].began if runs else task.created_at,
            updated=runs[-1].updated if runs else task.updated_at,
            elapsed=sum(run.elapsed for run in runs),
            used=sum((run.used for run in runs), Usage()),
            count=sum(run.count for run in runs),
            runs=runs,
            task=_facts(sources.home, project, task, progress),
            reviews=_turns(runs),
            notes=tuple(notes),
        )
    )


def _state_of_task(task: Task, runs: tuple[RunReport, ...]) -> str:
    """The status of a task, and the state of its last run unless that has ended."""
    last = runs[-1].state if runs else ""
    return f"{task.status}, {last}" if last not in ("", "ended") else str(task.status)


def _facts(home: Home, project: str, task: Task, progress: TaskProgress) -> TaskFacts:
    spec = task.completion_spec
    is_there = home.worktree(project, task.id, progress.attempt).exists()
    return TaskFacts(
        id=task.id,
        title=task.title,
        description=task.description,
        wanted=spec.outcome if spec else "",
        criteria=spec.acceptance_criteria if spec else (),
        status=task.status,
        role=progress.role,
        reason=progress.reason,
        base=progress.base,
        branch=branch_of(task.id, progress.attempt) if is_there else "",
        merged=progress.merged,
        sent_back=progress.sent_back,
    )


def _turns(runs: tuple[RunReport, ...]) -> tuple[Review, ...]:
    """The path of a task through its roles: each result, and why the task was sent back."""
    found: list[Review] = []
    for run in runs:
        refused = [review for review in run.reviews if review.what == "refused"]
        if run.outcome == "complete":
            what, text = ("merged tree is green" if run.role == "merge" else "proved"), run.reason
        else:
            what = run.cause.replace("_", " ") if run.cause else run.state
            text = refused[-1].text if refused else run.reason
        found.append(Review(run.updated, "", run.role, what, text, run.id, run.count))
    return tuple(found)


# ---- one run ----


def _run(sources: ReportSources, run: Run, notes: list[str]) -> RunReport:
    runs = sources.runs
    about = summary(runs, run)
    brief = runs.brief(run.id)
    timeline = RunTimeline(run.id, time.time() if run.is_live else None)
    for entry in steps(runs.db, runs.path, run.id):
        timeline.hear(entry)
    plan = timeline.plan
    if plan is None:
        raise RalphError(f"Run {run.id} has no plan in the store {runs.path}.")
    iterations, snapshot = _with_changes(sources, run, plan, timeline.iterations, notes)
    if timeline.left_out:
        notes.append(
            f"{timeline.left_out:,} iterations in the middle of run {run.id} are not listed."
            f" See: ralph status {run.id} --json"
        )
    if short := [each.number for each in iterations if each.is_short]:
        notes.append(
            f"Messages, feedback and diffs of iterations {short[0]} to {short[-1]} of run {run.id} are omitted."
            f" See: ralph logs {run.id} --iteration N"
        )
    return RunReport(
        id=run.id,
        flow=run.flow,
        role=run.role or "",
        directory=run.directory,
        state=about.state,
        outcome=about.outcome or "",
        cause=about.cause or "",
        reason=about.reason or "",
        began=run.created,
        updated=about.updated,
        elapsed=about.elapsed,
        agents=tuple(agent.name for agent in plan.agents),
        sandbox=sandbox_in_words(plan.sandbox),
        prompt=_prompt(plan),
        checks=tuple(
            PlannedCheck(check.name, check.method, timeline.commands[check.name], check.required)
            for check in plan.checks
        ),
        budget=Budget(
            brief.limits.iterations, brief.limits.cost_usd, brief.limits.tokens, brief.limits.seconds
        ),
        used=brief.usage,
        count=brief.iteration,
        iterations=iterations,
        left_out=timeline.left_out,
        files=timeline.files,
        proof=_proof(plan, timeline, iterations, snapshot, about.tree or "")
        if about.outcome == Outcome.COMPLETE
        else None,
        remarks=tuple(_remarks(about, plan, timeline)),
        guidance=tuple(
            replace(each, text=each.text[:MAX_FEEDBACK]) for each in runs.guidance(run.id)[-MAX_GUIDANCE:]
        ),
        reviews=tuple(timeline.reviews),
        stories=timeline.stories.listed(),
        said=next((each.said for each in reversed(iterations) if each.said.text), Excerpt()),
    )


def _prompt(plan: Plan) -> Excerpt:
    if plan.prompt.task is not None:
        return Excerpt()
    if plan.prompt.file:
        return Excerpt(f"Prompt file {plan.prompt.file}")
    return beginning(plan.prompt.text, MAX_PROMPT, f"ralph status {plan.run} --json")


def _with_changes(
    sources: ReportSources, run: Run, plan: Plan, iterations: tuple[Iteration, ...], notes: list[str]
) -> tuple[tuple[Iteration, ...], SnapshotRef | None]:
    """The iterations with their changes, and the last snapshot."""
    if not plan.snapshots or plan.claim.kind is ClaimKind.GIVEN:
        return iterations, None
    try:
        with sources.history(run) as history:
            kept = history.kept()
            found = changes_of(history, kept, run.id, [each.number for each in iterations])
    except RalphError as error:
        notes.append(f"No diffs for run {run.id}: {error.message}")
        return iterations, None
    last = next((name for name in reversed(kept) if name.isdigit()), None)
    with_them = tuple(
        replace(each, changes=_shown(found.get(each.number), is_short=each.is_short)) for each in iterations
    )
    return with_them, SnapshotRef(ref_of(run.id, last), kept[last].tree) if last else None


def _shown(changes: Changes | None, *, is_short: bool) -> Changes | None:
    return replace(changes, files=(), diff=Excerpt()) if changes and is_short else changes


def _proof(
    plan: Plan,
    timeline: RunTimeline,
    iterations: tuple[Iteration, ...],
    snapshot: SnapshotRef | None,
    tree: str,
) -> Proof:
    checks = next((each.checks for each in reversed(iterations) if each.checks), ())
    last = {found.check: found for found in checks}  # after a second round, only that counts
    return Proof(
        claim=_claim(plan),
        checks=tuple(_with_commands(found, timeline.stories.verify_commands) for found in last.values()),
        tree=tree,
        snapshot=snapshot.ref if snapshot and snapshot.tree == tree else "",
        commit=timeline.commit,
    )


def _with_commands(found: Found, verify: tuple[str, ...]) -> Found:
    """Add the verify commands of a PRD loop, which are in its task list, not in the plan."""
    return replace(found, command="\n".join(verify)) if found.check == "verifyCommands" else found


def _claim(plan: Plan) -> str:
    rule = plan.claim
    if rule.kind is ClaimKind.TAG:
        return f"the agent said <{rule.tag}>{rule.text}</{rule.tag}>"
    return {
        ClaimKind.DONE: "the file DONE exists",
        ClaimKind.BOARD: "every story in the task list is approved",
        ClaimKind.GIVEN: "every earlier role was verified",
    }[rule.kind]


def _remarks(about: Summary, plan: Plan, timeline: RunTimeline) -> Iterator[Remark]:
    """The remarks from the journal, and notes of the outcome that are not among them."""
    if why := plan.sandbox.downgraded:
        text = f"ran without a sandbox: {why}"
        yield Remark(RemarkKind.DEGRADED, text, 0, about.created)
    yield from timeline.remarks
    texts, kinds = {remark.text for remark in timeline.remarks}, {remark.kind for remark in timeline.remarks}
    for note in about.notes:
        kind = next((kind for word, kind in _NOTED.items() if note.startswith(word)), None)
        if note not in texts and kind not in kinds:
            yield Remark(kind or RemarkKind.NOTE, note, 0, about.updated)


_NOTED = {
    "auto-approved": RemarkKind.AUTO_APPROVED,
    "degraded": RemarkKind.DEGRADED,
    "undone": RemarkKind.UNDONE,
}


def _title(run: RunReport) -> str:
    """The goal of the run in one line."""
    if run.stories:
        done = sum(story.passes for story in run.stories)
        return f"{done} of {len(run.stories)} stories done"
    first = next((line.strip() for line in run.prompt.text.splitlines() if line.strip()), "")
    return first[:120] or f"{run.flow} {run.role}".strip()
