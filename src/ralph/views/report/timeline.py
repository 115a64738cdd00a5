"""The journal of a run as iterations, remarks and reviews, read one row at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from ralph.core import policy
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
)
from ralph.views.report.story_history import MAX_FEEDBACK, StoryHistory

FIRST, LAST = 10, 90
"""Number of iterations at the start and at the end that keep their texts."""

MAX_LISTED = 1_000
"""Maximum number of iterations listed; the oldest in the middle are dropped."""

MAX_SAID, MAX_REASON = 4_000, 1_000
MAX_REMARKS = 400
MAX_PARTS = 30
AWAY_SECONDS = 2.0
"""Shorter gaps before a resume are ignored."""

_HOLDS = {
    HoldWhy.RESTART: (Doing.RESTART, "restart delay"),
    HoldWhy.LIMIT: (Doing.LIMIT, "waiting for the usage limit to reset"),
    HoldWhy.PAUSED: (Doing.PAUSED, "paused"),
    HoldWhy.CHILDREN: (Doing.CHILDREN, "waiting for child processes"),
}
_BAD_ENDS = {
    Ended.TIMEOUT: "timed out",
    Ended.IDLE: "was stopped: no output for too long",
    Ended.BUDGET: "was stopped: budget used up",
    Ended.KILLED: "was killed",
    Ended.UNSTARTABLE: "could not be started",
    Ended.AUTH: "is not logged in or has no credit",
    Ended.DENIED: "was denied every write",
    Ended.EMPTY: "returned no answer",
}


def short_name(agent: str) -> str:
    """The name of an agent without its path."""
    return agent.rpartition("/")[2] or agent


def _commands_of(check: Check) -> dict[str, str]:
    """The commands of a check and of each of its stages, by name; empty for one that runs no command."""
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


class RunTimeline:
    """Follows the journal rows of one run. `now`: end time for an unfinished step; None if the run has no process."""

    def __init__(self, run: str, now: float | None) -> None:
        self._run = run
        self._now = now
        self._end = 0.0
        self._room = MAX_FEEDBACK
        self._iterations: list[Iteration] = []
        self.stories = StoryHistory(run)
        self.plan: Plan | None = None
        self.commands: dict[str, str] = {}
        self.left_out = 0
        self.remarks: list[Remark] = []
        self.reviews: list[Review] = []
        self.files: int | None = None
        self.commit = ""

    def hear(self, entry: JournalStep) -> None:
        match entry.step, entry.result:
            case Plan() as plan, _:
                self._planned(plan)
            case Look(), Seen() as seen:
                self._looked(seen)
            case RunAgent() as step, (Ran() | None) as ran:
                self._agent(entry, step, ran)
            case RunChecks() as step, (Checked() | None) as checked:
                self._checks(entry, step, checked)
            case Restore() as restore, _:
                self._restored(entry, restore)
            case Commit() as commit, (Did() | None) as did:
                self._commit(entry, commit, did)
            case Hold() as hold, (Did() | None) as did:
                self._hold(entry, hold, did)
            case Resume() as resume, _:
                self._resumed(entry, resume)
            case Stop(), Did() as did:
                self.files = did.files
        if not isinstance(entry.step, RunAgent | Command):
            self._end = max(self._end, entry.started, entry.ended or 0.0)

    @property
    def iterations(self) -> tuple[Iteration, ...]:
        """All listed iterations, including the current one."""
        return tuple(self._iterations)

    # ---- iterations ----

    @property
    def _number(self) -> int:
        return self._iterations[-1].number if self._iterations else 0

    def _begin(self, number: int, began: float) -> None:
        """Start this iteration unless it is the current one; shorten or drop earlier ones that exceed the limits."""
        if self._iterations and self._number == number:
            return
        if len(self._iterations) > FIRST + LAST:
            at = len(self._iterations) - LAST - 1
            self._iterations[at] = _shortened(self._iterations[at])
        if len(self._iterations) >= MAX_LISTED:
            del self._iterations[FIRST]
            self.left_out += 1
        self._iterations.append(Iteration(number, began=began))
        self._room = MAX_FEEDBACK

    def _change(self, **values: Any) -> None:
        self._iterations[-1] = replace(self._iterations[-1], **values)

    def _add(self, segment: Segment) -> None:
        now = self._iterations[-1]
        self._change(
            segments=(*now.segments, segment),
            seconds=now.seconds + segment.seconds,
            is_open=now.is_open or segment.is_open,
        )

    def _spend(
        self, entry: JournalStep, doing: Doing, label: str, took: float | None, *, is_red: bool = False
    ) -> float:
        """Add a step's time; a step without a result is still running or was cut off."""
        is_open = took is None and self._now is not None
        if took is None:
            took = max(0.0, self._now - entry.started) if self._now is not None else 0.0
        self._end = max(self._end, entry.started + took)
        self._add(Segment(doing, label, entry.started, took, is_open, is_red))
        return took

    def _remark(self, kind: RemarkKind, text: str, at: float) -> None:
        if len(self.remarks) < MAX_REMARKS:
            self.remarks.append(Remark(kind, text, self._number, at))

    def _waited(self, text: str, at: float) -> None:
        """Add a wait to the remark about its limit."""
        last = self.remarks[-1] if self.remarks else None
        if last is not None and last.kind is RemarkKind.LIMIT and last.iteration == self._number:
            self.remarks[-1] = replace(last, text=f"{last.text}; {text}")
        else:
            self._remark(RemarkKind.LIMIT, text, at)

    def _undone(self, what: Iterable[str], at: float) -> None:
        for text in what:
            self._remark(RemarkKind.UNDONE, text, at)

    # ---- rows ----

    def _planned(self, plan: Plan) -> None:
        self.plan = plan
        for check in plan.checks:
            commands = _commands_of(check)
            self.commands = commands | self.commands | {check.name: commands[check.name]}

    def _looked(self, seen: Seen) -> None:
        if seen.board is not None:
            self.stories.look(seen.board.legal)

    def _agent(self, entry: JournalStep, step: RunAgent, ran: Ran | None) -> None:
        self._begin(step.iteration, entry.started)
        took, is_work = (ran.took if ran else None), step.purpose is Purpose.WORK
        if is_work:
            self._spend(entry, Doing.AGENT, short_name(step.agent), took)
            self._change(agent=short_name(step.agent), role=step.role, story=step.story)
        else:
            self._spend(entry, Doing.COMMIT, "commit message", took)
        if ran is not None:
            self._change(used=self._iterations[-1].used + ran.usage)
            if is_work:
                self._worked(ran)

    def _worked(self, ran: Ran) -> None:
        said = ending(ran.text, MAX_SAID, f"ralph logs {self._run} --iteration {self._number}")
        self._change(
            ended=str(ran.ended), exit=ran.exit, detail=ran.detail[:MAX_REASON], claim=ran.claim, said=said
        )
        if ran.ended is Ended.LIMIT:
            who = short_name(ran.agent) or "the agent"
            self._remark(RemarkKind.LIMIT, f"{who}: {ran.detail or 'usage limit'}", ran.at)
        elif words := _BAD_ENDS.get(ran.ended):
            detail = f" ({ran.detail})" if ran.detail else ""
            self._remark(RemarkKind.FAILED, f"The agent {words}{detail}", ran.at)
        if ran.refusal:
            text, role = ran.refusal[:MAX_FEEDBACK], self.plan.role if self.plan else ""
            self.reviews.append(Review(ran.at, "", role, "refused", text, self._run, self._number))
            self._change(moved="refused")
        if ran.board is not None:
            self._ruled(ran.board, ran.at)

    def _ruled(self, board: BoardSeen, at: float) -> None:
        """Record the story changes that an iteration of a PRD loop made."""
        self._undone(board.illegal, at)
        for review in self.stories.ruled(board, self._iterations[-1].role, self._number, at):
            self.reviews.append(review)
            self._change(moved=f"{review.subject} {review.what.replace('_', ' ')}")
        for id in self.stories.newly_at_cap(board):
            text = f"{id} was approved only because it reached the review cap"
            self._remark(RemarkKind.AUTO_APPROVED, text, at)

    def _checks(self, entry: JournalStep, step: RunChecks, checked: Checked | None) -> None:
        self._begin(step.iteration, entry.started)
        is_red = checked is not None and not all(verdict.green for verdict in checked.verdicts)
        self._spend(entry, Doing.CHECK, step.names[0], checked.took if checked else None, is_red=is_red)
        if checked is None:
            return
        now = self._iterations[-1]
        found = tuple(map(self._found, checked.verdicts))
        again = {each.check for each in found}
        known = (each for each in now.checks if not (each.degraded and each.check in again))
        self._change(used=now.used + checked.usage, checks=(*known, *found))
        kind = RemarkKind.DEGRADED if self.plan and self.plan.allow_degraded else RemarkKind.NOTE
        for verdict in checked.verdicts:
            if verdict.degraded:
                self._remark(kind, f"{verdict.check}: {verdict.reason[:MAX_REASON]}", checked.at)
        if checked.retry_at is not None:
            self._remark(RemarkKind.LIMIT, "the judge hit a usage limit", checked.at)
        self._undone(checked.undone, checked.at)

    def _found(self, verdict: Verdict) -> Found:
        feedback = Excerpt()
        if verdict.feedback is not None and not verdict.green:
            see = f"cat {verdict.log}" if verdict.log else ""
            feedback = beginning(verdict.feedback.text, self._room, see)
            self._room -= len(feedback.text)
        return Found(
            verdict.check,
            verdict.green,
            verdict.required,
            verdict.degraded,
            verdict.reason[:MAX_REASON],
            self.commands.get(verdict.check, "")[:MAX_REASON],
            verdict.log,
            feedback,
            tuple(self._found(replace(part, feedback=None)) for part in verdict.parts[:MAX_PARTS]),
        )

    def _restored(self, entry: JournalStep, restore: Restore) -> None:
        self._undone(restore.told, entry.started)
        told = "; ".join(restore.told)[:MAX_FEEDBACK]
        self.reviews += self.stories.taken_back(restore.board, told, self._number, entry.started)

    def _commit(self, entry: JournalStep, step: Commit, did: Did | None) -> None:
        self._begin(step.iteration, entry.started)
        self._spend(entry, Doing.COMMIT, "commit", did.took if did else None)
        if did is None:
            return
        if did.made:
            self.commit = did.made
            made = MadeCommit(did.made, step.message[:MAX_REASON])
            self._change(commits=(*self._iterations[-1].commits, made))
        if did.detail:
            self._remark(RemarkKind.NOTE, did.detail, did.at)
        self._undone(did.undone, did.at)

    def _hold(self, entry: JournalStep, hold: Hold, did: Did | None) -> None:
        if not self._iterations:
            self._begin(1, entry.started)
        seconds = self._spend(entry, *_HOLDS[hold.why], did.took if did else None)
        if hold.why is HoldWhy.LIMIT:
            self._waited(f"waited {duration(seconds)}", entry.started)
        if did is not None and did.detail:
            self._remark(RemarkKind.NOTE, did.detail, did.at)

    def _resumed(self, entry: JournalStep, resume: Resume) -> None:
        self.plan = policy.rejudged(self.plan, resume) if self.plan else None
        gap = entry.started - self._end
        if self._iterations and self._end and gap > AWAY_SECONDS:
            self._add(Segment(Doing.AWAY, "not running", self._end, gap))
        new = {
            "iterations": resume.iterations,
            "USD": resume.cost_usd,
            "tokens": resume.tokens,
            "seconds": resume.seconds,
        }
        given = ", ".join(f"{words} {value:g}" for words, value in new.items() if value)
        limits = f", with new limits: {given}" if given else ""
        self._remark(RemarkKind.RESUMED, f"resumed after {duration(max(0.0, gap))}{limits}", entry.started)


def _shortened(iteration: Iteration) -> Iteration:
    """The iteration with its numbers and verdicts, without its texts."""
    checks = tuple(replace(found, feedback=Excerpt(), parts=(), command="") for found in iteration.checks)
    return replace(iteration, checks=checks, said=Excerpt(), is_short=True)
