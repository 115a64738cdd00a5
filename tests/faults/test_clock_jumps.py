"""R4: the wall clock jumps by a day. Durations ignore it, resets follow it, order is by sequence."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from conftest import Project
from faults.fault_support import newest, status
from loop.loop_support import STOPPED, UNVERIFIED, Loop, StillClock, end_of, opened_loop
from ralph.core.events import AgentEnded, AgentStarted, Event, Holding
from ralph.core.model import AgentSpec, Cause, Hold, HoldWhy, Outcome, Pause, PromptVia
from ralph.loop import inbox

DAY = 86_400.0


class Starts:
    """When agents were started, on the clock of the run."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def __call__(self, loop: Loop, event: Event) -> None:
        if isinstance(event, AgentStarted):
            self.at.append(loop.clock.passed)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds check the clock every few seconds, so that a day of them is short."""
    monkeypatch.setattr(inbox, "COMMAND_SECONDS", 7.0)


ONE_HELD_ITERATION = ["plan", "hold", "look", "run_agent", "look", "stop"]


@pytest.mark.parametrize("jump", [DAY, -DAY, 0.0])
@pytest.mark.usefixtures("quick")
def test_r4_the_wait_before_a_restart_is_a_duration(project: Project, jump: float) -> None:
    """A hold of N seconds lasts N seconds, whatever the wall clock does meanwhile."""
    starts = Starts()
    with opened_loop(project, clock=StillClock(jump, after=30.0), heard=starts) as loop:
        state = loop.drive(loop.start(hold=Hold(HoldWhy.RESTART, seconds=100.0)))
        assert starts.at == [pytest.approx(100.0, abs=0.01)]
        assert (end_of(state), loop.kinds) == (UNVERIFIED, ONE_HELD_ITERATION)
    assert state.elapsed == pytest.approx(100.0, abs=30.0), "the duration of the run is monotonic as well"
    assert (newest(project).state, newest(project).outcome) == ("ended", "complete")


@pytest.mark.parametrize(("jump", "due"), [(DAY, 30.0), (-DAY, 100.0 + DAY), (0.0, 100.0), (50.0, 50.0)])
@pytest.mark.usefixtures("quick")
def test_r4_the_wait_for_a_limit_follows_the_wall_clock(project: Project, jump: float, due: float) -> None:
    """A hold until a time of day ends when the wall clock shows it, earlier or later after a jump."""
    clock, starts = StillClock(jump, after=30.0), Starts()
    with opened_loop(project, clock=clock, heard=starts) as loop:
        state = loop.drive(loop.start(hold=Hold(HoldWhy.LIMIT, until=clock.wall() + 100.0)))
        assert (end_of(state), loop.kinds) == (UNVERIFIED, ONE_HELD_ITERATION)
    late = inbox.COMMAND_SECONDS if jump == DAY else 0.01
    (started,) = starts.at
    assert due - 0.01 <= started <= due + late


@pytest.mark.parametrize("jump", [0.0, 300.0, -300.0])
@pytest.mark.usefixtures("quick")
def test_r4_the_patience_with_a_missing_agent_is_a_duration(project: Project, jump: float) -> None:
    """P14: a missing agent is retried for sixty seconds, regardless of clock jumps."""
    gone = AgentSpec("agent", "custom", str(project.path / "gone"), prompt_via=PromptVia.ARGUMENT)
    with opened_loop(project, gone, clock=StillClock(jump, after=30.0)) as loop:
        state = loop.drive(loop.start(started=True))
    assert end_of(state) == (Outcome.FATAL, Cause.UNSTARTABLE)
    assert loop.clock.passed == pytest.approx(60.0, abs=3.0)


def test_r4_the_newest_run_is_the_one_started_last(project: Project) -> None:
    """After the clock was set back, `ralph resume` takes the run the user started last, not tomorrow's run."""
    project.agent("echo working", maximumIterations=1)
    assert project.run("run", "-p", "before").code == 1
    runs = project.home.runs()
    with closing(runs.db), runs.db:
        runs.db.execute("UPDATE runs SET created = created + ?", (DAY,))
    assert project.run("run", "-p", "after").code == 1
    (last,) = [run.id for run in status(project) if run.created < time.time()]
    resumed = project.run("resume", "-m", "2")
    assert f"Run {last} resumed" in resumed.err, resumed.err


def test_a_pause_before_the_end_of_a_step_holds_the_next(project: Project) -> None:
    """A command queued just before a step ends is applied before the next one starts."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, AgentEnded):
            loop.send(Pause(time.time()))
        elif isinstance(event, Holding):
            loop.interrupt()

    with opened_loop(project, "echo working", heard=heard, iterations=2) as loop:
        state = loop.drive()
    assert (len(loop.told(AgentStarted)), end_of(state)) == (1, STOPPED)
