"""What happens between green checks and a complete run: the files are compared, committed and, if need be, checked again."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from msgspec.structs import replace

from core.test_machine import CLAIMED, GREEN, GUARDRAIL, RED, SEEN, WORKED, a_plan, play
from ralph.core import machine
from ralph.core.model import (
    Cancel,
    Cause,
    Check,
    Checked,
    Commit,
    Did,
    Ended,
    Flow,
    Limits,
    Outcome,
    Phase,
    PromptVia,
    Purpose,
    Ran,
    Resume,
    RunAgent,
    RunChecks,
    Scm,
    Seen,
    State,
    Steer,
    Stop,
    Verdict,
    When,
)

SCM = Scm("git", ("commit",))
FIXED = Scm("git", ("commit",), message="Fixed")
PLAN = a_plan(checks=(GUARDRAIL,), scm=FIXED)
BEFORE = replace(SEEN, tree="start")
AFTER = replace(SEEN, tree="T")
TO_COMMIT = Seen(at=4.0, tree="T", changed=True, delivery="D", head="H", message="From the prompt")
CHANGED = replace(TO_COMMIT, tree="T2", modified=("a.py",))
UP_TO_CHECKS = (BEFORE, CLAIMED, AFTER, GREEN)
MADE = Did(at=6.0, made="C")


def play_on(state: State, *facts: Any) -> State:
    return reduce(machine.apply, facts, state)


def stop_of(state: State) -> Stop:
    assert state.stop is not None
    return state.stop


def step_of(state: State) -> RunAgent:
    step = machine.next_step(state)
    assert isinstance(step, RunAgent)
    return step


# ---- the tree ----


def test_a_complete_run_names_the_checked_tree() -> None:
    """The outcome has the tree that the checks ran on, with and without a commit."""
    assert stop_of(play(PLAN, *UP_TO_CHECKS, TO_COMMIT, MADE)).tree == "T"
    plan = a_plan(checks=(GUARDRAIL,))
    assert stop_of(play(plan, *UP_TO_CHECKS, replace(SEEN, tree="T"))).tree == "T"
    assert stop_of(play(a_plan(), BEFORE, CLAIMED, AFTER)).tree == "", "nothing was checked"


def test_what_is_committed_is_what_was_checked() -> None:
    """The step names the tree, the commit below it, and the work tree at the last look."""
    state = play(PLAN, *UP_TO_CHECKS, TO_COMMIT)
    assert machine.next_step(state) == Commit(1, "Fixed", "D", "H", "T")


def test_changed_files_are_checked_again_once() -> None:
    """If the checks have changed the files, the required ones run again; what they change then is only noted."""
    optional = Check("lint", "command", required=False)
    plan = replace(PLAN, checks=(GUARDRAIL, optional))
    green = replace(GREEN, verdicts=(*GREEN.verdicts, Verdict("lint", green=True, required=False)))
    state = play(plan, BEFORE, CLAIMED, AFTER, green, CHANGED)
    assert machine.next_step(state) == RunChecks(1, ("make test",))
    assert state.after is not None and state.after.tree == "T2" and not state.judged
    again = machine.apply(machine.apply(state, GREEN), replace(CHANGED, tree="T3"))
    assert machine.next_step(again) == Commit(1, "Fixed", "D", "H", "T3")
    stop = stop_of(machine.apply(again, MADE))
    assert stop.tree == "T2" and "changed by the checks each time they run: a.py" in stop.notes


def test_a_red_second_round_is_fed_back() -> None:
    """The next prompt has the failure, and that the checks have changed files."""
    state = play(PLAN, *UP_TO_CHECKS, CHANGED, RED, BEFORE)
    step = step_of(state)
    assert step.feedback[0].text == "it failed"
    assert "the checks changed a.py, so they ran again on the result" in step.feedback[-1].text


def test_another_iteration_gets_a_new_second_round() -> None:
    """The second round is one per iteration."""
    first = (BEFORE, WORKED, AFTER, GREEN, CHANGED, GREEN, replace(TO_COMMIT, tree="T2"), MADE)
    state = play(PLAN, *first, BEFORE, CLAIMED, AFTER, GREEN, CHANGED)
    assert machine.next_step(state) == RunChecks(2, ("make test",))


# ---- the commit ----


def test_a_commit_that_a_hook_changes_is_checked_again_once() -> None:
    """The checks run on what the hook made; if the next commit is changed too, the work is not delivered."""
    by_hook = Did(at=6.0, refused="changed", tree="T2")
    state = play(PLAN, *UP_TO_CHECKS, TO_COMMIT, by_hook)
    assert machine.next_step(state) == RunChecks(1, ("make test",))
    look = replace(TO_COMMIT, tree="T2", delivery="D2")
    state = machine.apply(machine.apply(state, GREEN), look)
    assert machine.next_step(state) == Commit(1, "Fixed", "D2", "H", "T2")
    assert stop_of(machine.apply(state, MADE)).tree == "T2"
    red = machine.apply(state, replace(by_hook, tree="T3"))
    assert red.stop is None and red.unproved == "commit: changed"


def test_a_hook_that_refuses_without_changing_files_is_fed_back() -> None:
    """There is nothing new to check, so the agent gets the reason."""
    state = play(PLAN, *UP_TO_CHECKS, TO_COMMIT, Did(at=6.0, refused="no tabs", tree="T"))
    assert (state.phase, state.unproved) == (Phase.BEFORE, "commit: no tabs")


def test_what_no_tree_can_hold_is_not_delivered() -> None:
    """With a commit to make, the agent is told; without one, the outcome says so."""
    lacking = ("big.bin is larger than 50 MB",)
    state = play(PLAN, *UP_TO_CHECKS, replace(TO_COMMIT, lacking=lacking))
    assert state.stop is None and "big.bin is larger than 50 MB" in state.unproved
    plan = a_plan(checks=(GUARDRAIL,))
    stop = stop_of(play(plan, *UP_TO_CHECKS, replace(AFTER, lacking=lacking)))
    assert stop.notes == ("not in the checked tree: big.bin is larger than 50 MB",)


def test_a_run_stopped_at_its_commit_looks_again() -> None:
    """While it was stopped the files may have changed, so a resumed run compares them first."""
    state = play(replace(PLAN, scm=SCM), *UP_TO_CHECKS, TO_COMMIT)
    assert step_of(state).purpose is Purpose.MESSAGE
    stopped = replace(state, stop=Stop(Cause.GIT, "git died"))
    resumed = machine.apply(stopped, Resume(at=100.0))
    assert resumed.phase is Phase.CHANGES
    assert machine.next_step(machine.apply(resumed, CHANGED)) == RunChecks(1, ("make test",))


@pytest.mark.parametrize(
    "ran",
    [
        Ran(at=5.0, ended=Ended.OK, agent="first", text=" "),
        Ran(at=5.0, ended=Ended.KILLED, agent="first", text="A message"),
        Ran(at=5.0, ended=Ended.TIMEOUT, agent="first"),
        Ran(at=5.0, ended=Ended.UNSTARTABLE, agent="first"),
        Ran(at=5.0, ended=Ended.LIMIT, agent="first", retry_at=9000.0),
        Ran(at=5.0, ended=Ended.OK, agent="first", text="<response>DONE</response>", claim=True),
        Ran(at=5.0, ended=Ended.OK, agent="first", text="I will say `<response>done</response>`."),
    ],
)
def test_without_a_message_what_is_green_is_committed(ran: Ran) -> None:
    """The message is made from the prompt, without waiting for a usage limit, and the outcome says so."""
    state = play(replace(PLAN, scm=SCM), *UP_TO_CHECKS, TO_COMMIT, ran)
    assert machine.next_step(state) == Commit(1, "From the prompt", "D", "H", "T")
    assert "commit message of iteration 1 made from the prompt" in state.notes


def test_a_message_has_a_time_limit() -> None:
    """The call for a message has a time limit even where iterations have none."""
    state = play(replace(PLAN, scm=SCM), *UP_TO_CHECKS, TO_COMMIT)
    assert step_of(state).limits.iteration_seconds == machine.MESSAGE_SECONDS


def test_what_has_changed_at_the_end_is_noted() -> None:
    """The outcome and the state name files that have changed since the proof, and the run is still complete."""
    done = play(PLAN, *UP_TO_CHECKS, TO_COMMIT, MADE)
    ended = machine.apply(done, Did(at=7.0, detail="changed since the checks: a.py"))
    stop = stop_of(ended)
    assert (stop.cause, stop.tree, stop.notes) == (Cause.PROVED, "T", ("changed since the checks: a.py",))
    assert ended.notes == stop.notes


def test_what_is_checked_but_not_committed_is_noted() -> None:
    """The outcome lists it, and another command than git is named."""
    left = replace(TO_COMMIT, left_out=(".env", "notes.txt"))
    notes = stop_of(play(PLAN, *UP_TO_CHECKS, left, MADE)).notes
    assert notes == ("checked but not committed, because not part of the work: .env, notes.txt",)
    other = replace(PLAN, scm=Scm("jj", ("commit",), "Fixed"))
    notes = stop_of(play(other, *UP_TO_CHECKS, replace(TO_COMMIT, delivery="", head=""), Did(at=6.0))).notes
    assert notes == ("what jj recorded was not compared with the checked files",)


# ---- the claim ----

UNCLAIMED = (BEFORE, WORKED, BEFORE, GREEN)


def test_green_checks_without_a_claim_ask_for_it() -> None:
    """The next prompt asks, until a check fails or the agent claims."""
    plan = a_plan(checks=(GUARDRAIL,))
    assert not step_of(play(plan, BEFORE)).asks_claim
    assert step_of(play(plan, *UNCLAIMED, BEFORE)).asks_claim
    assert not step_of(play(plan, BEFORE, WORKED, BEFORE, RED, BEFORE)).asks_claim
    assert stop_of(play(plan, *UNCLAIMED, BEFORE, CLAIMED, BEFORE, GREEN, BEFORE)).cause is Cause.PROVED


def test_a_run_that_never_claims_ends() -> None:
    """If an iteration that was asked changes nothing and does not claim, the run ends with a separate cause."""
    plan = a_plan(checks=(GUARDRAIL,), limits=Limits(iterations=9))
    stop = stop_of(play(plan, *UNCLAIMED, *UNCLAIMED))
    assert (stop.cause, stop.reason) == (Cause.NEVER_CLAIMED, "all checks green, never claimed")
    assert stop.outcome is Outcome.LIMIT


def test_a_run_that_never_claimed_says_what_the_agent_said_instead() -> None:
    """A tag that did not count, with the reason, or else the answer; resumed, the agent is asked again."""
    plan = a_plan(checks=(GUARDRAIL,), limits=Limits(iterations=9))
    quoting, asking = (
        replace(WORKED, unclaimed="in backticks"),
        replace(WORKED, text="Is A\nor <promise>B</promise> right?"),
    )
    stop = stop_of(play(plan, *UNCLAIMED, BEFORE, quoting, BEFORE, GREEN))
    assert stop.reason.endswith("never claimed; the tag in the last answer did not count: in backticks")
    state = play(plan, *UNCLAIMED, BEFORE, asking, BEFORE, GREEN)
    assert stop_of(state).notes == ("last answer: Is A or &lt;promise&gt;B&lt;/promise&gt; right?",)
    assert step_of(play_on(state, Resume(5.0), BEFORE)).asks_claim


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ((BEFORE, WORKED, AFTER, GREEN), "it changed something"),
        ((BEFORE, WORKED, BEFORE, RED), "a check failed"),
        ((BEFORE, replace(WORKED, ended=Ended.FAILED), BEFORE, GREEN), "it did not finish"),
        ((SEEN, WORKED, SEEN, GREEN), "the trees are unknown"),
        (
            (
                Steer(at=2.0, id=1, text="more"),
                BEFORE,
                WORKED,
                BEFORE,
                Steer(at=2.5, id=2, text="go"),
                GREEN,
            ),
            "guided",
        ),
    ],
)
def test_a_run_that_may_still_move_continues(second: tuple[Seen, ...], why: str) -> None:
    """Only an iteration that finished without changing anything ends the run."""
    plan = a_plan(checks=(GUARDRAIL,), limits=Limits(iterations=9))
    assert play(plan, *UNCLAIMED, *second).stop is None, why


def test_checks_that_were_not_run_are_not_green() -> None:
    """A role whose verification waits for a claim is not asked for one because its other checks passed."""
    verification = Check("coder: external", "external", when=When.CLAIMED)
    plan = a_plan(Flow.WORK, checks=(GUARDRAIL, verification), limits=Limits(iterations=9))
    assert play(plan, *UNCLAIMED, *UNCLAIMED).stop is None
    assert not step_of(play(plan, *UNCLAIMED, BEFORE)).asks_claim
    assert play(a_plan(limits=Limits(iterations=9)), *(BEFORE, WORKED, BEFORE) * 3).stop is None, "no checks"


def test_why_a_tag_did_not_count_is_told() -> None:
    """The next prompt has the reason, with a tag that cannot be taken for a claim."""
    ran = replace(WORKED, unclaimed="in backticks")
    step = step_of(play(a_plan(), SEEN, ran, SEEN, SEEN))
    (told,) = step.feedback
    assert "&lt;response&gt;DONE&lt;/response&gt; in your answer did not count: in backticks" in told.text
    assert step_of(play(a_plan(), SEEN, ran, SEEN, SEEN, WORKED, SEEN, SEEN)).feedback == ()


# ---- guidance ----

LATE = Steer(at=2.5, id=1, text="use tabs")


def test_guidance_is_delivered_before_a_run_is_complete() -> None:
    """Guidance that arrives during the last iteration gets one more, and the agent has to claim again."""
    plan = a_plan(checks=(GUARDRAIL,))
    state = play(plan, BEFORE, CLAIMED, LATE, AFTER, GREEN, AFTER, BEFORE)
    step = step_of(state)
    assert step.steer == (LATE,) and "all checks passed; the guidance below" in step.feedback[0].text
    assert stop_of(play(plan, BEFORE, CLAIMED, LATE, AFTER, GREEN, AFTER, *UP_TO_CHECKS, AFTER)).notes == ()


def test_guidance_that_arrives_after_the_decision_is_delivered_too() -> None:
    """A run that is complete but has not ended yet continues."""
    state = play(a_plan(checks=(GUARDRAIL,)), *UP_TO_CHECKS, AFTER, LATE, BEFORE)
    assert step_of(state).steer == (LATE,)


@pytest.mark.parametrize("late", [True, False])
def test_guidance_that_cannot_be_delivered_is_named(late: bool) -> None:
    """Without an iteration left, the run is complete, and its ending says what was not delivered."""
    plan = a_plan(checks=(GUARDRAIL,), limits=Limits(iterations=1))
    facts = (*UP_TO_CHECKS, AFTER, LATE) if late else (BEFORE, CLAIMED, LATE, AFTER, GREEN, AFTER)
    stop = stop_of(play(plan, *facts))
    assert (stop.cause, stop.notes) == (Cause.PROVED, ("guidance not delivered: use tabs",))


def test_guidance_that_waits_for_the_next_prompt_is_named_at_every_end() -> None:
    """A run that stopped at a limit, or was cancelled, says what its next prompt will have."""
    plan = a_plan(checks=(GUARDRAIL,), limits=Limits(iterations=1))
    note = "guidance not delivered yet: use tabs"
    at_limit = play(plan, BEFORE, CLAIMED, LATE, AFTER, RED, BEFORE)
    assert (stop_of(at_limit).cause, stop_of(at_limit).notes) == (Cause.ITERATIONS, (note,))
    cancelled = machine.next_step(play(a_plan(), BEFORE, LATE, Cancel(3.0, Cause.CANCELLED)))
    assert isinstance(cancelled, Stop) and cancelled.notes == (note,)
    resumed = play_on(at_limit, Resume(5.0, iterations=2), BEFORE)
    assert step_of(resumed).steer == (LATE,)
    assert stop_of(play_on(resumed, CLAIMED, AFTER, GREEN, AFTER)).notes == ()


def test_guidance_for_a_task_that_is_done_is_named() -> None:
    """DONE ends a supervised task, whatever was said meanwhile; a command got it through its bus."""
    agent = PLAN.agents[0]
    command = replace(agent, prompt_via=PromptVia.NONE)
    done = replace(AFTER, done=True)
    for spec, notes in ((agent, ("guidance not delivered: use tabs",)), (command, ())):
        plan = a_plan(Flow.SUPERVISE, agents=(spec,))
        assert stop_of(play(plan, BEFORE, WORKED, LATE, done)).notes == notes


def test_a_role_is_not_kept_by_a_check_without_a_verdict() -> None:
    """A check that was interrupted has no verdict, so nothing is green yet."""
    state = play(a_plan(checks=(GUARDRAIL,)), BEFORE, CLAIMED, AFTER, Checked(at=3.0))
    assert state.phase is Phase.CHECK
