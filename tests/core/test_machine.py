"""The state machine of a run, simulated with random sequences of results and commands in all four flows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ralph.core import machine
from ralph.core.model import (
    AgentSpec,
    BoardSeen,
    Cancel,
    Cause,
    Check,
    Checked,
    ClaimKind,
    ClaimRule,
    Command,
    Commit,
    Did,
    Ended,
    FailAction,
    Feedback,
    Flow,
    Hold,
    HoldWhy,
    Limits,
    Look,
    OnLimit,
    Outcome,
    Pause,
    Phase,
    Plan,
    PromptSource,
    Purpose,
    Ran,
    Restart,
    Restore,
    Result,
    Resume,
    RunAgent,
    RunChecks,
    Scm,
    Seen,
    State,
    Steer,
    Step,
    Stop,
    Usage,
    Verdict,
    When,
)

AGENTS = (AgentSpec("first", "custom", "first"), AgentSpec("second", "custom", "second"))


def a_plan(flow: Flow = Flow.RUN, **changes: object) -> Plan:
    base = Plan(
        run="20260101-000000-0000",
        flow=flow,
        directory="/work",
        agents=AGENTS[:1],
        prompt=PromptSource(text="do it"),
        claim=CLAIMS[flow],
        limits=Limits(iterations=3),
    )
    return replace(base, **changes)


CLAIMS = {
    Flow.RUN: ClaimRule(),
    Flow.SUPERVISE: ClaimRule(kind=ClaimKind.DONE),
    Flow.PRD: ClaimRule(kind=ClaimKind.BOARD, tag="promise", text="COMPLETE", strict=True),
    Flow.WORK: ClaimRule(tag="promise", text="REVIEW_PASSED", strict=True),
}
GUARDRAIL = Check("make test", "command")


def play(plan: Plan, *facts: Result | Command) -> State:
    state = machine.start(plan, at=0.0)
    for fact in facts:
        state = machine.apply(state, fact)
    return state


SEEN = Seen(at=1.0)
WORKED = Ran(at=2.0, ended=Ended.OK, agent="first")
CLAIMED = replace(WORKED, claim=True)
GREEN = Checked(at=3.0, verdicts=(Verdict("make test", green=True),))
RED = Checked(
    at=3.0,
    verdicts=(Verdict("make test", green=False, feedback=Feedback(FailAction.APPEND, "it failed")),),
)


# ---- examples ----


def test_a_claim_with_green_checks_completes() -> None:
    """A claim and a passed guardrail complete the run with exit code 0."""
    state = play(a_plan(checks=(GUARDRAIL,)), SEEN, CLAIMED, SEEN, GREEN)
    assert machine.next_step(state) == Stop(Cause.PROVED, "all checks passed")
    assert state.stop and state.stop.outcome.exit_code == 0


def test_a_claim_with_a_red_check_uses_an_iteration() -> None:
    """After a refuted claim the next iteration starts with the feedback, and one iteration is used."""
    state = play(a_plan(checks=(GUARDRAIL,)), SEEN, CLAIMED, SEEN, RED, SEEN)
    step = machine.next_step(state)
    assert isinstance(step, RunAgent)
    assert (step.iteration, step.of) == (2, 3)
    assert step.feedback == (Feedback(FailAction.APPEND, "it failed"),)


def test_green_checks_without_a_claim_do_not_complete() -> None:
    """Passed checks without a claim do not complete the run."""
    state = play(a_plan(checks=(GUARDRAIL,)), SEEN, WORKED, SEEN, GREEN)
    assert (state.stop, state.iteration, state.phase) == (None, 1, Phase.BEFORE)


def test_the_limit_is_exact() -> None:
    """A limit of three iterations allows exactly three."""
    state = play(a_plan(), *(SEEN, WORKED, SEEN) * 3, SEEN)
    assert state.stop == Stop(
        Cause.ITERATIONS, "3 of 3 iterations used; last result: the agent did not say it was done"
    )
    assert state.stop.outcome.exit_code == 1


@pytest.mark.parametrize(
    ("ended", "cause"),
    [(Ended.AUTH, Cause.AUTH), (Ended.DENIED, Cause.DENIED), (Ended.UNSTARTABLE, Cause.UNSTARTABLE)],
)
def test_fatal_ends_stop_after_one_attempt(ended: Ended, cause: Cause) -> None:
    """A failure that no retry can fix stops the run at once with exit code 2."""
    state = play(a_plan(), SEEN, replace(WORKED, ended=ended, detail="why"))
    assert state.stop == Stop(cause, "why")
    assert state.stop.outcome.exit_code == 2


def test_an_agent_that_worked_before_may_be_missing_for_a_minute() -> None:
    """An agent that updates itself is waited for, at most 60 seconds."""
    gone = replace(WORKED, at=10.0, ended=Ended.UNSTARTABLE)
    state = play(a_plan(), SEEN, WORKED, SEEN, SEEN, gone)
    assert machine.next_step(state) == Hold(HoldWhy.RESTART, seconds=2.0)
    state = play(a_plan(), SEEN, WORKED, SEEN, SEEN, gone, Did(70.0, took=60.0), SEEN, gone)
    assert state.stop and state.stop.cause is Cause.UNSTARTABLE


def test_a_limit_uses_no_iteration_and_holds_until_the_reset() -> None:
    """The run holds until the reset and then repeats the same iteration."""
    limited = replace(WORKED, ended=Ended.LIMIT, retry_at=1000.0)
    state = play(a_plan(), SEEN, limited, SEEN)
    hold = machine.next_step(state)
    assert isinstance(hold, Hold) and hold.until is not None and hold.why is HoldWhy.LIMIT
    assert 1000.0 <= hold.until <= 1010.0
    early = machine.apply(state, Did(at=999.0))
    assert machine.next_step(early) == hold
    after = machine.apply(machine.apply(early, Did(at=1010.0)), replace(SEEN, at=1010.0))
    step = machine.next_step(after)
    assert isinstance(step, RunAgent) and step.iteration == 1


def test_a_second_agent_takes_over_while_the_first_is_limited() -> None:
    """The fallback agent works until the first agent's usage limit resets; then the first one returns."""
    limited = replace(WORKED, ended=Ended.LIMIT, retry_at=1000.0)
    state = play(a_plan(agents=AGENTS), SEEN, limited, SEEN)
    step = machine.next_step(state)
    assert isinstance(step, RunAgent) and step.agent == "second"
    later = replace(WORKED, at=2000.0, agent="second")
    state = machine.apply(machine.apply(machine.apply(state, later), SEEN), replace(SEEN, at=2000.0))
    step = machine.next_step(state)
    assert isinstance(step, RunAgent) and step.agent == "first"


