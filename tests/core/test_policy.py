"""Limits, budgets, restart delays and crash loops."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ralph.core import policy
from ralph.core.model import (
    AgentSpec,
    Cause,
    Ended,
    Flow,
    Left,
    Limits,
    Meter,
    Plan,
    PromptSource,
    Ran,
    Restart,
    RestartKind,
    Resume,
    Seen,
    State,
    Usage,
)

AGENT = AgentSpec("first", "custom", "agent")
MUCH = Usage(cost_usd=1e6, input_tokens=10**9, output_tokens=10**9)
FIXED = Restart(kind=RestartKind.FIXED, delay=5.0)


def a_state(now: float) -> State:
    plan = Plan(
        run="20260101-000000-0000",
        flow=Flow.RUN,
        directory="/work",
        agents=(AgentSpec("claude", "claude", "claude"),),
        prompt=PromptSource(text="do it"),
    )
    return State(plan, plan.limits, now=now, iteration=3)


# ---- stopping the agent early ----


@pytest.mark.parametrize(
    ("limits", "meter", "ended"),
    [
        (Left(), Meter(), None),
        (Left(), Meter(seconds=1e9, idle=1e9, usage=MUCH), None),
        (Left(), Meter(interrupted=True), Ended.INTERRUPTED),
        (Left(cost_usd=2.0), Meter(usage=Usage(cost_usd=1.99)), None),
        (Left(cost_usd=2.0), Meter(usage=Usage(cost_usd=2.0)), Ended.BUDGET),
        (Left(cost_usd=2.0), Meter(usage=Usage(cost_usd=2.01)), Ended.BUDGET),
        (Left(tokens=100), Meter(usage=Usage(input_tokens=99)), None),
        (Left(tokens=100), Meter(usage=Usage(input_tokens=100)), Ended.BUDGET),
        (Left(tokens=100), Meter(usage=Usage(0.0, 25, 25, 25, 25)), Ended.BUDGET),
        (Left(tokens=100), Meter(usage=Usage(0.0, 25, 25, 25, 24)), None),
        (Left(seconds=60.0), Meter(seconds=59.9), None),
        (Left(seconds=60.0), Meter(seconds=60.0), Ended.BUDGET),
        (Left(iteration_seconds=60.0), Meter(seconds=59.9), None),
        (Left(iteration_seconds=60.0), Meter(seconds=60.0), Ended.TIMEOUT),
        (Left(idle_seconds=60.0), Meter(seconds=1e9, idle=59.9), None),
        (Left(idle_seconds=60.0), Meter(idle=60.0), Ended.IDLE),
        (Left(done_seconds=30.0), Meter(seconds=99.0), None),
        (Left(done_seconds=30.0), Meter(seconds=99.0, done=29.9), None),
        (Left(done_seconds=30.0), Meter(seconds=99.0, done=30.0), Ended.OK),
        (Left(exit_grace_seconds=30.0), Meter(idle=30.0), None),
        (Left(exit_grace_seconds=30.0), Meter(idle=29.9, is_over=True), None),
        (Left(exit_grace_seconds=30.0), Meter(idle=30.0, is_over=True), Ended.OK),
        (Left(), Meter(is_refused=True), Ended.OK),
        (Left(cost_usd=0.0), Meter(), Ended.BUDGET),
    ],
)
def test_a_limit_ends_the_agent_when_it_is_reached(limits: Left, meter: Meter, ended: Ended | None) -> None:
    """Each limit stops the agent exactly when it is reached; None turns it off."""
    assert policy.watch(limits, meter) is ended


@pytest.mark.parametrize(
    ("limits", "interrupted", "ended"),
    [
        (Left(1.0, 1, 1.0, 1.0, 1.0), True, Ended.INTERRUPTED),
        (Left(1.0, 1, 1.0, 1.0, 1.0), False, Ended.BUDGET),
        (Left(None, None, 1.0, 1.0, 1.0), False, Ended.BUDGET),
        (Left(None, None, None, 1.0, 1.0), False, Ended.TIMEOUT),
        (Left(None, None, None, None, 1.0), False, Ended.IDLE),
        (Left(), False, None),
    ],
)
def test_the_most_important_limit_wins(limits: Left, interrupted: bool, ended: Ended | None) -> None:
    """When several limits are exceeded, the order is: interrupt, run budget, iteration timeout, idle time."""
    meter = Meter(seconds=1e9, idle=1e9, usage=MUCH, interrupted=interrupted)
    assert policy.watch(limits, meter) is ended


# ---- the budget of a run ----


@pytest.mark.parametrize(
    ("limits", "usage", "elapsed", "cause"),
    [
        (Limits(), MUCH, 1e9, None),
        (Limits(cost_usd=5.0), Usage(cost_usd=4.99), 1e9, None),
        (Limits(cost_usd=5.0), Usage(cost_usd=5.0), 0.0, Cause.COST),
        (Limits(tokens=10), Usage(input_tokens=9), 1e9, None),
        (Limits(tokens=10), Usage(0.0, 1, 2, 3, 4), 0.0, Cause.TOKENS),
        (Limits(seconds=60.0), MUCH, 59.9, None),
        (Limits(seconds=60.0), Usage(), 60.0, Cause.DURATION),
        (Limits(cost_usd=1.0, tokens=1, seconds=1.0), MUCH, 1e9, Cause.COST),
        (Limits(tokens=1, seconds=1.0), MUCH, 1e9, Cause.TOKENS),
        (Limits(iterations=1, iteration_seconds=1.0), MUCH, 1e9, None),
    ],
)
def test_a_budget_is_spent_when_it_is_reached(
    limits: Limits, usage: Usage, elapsed: float, cause: Cause | None
) -> None:
    """Cost, tokens and time are budgets of the run, checked in this order; 0 turns one off."""
    assert policy.spent(limits, usage, elapsed) is cause


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        (Limits(exit_grace_seconds=1.0), Left(idle_seconds=8.0, exit_grace_seconds=1.0, done_seconds=300.0)),
        (Limits(iteration_seconds=9.0), Left(None, None, None, 9.0, 8.0, 30.0, 300.0)),
        (Limits(cost_usd=5.0, tokens=100, seconds=60.0), Left(3.5, 58, 20.0, None, 8.0, 30.0, 300.0)),
    ],
)
def test_the_remaining_budget(limits: Limits, left: Left) -> None:
    """Usage reduces the run's budgets, while each iteration's limits stay whole."""
    agent = replace(AGENT, idle_seconds=8.0)
    assert policy.left(limits, Usage(1.5, 10, 30, 1, 1), 40.0, agent) == left


@pytest.mark.parametrize(
    ("limits", "usage", "iterations", "found"),
    [
        (Limits(), Usage(cost_usd=99.0, input_tokens=99), 3, None),
        (Limits(cost_usd=10.0, tokens=10), Usage(), 0, None),
        (Limits(cost_usd=8.0), Usage(cost_usd=6.0), 3, None),
        (
            Limits(cost_usd=7.99),
            Usage(cost_usd=6.0),
            3,
            (Cause.COST, "the next iteration would cost about $2.00, but only $1.99 is left"),
        ),
        (Limits(tokens=4000), Usage(input_tokens=3000), 3, None),
        (
            Limits(tokens=3999),
            Usage(input_tokens=3000),
            3,
            (Cause.TOKENS, "the next iteration would use about 1,000 tokens, but only 999 are left"),
        ),
    ],
)
def test_an_iteration_beyond_the_budget_does_not_start(
    limits: Limits, usage: Usage, iterations: int, found: tuple[Cause, str] | None
) -> None:
    """An iteration starts only if its average cost and tokens are left; the first one always starts."""
    assert policy.unaffordable(limits, usage, iterations) == found


eighths = st.integers(0, 80).map(lambda n: n / 8)
usages = st.builds(Usage, eighths, *[st.integers(0, 20)] * 4)


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(
    st.builds(Limits, cost_usd=eighths, tokens=st.integers(0, 99), seconds=eighths),
    usages,
    eighths,
    usages,
    eighths,
)
def test_the_agent_stops_exactly_when_the_run_has_spent_its_budget(
    limits: Limits, used: Usage, elapsed: float, now: Usage, seconds: float
) -> None:
    """The agent's remaining budget and the run's spent budget agree on when to stop."""
    assume(policy.spent(limits, used, elapsed) is None)
    ended = policy.watch(policy.left(limits, used, elapsed, AGENT), Meter(seconds=seconds, usage=now))
    assert (ended is Ended.BUDGET) is (policy.spent(limits, used + now, elapsed + seconds) is not None)


def test_an_overspent_budget_lets_nothing_run() -> None:
    """An agent asked for a commit message after the budget was exceeded is stopped at once."""
    left = policy.left(Limits(cost_usd=5.0), Usage(cost_usd=6.0), 0.0, AGENT)
    assert policy.watch(left, Meter()) is Ended.BUDGET


@pytest.mark.parametrize(
    "limits",
    [Limits(cost_usd=5.0), Limits(tokens=10), Limits(seconds=60.0)],
    ids=["cost", "tokens", "seconds"],
)
def test_a_budget_spent_exactly_lets_nothing_run(limits: Limits) -> None:
    """An agent asked for a commit message after the budget was used up exactly is stopped at once."""
    left = policy.left(limits, Usage(cost_usd=5.0, input_tokens=10), 60.0, AGENT)
    assert policy.watch(left, Meter(usage=MUCH, seconds=1e9)) is Ended.BUDGET


@pytest.mark.parametrize(
    ("resume", "limits"),
    [
        (Resume(at=0.0), Limits(iterations=10, cost_usd=5.0, tokens=7)),
        (Resume(at=0.0, iterations=20), Limits(iterations=20, cost_usd=5.0, tokens=7)),
        (Resume(at=0.0, cost_usd=9.0), Limits(iterations=10, cost_usd=9.0, tokens=7)),
        (Resume(at=0.0, cost_usd=0.0), Limits(iterations=10, cost_usd=0.0, tokens=7)),
        (Resume(at=0.0, iterations=0, cost_usd=1.0), Limits(iterations=0, cost_usd=1.0, tokens=7)),
    ],
)
def test_a_resume_replaces_the_limits_it_gives(resume: Resume, limits: Limits) -> None:
    """Limits given on resume replace the run's limits, including 0; the others stay."""
    assert policy.raised(Limits(iterations=10, cost_usd=5.0, tokens=7), resume) == limits


