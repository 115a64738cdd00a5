"""A run told again: the events of the past, made from the journal and the raw streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from ralph.agents.base import Parser, Reading
from ralph.agents.registry import AGENTS, announced_permissions
from ralph.core.events import (
    AgentEnded,
    CheckEnded,
    CheckStarted,
    Committed,
    Event,
    Holding,
    IterationStarted,
    Notice,
    RunEnded,
    RunStarted,
)
from ralph.core.model import (
    Checked,
    Commit,
    Did,
    Exit,
    FailAction,
    Plan,
    Purpose,
    Ran,
    Restore,
    RunAgent,
    RunChecks,
    Steer,
    Usage,
)
from ralph.runs.agent_hooks import unguarded
from ralph.store import codec
from ralph.store.journal import JournalRow, commits, facts
from ralph.store.runs import Runs

Told = tuple[Event, float]
"""An event, and when it happened."""


class _InHand(Struct):
    """A step that has begun and may not be over: what of it was told already."""

    seq: int
    parser: Parser | None = None
    offsets: dict[str, int] = field(default_factory=dict)
    is_whole: bool = True


class Replay:
    """Tells what is in the store, and, asked again, what has come since.

    `most`: of what agents have printed, only about so many bytes are told at a time, the last ones.
    """

    def __init__(
        self, runs: Runs, run: str, streams: Path, iteration: int | None = None, most: int | None = None
    ) -> None:
        self._runs = runs
        self._run = run
        self._streams = streams
        self._only = iteration
        self._most = most
        self._first = 0
        self._iteration = 0
        self._told = -1
        self._in_hand: _InHand | None = None
        self._plan: Plan | None = None
        self.iterations: set[int] = set()

    def news(self) -> Iterator[Told]:
        """What has happened since the last time."""
        found = facts(self._runs.db, self._runs.path, self._run, self._told)
        if self._told < 0 and self._most is not None:
            self._first = self._begin_of(found, self._most)
        for row in found:
            for event in self._row(row) if row.seq >= self._first or row.kind == "plan" else ():
                if self._only is None or self._only == self._iteration:
                    yield event, _when(event, row)
            if row.state is not None:  # else it is in hand, or was cut off: then others follow
                self._told = row.seq
                self._in_hand = None

    @property
    def in_hand(self) -> Usage:
        """What the agent process in hand has used so far; nothing, if its beginning was left out."""
        at = self._in_hand
        return at.parser.usage if at is not None and at.parser is not None and at.is_whole else Usage()

    def _begin_of(self, found: Sequence[JournalRow], room: int) -> int:
        """The row from which on what agents have printed fits into so many bytes; the last one always does."""
        begin = 0
        for row in reversed(found):
            if row.kind == "run_agent":
                if begin and room < 0:
                    return begin
                begin = row.seq
                room -= sum(self._size(name) for name in _streams(row, codec.decode("run_agent", row.body)))
        return 0

    def _size(self, name: str) -> int:
        try:
            return (self._streams / name).stat().st_size
        except OSError:
            return 0

    def _row(self, row: JournalRow) -> Iterator[Event]:
        if row.kind == "plan":
            self._plan = codec.decode("plan", row.body)
            yield started(self._plan, self._plan.limits.iterations)
            yield from (Notice(text) for text in announced(self._plan))
        elif row.kind == "run_agent":
            yield from self._agent(row, codec.decode("run_agent", row.body))
        elif row.kind == "run_checks":
            yield from self._checks(row)
        elif row.kind == "commit" and row.result:
            yield from self._commit(codec.decode("commit", row.body), codec.decode("did", row.result))
        elif row.kind == "restore" and self._is_new(row):
            restore: Restore = codec.decode("restore", row.body)
            yield from _undone(restore.told)
        elif row.kind == "hold" and self._is_new(row):
            yield Holding(codec.decode("hold", row.body))
        elif row.kind == "steer":
            steer: Steer = codec.decode("steer", row.body)
            yield Notice(f"Guidance: {steer.text}")
        elif row.kind == "stop" and row.result:
            yield from self._ended(row, codec.decode("did", row.result))
        elif row.kind == "fail":
            yield from self._ended(row, Did(row.started))

    def _is_new(self, row: JournalRow) -> bool:
        if self._in_hand is not None and self._in_hand.seq == row.seq:
            return False
        self._in_hand = _InHand(row.seq)
        return True

    def _agent(self, row: JournalRow, step: RunAgent) -> Iterator[Event]:
        assert self._plan is not None
        if step.purpose is not Purpose.WORK:
            return
        self._iteration = step.iteration
        self.iterations.add(step.iteration)
        if self._is_new(row):
            yield IterationStarted(
                step.iteration, step.of, len(step.steer), step.agent, step.role, step.story
            )
        assert self._in_hand is not None
        if self._in_hand.parser is None:
            spec = next(agent for agent in self._plan.agents if agent.name == step.agent)
            self._in_hand.parser = AGENTS[spec.type].parser(
                Reading(self._plan.claim, spec=spec, now=lambda: row.ended or row.started)
            )
        parser, (out, err) = self._in_hand.parser, _streams(row, step)
        if skipped := self._skip(out, self._in_hand):
            yield Notice(f"[... {skipped:,} bytes are not shown ...]")
        for data in self._printed(out, self._in_hand.offsets):
            yield from parser.stdout(data)
        self._skip(err, self._in_hand)
        for data in self._printed(err, self._in_hand.offsets):
            yield from parser.stderr(data)
        if row.result:
            ran: Ran = codec.decode("ran", row.result)
            last, report = parser.finish(Exit(code=ran.exit))
            yield from last
            yield AgentEnded(step.purpose, replace(ran, board=None), report.unread)
            if ran.board is not None:
                yield from _undone(ran.board.illegal)
                yield from (Notice(f"For the next iteration: {text}.") for text in ran.board.told)

    def _skip(self, name: str, at: _InHand) -> int:
        """Leave out the beginning of what has come, where it is too much: up to the end of a line."""
        told, size = at.offsets.get(name, 0), self._size(name)
        if self._most is None or size - told <= self._most:
            return 0
        begin = size - self._most
        with suppress(OSError), (self._streams / name).open("rb") as file:
            file.seek(begin)
            begin += file.read(_LONGEST).find(b"\n") + 1
        at.offsets[name], at.is_whole = begin, False
        return begin - told

    def _printed(self, name: str, offsets: dict[str, int]) -> Iterator[bytes]:
        """What has come into a stream since the last time."""
        with suppress(FileNotFoundError), (self._streams / name).open("rb") as file:
            file.seek(offsets.get(name, 0))
            while data := file.read(1 << 20):
                offsets[name] = offsets.get(name, 0) + len(data)
                yield data

    def _checks(self, row: JournalRow) -> Iterator[Event]:
        step: RunChecks = codec.decode("run_checks", row.body)
        if self._is_new(row):
            yield CheckStarted(step.names[0])
        if row.result:
            checked: Checked = codec.decode("checked", row.result)
            for verdict in checked.verdicts:
                action = verdict.feedback.action if verdict.feedback else FailAction.APPEND
                yield CheckEnded(verdict, action, checked.took)
            yield from _undone(checked.undone)

    def _commit(self, step: Commit, did: Did) -> Iterator[Event]:
        if did.detail:
            yield Notice(did.detail)
        if did.made:
            yield Committed(step.iteration, did.made, step.message)
        yield from _undone(did.undone)

    def _ended(self, row: JournalRow, did: Did) -> Iterator[Event]:
        brief = codec.decode_brief(row.kind, row.state or "", self._run)
        if brief.stop and self._only is None:
            made = commits(self._runs.db, self._runs.path, self._run)
            yield RunEnded(
                self._run, brief.stop, brief.iteration, brief.usage, brief.elapsed, did.files, made
            )


_LONGEST = 1 << 16
"""Where a line is longer than this, its end is not looked for."""


def _streams(row: JournalRow, step: RunAgent) -> tuple[str, str]:
    """The names of the files with what an agent has printed."""
    name = f"{step.iteration:03d}-{row.seq}.{step.purpose}"
    return f"{name}.stdout", f"{name}.stderr"


def _undone(what: tuple[str, ...]) -> Iterator[Event]:
    for text in what:
        yield Notice(f"Undone: {text}.")


def _when(event: Event, row: JournalRow) -> float:
    """When it happened: as the agent says, else when its step began or ended."""
    if isinstance(event, IterationStarted):
        return row.started
    own: float | None = getattr(event, "at", None)
    return own or row.ended or row.started


def started(plan: Plan, iterations: int) -> RunStarted:
    """How a run introduces itself."""
    first, *others = plan.agents
    return RunStarted(
        run=plan.run,
        flow=plan.flow,
        directory=plan.directory,
        agent=first.name,
        checks=tuple(check.name for check in plan.checks),
        iterations=iterations,
        permissions=announced_permissions(first),
        fallbacks=tuple(agent.name for agent in others),
        unguarded=() if plan.sandbox.is_real else unguarded(plan.agents, plan.guard),
        sandbox=plan.sandbox.backend,
        network=plan.sandbox.network,
    )


def announced(plan: Plan) -> Iterator[str]:
    """What a run says of its sandbox before anything else."""
    if plan.sandbox.downgraded:
        yield (
            "There is no sandbox: agents and checks run directly, with all that you may do."
            f" Why: {plan.sandbox.downgraded}."
        )