def test_a_limit_longer_than_the_longest_wait_stops_as_waiting() -> None:
    """A reset later than the longest allowed wait stops the run with exit code 3."""
    limited = replace(WORKED, ended=Ended.LIMIT, retry_at=1_000_000.0)
    state = play(a_plan(), SEEN, limited, SEEN)
    assert state.stop and state.stop.cause is Cause.LIMIT_WAIT
    assert state.stop.outcome.exit_code == 3


def test_a_done_file_before_the_first_attempt_completes_a_supervised_task() -> None:
    """A DONE file that exists before the first attempt completes the task."""
    state = play(a_plan(Flow.SUPERVISE), replace(SEEN, done=True))
    assert state.stop and state.stop.cause is Cause.PROVED
    assert state.iteration == 0


def test_done_waits_for_children() -> None:
    """A run with DONE completes after its remaining child processes have exited."""
    state = play(a_plan(Flow.SUPERVISE), SEEN, WORKED, replace(SEEN, done=True, children=2))
    assert machine.next_step(state) == Hold(HoldWhy.CHILDREN, seconds=300.0)
    state = machine.apply(state, Did(at=9.0, took=100.0, over=False))
    assert machine.next_step(state) == Hold(HoldWhy.CHILDREN, seconds=200.0)
    state = machine.apply(state, Did(at=10.0, detail="2 children were stopped"))
    assert state.stop == Stop(
        Cause.PROVED, "DONE file found, no child processes left", ("2 children were stopped",)
    )


@pytest.mark.parametrize(("waited", "rest"), [(0.0, 300.0), (40.0, 260.0), (300.0, 0.0), (1e4, 0.0)])
def test_the_agents_time_since_done_is_part_of_the_wait(waited: float, rest: float) -> None:
    """The wait counts from DONE; when it is used up, the children are stopped at once."""
    seen = replace(SEEN, done=True, children=1, waited=waited)
    state = play(a_plan(Flow.SUPERVISE), SEEN, WORKED, seen)
    assert machine.next_step(state) == Hold(HoldWhy.CHILDREN, seconds=rest)


def test_exit_42_waits_without_restart() -> None:
    """A supervised agent that exits with 42 is not restarted, and the run is waiting."""
    state = play(a_plan(Flow.SUPERVISE), SEEN, replace(WORKED, ended=Ended.FAILED, exit=42), SEEN)
    assert state.stop and state.stop.outcome is Outcome.WAITING


def test_a_refusal_sends_the_task_back() -> None:
    """A refusal ends the run at once with its reason, unless the agent also claims completion."""
    plan = a_plan(Flow.WORK)
    refused = replace(WORKED, refusal="it has no tests")
    state = play(plan, SEEN, refused, SEEN)
    assert state.stop == Stop(Cause.REFUSED, "it has no tests")
    assert play(plan, SEEN, replace(refused, claim=True), SEEN).stop == Stop(
        Cause.UNVERIFIED, "no checks configured"
    )


def test_a_given_claim_needs_only_its_checks() -> None:
    """A merge is proved by its checks without an agent; failed checks end it with their reasons."""
    plan = a_plan(Flow.WORK, claim=ClaimRule(kind=ClaimKind.GIVEN), checks=(GUARDRAIL,))
    assert machine.next_step(play(plan, SEEN)) == RunChecks(0, ("make test",))
    assert play(plan, SEEN, GREEN).stop == Stop(Cause.PROVED, "all checks passed")
    red = Checked(at=3.0, verdicts=(Verdict("make test", green=False, reason="exit code 1"),))
    assert play(plan, SEEN, red).stop == Stop(Cause.VERIFICATION, "make test: exit code 1")