# ---- restarting ----


@pytest.mark.parametrize(
    ("took", "before", "after", "healthy"),
    [
        (600.0, None, None, True),
        (599.9, None, None, False),
        (1.0, Seen(at=0.0, tree="a"), Seen(at=1.0, tree="b"), True),
        (1.0, Seen(at=0.0, tree="a"), Seen(at=1.0, tree="a"), False),
        (1.0, Seen(at=0.0, tree="a"), None, False),
        pytest.param(
            1.0,
            Seen(at=0.0, tree="a"),
            Seen(at=1.0, tree=""),
            False,
        ),
    ],
)
def test_a_healthy_attempt(took: float, before: Seen | None, after: Seen | None, healthy: bool) -> None:
    """An attempt that ran for ten minutes or changed the tree is healthy, whatever its exit code."""
    ran = Ran(at=1.0, ended=Ended.FAILED, took=took)
    assert policy.is_healthy(Restart(), ran, before, after) is healthy


@pytest.mark.parametrize(("failures", "delay"), [(0, 1.0), (1, 1.0)])
def test_the_first_restart_comes_at_once(failures: int, delay: float) -> None:
    """After a success or the first failure, the delay is the configured one without jitter."""
    assert policy.restart_delay(Restart(), failures, "run") == delay


@pytest.mark.parametrize(
    ("failures", "nominal"),
    [
        (2, 2.0),
        (3, 4.0),
        (4, 8.0),
        (5, 16.0),
        (6, 32.0),
        (7, 64.0),
        (8, 128.0),
        (9, 256.0),
        (10, 300.0),
        (99, 300.0),
    ],
)
@given(seed=st.text(alphabet="abcdef0123456789-", max_size=24))
@settings(max_examples=30)
def test_the_delay_doubles_up_to_the_longest(failures: int, nominal: float, seed: str) -> None:
    """Each failure in a row doubles the delay up to the maximum; jitter shortens it by at most 40%."""
    assert 0.6 * nominal <= policy.restart_delay(Restart(), failures, seed) <= nominal


