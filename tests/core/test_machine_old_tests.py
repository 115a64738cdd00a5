"""Old tests that fail on claimed work: told once, then the user decides."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from msgspec.structs import replace

from core.test_machine import CLAIMED, GREEN, GUARDRAIL, RED, SEEN, WORKED, a_plan, play
from ralph.core import machine
from ralph.core.model import (
    Cause,
    Check,
    Checked,
    FailAction,
    Feedback,
    Flow,
    Limits,
    Outcome,
    Phase,
    Resume,
    RunAgent,
    RunChecks,
    State,
    Steer,
    Verdict,
    When,
)

OLD = Check("old tests", "old_tests", when=When.PROVED)
PLAN = a_plan(checks=(OLD, GUARDRAIL))
START, AFTER = replace(SEEN, tree="S"), replace(SEEN, tree="T")
TOLD = Feedback(FailAction.APPEND, "old tests fail")


def red(*tests: str) -> Checked:
    return Checked(3.0, verdicts=(Verdict("old tests", green=False, feedback=TOLD, tests=tests or ("a",)),))


FINE = Checked(at=3.0, verdicts=(Verdict("old tests", green=True, note="something to say"),))
FIRST = (START, CLAIMED, AFTER, GREEN, red())
REFUSED = replace(WORKED, refusal="a is wrong")


def play_on(state: State, *facts: Any) -> State:
    return reduce(machine.apply, facts, state)


def cause(state: State) -> Cause | None:
    return state.stop.cause if state.stop else None


def test_they_run_after_all_other_checks_have_passed() -> None:
    """Not without a claim, and not with a red check, wherever they are in the plan."""
    assert machine.next_step(play(PLAN, START, CLAIMED, AFTER)) == RunChecks(1, ("make test",))
    assert machine.next_step(play(PLAN, START, CLAIMED, AFTER, GREEN)) == RunChecks(1, ("old tests",))
    assert play(PLAN, START, CLAIMED, AFTER, RED).phase is Phase.BEFORE
    state = play(PLAN, START, WORKED, AFTER, GREEN)
    assert (state.phase, state.asked) == (Phase.BEFORE, True), "the claim is asked for"


def test_green_ones_complete() -> None:
    """With the note of the check in the outcome."""
    state = play(PLAN, START, CLAIMED, AFTER, GREEN, FINE, AFTER)
    assert state.stop is not None
    assert (state.stop.cause, state.stop.tree, state.stop.notes) == (Cause.PROVED, "T", ("something to say",))


def test_red_ones_are_told_once() -> None:
    """Then the same ones stop the run, in the phase of its checks; others are told first."""
    state = play(PLAN, *FIRST, START)
    step = machine.next_step(state)
    assert isinstance(step, RunAgent)
    assert (step.feedback, step.may_refuse) == ((TOLD,), True)
    again = play_on(state, CLAIMED, AFTER, GREEN, red())
    assert again.stop is not None
    assert (again.phase, again.stop.cause, again.stop.tests) == (Phase.CHECK, Cause.OLD_TESTS, ("a",))
    assert again.stop.outcome is Outcome.WAITING and again.stop.reason.endswith("these files as they were: a")
    other = play_on(state, CLAIMED, AFTER, GREEN, red("a", "b"))
    assert (other.stop, other.old_red) == (None, ("a", "b"))


def test_resume_takes_the_second_look_again() -> None:
    """With what is allowed now; green, the run completes without an iteration."""
    stopped = play(PLAN, *FIRST, START, CLAIMED, AFTER, GREEN, red())
    for globs in ((), ("a",)):
        state = machine.apply(stopped, Resume(9.0, allow=globs))
        assert (state.allowed, machine.next_step(state)) == (globs, RunChecks(2, ("old tests",)))
    assert cause(play_on(state, red())) is Cause.OLD_TESTS
    done = play_on(state, FINE, AFTER)
    assert (cause(done), done.iteration) == (Cause.PROVED, 2)
    assert machine.apply(state, Resume(9.5, allow=("a", "b"))).allowed == ("a", "b")


def test_without_another_iteration_the_user_decides_at_once() -> None:
    """The agent, which was not told, is told if the run gets more iterations."""
    plan = replace(PLAN, limits=Limits(iterations=1))
    stopped = play(plan, *FIRST)
    assert cause(stopped) is Cause.OLD_TESTS
    state = play_on(stopped, Resume(9.0, iterations=3), red(), START)
    assert isinstance(machine.next_step(state), RunAgent) and state.feedback == (TOLD,)


def test_guidance_comes_before_the_decision() -> None:
    """Guidance that has not been delivered gets an iteration."""
    state = play_on(play(PLAN, *FIRST, START, CLAIMED), Steer(1.0, 1, "restore it"), AFTER, GREEN, red())
    assert (state.stop, state.phase) == (None, Phase.BEFORE)


def test_a_reason_stops_after_the_work_was_checked() -> None:
    """The tag is like a claim: all checks run, and red old tests stop the run with the reason."""
    state = play(PLAN, *FIRST, START, REFUSED, AFTER)
    assert machine.next_step(state) == RunChecks(2, ("make test",))
    stopped = play_on(state, GREEN, red("b"))
    assert stopped.stop is not None
    assert (stopped.stop.cause, stopped.stop.tests) == (Cause.OLD_TESTS, ("b",))
    assert "why the agent changed tests: a is wrong" in stopped.stop.notes
    assert play_on(state, RED).phase is Phase.BEFORE


def test_a_reason_alone_does_not_complete() -> None:
    """If the old tests pass, the claim is asked for."""
    state = play(PLAN, *FIRST, START, REFUSED, AFTER, GREEN, FINE, AFTER)
    assert (state.stop, state.asked, state.judged) == (None, True, False)


def test_a_reason_before_old_tests_are_red_means_nothing() -> None:
    """A quoted tag stops no run."""
    step = machine.next_step(play(PLAN, START))
    assert isinstance(step, RunAgent) and not step.may_refuse


@pytest.mark.parametrize(("plan", "expected"), [(PLAN, "S"), (a_plan(checks=(GUARDRAIL,)), "")])
def test_the_tree_at_the_start_is_kept(plan: Any, expected: str) -> None:
    """It is that of the first look, if a check compares with it."""
    assert play(plan, START).start == expected
    assert play(plan, START, WORKED, AFTER, GREEN, AFTER).start == expected


def test_in_a_prd_loop_they_are_told_and_noted() -> None:
    """Not required there: the approval counts, the next prompt and the outcome say that old tests fail."""
    from ralph.core.model import BoardSeen, ClaimKind

    plan = a_plan(Flow.PRD, checks=(replace(OLD, required=False),))
    assert plan.claim.kind is ClaimKind.BOARD
    board = BoardSeen("review", done=False, approves=True, legal="{}", unapproved="{}")
    ran = replace(WORKED, board=board)
    verdict = Verdict("old tests", green=False, required=False, feedback=TOLD, note="old tests fail: a")
    before = replace(START, board=replace(board, approves=False))
    state = play(plan, before, ran, replace(AFTER, board=board), Checked(3.0, verdicts=(verdict,)))
    assert (state.phase, state.feedback, state.notes) == (Phase.BEFORE, (TOLD,), ("old tests fail: a",))
