"""Whether an iteration completes its run, stops it, or leads to another one.

A run becomes complete in one place only: `_settle` sets `judged` when the agent claims to be done and every required
check is green, and only `judged` leads to a complete outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ralph.core import claims, policy
from ralph.core.model import (
    Cause,
    ClaimKind,
    Ended,
    Hold,
    HoldWhy,
    Outcome,
    Phase,
    PromptVia,
    State,
    Stop,
    Verdict,
    When,
)

MAX_QUOTED = 200
"""Characters of guidance, or of an answer, that a note quotes."""

MAX_NAMED = 10
"""Maximum number of paths named in a note."""

COMPLETE_BUT_GUIDED = "all checks passed; the guidance below arrived after your answer"


def checks_or_settle(state: State) -> State:
    return replace(state, phase=Phase.CHECK) if unchecked(state) else _settle(state)


def unchecked(state: State) -> tuple[str, ...]:
    """Names of the checks that are due and have no verdict yet."""
    board = state.after.board if state.after else None
    to_prove = state.claimed or (board is not None and board.approves)
    due = [When.ALWAYS, When.CLAIMED] if to_prove else [When.ALWAYS]
    names = _without_verdict(state, due)
    if names or not to_prove or _red(state):
        return names
    return _without_verdict(state, [When.PROVED])


def _without_verdict(state: State, due: Sequence[When]) -> tuple[str, ...]:
    known = {verdict.check for verdict in state.verdicts}
    checks = (check for check in state.plan.checks if check.when in due)
    return tuple(check.name for check in checks if check.name not in known)


def _red(state: State) -> list[Verdict]:
    return [verdict for verdict in state.verdicts if verdict.required and not is_green(state, verdict)]


def _settle(state: State) -> State:
    """Judge the iteration when every verdict is in. The only place that calls a run proved."""
    red = _red(state)
    if state.claimed and _lacks_only_a_judge(state, red):
        return _stop_for_judge(state, red)
    if state.claimed and red and all(verdict.tests for verdict in red):
        return _with_old_tests_red(state, red)
    green = not red
    if green:
        state = _with_notes_of_checks(state)
    state = replace(state, claimed=state.claimed and not _has_only_refused(state))
    state = replace(state, judged=state.claimed and green)
    board = state.after.board if state.after else None
    if board and board.approves and not green:
        return replace(state, phase=Phase.RESTORE)
    if green and _is_delivered(state):
        return replace(state, phase=Phase.CHANGES)
    return finish(state)


def _is_delivered(state: State) -> bool:
    """Whether what was checked must be compared with what the run leaves behind. A merge delivers a commit."""
    if state.plan.claim.kind is ClaimKind.GIVEN:
        return False
    is_proof = state.claimed and any(verdict.required for verdict in state.verdicts)
    return state.plan.scm is not None or (is_proof and state.after is not None and bool(state.after.tree))


def is_green(state: State, verdict: Verdict) -> bool:
    return verdict.green and (state.plan.allow_degraded or not verdict.degraded)


def _lacks_only_a_judge(state: State, red: list[Verdict]) -> bool:
    """Whether nothing but a judge that could not work refuses the claim."""
    is_open = bool(red) and not state.plan.allow_degraded
    return is_open and all(verdict.degraded and verdict.cause is not None for verdict in red)


def _stop_for_judge(state: State, red: list[Verdict]) -> State:
    """Stop without verdicts of the judge. The phase stays, so that resume asks it about the same work."""
    failed = _judge_failure(red[0])
    assert failed.cause is not None
    kept = tuple(verdict for verdict in state.verdicts if verdict not in red)
    return replace(state, verdicts=kept, stop=stop_of(state, failed.cause, failed.reason))


def _judge_failure(verdict: Verdict) -> Verdict:
    """The verdict of the stage whose judge failed."""
    weak = (part for part in verdict.parts if part.required and part.cause is not None)
    return next(map(_judge_failure, weak), verdict)


def _with_old_tests_red(state: State, red: list[Verdict]) -> State:
    """Tell the agent once that old tests fail; then the user decides."""
    tests = tuple(dict.fromkeys(test for verdict in red for test in verdict.tests))
    state = replace(state, judged=False)
    refusal = state.ran.refusal if state.ran else ""
    is_told = bool(refusal) or set(tests) <= set(state.old_red)
    if may_iterate(state) and (state.steer or not is_told):
        return finish(replace(state, old_red=tuple(dict.fromkeys((*state.old_red, *tests)))))
    if refusal:
        state = noted(state, f"why the agent changed tests: {_quoted(refusal)}")
    return _stop_for_old_tests(state, red, tests)


def _stop_for_old_tests(state: State, red: list[Verdict], tests: tuple[str, ...]) -> State:
    """Stop until the user allows the change. The phase stays, so that resume checks the same work again."""
    kept = tuple(verdict for verdict in state.verdicts if verdict not in red)
    reason = f"tests fail with these files as they were: {listed(tests)}"
    stop = replace(stop_of(state, Cause.OLD_TESTS, reason), tests=tests)
    return replace(state, verdicts=kept, stop=stop)


def _has_only_refused(state: State) -> bool:
    """Whether the agent asked for changed tests instead of saying that it is done."""
    ran = state.ran
    return bool(state.old_red) and ran is not None and bool(ran.refusal) and not ran.claim


def _with_notes_of_checks(state: State) -> State:
    for verdict in state.verdicts:
        if verdict.note:
            state = noted(state, verdict.note)
    return state


def finish(state: State) -> State:
    """End the iteration: complete the run, or continue with feedback."""
    if state.judged and state.steer and may_iterate(state):
        return _guided(state)
    if state.judged:
        if state.after and state.after.children:
            return replace(state, phase=Phase.CHILDREN, hold=wait_for_children(state))
        return complete_run(state)
    if state.approved:
        return stopped(state, Cause.VERIFICATION, "iterations used up and checks still failing")
    red = tuple(v.feedback for v in state.verdicts if not is_green(state, v) and v.feedback)
    if state.plan.claim.kind is ClaimKind.GIVEN:
        return stopped(replace(state, feedback=red), Cause.VERIFICATION, _unproved(state))
    if state.plan.claim.kind is ClaimKind.BOARD and state.claimed and state.before == state.after:
        return stopped(
            state, Cause.VERIFICATION, f"all stories were already approved, but {_unproved(state)}"
        )
    if _lacks_only_claim(state) and state.asked and _stood_still(state):
        return _never_claimed(state)
    state = replace(state, feedback=red, unproved=_unproved(state), asked=_lacks_only_claim(state))
    state = _count_failures(_count_still(state))
    state = replace(state, phase=Phase.BEFORE, verdicts=(), claimed=False, message="")
    if state.limits.stagnation and state.still >= state.limits.stagnation:
        return stopped(state, Cause.STAGNATION, f"no changes in {state.still} iterations in a row")
    restart = state.plan.restart
    if restart and policy.is_crash_loop(restart, state.failures, state.fingerprints):
        return stopped(state, Cause.CRASH_LOOP, f"crash loop: {state.failures} failed attempts in a row")
    is_over = state.iteration >= state.limits.iterations
    if restart and not is_over and not policy.spent(state.limits, state.usage, state.elapsed):
        delay = policy.restart_delay(restart, state.failures, state.plan.run)
        return replace(state, hold=Hold(HoldWhy.RESTART, seconds=delay))
    return state


def may_iterate(state: State) -> bool:
    """Whether another iteration can deliver guidance before the run is complete."""
    return (
        state.plan.claim.kind is ClaimKind.TAG
        and not state.approved
        and state.iteration < state.limits.iterations
        and not policy.spent(state.limits, state.usage, state.elapsed)
        and not policy.unaffordable(state.limits, state.usage, state.iteration)
    )


def _guided(state: State) -> State:
    """One more iteration for guidance that has not been delivered."""
    return replace(
        state,
        phase=Phase.BEFORE,
        verdicts=(),
        claimed=False,
        judged=False,
        message="",
        asked=False,
        feedback=(),
        unproved="guidance was still to be delivered",
        told=(*state.told, COMPLETE_BUT_GUIDED),
    )


def _never_claimed(state: State) -> State:
    """Stop, and say why a tag did not count, and what the agent answered instead of the claim."""
    reason = "all checks green, never claimed"
    ran = state.ran
    if ran is not None and ran.unclaimed:
        reason += f"; the tag in the last answer did not count: {ran.unclaimed}"
    elif ran is not None and ran.text.strip():
        state = noted(state, f"last answer: {_quoted(ran.text)}")
    return stopped(state, Cause.NEVER_CLAIMED, reason)


def _lacks_only_claim(state: State) -> bool:
    """Whether every required check is green, and only the claim is missing."""
    required = {check.name for check in state.plan.checks if check.required and check.when is not When.PROVED}
    green = {verdict.check for verdict in state.verdicts if is_green(state, verdict)}
    red = any(verdict.required and not is_green(state, verdict) for verdict in state.verdicts)
    is_tag = state.plan.claim.kind is ClaimKind.TAG
    return is_tag and not state.claimed and bool(required) and required <= green and not red


def _stood_still(state: State) -> bool:
    """Whether the agent finished this iteration without changing anything."""
    before, after = state.before, state.after
    trees = (before.tree if before else "", after.tree if after else "")
    has_finished = state.ran is not None and state.ran.ended in (Ended.OK, Ended.EMPTY)
    return has_finished and bool(trees[0]) and trees[0] == trees[1] and not state.steer


def _unproved(state: State) -> str:
    """Why this iteration did not complete the run."""
    red = [f"{v.check}: {v.reason}" for v in state.verdicts if v.required and not is_green(state, v)]
    return "; ".join(red) or ("" if state.claimed else _why_not_claimed(state))


def _why_not_claimed(state: State) -> str:
    if state.ran is not None and state.ran.ended is not Ended.OK:
        return f"the agent {state.ran.ended.words}"
    return "the agent did not say it was done"


def complete_run(state: State) -> State:
    state = _left_out(state)
    degraded = [v.check for v in state.verdicts if v.required and v.degraded]
    if degraded:
        state = noted(state, f"degraded: {', '.join(degraded)}")
    board = state.after.board if state.after else None
    if board and board.at_cap:
        state = noted(state, f"auto-approved at the review limit: {', '.join(board.at_cap)}")
        return stopped(
            state,
            Cause.AUTO_APPROVED,
            "all stories approved, some only because they reached the review limit",
        )
    if state.approved:
        state = noted(state, "auto-approved: iterations used up")
        return stopped(state, Cause.AUTO_APPROVED, "iterations used up, approved because all checks passed")
    if state.plan.claim.kind is ClaimKind.DONE and not state.verdicts:
        return stopped(state, Cause.PROVED, "DONE file found, no child processes left")
    if state.plan.claim.kind is ClaimKind.BOARD:
        later = {check.name for check in state.plan.checks if check.when is When.PROVED}
        reasons = "; ".join(verdict.reason for verdict in state.verdicts if verdict.check not in later)
        return stopped(state, Cause.PROVED, f"all stories done; {reasons}")
    if not any(verdict.required for verdict in state.verdicts):
        return stopped(state, Cause.UNVERIFIED, "no checks configured")
    return stopped(state, Cause.PROVED, "all checks passed")


def _left_out(state: State) -> State:
    """Note what the last commit does not contain of the checked tree."""
    seen, scm = state.delivery, state.plan.scm
    if seen is None or scm is None:
        return state
    if not seen.delivery:
        return noted(state, f"what {scm.command} recorded was not compared with the checked files")
    if seen.left_out:
        return noted(
            state, f"checked but not committed, because not part of the work: {listed(seen.left_out)}"
        )
    return state


def _checked_tree(state: State) -> str:
    """The tree on which the required checks passed."""
    if not any(verdict.required for verdict in state.verdicts):
        return ""
    if state.plan.claim.kind is ClaimKind.GIVEN:
        return state.before.tree if state.before else ""
    return state.after.tree if state.after and state.delivery and state.delivery.tree else ""


def stopped(state: State, cause: Cause, reason: str) -> State:
    return replace(state, phase=Phase.BEFORE, stop=stop_of(state, cause, reason))


def stop_of(state: State, cause: Cause, reason: str) -> Stop:
    """The end of a run in this state, with the tree that it proved and the guidance that no iteration has seen."""
    is_complete = cause.outcome is Outcome.COMPLETE
    tree = _checked_tree(state) if is_complete else ""
    undelivered = _undelivered(state, "not delivered" if is_complete else "not delivered yet")
    return Stop(cause, reason, (*state.notes, *undelivered), tree)


def _undelivered(state: State, word: str) -> tuple[str, ...]:
    """Guidance that no iteration has seen. An agent without a prompt gets it through the bus of its task."""
    if state.plan.agents[0].prompt_via is PromptVia.NONE:
        return ()
    return tuple(f"guidance {word}: {_quoted(steer.text)}" for steer in state.steer)


def _quoted(text: str) -> str:
    line = claims.neutralise(" ".join(text.split()))
    return line if len(line) <= MAX_QUOTED else f"{line[:MAX_QUOTED]}..."


def noted(state: State, text: str) -> State:
    return state if text in state.notes else replace(state, notes=(*state.notes, text))


def claimed_without_work(state: State) -> State:
    return checks_or_settle(replace(state, verdicts=(), feedback=()))


def out_of_iterations(state: State) -> State:
    rules = state.plan.rules
    last = f"; last result: {state.unproved}" if rules.explains_limit and state.unproved else ""
    reason = f"{state.iteration} of {state.limits.iterations} {rules.counted} used{last}"
    return stopped(state, Cause.ITERATIONS, reason)


def listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    return ", ".join(paths[:MAX_NAMED]) + more


def wait_for_children(state: State) -> Hold:
    """Wait once in total: the time since DONE appeared while the agent was still running counts."""
    waited = state.after.waited if state.after else 0.0
    return state.hold or Hold(HoldWhy.CHILDREN, seconds=max(0.0, state.limits.children_seconds - waited))


# ---- failures, stagnation ----


def _count_failures(state: State) -> State:
    restart, ran = state.plan.restart, state.ran
    if restart is None or ran is None:
        return state
    if policy.is_healthy(restart, ran, state.before, state.after):
        return replace(state, failures=0, fingerprints=())
    if ran.ended is Ended.OK:
        return state
    last = (*state.fingerprints, ran.fingerprint)[-restart.most_same :]
    return replace(state, failures=state.failures + 1, fingerprints=last)


def _count_still(state: State) -> State:
    if state.before is None or state.after is None or not state.after.tree:
        return state
    moved = state.before.tree != state.after.tree
    return replace(state, still=0 if moved else state.still + 1)