def test_a_task_that_cannot_be_committed_is_not_done() -> None:
    """A failed commit leads to another iteration, with the reason as feedback."""
    plan = a_plan(Flow.WORK, scm=Scm("git", ("commit",), "T-1: done"))
    changed = replace(SEEN, changed=True)
    state = play(plan, SEEN, CLAIMED, SEEN, changed, Did(at=5.0, refused="the hook says no"))
    assert state.stop is None and state.unproved == "commit: the hook says no"
    assert state.feedback == (
        Feedback(FailAction.APPEND, "The work could not be committed: the hook says no"),
    )


def test_the_outcome_contains_the_last_failure() -> None:
    """A role that runs out of iterations reports the result of its last verification."""
    plan = a_plan(Flow.WORK, checks=(GUARDRAIL,), limits=Limits(iterations=1))
    red = Checked(at=3.0, verdicts=(Verdict("make test", green=False, reason="exit code 1"),))
    state = play(plan, SEEN, CLAIMED, SEEN, red, SEEN)
    assert state.stop == Stop(Cause.ITERATIONS, "1 of 1 iterations used; last result: make test: exit code 1")


def test_a_board_that_is_done_only_by_its_cap_says_so() -> None:
    """Stories approved at the review limit lead to a separate outcome."""
    plan = a_plan(Flow.PRD, checks=(GUARDRAIL,))
    done = replace(SEEN, board=BoardSeen("implement", done=True, legal="{}", at_cap=("US-1",)))
    state = play(plan, done, GREEN)
    assert state.stop and state.stop.cause is Cause.AUTO_APPROVED
    assert state.stop.notes == ("auto-approved at the review limit: US-1",)


NOT_DONE = replace(SEEN, board=BoardSeen("review", False, legal="{}"))


def test_a_refuted_approval_is_put_back() -> None:
    """Failed checks undo the approval only, and the outcome and the next iteration report why."""
    approving = replace(
        SEEN, board=BoardSeen("review", done=True, approves=True, legal="with", unapproved="without")
    )
    red = Checked(at=3.0, verdicts=(Verdict("make test", green=False, reason="exit code 1"),))
    plan = a_plan(Flow.PRD, checks=(replace(GUARDRAIL, when=When.CLAIMED),))
    state = play(plan, NOT_DONE, WORKED, approving, red)
    assert machine.next_step(state) == Restore(
        "without", ("an approval although verification failed (exit code 1)",)
    )
    state = machine.apply(state, Did(at=4.0))
    assert state.stop is None
    assert state.told == ("an approval although verification failed (exit code 1)",)
    assert state.notes == ("undone: an approval although verification failed (exit code 1)",)


def test_undone_changes_are_reported_to_the_next_iteration() -> None:
    """Illegal changes of a PRD iteration are undone first and reported once to the next iteration."""
    board = BoardSeen(
        "implement", done=False, legal="{}", illegal=("US-1 approved itself",), told=("one only",)
    )
    ruled = replace(WORKED, board=board)
    state = play(a_plan(Flow.PRD), NOT_DONE, ruled, replace(SEEN, board=board), NOT_DONE)
    step = machine.next_step(state)
    assert isinstance(step, RunAgent)
    words = "Ralph about the previous iteration:\n- US-1 approved itself\n- one only"
    assert step.feedback == (Feedback(FailAction.APPEND, words),)
    assert state.notes == ("undone: US-1 approved itself",)
    state = play(a_plan(Flow.PRD), NOT_DONE, ruled, replace(SEEN, board=board), NOT_DONE, WORKED, NOT_DONE)
    assert state.told == ()


@pytest.mark.parametrize("ended", [Ended.LIMIT, Ended.INTERRUPTED])
def test_undone_changes_of_a_cut_off_iteration_are_reported(ended: Ended) -> None:
    """When an iteration is cut off, its repetition is told about the undone changes."""
    board = BoardSeen("implement", done=False, legal="{}", illegal=("no",))
    state = play(a_plan(Flow.PRD), NOT_DONE, replace(WORKED, ended=ended, board=board))
    assert (state.told, state.iteration) == (("no",), 0)


@pytest.mark.parametrize("result", ["check", "commit"])
def test_undone_changes_by_a_check_or_a_hook_are_reported(result: str) -> None:
    """Changes by a check or a git hook are undone and reported, because both may run the agent's code."""
    plan = a_plan(Flow.PRD, checks=(GUARDRAIL,), scm=Scm("git", ("commit",), "left"))
    by_check = ("by a check",) if result == "check" else ()
    by_hook = ("by a hook",) if result == "commit" else ()
    green, done = replace(GREEN, undone=by_check), Did(at=5.0, undone=by_hook)
    state = play(plan, NOT_DONE, WORKED, NOT_DONE, green, replace(SEEN, changed=True), done)
    assert state.told == by_check + by_hook and state.notes == (f"undone: {state.told[0]}",)


