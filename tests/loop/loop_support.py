"""A run in this process with real files, git, child processes and store; only the clock is simulated.

with opened_loop(project, "echo working", iterations=2) as loop:
    state = loop.drive()
    assert loop.kinds == ["plan", "look", …]
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from conftest import Project, wait_until
from journal_support import kinds_of
from ralph.core import machine
from ralph.core.events import Event, Notice
from ralph.core.model import (
    AgentSpec,
    Cause,
    Check,
    Command,
    Flow,
    Left,
    Limits,
    Outcome,
    Plan,
    PromptSource,
    PromptVia,
    State,
    Verdict,
)
from ralph.loop.agent_runner import AgentRunner
from ralph.loop.check_runner import CheckedIteration, CheckOutcome, CheckRunner
from ralph.loop.clock import Clock
from ralph.loop.driver import Driver
from ralph.loop.run_context import RunContext
from ralph.process.client import Wakeup
from ralph.runs.context import opened_run
from ralph.runs.location import here
from ralph.store import codec
from ralph.store.journal import JournalStep, steps

START = 1_800_000_000.0
CLAIM = "echo '<response>DONE</response>'"

E = TypeVar("E")


class StillClock(Clock):
    """A clock that advances only during waits; the wall clock can jump once, after a given time."""

    def __init__(self, jump: float = 0.0, after: float = 0.0) -> None:
        self.passed = 0.0
        self._jump, self._after = jump, after

    def monotonic(self) -> float:
        return 5_000.0 + self.passed

    def wall(self) -> float:
        return START + self.passed + (self._jump if self.passed >= self._after else 0.0)


class InstantWakeup(Wakeup):
    """Waits return at once and only advance the clock."""

    def __init__(self, clock: StillClock) -> None:
        super().__init__()
        self._clock = clock
        self.meanwhile: Callable[[], object] = lambda: None
        """Called during every wait."""

    def wait(self, seconds: float) -> None:
        self._clock.passed += seconds
        self.meanwhile()

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


Heard = Callable[["Loop", Event], None]


def ignored(loop: Loop, event: Event) -> None:
    """Ignore the event."""


@dataclass
class Loop:
    """A run that can be driven, and all its events."""

    project: Project
    plan: Plan
    clock: StillClock
    wakeup: InstantWakeup
    heard: Heard = ignored
    events: list[Event] = field(default_factory=list)
    context: RunContext = field(init=False)

    def tell(self, event: Event) -> None:
        self.events.append(event)
        self.heard(self, event)

    def drive(self, state: State | None = None) -> State:
        """Drive the run from a state, or from the beginning, until it stops."""
        return Driver(self.context, state or self.start()).drive()

    def use(self, **values: Any) -> None:
        """Replace values in the run's context."""
        self.context = replace(self.context, **values)

    def start(self, **values: Any) -> State:
        return replace(machine.start(self.plan, self.clock.wall()), **values)

    def send(self, command: Command) -> int:
        """Queue a command as another process would, which takes a second."""
        runs = self.project.home.runs()
        with closing(runs.db):
            number = runs.send(self.plan.run, command)
        self.clock.passed += 1.0
        return number

    def interrupt(self, times: int = 1) -> None:
        for _ in range(times):
            self.wakeup.interrupt()

    @property
    def rows(self) -> list[JournalStep]:
        return list(steps(self.context.runs.db, self.context.runs.path, self.plan.run))

    @property
    def kinds(self) -> list[str]:
        return kinds_of(self.rows)

    def results(self, kind: str) -> list[Any]:
        """The results of all steps of one kind, in order."""
        return [row.result for row in self.rows if codec.kind_of(row.step) == kind and row.result]

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.told(Notice)]

    def told(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def streams(self) -> Path:
        return self.project.home.streams(self.plan.run)


@contextmanager
def opened_loop(
    project: Project,
    agent: str | AgentSpec = CLAIM,
    *,
    heard: Heard = ignored,
    clock: StillClock | None = None,
    flow: Flow = Flow.RUN,
    **values: Any,
) -> Iterator[Loop]:
    """A run of this agent, usually a shell script. `values` sets fields of the plan, and `iterations`."""
    clock = clock or StillClock()
    spec = agent if isinstance(agent, AgentSpec) else shell_agent(project, agent)
    limits = {"limits": Limits(iterations=values.pop("iterations", 1))}
    usual: dict[str, Any] = {"agents": (spec,), "prompt": PromptSource("Do it."), "snapshots": False} | limits

    def make_plan(id: str) -> Plan:
        return Plan(id, flow, str(project.path), **(usual | values))

    runs, wakeup, where = project.home.runs(), InstantWakeup(clock), here(project.path)
    with closing(runs.db), closing(wakeup):
        run = runs.create(make_plan(""), str(where.lock), where.project)
        lock = os.open(project.path, os.O_RDONLY | os.O_CLOEXEC)
        loop = Loop(project, make_plan(run.id), clock, wakeup, heard)
        try:
            with opened_run(project.home, runs, loop.plan, lock, wakeup, loop.tell, clock=clock) as context:
                context.runtime.prepare(run.id)
                context.vcs.record_baseline()
                loop.context = context
                yield loop
        finally:
            os.close(lock)


def shell_agent(project: Project, body: str, via: PromptVia = PromptVia.ARGUMENT, **values: Any) -> AgentSpec:
    """An agent script outside the project directory that gets the prompt as $1."""
    path = project.path.with_name(f"{values.pop('name', 'agent')}.sh")
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    kind = values.pop("type", "custom")
    return AgentSpec(path.stem, kind, str(path), prompt_via=via, **values)


def command_check(command: str, name: str = "", **values: Any) -> Check:
    from ralph.checks.command import configure

    config = configure(command, values.pop("timeout", 0.0), is_clean=values.pop("is_clean", False))
    return Check(name or command, "command", config, **values)


def end_of(state: State) -> tuple[Outcome, Cause]:
    assert state.stop is not None
    return state.stop.outcome, state.stop.cause


PROVED = (Outcome.COMPLETE, Cause.PROVED)
UNVERIFIED = (Outcome.COMPLETE, Cause.UNVERIFIED)
STOPPED = (Outcome.INTERRUPTED, Cause.SIGNAL)


@contextmanager
def once_there(path: Path, act: Callable[[], object]) -> Iterator[None]:
    """Call `act` as soon as a process has created the file."""

    def wait() -> None:
        wait_until(path.exists, every=0.002)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def waiting(path: Path) -> str:
    """A shell command that creates a file and then sleeps."""
    return f"touch {path}; exec sleep 60"


class Checking:
    """A check runner, with helpers to check an iteration."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.runner = CheckRunner(loop.context, AgentRunner(loop.context))

    def outcome(self, check: Check, iteration: int = 1, **values: Any) -> CheckOutcome:
        usual: dict[str, Any] = {"of": 3, "seq": 7, "answer": "", "is_claimed": True, "left": Left()}
        return self.runner.check(check, CheckedIteration(iteration, **(usual | values)))

    def verdict(self, check: Check, iteration: int = 1, **values: Any) -> Verdict:
        found = self.outcome(check, iteration, **values).verdict
        assert found is not None
        return found

    def logs(self) -> dict[str, str]:
        directory = self.loop.project.path / ".ralph"
        return {path.name: path.read_text() for path in sorted(directory.glob("guardrail_*"))}
