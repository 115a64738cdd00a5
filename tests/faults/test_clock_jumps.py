"""R4: the wall clock jumps by a day. Durations do not notice, resets follow it, order is by sequence."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from conftest import Project
from faults.fault_support import DONE, newest, status
from journal_support import kinds_of
from ralph.core import machine
from ralph.core.events import AgentEnded, AgentStarted, Event, Holding
from ralph.core.model import (
    AgentSpec,
    Cause,
    Flow,
    Hold,
    HoldWhy,
    Limits,
    Outcome,
    Pause,
    Plan,
    PromptSource,
    PromptVia,
    State,
)
from ralph.loop import inbox
from ralph.loop.confinement import ConfinedRun, opened_confinement
from ralph.loop.driver import Driver
from ralph.loop.run_context import Clock, RunContext
from ralph.process.client import Wakeup, Warden
from ralph.runs import session
from ralph.scm.git import GitOutput
from ralph.scm.version_control import VersionControl
from ralph.store.files import opened_directory
from ralph.store.journal import Journal, steps
from ralph.store.runtime import Runtime

DAY = 86_400.0


class Jumping(Clock):
    """Time that passes only when somebody waits; the wall clock jumps once, after a while."""

    def __init__(self, jump: float, after: float) -> None:
        self.passed = 0.0
        self._jump, self._after = jump, after

    def monotonic(self) -> float:
        return 5_000.0 + self.passed

    def wall(self) -> float:
        return 1_800_000_000.0 + self.passed + (self._jump if self.passed >= self._after else 0.0)


class Instant(Wakeup):
    """Waiting takes no time but the clock's."""

    def __init__(self, clock: Jumping) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, seconds: float) -> None:
        self._clock.passed += seconds


@dataclass
class Driven:
    """What a run did on a clock: when its agents started, how it ended, its rows."""

    state: State
    started: list[float]
    passed: float
    kinds: list[str]

    @property
    def end(self) -> tuple[Outcome, Cause]:
        assert self.state.stop is not None
        return self.state.stop.outcome, self.state.stop.cause


Heard = Callable[[Event, str, Wakeup], None]