def test_a_list_that_was_already_done_is_verified_once() -> None:
    """If all stories were approved already and a verify command fails, the run stops with exit code 1."""
    done = replace(SEEN, board=BoardSeen("implement", done=True, legal="{}"))
    red = Checked(at=3.0, verdicts=(Verdict("make test", green=False, reason="exit code 1"),))
    state = play(a_plan(Flow.PRD, checks=(GUARDRAIL,)), done, red)
    reason = "all stories were already approved, but make test: exit code 1"
    assert state.stop == Stop(Cause.VERIFICATION, reason)


def test_the_board_is_read_again_after_a_pause() -> None:
    """After a pause the story board is read again, because people may have changed it."""
    state = play(a_plan(Flow.PRD), NOT_DONE, Pause(at=2.0), Resume(at=3.0))
    assert machine.next_step(state) == Look()
    assert isinstance(machine.next_step(play(a_plan(), SEEN, Pause(at=2.0), Resume(at=3.0))), RunAgent)


def test_an_empty_answer_in_a_prd_loop_is_retried_three_times() -> None:
    """Three empty answers in a row use no iteration, the fourth does."""
    board = replace(SEEN, board=BoardSeen("implement", False), tree="a")
    empty = replace(WORKED, ended=Ended.EMPTY)
    state = play(a_plan(Flow.PRD), *(board, empty, board) * 3)
    assert state.iteration == 0
    assert play(a_plan(Flow.PRD), *(board, empty, board) * 4).iteration == 1


def test_an_empty_answer_loses_neither_feedback_nor_guidance() -> None:
    """The retry after an empty answer gets the same feedback and guidance."""
    board, empty = replace(NOT_DONE, tree="a"), replace(WORKED, ended=Ended.EMPTY)
    steer = Steer(at=0.5, id=7, text="use tabs")
    illegal = replace(WORKED, board=BoardSeen("implement", False, illegal=("no",)))
    first = (board, illegal, replace(board, board=illegal.board), steer, board)
    once = machine.next_step(play(a_plan(Flow.PRD), *first))
    again = machine.next_step(play(a_plan(Flow.PRD), *first, empty, board, board))
    assert isinstance(once, RunAgent) and isinstance(again, RunAgent)
    assert once.feedback and (again.iteration, again.feedback, again.steer) == (2, once.feedback, (steer,))


def test_an_empty_answer_that_changed_the_list_is_an_iteration() -> None:
    """An empty answer counts as an iteration if the story list changed, even when git ignores the list."""
    changed = replace(SEEN, board=BoardSeen("implement", False, legal='{"x": 1}'))
    state = play(a_plan(Flow.PRD), NOT_DONE, replace(WORKED, ended=Ended.EMPTY), changed)
    assert state.iteration == 1


def test_a_role_may_be_approved_at_its_limit_if_no_check_forbids_it() -> None:
    """With on_limit=approve the role completes with a note, unless a check fails."""
    check = Check("tests", "command", when=When.CLAIMED)
    plan = a_plan(Flow.WORK, on_limit=OnLimit.APPROVE, checks=(check,), limits=Limits(iterations=1))
    at_limit = (SEEN, WORKED, SEEN, SEEN)
    green = play(plan, *at_limit, Checked(at=3.0, verdicts=(Verdict("tests", green=True),)))
    assert green.stop == Stop(
        Cause.AUTO_APPROVED,
        "iterations used up, approved because all checks passed",
        ("auto-approved: iterations used up",),
    )
    red = play(plan, *at_limit, Checked(at=3.0, verdicts=(Verdict("tests", green=False),)))
    assert red.stop and red.stop.outcome.exit_code == 1


def test_a_degraded_check_completes_a_run_only_if_allowed() -> None:
    """A check that passed in degraded form proves nothing unless the user allows it."""
    degraded = Checked(at=3.0, verdicts=(Verdict("make test", green=True, degraded=True),))
    facts = (SEEN, CLAIMED, SEEN, degraded)
    assert play(a_plan(checks=(GUARDRAIL,)), *facts).stop is None
    allowed = play(a_plan(checks=(GUARDRAIL,), allow_degraded=True), *facts)
    assert allowed.stop and allowed.stop.notes == ("degraded: make test",)


# ---- a judge that cannot work ----

UNJUDGED = Verdict("judge", green=True, degraded=True, reason="the judge is broken", cause=Cause.JUDGE)
JUDGED = Check("judge", "semantic")


def test_a_failed_judge_stops_the_run_at_the_first_refused_claim() -> None:
    """The run ends as fatal; when it is resumed, that check runs again and the agent does not."""
    plan = a_plan(checks=(GUARDRAIL, JUDGED))
    green = replace(GREEN, verdicts=(*GREEN.verdicts, replace(UNJUDGED, required=False, check="nice")))
    state = play(plan, SEEN, CLAIMED, SEEN, green, Checked(at=4.0, verdicts=(UNJUDGED,)))
    assert state.stop == Stop(Cause.JUDGE, "the judge is broken")
    assert (state.stop.outcome.exit_code, state.stop.headline) == (2, "Failed: the judge is broken")
    state = machine.apply(machine.apply(state, Did(at=5.0)), Resume(at=6.0))
    assert machine.next_step(state) == RunChecks(1, ("judge",))
    state = machine.apply(state, Checked(at=7.0, verdicts=(Verdict("judge", green=True),)))
    assert state.stop == Stop(Cause.PROVED, "all checks passed")


