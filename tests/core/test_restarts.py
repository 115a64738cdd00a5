"""Restarts of a supervised agent (R1 to R4), with a simulated clock."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from ralph.core import machine, policy
from ralph.core.model import (
    AgentSpec,
    Cause,
    ClaimKind,
    ClaimRule,
    Did,
    Ended,
    Flow,
    Hold,
    HoldWhy,
    Limits,
    Look,
    Plan,
    PromptSource,
    Ran,
    Restart,
    RestartKind,
    RunAgent,
    Seen,
    State,
    Stop,
    TaskFolder,
)

PLAN = Plan(
    run="20260101-000000-0000",
    flow=Flow.SUPERVISE,
    directory="/work",
    agents=(AgentSpec("agent", "custom", "agent"),),
    prompt=PromptSource(),
    claim=ClaimRule(kind=ClaimKind.DONE),
    limits=Limits(iterations=100),
    restart=Restart(),
    task=TaskFolder("/work/tasks/job", "tasks", "job", 1.0),
)
CRASH = Ran(0.0, Ended.FAILED, "agent", took=0.5, exit=1, fingerprint="same")
OK = Ran(0.0, Ended.OK, "agent", took=0.5, exit=0)
LONG = replace(CRASH, took=600.0)


@dataclass
class Simulated:
    """Drives the machine with the given attempts; time passes only in attempts and holds."""

    plan: Plan = PLAN
    now: float = 0.0
    trees: list[str] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    state: State = field(init=False)

    def __post_init__(self) -> None:
        self.state = machine.start(self.plan, self.now)

    def play(self, *attempts: Ran) -> None:
        """Play these attempts until the next one is due or the run has stopped."""
        left = list(attempts)
        while not isinstance(step := machine.next_step(self.state), Stop):
            match step:
                case RunAgent():
                    if not left:
                        return
                    self.starts.append(self.now)
                    ran = left.pop(0)
                    self.now += ran.took
                    self._apply(replace(ran, at=self.now))
                case Look():
                    tree = self.trees.pop(0) if self.trees else ""
                    self._apply(Seen(self.now, tree=tree))
                case Hold():
                    self.holds.append(step)
                    took = step.seconds if step.seconds is not None else (step.until or 0.0) - self.now
                    self.now += took
                    self._apply(Did(self.now, took))

    def _apply(self, fact: Seen | Ran | Did) -> None:
        self.state = machine.apply(self.state, fact)

    @property
    def delays(self) -> list[float]:
        return [hold.seconds or 0.0 for hold in self.holds if hold.why is HoldWhy.RESTART]


def nominal(delays: list[float], delay: float = 1.0) -> list[int]:
    """How often each delay was doubled, allowing for jitter of up to 40%."""
    found = []
    for value in delays:
        doubled = next(
            n for n in range(12) if 0.6 * min(delay * 2**n, 300) <= value <= min(delay * 2**n, 300)
        )
        found.append(doubled)
    return found


def different(count: int) -> list[Ran]:
    return [replace(CRASH, fingerprint=str(number)) for number in range(count)]


def test_r1_five_identical_failures_are_a_crash_loop() -> None:
    """An agent that keeps failing in the same way is started five times, then the run stops."""
    simulated = Simulated()
    simulated.play(*[CRASH] * 20)
    assert simulated.state.stop and simulated.state.stop.cause is Cause.CRASH_LOOP
    assert len(simulated.starts) == 5


def test_r1_twelve_different_failures_are_a_crash_loop() -> None:
    """The delay doubles after each failure, so at most eleven attempts fit in the first ten minutes."""
    simulated = Simulated()
    simulated.play(*different(20))
    assert simulated.state.stop and simulated.state.stop.cause is Cause.CRASH_LOOP
    assert len(simulated.starts) == 12
    assert sum(start < 600 for start in simulated.starts) <= 11
    assert nominal(simulated.delays) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9][: len(simulated.delays)]


def test_a_used_up_budget_stops_without_a_delay() -> None:
    """When the budget is used up, the run stops without waiting for a restart."""
    simulated = Simulated(replace(PLAN, limits=Limits(iterations=100, seconds=2.0)))
    simulated.play(replace(CRASH, ended=Ended.BUDGET, took=2.0))
    assert simulated.state.stop and simulated.state.stop.cause is Cause.DURATION
    assert simulated.holds == []


def test_r2_a_quick_success_does_not_reset_the_count() -> None:
    """Quick successes between failures change neither the delays nor the limit of twelve failures."""
    simulated = Simulated()
    simulated.play(*(attempt for crash in different(20) for attempt in (crash, OK)))
    assert simulated.state.stop and simulated.state.stop.cause is Cause.CRASH_LOOP
    assert len(simulated.starts) == 23
    expected = [
        policy.restart_delay(Restart(), failures, PLAN.run) for failures in range(1, 12) for _ in "ab"
    ]
    assert simulated.delays == expected


def test_r2_a_long_attempt_resets_the_count() -> None:
    """An attempt of ten minutes resets the failure count even if it failed; one second less does not."""
    simulated = Simulated()
    simulated.play(*different(5), LONG, *different(5), replace(LONG, took=599.0), *different(2))
    assert simulated.state.stop is None
    assert nominal(simulated.delays) == [0, 1, 2, 3, 4, 0, 0, 1, 2, 3, 4, 5, 6, 7]


def test_r2_progress_in_the_tree_resets_the_count() -> None:
    """An attempt that changed files resets the failure count."""
    simulated = Simulated(trees=["a", "a", "a", "a", "a", "b", "b", "b"])
    simulated.play(*different(4))
    assert nominal(simulated.delays) == [0, 1, 0, 0]


def test_r2_a_fixed_delay_never_changes() -> None:
    """With a fixed delay, every restart waits equally long up to the iteration limit."""
    simulated = Simulated(replace(PLAN, restart=Restart(RestartKind.FIXED, 1.0)))
    simulated.play(*[CRASH] * 200)
    assert simulated.state.stop and simulated.state.stop.cause is Cause.ITERATIONS
    assert (len(simulated.starts), set(simulated.delays)) == (100, {1.0})


@pytest.mark.parametrize("reset", [30.0, 3600.0, 18_000.0])
def test_r3_nothing_is_started_before_the_reset(reset: float) -> None:
    """A usage limit is neither a failure nor an attempt, and the failure count stays."""
    simulated = Simulated()
    limited = replace(CRASH, ended=Ended.LIMIT, retry_at=10.0 + reset)
    simulated.play(*different(3), limited, replace(limited, retry_at=None), *different(2))
    failed_before = 3
    assert simulated.starts[failed_before + 1] >= 10.0 + reset
    assert (simulated.state.iteration, simulated.state.failures) == (5, 5)
    assert nominal(simulated.delays) == [0, 1, 2, 3, 4]


def test_r3_a_done_file_ends_the_wait_for_a_reset() -> None:
    """DONE counts during the wait for a reset; without it the wait continues until the same time."""
    limited = replace(CRASH, ended=Ended.LIMIT, retry_at=1000.0, at=1.0)
    state = machine.start(PLAN, 0.0)
    for fact in (Seen(0.0), limited, Seen(2.0)):
        state = machine.apply(state, fact)
    hold = machine.next_step(state)
    woken = machine.apply(state, Did(5.0, 3.0))
    assert isinstance(machine.next_step(woken), Look)
    assert machine.next_step(machine.apply(woken, Seen(5.0))) == hold
    done = machine.apply(woken, Seen(5.0, done=True))
    assert done.stop and done.stop.cause is Cause.PROVED


@pytest.mark.parametrize("jump", [86_400.0, -86_400.0])
def test_r4_a_clock_that_jumps_changes_no_delay(jump: float) -> None:
    """Delays do not depend on the wall clock."""
    still, jumping = Simulated(), Simulated()
    still.play(*different(6))
    jumping.play(*different(3))
    jumping.now += jump
    jumping.play(*different(6)[3:])
    assert jumping.delays == still.delays
