"""The journal of a run, row by row, as iterations, remarks and reviews. One row is in memory at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ralph.core.model import (
    BoardSeen,
    Check,
    Checked,
    Command,
    Commit,
    Did,
    Ended,
    Hold,
    HoldWhy,
    Look,
    Plan,
    Purpose,
    Ran,
    Restore,
    Resume,
    RunAgent,
    RunChecks,
    Seen,
    Stop,
    Usage,
    Verdict,
)
from ralph.store.journal import JournalStep
from ralph.views.agent import duration
from ralph.views.report.excerpt import beginning, ending
from ralph.views.report.model import (
    Doing,
    Excerpt,
    Found,
    Iteration,
    MadeCommit,
    Remark,
    RemarkKind,
    Review,
    Segment,
    Used,
)
from ralph.views.report.story_history import MAX_FEEDBACK, Storybook

FIRST, LAST = 10, 90
"""So many iterations at the beginning and at the end have their texts."""

MAX_LISTED = 1_000
"""Iterations that are listed; those in the middle give way."""

MAX_SAID, MAX_REASON = 4_000, 1_000
MAX_REMARKS = 400
MAX_PARTS = 30
AWAY_SECONDS = 2.0
"""A shorter pause between two steps is none."""

_HOLDS = {
    HoldWhy.RESTART: (Doing.RESTART, "before the next attempt"),
    HoldWhy.LIMIT: (Doing.LIMIT, "waiting for a limit to reset"),
    HoldWhy.PAUSED: (Doing.PAUSED, "paused"),
    HoldWhy.CHILDREN: (Doing.CHILDREN, "waiting for child processes"),
}
_BAD_ENDS = {
    Ended.TIMEOUT: "was ended: it had taken too long",
    Ended.IDLE: "was ended: it had been silent for too long",
    Ended.BUDGET: "was ended: the budget was used up",
    Ended.KILLED: "was killed",
    Ended.UNSTARTABLE: "could not be started",
    Ended.AUTH: "is not logged in, or has no credit",
    Ended.DENIED: "was denied every write",
    Ended.EMPTY: "gave no answer",
}


def used(usage: Usage) -> Used:
    return Used(
        usage.cost_usd,
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
    )


def short_name(agent: str) -> str:
    """An agent that is called by its path goes by its name."""
    return agent.rpartition("/")[2] or agent


def commands_of(check: Check) -> dict[str, str]:
    """What a check and each of its stages run, by name, in one text; empty where nothing is run."""
    found = {check.name: ""}
    try:
        config = json.loads(check.config)
        found[check.name] = "\n".join(_commands(config))
        for stage in config.get("stages") or ():
            found.setdefault(stage["name"], "\n".join(_commands(stage.get("config") or {})))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        pass
    return found


def _commands(config: dict[str, Any]) -> Iterable[str]:
    if isinstance(config.get("command"), str):
        yield config["command"]
    for stage in config.get("stages") or ():
        yield from _commands(stage.get("config") or {})


class _Draft(Struct):
    """An iteration that is still being told."""

    number: int
    began: float
    values: dict[str, Any] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    checks: list[Found] = field(default_factory=list)
    commits: list[MadeCommit] = field(default_factory=list)
    usage: Usage = Usage()

    def finished(self) -> Iteration:
        seconds = sum(segment.seconds for segment in self.segments)
        return Iteration(
            number=self.number,
            began=self.began,
            seconds=seconds,
            segments=tuple(self.segments),
            checks=tuple(self.checks),
            commits=tuple(self.commits),
            used=used(self.usage),
            is_open=any(segment.is_open for segment in self.segments),
            **self.values,
        )


class Chronicle:
    """Hears the rows of one run. `now`: until when a step in hand has lasted; None if nobody works on it."""

    def __init__(self, run: str, now: float | None) -> None:
        self._run = run
        self._now = now
        self._draft: _Draft | None = None
        self._done: list[Iteration] = []
        self._end = 0.0
        self.book = Storybook(run)
        self._room = MAX_FEEDBACK
        self.plan: Plan | None = None
        self.left_out = 0
        self.remarks: list[Remark] = []
        self.reviews: list[Review] = []
        self.files: int | None = None
        self.tree = ""
        self.commit = ""
        self._commands: dict[str, str] = {}

    def hear(self, entry: JournalStep) -> None:
        step, result = entry.step, entry.result
        did = result if isinstance(result, Did) else None
        match step:
            case Plan():
                self._planned(step)
            case Look() if isinstance(result, Seen):
                self._looked(result)
            case RunAgent():
                self._agent(entry, step, result if isinstance(result, Ran) else None)
            case RunChecks():
                self._checks(entry, step, result if isinstance(result, Checked) else None)
            case Restore():
                self._restored(entry, step)
            case Commit():
                self._commit(entry, step, did)
            case Hold():
                self._hold(entry, step, did)
            case Resume():
                self._resumed(entry, step)
            case Stop() if did is not None:
                self.files = did.files
        if not isinstance(step, RunAgent | Command):
            self._end = max(self._end, entry.started, entry.ended or 0.0)

    def iterations(self) -> tuple[Iteration, ...]:
        """All that are listed, the one in hand too."""
        drafted = [self._draft.finished()] if self._draft else []
        return (*self._done, *drafted)

    # ---- iterations ----

    def _at(self, number: int, began: float) -> _Draft:
        """The iteration with this number; another one before it is finished now."""
        if self._draft is None or self._draft.number != number:
            self._file()
            self._draft = _Draft(number, began)
            self._room = MAX_FEEDBACK
        return self._draft

    def _file(self) -> None:
        """Put the iteration in hand to the others, and let go what is too much."""
        if self._draft is None:
            return
        self._done.append(self._draft.finished())
        if len(self._done) > FIRST + LAST:
            at = len(self._done) - LAST - 1
            self._done[at] = _shortened(self._done[at])
        if len(self._done) >= MAX_LISTED:
            del self._done[FIRST]
            self.left_out += 1

    def _span(self, entry: JournalStep, doing: Doing, label: str, took: float | None, **more: Any) -> Segment:
        """How long a step has taken; one without a result goes on, or was cut off."""
        if took is not None:
            seconds, is_open = took, False
        else:
            until = self._now if self._now is not None else entry.started
            seconds, is_open = max(0.0, until - entry.started), self._now is not None
        self._end = max(self._end, entry.started + seconds)
        return Segment(doing, label, entry.started, seconds, is_open, **more)

    def _remark(self, kind: RemarkKind, text: str, at: float) -> None:
        if len(self.remarks) < MAX_REMARKS:
            self.remarks.append(Remark(kind, text, self._number, at))

    def _waited(self, text: str, at: float) -> None:
        """A wait belongs to the limit that it was for."""
        last = self.remarks[-1] if self.remarks else None
        if last is not None and last.kind is RemarkKind.LIMIT and last.iteration == self._number:
            self.remarks[-1] = replace(last, text=f"{last.text}; {text}")
        else:
            self._remark(RemarkKind.LIMIT, text, at)

    @property
    def _number(self) -> int:
        return self._draft.number if self._draft else 0

    def _undone(self, what: Iterable[str], at: float) -> None:
        for text in what:
            self._remark(RemarkKind.UNDONE, text, at)

    # ---- rows ----

    def _planned(self, plan: Plan) -> None:
        self.plan = plan
        for check in plan.checks:
            commands = commands_of(check)
            self._commands = commands | self._commands | {check.name: commands[check.name]}

    def _looked(self, seen: Seen) -> None:
        self.tree = seen.tree or self.tree
        if seen.board is not None:
            self.book.look(seen.board.legal)

    def _agent(self, entry: JournalStep, step: RunAgent, ran: Ran | None) -> None:
        draft = self._at(step.iteration, entry.started)
        took = ran.took if ran else None
        if step.purpose is not Purpose.WORK:
            draft.segments.append(self._span(entry, Doing.COMMIT, "commit message", took))
        else:
            draft.segments.append(self._span(entry, Doing.AGENT, short_name(step.agent), took))
            draft.values |= {"agent": short_name(step.agent), "role": step.role, "story": step.story}
        if ran is None:
            return
        draft.usage = draft.usage + ran.usage
        if step.purpose is Purpose.WORK:
            self._worked(draft, ran)

    def _worked(self, draft: _Draft, ran: Ran) -> None:
        see = f"ralph logs {self._run} --iteration {draft.number}"
        draft.values |= {
            "ended": str(ran.ended),
            "exit": ran.exit,
            "detail": ran.detail[:MAX_REASON],
            "claim": ran.claim,
            "said": ending(ran.text, MAX_SAID, see),
        }
        if ran.ended is Ended.LIMIT:
            self._remark(
                RemarkKind.LIMIT, f"{short_name(ran.agent) or 'the agent'}: {ran.detail or 'limited'}", ran.at
            )
        elif words := _BAD_ENDS.get(ran.ended):
            detail = f" ({ran.detail})" if ran.detail else ""
            self._remark(RemarkKind.FAILED, f"The agent {words}{detail}", ran.at)
        if ran.refusal:
            text = ran.refusal[:MAX_FEEDBACK]
            role = self.plan.role if self.plan else ""
            self.reviews.append(Review(ran.at, "", role, "refused", text, self._run, draft.number))
            draft.values["moved"] = "refused"
        if ran.board is not None:
            self._ruled(draft, ran.board, ran.at)

    def _ruled(self, draft: _Draft, board: BoardSeen, at: float) -> None:
        """What the iteration of a PRD loop has made of the stories."""
        self._undone(board.illegal, at)
        by = str(draft.values.get("role") or "")
        for review in self.book.ruled(board, by, draft.number, at):
            self.reviews.append(review)
            draft.values["moved"] = f"{review.subject} {review.what.replace('_', ' ')}"
        for id in self.book.newly_at_cap(board):
            self._remark(
                RemarkKind.AUTO_APPROVED, f"{id} was approved only because the review cap was reached", at
            )

    def _checks(self, entry: JournalStep, step: RunChecks, checked: Checked | None) -> None:
        draft = self._at(step.iteration, entry.started)
        is_red = checked is not None and any(not verdict.green for verdict in checked.verdicts)
        took = checked.took if checked else None
        draft.segments.append(self._span(entry, Doing.CHECK, step.names[0], took, is_red=is_red))
        if checked is None:
            return
        draft.usage = draft.usage + checked.usage
        for verdict in checked.verdicts:
            draft.checks.append(self._found(verdict))
            if verdict.degraded:
                self._remark(
                    RemarkKind.DEGRADED, f"{verdict.check}: {verdict.reason[:MAX_REASON]}", checked.at
                )
        if checked.retry_at is not None:
            self._remark(RemarkKind.LIMIT, "the judge met a limit", checked.at)
        self._undone(checked.undone, checked.at)

    def _found(self, verdict: Verdict) -> Found:
        feedback = Excerpt()
        if verdict.feedback is not None and not verdict.green:
            feedback = beginning(
                verdict.feedback.text, self._room, f"cat {verdict.log}" if verdict.log else ""
            )
            self._room -= len(feedback.text)
        return Found(
            verdict.check,
            verdict.green,
            verdict.required,
            verdict.degraded,
            verdict.reason[:MAX_REASON],
            self._commands.get(verdict.check, "")[:MAX_REASON],
            verdict.log,
            feedback,
            tuple(self._found(replace(part, feedback=None)) for part in verdict.parts[:MAX_PARTS]),
        )

    def _restored(self, entry: JournalStep, restore: Restore) -> None:
        self._undone(restore.told, entry.started)
        told = "; ".join(restore.told)[:MAX_FEEDBACK]
        self.reviews += self.book.taken_back(restore.board, told, self._number, entry.started)

    def _commit(self, entry: JournalStep, step: Commit, did: Did | None) -> None:
        draft = self._at(step.iteration, entry.started)
        draft.segments.append(self._span(entry, Doing.COMMIT, "commit", did.took if did else None))
        if did is None:
            return
        if did.made:
            self.commit = did.made
            draft.commits.append(MadeCommit(did.made, step.message[:MAX_REASON]))
        if did.detail:
            self._remark(RemarkKind.NOTE, did.detail, did.at)
        self._undone(did.undone, did.at)

    def _hold(self, entry: JournalStep, hold: Hold, did: Did | None) -> None:
        doing, label = _HOLDS[hold.why]
        draft = self._draft or self._at(1, entry.started)
        segment = self._span(entry, doing, label, did.took if did else None)
        draft.segments.append(segment)
        if hold.why is HoldWhy.LIMIT:
            self._waited(f"waited {duration(segment.seconds)} for it", entry.started)
        if did is not None and did.detail:
            self._remark(RemarkKind.NOTE, did.detail, did.at)

    def _resumed(self, entry: JournalStep, resume: Resume) -> None:
        gap = entry.started - self._end
        if self._draft is not None and self._end and gap > AWAY_SECONDS:
            self._draft.segments.append(Segment(Doing.AWAY, "nobody at work", self._end, gap))
        given = [
            f"{words} {value:g}"
            for words, value in (
                ("iterations", resume.iterations),
                ("USD", resume.cost_usd),
                ("tokens", resume.tokens),
                ("seconds", resume.seconds),
            )
            if value
        ]
        limits = f", with new limits: {', '.join(given)}" if given else ""
        self._remark(RemarkKind.RESUMED, f"resumed after {duration(max(0.0, gap))}{limits}", entry.started)


def _shortened(iteration: Iteration) -> Iteration:
    """Its numbers and verdicts without its texts."""
    checks = tuple(replace(found, feedback=Excerpt(), parts=(), command="") for found in iteration.checks)
    return replace(iteration, checks=checks, said=Excerpt(), is_short=True)