def test_the_reason_is_that_of_the_stage_whose_judge_failed() -> None:
    """Optional stages are not the reason, although they may have failed in the same way."""
    stages = (
        Verdict("works", green=True, reason="fine"),
        replace(UNJUDGED, check="nice", required=False, reason="an optional one"),
        replace(UNJUDGED, check="criteria", reason="no login", cause=Cause.AUTH),
    )
    whole = replace(UNJUDGED, reason="degraded: …", cause=Cause.AUTH, parts=stages)
    state = play(a_plan(checks=(JUDGED,)), SEEN, CLAIMED, SEEN, Checked(at=3.0, verdicts=(whole,)))
    assert state.stop == Stop(Cause.AUTH, "no login")


@pytest.mark.parametrize(
    ("claim", "other"),
    [
        (CLAIMED, RED.verdicts[0]),
        (CLAIMED, Verdict("make test", green=True, degraded=True)),
        (WORKED, GREEN.verdicts[0]),
    ],
    ids=["another check is red", "another is degraded without a cause", "not claimed"],
)
def test_a_failed_judge_does_not_stop_a_run_that_continues_anyway(claim: Ran, other: Verdict) -> None:
    """If the claim is refused for another reason, or there is none, the agent continues with the feedback."""
    plan = a_plan(checks=(GUARDRAIL, JUDGED))
    state = play(plan, SEEN, claim, SEEN, Checked(at=3.0, verdicts=(other, UNJUDGED)), SEEN)
    assert isinstance(machine.next_step(state), RunAgent)


def test_a_failed_judge_does_not_stop_a_run_that_allows_degraded_verdicts() -> None:
    """The degraded verdict decides: it completes the run, which says so."""
    plan = a_plan(checks=(JUDGED,), allow_degraded=True)
    state = play(plan, SEEN, CLAIMED, SEEN, Checked(at=3.0, verdicts=(UNJUDGED,)))
    assert state.stop == Stop(Cause.PROVED, "all checks passed", ("degraded: judge",))


def test_a_merge_stops_for_its_judge() -> None:
    """A run whose claim was given by earlier runs does not count a failed judge as a red tree."""
    plan = a_plan(Flow.WORK, claim=ClaimRule(kind=ClaimKind.GIVEN), checks=(JUDGED,))
    state = play(plan, SEEN, Checked(at=3.0, verdicts=(UNJUDGED,)))
    assert state.stop == Stop(Cause.JUDGE, "the judge is broken")


def test_resume_may_name_another_judge() -> None:
    """A resumed run uses the judge of the command, and its word on degraded verdicts; without them it keeps its own."""
    judge = AgentSpec("judge", "custom", "judge")
    state = play(a_plan(), Resume(at=1.0, judge=judge, allow_degraded=True))
    assert (state.plan.judge, state.plan.allow_degraded) == (judge, True)
    again = machine.apply(state, Resume(at=2.0))
    assert again.plan == state.plan


def test_a_commit_follows_green_checks_and_not_red_ones() -> None:
    """After passed checks, changes are committed with the agent's message; after failed ones they are not."""
    plan = a_plan(checks=(GUARDRAIL,), scm=Scm("git", ("commit",)))
    changed = replace(SEEN, changed=True, delivery="delivered", head="head")
    message = Ran(at=4.0, ended=Ended.OK, agent="first", text="Add a thing\nbecause")
    state = play(plan, SEEN, CLAIMED, SEEN, GREEN, changed)
    step = machine.next_step(state)
    assert isinstance(step, RunAgent) and step.purpose is Purpose.MESSAGE
    state = machine.apply(state, message)
    assert machine.next_step(state) == Commit(1, "Add a thing", "delivered", "head")
    assert machine.apply(state, Did(at=5.0)).stop is not None
    assert play(plan, SEEN, CLAIMED, SEEN, RED).phase is Phase.BEFORE
    assert play(plan, SEEN, WORKED, SEEN, GREEN, SEEN).phase is Phase.BEFORE


def test_stagnation_stops_at_n() -> None:
    """With a stagnation limit of two, the run stops after two iterations without a change."""
    plan = a_plan(limits=Limits(iterations=9, stagnation=2))
    same = replace(SEEN, tree="abc")
    state = play(plan, *(same, WORKED, same) * 2)
    assert state.stop and state.stop.cause is Cause.STAGNATION
    moved = play(plan, same, WORKED, same, same, WORKED, replace(SEEN, tree="new"))
    assert moved.stop is None and moved.still == 0


def test_a_crash_loop_stops_a_supervised_agent() -> None:
    """Five failures with the same fingerprint stop the run as a crash loop."""
    plan = a_plan(Flow.SUPERVISE, restart=Restart(), limits=Limits(iterations=100))
    failed = replace(WORKED, ended=Ended.FAILED, exit=1, fingerprint="same")
    round_ = (SEEN, failed, SEEN, Did(at=5.0))
    state = play(plan, *round_ * 4, SEEN, failed, SEEN)
    assert state.stop and state.stop.cause is Cause.CRASH_LOOP
    assert state.iteration == 5