def driven(
    project: Project,
    clock: Jumping,
    prepare: Callable[[State], State] = lambda state: state,
    command: str = "",
    heard: Heard = lambda event, run, wakeup: None,
    iterations: int = 1,
) -> Driven:
    """Drive one run on a clock of ours, from a state of ours, with everything else real."""
    started: list[float] = []
    agent = AgentSpec(
        "agent", "custom", command or project.script("agent.sh", DONE), prompt_via=PromptVia.ARGUMENT
    )

    def tell(event: Event) -> None:
        if isinstance(event, AgentStarted):
            started.append(clock.passed)
        heard(event, run.id, wakeup)

    def no_scm(argv: list[str], variables: Mapping[str, str], stdin: bytes) -> GitOutput:
        raise AssertionError(f"there is no repository: {argv}")

    def make_plan(id: str) -> Plan:
        limits = Limits(iterations=iterations)
        return Plan(id, Flow.RUN, str(project.path), (agent,), PromptSource("x"), limits=limits)

    run = session.begin(project.home, Flow.RUN, session.here(project.path), make_plan)
    plan, streams, wakeup = make_plan(run.id), project.home.make_streams(run.id), Instant(clock)
    runs = project.home.runs()
    with (
        closing(runs.db),
        Runtime(project.path) as runtime,
        opened_directory(str(streams)) as directory,
        Warden(Wakeup()) as warden,
        opened_confinement(
            ConfinedRun(plan, None, project.home.path, streams), warden, runtime.project
        ) as confinement,
    ):
        runtime.prepare(run.id)
        journal, work = Journal(runs.db, runs.path, run.id), VersionControl(plan, None, no_scm, streams)
        place = RunContext(runs, journal, runtime, directory, work, warden, wakeup, tell, clock, confinement)
        state = Driver(place, prepare(machine.start(plan, clock.wall()))).drive()
        kinds = kinds_of(list(steps(runs.db, runs.path, run.id)))
    return Driven(state, started, clock.passed, kinds)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds look at the clock every few seconds, so that a day of them is short."""
    monkeypatch.setattr(inbox, "COMMAND_SECONDS", 7.0)


ONE_HELD_ITERATION = ["plan", "hold", "look", "run_agent", "look", "stop"]
PROVED = (Outcome.COMPLETE, Cause.PROVED)


@pytest.mark.parametrize("jump", [DAY, -DAY, 0.0])
@pytest.mark.usefixtures("quick")
def test_r4_the_wait_before_a_restart_is_a_duration(project: Project, jump: float) -> None:
    """A hold of so many seconds lasts so long, whatever the wall clock says meanwhile."""
    hold = Hold(HoldWhy.RESTART, seconds=100.0)
    did = driven(project, Jumping(jump, after=30.0), lambda state: replace(state, hold=hold))
    assert did.started == [pytest.approx(100.0, abs=0.01)]
    assert (did.end, did.kinds) == (PROVED, ONE_HELD_ITERATION)
    assert did.state.elapsed == pytest.approx(100.0, abs=30.0), "the duration of the run is monotonic as well"
    assert (newest(project).state, newest(project).outcome) == ("ended", "complete")


@pytest.mark.parametrize(("jump", "starts"), [(DAY, 30.0), (-DAY, 100.0 + DAY), (0.0, 100.0), (50.0, 50.0)])
@pytest.mark.usefixtures("quick")
def test_r4_the_wait_for_a_limit_follows_the_wall_clock(project: Project, jump: float, starts: float) -> None:
    """A hold until a time of day ends when the wall clock shows it: earlier or later if that jumps."""
    clock = Jumping(jump, after=30.0)
    hold = Hold(HoldWhy.LIMIT, until=clock.wall() + 100.0)
    did = driven(project, clock, lambda state: replace(state, hold=hold))
    assert len(did.started) == 1
    late = inbox.COMMAND_SECONDS if jump == DAY else 0.01
    assert starts - 0.01 <= did.started[0] <= starts + late
    assert (did.end, did.kinds) == (PROVED, ONE_HELD_ITERATION)


@pytest.mark.parametrize("jump", [0.0, 300.0, -300.0])
@pytest.mark.usefixtures("quick")
def test_r4_the_patience_with_a_missing_agent_is_a_duration(project: Project, jump: float) -> None:
    """P14: an agent that has gone missing is tried for sixty seconds, not for a jump of the clock."""
    gone = str(project.path / "gone")
    did = driven(project, Jumping(jump, after=30.0), lambda state: replace(state, started=True), gone)
    assert did.end == (Outcome.FATAL, Cause.UNSTARTABLE)
    assert did.passed == pytest.approx(60.0, abs=3.0)


def test_r4_the_newest_run_is_the_one_that_began_last(project: Project) -> None:
    """After the clock was set back, `ralph resume` goes on with what the user did last, not with tomorrow's run."""
    project.agent("echo working", maximumIterations=1)
    assert project.run("run", "-p", "before").code == 1
    runs = project.home.runs()
    with closing(runs.db), runs.db:
        runs.db.execute("UPDATE runs SET created = created + ?", (DAY,))
    assert project.run("run", "-p", "after").code == 1
    (last,) = [run.id for run in status(project) if run.created < time.time()]
    resumed = project.run("resume", "-m", "2")
    assert f"Run {last} goes on" in resumed.err, resumed.err


def test_a_pause_before_the_end_of_a_step_holds_the_next(project: Project) -> None:
    """A command that was queued just before a step ended is heard before the next one begins."""

    def heard(event: Event, run: str, wakeup: Wakeup) -> None:
        if isinstance(event, AgentEnded):
            runs = project.home.runs()
            with closing(runs.db):
                runs.send(run, Pause(time.time()))
        elif isinstance(event, Holding):
            wakeup.interrupt()

    agent = project.script("agent.sh", "echo working")
    did = driven(project, Jumping(0.0, 0.0), command=agent, heard=heard, iterations=2)
    assert (len(did.started), did.end) == (1, (Outcome.INTERRUPTED, Cause.SIGNAL))