@pytest.mark.parametrize("failures", [0, 1, 2, 12, 5000])
def test_a_fixed_delay_is_fixed(failures: int) -> None:
    """A fixed delay has no backoff and no jitter, however often the attempt has failed."""
    assert policy.restart_delay(FIXED, failures, "run") == 5.0


def test_the_delay_depends_on_run_and_failure_alone() -> None:
    """The same failure of the same run always gives the same delay; another run gets a different one."""
    delays = [policy.restart_delay(Restart(), 8, seed) for seed in ("a", "a", "b")]
    assert (delays[0] == delays[1], delays[0] == delays[2]) == (True, False)


def test_a_high_failure_limit_does_not_overflow() -> None:
    """With a very high failure limit, the delay stays at the maximum."""
    assert policy.restart_delay(Restart(most_failures=10_000), 2000, "run") <= 300.0


def test_no_delay_is_longer_than_the_longest() -> None:
    """A first delay configured above the maximum is reduced to it."""
    assert policy.restart_delay(Restart(delay=600.0, longest=300.0), 1, "run") == 300.0


@given(st.text(alphabet="abcdef0123456789-", max_size=24))
def test_at_most_eleven_attempts_in_ten_minutes(seed: str) -> None:
    """An agent that fails at once is started at most eleven times in the first ten minutes."""
    starts = [0.0, *accumulate(policy.restart_delay(Restart(), failures, seed) for failures in range(1, 13))]
    assert sum(start < 600.0 for start in starts) in (10, 11)