def test_steering_reaches_the_next_prompt_once() -> None:
    """Guidance is in the next prompt and not in the one after it."""
    steer = Steer(at=0.5, id=7, text="use tabs")
    state = play(a_plan(), steer, SEEN)
    step = machine.next_step(state)
    assert isinstance(step, RunAgent) and step.steer == (steer,)
    step = machine.next_step(play(a_plan(), steer, SEEN, WORKED, SEEN, SEEN))
    assert isinstance(step, RunAgent) and step.steer == ()


def test_an_interrupted_iteration_is_repeated_and_its_cost_counts() -> None:
    """An interrupted iteration adds to the cost but not to the iteration count."""
    half = replace(WORKED, ended=Ended.INTERRUPTED, usage=Usage(cost_usd=0.5))
    state = play(a_plan(), SEEN, half, SEEN)
    step = machine.next_step(state)
    assert isinstance(step, RunAgent) and step.iteration == 1
    assert state.usage.cost_usd == 0.5


def test_cancel_keeps_the_phase_so_that_resume_repeats_nothing() -> None:
    """A run cancelled between agent and checks resumes with the checks, not with the agent."""
    plan = a_plan(checks=(GUARDRAIL,))
    cancelled = play(plan, SEEN, CLAIMED, SEEN, Cancel(at=3.0), Did(at=3.0))
    assert cancelled.stop and cancelled.stop.outcome.exit_code == 130
    resumed = machine.apply(cancelled, Resume(at=4.0))
    assert machine.next_step(resumed) == RunChecks(1, ("make test",))


def test_resume_with_more_iterations_reopens_a_run_at_its_limit() -> None:
    """A run that used up its iterations continues when it is resumed with a higher limit."""
    state = play(a_plan(limits=Limits(iterations=1)), SEEN, WORKED, SEEN, SEEN)
    assert state.stop
    state = machine.apply(machine.apply(state, Resume(at=9.0, iterations=2)), replace(SEEN, at=9.0))
    step = machine.next_step(state)
    assert isinstance(step, RunAgent) and (step.iteration, step.of) == (2, 2)


def test_resume_does_not_reopen_a_complete_run() -> None:
    """A complete run stays complete when it is resumed."""
    state = play(a_plan(), SEEN, CLAIMED, SEEN)
    assert machine.apply(state, Resume(at=9.0)).stop == state.stop


def test_a_result_that_was_not_asked_for_raises() -> None:
    """The machine accepts only a result of its current step."""
    with pytest.raises(machine.IllegalTransition, match="Ran is not a result of Look"):
        play(a_plan(), WORKED)


# ---- simulation with random answers ----

times = st.floats(0.0, 2000.0)
plans = st.builds(
    lambda flow, checks, scm, limits, on_limit, restart, degraded, agents: a_plan(
        flow,
        checks=checks,
        scm=scm,
        limits=limits,
        on_limit=on_limit,
        restart=restart,
        allow_degraded=degraded,
        agents=AGENTS[:agents],
    ),
    st.sampled_from(Flow),
    st.lists(
        st.builds(
            Check,
            st.sampled_from(["lint", "test", "judge"]),
            st.just("command"),
            required=st.booleans(),
            when=st.sampled_from(When),
        ),
        unique_by=lambda check: check.name,
        max_size=3,
    ).map(tuple),
    st.sampled_from([None, Scm("git", ("commit",))]),
    st.builds(
        Limits,
        iterations=st.integers(0, 5),
        cost_usd=st.sampled_from([0.0, 2.0]),
        seconds=st.sampled_from([0.0, 500.0]),
        stagnation=st.integers(0, 3),
        limit_wait_seconds=st.sampled_from([100.0, 21600.0]),
    ),
    st.sampled_from(OnLimit),
    st.sampled_from([None, Restart(), Restart(delay=0.0)]),
    st.booleans(),
    st.integers(1, 2),
)
boards = st.builds(
    BoardSeen,
    st.sampled_from(["implement", "review", "review-fix"]),
    st.booleans(),
    st.booleans(),
    st.just("{}"),
    st.sampled_from([(), ("illegal",)]),
)
verdicts = st.one_of(
    st.builds(Verdict, st.just(""), st.booleans(), degraded=st.booleans()),
    st.builds(
        Verdict,
        st.just(""),
        st.booleans(),
        degraded=st.just(True),
        cause=st.sampled_from([Cause.JUDGE, Cause.AUTH]),
    ),
)
usages = st.builds(Usage, cost_usd=st.sampled_from([0.0, 0.3, 1.0]))
commands = st.one_of(
    st.builds(Pause, times),
    st.builds(Cancel, times, st.sampled_from([Cause.SIGNAL, Cause.CANCELLED]), st.booleans()),
    st.builds(Steer, times, st.integers(0, 9), st.text(max_size=3)),
    st.builds(Resume, times, st.none() | st.integers(1, 6)),
)


