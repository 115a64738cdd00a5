"""Replays a run: recreates its past events from the journal and the raw streams."""

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
    Fail,
    FailAction,
    Hold,
    Plan,
    Purpose,
    Ran,
    Restore,
    RunAgent,
    RunChecks,
    Steer,
    Stop,
    Usage,
)
from ralph.runs.agent_hooks import unguarded
from ralph.store.journal import JournalStep, commits, steps
from ralph.store.runs import Runs
from ralph.store.streams import STDERR, STDOUT, stream_name

TimedEvent = tuple[Event, float]
"""An event, and when it happened."""


class _CurrentStep(Struct):
    """A step that has started and may not be finished, and how much of it was already replayed."""

    seq: int
    parser: Parser | None = None
    offsets: dict[str, int] = field(default_factory=dict)
    is_whole: bool = True


class Replay:
    """Yields the events in the store, and on later calls the events that were added since.

    `most` limits agent output to about that many bytes per call; the end of the output is kept.
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
        self._current: _CurrentStep | None = None
        self._plan: Plan | None = None
        self.iterations: set[int] = set()

    def news(self) -> Iterator[TimedEvent]:
        """The events since the last call."""
        found = list(steps(self._runs.db, self._runs.path, self._run, self._told, looks=False))
        if self._told < 0 and self._most is not None:
            self._first = self._begin_of(found, self._most)
        for entry in found:
            for event in self._events(entry) if entry.seq >= self._first or entry.seq == 0 else ():
                if self._only is None or self._only == self._iteration:
                    yield event, _when(event, entry)
            if not entry.is_in_hand:
                self._told = entry.seq
                self._current = None

    @property
    def in_hand(self) -> Usage:
        """The usage of the current agent process so far; empty if the start of its output was skipped."""
        at = self._current
        return at.parser.usage if at is not None and at.parser is not None and at.is_whole else Usage()

    def _begin_of(self, found: Sequence[JournalStep], room: int) -> int:
        """The first row to show so that agent output fits into `room` bytes. The last agent is always included."""
        begin = 0
        for entry in reversed(found):
            if isinstance(entry.step, RunAgent):
                if begin and room < 0:
                    return begin
                begin = entry.seq
                room -= sum(map(self._size, _streams(entry, entry.step)))
        return 0

    def _size(self, name: str) -> int:
        try:
            return (self._streams / name).stat().st_size
        except OSError:
            return 0

    def _events(self, entry: JournalStep) -> Iterator[Event]:
        match entry.step:
            case Plan() as plan:
                self._plan = plan
                yield started(plan, plan.limits.iterations)
                yield from map(Notice, announced(plan))
            case RunAgent(purpose=Purpose.WORK) as step:
                yield from self._agent(entry, step)
            case RunChecks() as step:
                yield from self._checks(entry, step)
            case Commit() as step if isinstance(entry.result, Did):
                yield from _commit(step, entry.result)
            case Restore() as step if self._is_new(entry):
                yield from _undone(step.told)
            case Hold() as step if self._is_new(entry):
                yield Holding(step)
            case Steer() as steer:
                yield Notice(f"Guidance: {steer.text}")
            case Stop() | Fail():
                yield from self._ended(entry)

    def _is_new(self, entry: JournalStep) -> bool:
        if self._current is not None and self._current.seq == entry.seq:
            return False
        self._current = _CurrentStep(entry.seq)
        return True

    def _agent(self, entry: JournalStep, step: RunAgent) -> Iterator[Event]:
        assert self._plan is not None
        self._iteration = step.iteration
        self.iterations.add(step.iteration)
        if self._is_new(entry):
            yield IterationStarted(
                step.iteration, step.of, len(step.steer), step.agent, step.role, step.story
            )
        assert self._current is not None
        if self._current.parser is None:
            spec = next(agent for agent in self._plan.agents if agent.name == step.agent)
            self._current.parser = AGENTS[spec.type].parser(
                Reading(self._plan.claim, spec=spec, now=lambda: entry.ended or entry.started)
            )
        parser, (out, err) = self._current.parser, _streams(entry, step)
        if skipped := self._skip(out, self._current):
            yield Notice(f"[... {skipped:,} bytes not shown ...]")
        for data in self._printed(out, self._current.offsets):
            yield from parser.stdout(data)
        self._skip(err, self._current)
        for data in self._printed(err, self._current.offsets):
            yield from parser.stderr(data)
        if isinstance(ran := entry.result, Ran):
            last, report = parser.finish(Exit(code=ran.exit))
            yield from last
            yield AgentEnded(step.purpose, replace(ran, board=None), report.unread)
            if ran.board is not None:
                yield from _undone(ran.board.illegal)
                yield from (Notice(f"For the next iteration: {text}.") for text in ran.board.told)

    def _skip(self, name: str, at: _CurrentStep) -> int:
        """Skip the start of new output that exceeds the limit, up to the end of a line; returns the bytes skipped."""
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
        """The data added to a stream since the last call."""
        with suppress(FileNotFoundError), (self._streams / name).open("rb") as file:
            file.seek(offsets.get(name, 0))
            while data := file.read(1 << 20):
                offsets[name] = offsets.get(name, 0) + len(data)
                yield data

    def _checks(self, entry: JournalStep, step: RunChecks) -> Iterator[Event]:
        if self._is_new(entry):
            yield CheckStarted(step.names[0])
        if isinstance(checked := entry.result, Checked):
            for verdict in checked.verdicts:
                action = verdict.feedback.action if verdict.feedback else FailAction.APPEND
                yield CheckEnded(verdict, action, checked.took)
            yield from _undone(checked.undone)

    def _ended(self, entry: JournalStep) -> Iterator[Event]:
        end = entry.end
        if end is not None and end.stop is not None and self._only is None:
            files = entry.result.files if isinstance(entry.result, Did) else None
            made = commits(self._runs.db, self._runs.path, self._run)
            yield RunEnded(self._run, end.stop, end.iteration, end.usage, end.elapsed, files, made)


_LONGEST = 1 << 16
"""How far to search for the end of a line."""


def _streams(entry: JournalStep, step: RunAgent) -> tuple[str, str]:
    """The names of the files with an agent's output: stdout and stderr."""
    name = stream_name(step.iteration, entry.seq, step.purpose)
    return name + STDOUT, name + STDERR


def _commit(step: Commit, did: Did) -> Iterator[Event]:
    if did.detail:
        yield Notice(did.detail)
    if did.made:
        yield Committed(step.iteration, did.made, step.message)
    yield from _undone(did.undone)


def _undone(what: tuple[str, ...]) -> Iterator[Event]:
    for text in what:
        yield Notice(f"Undone: {text}.")


def _when(event: Event, entry: JournalStep) -> float:
    """When an event happened: the time reported by the agent, otherwise the start or end of its step."""
    if isinstance(event, IterationStarted):
        return entry.started
    own: float | None = getattr(event, "at", None)
    return own or entry.ended or entry.started


def started(plan: Plan, iterations: int) -> RunStarted:
    """The first event of a run."""
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
    """The notices about the sandbox at the start of a run."""
    if plan.sandbox.downgraded:
        yield (
            "No sandbox: agents and checks run directly, with all your permissions."
            f" Reason: {plan.sandbox.downgraded}."
        )