# ---- crash loops ----


@pytest.mark.parametrize(
    ("restart", "failures", "fingerprints", "crash_loop"),
    [
        (Restart(), 0, (), False),
        (Restart(), 11, (), False),
        (Restart(), 12, (), True),
        (Restart(), 13, (), True),
        (Restart(), 4, ("x",) * 4, False),
        (Restart(), 5, ("x",) * 5, True),
        (Restart(), 6, ("y", *("x",) * 5), True),
        (Restart(), 6, ("x",) * 4 + ("y", "x"), False),
        (Restart(), 5, ("a", "b", "c", "d", "e"), False),
        (Restart(most_failures=2), 2, ("a", "b"), True),
        (Restart(most_same=1), 1, ("a",), True),
        (Restart(most_same=0), 1, ("a",), False),
        (FIXED, 1000, ("x",) * 5, False),
    ],
)
def test_a_crash_loop(
    restart: Restart, failures: int, fingerprints: tuple[str, ...], crash_loop: bool
) -> None:
    """Twelve failures in a row or five identical ones are a crash loop, unless the delay is fixed."""
    assert policy.is_crash_loop(restart, failures, fingerprints) is crash_loop


# ---- holding for a limit ----


@given(st.floats(0, 2e9), st.one_of(st.none(), st.floats(0, 2e9)))
def test_a_limited_agent_is_not_asked_too_early(now: float, retry_at: float | None) -> None:
    """A hold ends within ten seconds after the reset, never before it."""
    reset = max(now, retry_at if retry_at is not None else now + 60.0)
    assert reset <= policy.limit_until(a_state(now), retry_at) <= reset + 10.0


@given(st.text())
def test_jitter_is_a_fraction(seed: str) -> None:
    """Jitter is in [0, 1) and depends only on the seed."""
    first, again = policy.jitter(seed), policy.jitter(seed)
    assert 0.0 <= first < 1.0 and first == again


def test_jitter_spreads() -> None:
    """The jitter of similar run ids covers the whole range."""
    tenths = {int(10 * policy.jitter(f"20260101-000000-{n:04x}/1")) for n in range(200)}
    assert tenths == set(range(10))