@st.composite
def answers(draw: st.DrawFn, state: State) -> Result:
    """Any possible result of the machine's current step."""
    step, at, took = machine.next_step(state), state.now + draw(times), draw(st.floats(0, 700))
    if isinstance(step, Look):
        prd = state.plan.flow is Flow.PRD
        return Seen(
            at,
            took,
            problem=draw(st.sampled_from([""] * 9 + ["gone"])),
            board=draw(boards) if prd else None,
            done=draw(st.booleans()),
            wait=draw(st.sampled_from([""] * 5 + ["waiting"])),
            children=draw(st.integers(0, 1)),
            tree=draw(st.sampled_from(["", "a", "b"])),
            changed=draw(st.booleans()),
            lacking=draw(st.sampled_from([(), (), ("big is too large",)])),
            waited=draw(st.floats(0, 700)),
        )
    if isinstance(step, RunAgent):
        return Ran(
            at,
            draw(st.sampled_from([Ended.OK] * 6 + list(Ended))),
            step.agent,
            took,
            claim=draw(st.booleans()),
            usage=draw(usages),
            retry_at=draw(st.none() | times.map(lambda t: at + t)),
            exit=draw(st.sampled_from([0, 1, 42])),
            text=draw(st.sampled_from(["", "message"])),
            fingerprint=draw(st.sampled_from("xy")),
            board=draw(boards) if state.plan.flow is Flow.PRD else None,
        )
    if isinstance(step, RunChecks):
        required = {check.name: check.required for check in state.plan.checks}
        some = draw(st.lists(st.sampled_from(step.names), unique=True))
        return Checked(
            at,
            took,
            tuple(replace(draw(verdicts), check=name, required=required[name]) for name in some),
            usage=draw(usages),
            retry_at=draw(st.none() | times.map(lambda t: at + t)),
        )
    return Did(
        at,
        took,
        over=draw(st.booleans()),
        refused=draw(st.sampled_from(["", "", "no"])),
        tree=draw(st.sampled_from(["", "", "a", "b"])) if isinstance(step, Commit) else "",
    )


@dataclass(repr=False)
class History:
    """A plan and everything that happened in its run; the repr shows only the facts."""

    plan: Plan
    facts: list[Result | Command]
    states: list[State]
    steps: list[Step]

    def __repr__(self) -> str:
        return f"History({self.plan.flow}, {self.plan.checks}, {self.facts})"


@st.composite
def histories(draw: st.DrawFn, command: st.SearchStrategy[Command] | None = None) -> History:
    plan = draw(plans)
    state = machine.start(plan, at=0.0)
    history = History(plan, [], [state], [machine.next_step(state)])
    for _ in range(draw(st.integers(1, 60))):
        interrupts = command is not None and draw(st.integers(0, 4)) == 0
        fact: Result | Command = draw(answers(state) if command is None or not interrupts else command)
        state = machine.apply(state, fact)
        history.facts.append(fact)
        history.states.append(state)
        history.steps.append(machine.next_step(state))
        if state.stop and command is None:
            break
    return history


@given(histories(commands), st.data())
def test_replay_of_any_prefix_gives_the_same_state(history: History, data: st.DataObject) -> None:
    """A run's state depends only on its facts, so a replay from any point gives the same states."""
    start = data.draw(st.integers(0, len(history.facts)))
    state = history.states[start]
    for fact, expected in zip(history.facts[start:], history.states[start + 1 :], strict=True):
        state = machine.apply(state, fact)
        assert state == expected


@given(histories(commands))
def test_nothing_completes_without_a_claim_and_green_checks(history: History) -> None:
    """A complete run was claimed in its flow's way, and every required check has passed since."""
    final = history.states[-1]
    if not final.stop or final.stop.outcome is not Outcome.COMPLETE:
        return
    assert _was_claimed(history)
    verdicts = {verdict.check: verdict for verdict in final.verdicts}
    for check in history.plan.checks:
        if check.required:
            verdict = verdicts[check.name]
            assert verdict.green
            assert history.plan.allow_degraded or not verdict.degraded


@given(histories())
def test_a_run_that_stops_for_its_judge_is_resumed_with_its_checks(history: History) -> None:
    """It was claimed, and degraded verdicts may not decide; after a resume no agent starts before the checks."""
    final = history.states[-1]
    if not final.stop or final.stop.cause is not Cause.JUDGE:
        return
    assert final.claimed and not history.plan.allow_degraded
    assert all(verdict.green for verdict in final.verdicts if verdict.required)
    assert isinstance(machine.next_step(machine.apply(final, Resume(at=final.now))), RunChecks)


def _was_claimed(history: History) -> bool:
    """Return whether the run was claimed, judged from its facts alone."""
    if history.states[-1].approved:
        return history.plan.on_limit is OnLimit.APPROVE
    kind = history.plan.claim.kind
    if kind is ClaimKind.TAG:
        works = [
            fact
            for fact, step in zip(history.facts, history.steps, strict=False)
            if isinstance(fact, Ran) and isinstance(step, RunAgent) and step.purpose is Purpose.WORK
        ]
        return works[-1].claim
    phases = (Phase.BEFORE, Phase.AFTER)
    looks = [
        fact
        for fact, state in zip(history.facts, history.states, strict=False)
        if isinstance(fact, Seen) and state.phase in phases
    ]
    last = looks[-1]
    return last.done if kind is ClaimKind.DONE else bool(last.board and last.board.done)


@given(histories())
def test_limits_are_exact(history: History) -> None:
    """There are never more iterations than the limit, and a run that stops at the limit has used all."""
    final = history.states[-1]
    assert final.iteration <= history.plan.limits.iterations
    if final.stop and final.stop.cause is Cause.ITERATIONS:
        assert final.iteration == history.plan.limits.iterations
    for state, step in zip(history.states, history.steps, strict=True):
        if isinstance(step, RunAgent) and step.purpose is Purpose.WORK:
            assert step.iteration == state.iteration + 1 <= history.plan.limits.iterations
            assert not history.plan.limits.cost_usd or state.usage.cost_usd < history.plan.limits.cost_usd


@given(histories(commands), commands)
def test_commands_are_legal_at_any_moment(history: History, command: Command) -> None:
    """Pause, steer, cancel and resume work in every state and always mean the same."""
    for state in history.states:
        after = machine.apply(state, command)
        step = machine.next_step(after)
        if state.stop and isinstance(command, Steer):
            assert step == state.stop or (after.stop is None or after.stop.notes)
        elif state.stop and not isinstance(command, Resume):
            assert step == state.stop
        elif isinstance(command, Cancel):
            assert isinstance(step, Stop) and step.outcome is Outcome.INTERRUPTED
        elif isinstance(command, Pause) and not state.cancelled:
            assert step == Hold(HoldWhy.PAUSED)
        elif isinstance(command, Resume) and state.stop:
            assert (after.stop is None) == (state.stop.outcome is not Outcome.COMPLETE)
        elif isinstance(command, Steer):
            assert after.steer[-1] == command


@given(histories(commands))
def test_no_agent_starts_while_limited_paused_or_stopped(history: History) -> None:
    """No agent starts while it is limited, and a paused or stopped run does nothing."""
    for state, step in zip(history.states, history.steps, strict=True):
        if state.stop:
            assert step == state.stop
        elif isinstance(step, RunAgent):
            assert not state.paused and not state.cancelled
            free = [a.name for a in history.plan.agents if dict(state.limited).get(a.name, 0.0) <= state.now]
            if step.purpose is Purpose.WORK and free:
                assert step.agent == free[0]


def test_every_listed_transition_can_happen() -> None:
    """The state diagram lists exactly the phase changes that can happen."""
    walked = {edge for plan, facts in TOURS for edge in edges(plan, facts)}
    listed = {(start, end) for start, _, end in machine.ARROWS}
    assert listed == walked


def edges(plan: Plan, facts: Sequence[Result | Command]) -> Iterator[tuple[Phase, Phase]]:
    state = machine.start(plan, at=0.0)
    for fact in facts:
        after = machine.apply(state, fact)
        yield state.phase, after.phase
        state = after


def _tours() -> Iterator[tuple[Plan, tuple[Result | Command, ...]]]:
    """Runs that together take every listed transition."""
    limited = replace(WORKED, ended=Ended.LIMIT, retry_at=2.0)
    message = Ran(at=4.0, ended=Ended.OK, agent="first", text="message")
    changed = replace(SEEN, changed=True)
    scm = Scm("git", ("commit",))
    guarded = a_plan(checks=(GUARDRAIL,))
    later = replace(SEEN, at=20.0)
    yield guarded, (SEEN, limited, SEEN, Did(at=20.0), later, WORKED, later, replace(GREEN, verdicts=()), RED)
    committing = replace(guarded, scm=scm)
    cut_off = replace(message, ended=Ended.INTERRUPTED)
    yield (
        committing,
        (SEEN, WORKED, SEEN, GREEN, changed, cut_off, message, Did(at=5.0, over=False), Did(at=5.0)),
    )
    yield committing, (SEEN, WORKED, SEEN, GREEN, SEEN)
    yield committing, (SEEN, WORKED, SEEN, GREEN, replace(SEEN, tree="new"))
    yield committing, (SEEN, WORKED, SEEN, GREEN, changed, message, Did(at=5.0, tree="new"))
    yield a_plan(scm=scm), (SEEN, WORKED, SEEN, changed, message, Did(at=5.0, tree="new"))
    yield a_plan(scm=scm), (SEEN, WORKED, SEEN)
    yield a_plan(), (SEEN, WORKED, SEEN)
    done = replace(SEEN, done=True, children=1, changed=True)
    supervised = a_plan(Flow.SUPERVISE)
    children = (Did(at=6.0, over=False), Did(at=7.0))
    yield supervised, (done, *children)
    yield supervised, (SEEN, WORKED, done, *children)
    yield replace(supervised, checks=(GUARDRAIL,)), (done, GREEN)
    with_scm = replace(supervised, scm=scm)
    yield with_scm, (done, done, message, Did(at=5.0))
    yield with_scm, (done, replace(done, changed=False))
    board = replace(SEEN, board=BoardSeen("implement", False))
    approving = replace(SEEN, board=BoardSeen("review", False, approves=True, legal="{}"))
    yield a_plan(Flow.PRD, checks=(GUARDRAIL,)), (board, WORKED, approving, RED, Did(at=5.0))
    yield (
        a_plan(Flow.WORK, scm=Scm("git", ("commit",), "T-1: done")),
        (SEEN, WORKED, SEEN, changed, Did(at=5.0)),
    )


TOURS = tuple(_tours())
