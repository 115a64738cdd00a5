"""One run as a state machine without I/O.

    next_step(State) -> Step           the step to take now
    apply(State, Result | Command)     the state after a result or a command

A driver asks for a step, carries it out, and returns the result. Every rule about another iteration,
waiting and stopping is in this file, in `settling` and in `policy`. `ARROWS` lists every legal change of
phase; any other raises.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from ralph.core import claims, policy
from ralph.core.model import (
    AgentSpec,
    Cancel,
    Cause,
    Checked,
    ClaimKind,
    Command,
    Commit,
    Did,
    Ended,
    Fail,
    FailAction,
    Feedback,
    Hold,
    HoldWhy,
    Look,
    OnLimit,
    Outcome,
    Pause,
    Phase,
    Plan,
    Purpose,
    Ran,
    Restore,
    Result,
    Resume,
    RunAgent,
    RunChecks,
    Seen,
    State,
    Steer,
    Step,
    Stop,
    Verdict,
    When,
)
from ralph.core.settling import (
    COMPLETE_BUT_GUIDED,
    checks_or_settle,
    claimed_without_work,
    complete_run,
    finish,
    is_green,
    listed,
    may_iterate,
    noted,
    out_of_iterations,
    stop_of,
    stopped,
    unchecked,
    wait_for_children,
)

WAIT_EXIT = 42
"""Exit code of a supervised agent that waits for something external."""

MAX_EMPTIES = 3

MESSAGE_SECONDS = 300.0
"""An agent that takes longer for a commit message is stopped, and the message is made from the prompt."""

ARROWS: tuple[tuple[Phase, str, Phase], ...] = (
    (Phase.BEFORE, "may start", Phase.WORK),
    (Phase.BEFORE, "already claimed, or approved at the limit", Phase.CHECK),
    (Phase.BEFORE, "already claimed, nothing to check", Phase.CHANGES),
    (Phase.BEFORE, "already claimed, children left", Phase.CHILDREN),
    (Phase.BEFORE, "limit, budget, marker or problem: stop", Phase.BEFORE),
    (Phase.WORK, "the agent ran, successfully or not", Phase.AFTER),
    (Phase.WORK, "limited, interrupted or fatal", Phase.BEFORE),
    (Phase.AFTER, "checks are due", Phase.CHECK),
    (Phase.AFTER, "nothing to check, and there is a repository to commit to", Phase.CHANGES),
    (Phase.AFTER, "claimed, children left", Phase.CHILDREN),
    (Phase.AFTER, "next iteration, or stop", Phase.BEFORE),
    (Phase.RESTORE, "next iteration, or stop", Phase.BEFORE),
    (Phase.CHECK, "verdicts missing", Phase.CHECK),
    (Phase.CHECK, "an approval was refuted", Phase.RESTORE),
    (Phase.CHECK, "checks passed", Phase.CHANGES),
    (Phase.CHECK, "claimed, children left", Phase.CHILDREN),
    (Phase.CHECK, "next iteration, or stop", Phase.BEFORE),
    (Phase.CHANGES, "the checks have changed the files", Phase.CHECK),
    (Phase.CHANGES, "there is something to commit", Phase.MESSAGE),
    (Phase.CHANGES, "there is something to commit, and a message", Phase.COMMIT),
    (Phase.CHANGES, "claimed, children left", Phase.CHILDREN),
    (Phase.CHANGES, "next iteration, or stop", Phase.BEFORE),
    (Phase.MESSAGE, "interrupted", Phase.MESSAGE),
    (Phase.MESSAGE, "has a message, from the agent or the prompt", Phase.COMMIT),
    (Phase.COMMIT, "interrupted", Phase.COMMIT),
    (Phase.COMMIT, "a hook has changed the files", Phase.CHECK),
    (Phase.COMMIT, "a hook has changed the files, nothing to check", Phase.CHANGES),
    (Phase.COMMIT, "claimed, children left", Phase.CHILDREN),
    (Phase.COMMIT, "next iteration, or stop", Phase.BEFORE),
    (Phase.CHILDREN, "still waiting", Phase.CHILDREN),
    (Phase.CHILDREN, "stop", Phase.BEFORE),
)
_LEGAL = {(start, end) for start, _, end in ARROWS}

_CLAIMABLE = {Ended.OK, Ended.FAILED, Ended.TIMEOUT, Ended.IDLE}
"""Ends after which a claim still counts; the checks decide whether it is true."""

_FATAL = {
    Ended.AUTH: (Cause.AUTH, "the agent is not logged in or is out of credit"),
    Ended.DENIED: (Cause.DENIED, "the agent was not allowed to write anything"),
}


class IllegalTransition(Exception):
    """The driver returned a result that does not belong to the requested step."""


def start(plan: Plan, at: float) -> State:
    return State(plan=plan, limits=plan.limits, now=at)


def next_step(state: State) -> Step:
    """The step to take now, by precedence: stop, cancel, pause, hold, the step of the phase."""
    if state.stop:
        return state.stop
    if state.cancelled:
        by = state.cancelled.by or ("a signal" if state.cancelled.cause is Cause.SIGNAL else "`ralph cancel`")
        return stop_of(state, state.cancelled.cause, f"stopped by {by}")
    if state.paused:
        return Hold(HoldWhy.PAUSED)
    if state.hold:
        return state.hold
    return _STEPS[state.phase](state)


def apply(state: State, fact: Result | Command) -> State:
    """The state after a result of the current step, or after a command, which is legal at any time."""
    if isinstance(fact, Pause | Cancel | Steer | Resume | Fail):
        return _command(replace(state, now=fact.at), fact)
    step = next_step(state)
    if not isinstance(fact, _RESULT_OF[type(step)]):
        raise IllegalTransition(f"{type(fact).__name__} is not a result of {type(step).__name__}")
    elapsed = 0.0 if _is_pause(step) else fact.took
    state = replace(state, now=fact.at, elapsed=state.elapsed + elapsed)
    if isinstance(step, Stop):
        return _ended(state, step, fact)
    if isinstance(step, Hold) and step.why is not HoldWhy.CHILDREN:
        return _held(state, step, fact)
    after = _RESULTS[state.phase](state, fact)
    if (state.phase, after.phase) not in _LEGAL:
        raise IllegalTransition(f"{state.phase} -> {after.phase}")
    return after


def _ended(state: State, stop: Stop, did: Result) -> State:
    if isinstance(did, Did):
        if did.detail:
            state, stop = noted(state, did.detail), replace(stop, notes=(*stop.notes, did.detail))
        stop = replace(stop, notes=tuple(dict.fromkeys((*stop.notes, *did.notes))))
    return replace(state, stop=stop)


# ---- commands and holds ----


def _command(state: State, command: Command) -> State:
    if isinstance(command, Pause):
        return replace(state, paused=True)
    if isinstance(command, Cancel):
        hurry = command.now or (state.cancelled is not None and state.cancelled.now)
        return replace(state, cancelled=replace(command, now=hurry))
    if isinstance(command, Steer):
        return _steered(replace(state, steer=(*state.steer, command)))
    if isinstance(command, Fail):
        return replace(state, stop=state.stop or stop_of(state, command.cause, command.reason))
    plan, limits = policy.rejudged(state.plan, command), policy.raised(state.limits, command)
    allowed = tuple(dict.fromkeys((*state.allowed, *command.allow)))
    state = replace(state, plan=plan, limits=limits, allowed=allowed, paused=False, cancelled=None)
    if state.phase is Phase.WORK and state.plan.claim.kind is ClaimKind.BOARD:
        state = replace(state, phase=Phase.BEFORE)  # people may have edited the board meanwhile
    if state.stop and state.stop.outcome is not Outcome.COMPLETE:
        return _reopen(state)
    return state


def _steered(state: State) -> State:
    """Guidance that arrives when the run is complete but has not ended is still delivered, if possible."""
    if state.stop is None or state.stop.outcome is not Outcome.COMPLETE:
        return state
    if may_iterate(state):
        return replace(state, stop=None, told=(*state.told, COMPLETE_BUT_GUIDED))
    return replace(state, stop=stop_of(state, state.stop.cause, state.stop.reason))


def _reopen(state: State) -> State:
    """Reset the counters that led to the stop; the phase stays, so that no step is repeated.

    Only a commit is prepared again, because the files may have changed since.
    """
    delivers = state.phase in (Phase.MESSAGE, Phase.COMMIT)
    return replace(
        state,
        phase=Phase.CHANGES if delivers else state.phase,
        rechecked=False,
        asked=state.stop is not None and state.stop.cause is Cause.NEVER_CLAIMED,
        stop=None,
        hold=None,
        approved=state.approved and state.phase is not Phase.BEFORE,
        failures=0,
        fingerprints=(),
        still=0,
        unstartable_since=None,
        limited_since=None,
    )


def _is_pause(step: Step) -> bool:
    return isinstance(step, Hold) and step.why is HoldWhy.PAUSED


def _held(state: State, step: Hold, did: Result) -> State:
    """End a hold when its time has come; a hold that was interrupted keeps its remaining time.

    News in a supervised task's folder ends a hold for a usage limit early; `_before` then decides again.
    """
    if step.why is HoldWhy.PAUSED:
        return state
    is_over = isinstance(did, Did) and did.over
    if step.until is not None:
        is_due = state.now >= step.until or (is_over and state.plan.task is not None)
        return replace(state, hold=None) if is_due else state
    if not is_over:
        rest = max(0.0, (step.seconds or 0.0) - did.took)
        return replace(state, hold=replace(step, seconds=rest) if rest else None)
    return replace(state, hold=None)


# ---- the step of each phase ----


def _look(state: State) -> Look:
    return Look()


def _run_agent(state: State) -> RunAgent:
    agent = _free_agent(state)
    return RunAgent(
        purpose=Purpose.WORK,
        iteration=state.iteration + 1,
        agent=agent.name,
        role=_role(state),
        limits=policy.left(state.limits, state.usage, state.elapsed, agent),
        of=state.limits.iterations,
        feedback=state.feedback + _told(state),
        steer=state.steer,
        story=state.before.board.story if state.before and state.before.board else "",
        asks_claim=state.asked,
        may_refuse=bool(state.old_red),
    )


def _told(state: State) -> tuple[Feedback, ...]:
    """Feedback about the previous iteration: undone changes, and changes that must not happen again."""
    if not state.told:
        return ()
    lines = "\n".join(f"- {claims.neutralise(text)}" for text in state.told)
    return (Feedback(FailAction.APPEND, f"Ralph about the previous iteration:\n{lines}"),)


def _ask_message(state: State) -> RunAgent:
    agent = _free_agent(state)
    limits = policy.left(state.limits, state.usage, state.elapsed, agent)
    seconds = min(limits.iteration_seconds or MESSAGE_SECONDS, MESSAGE_SECONDS)
    limits = replace(limits, iteration_seconds=seconds)
    return RunAgent(Purpose.MESSAGE, state.iteration, agent.name, _role(state), limits)


def _restore(state: State) -> Restore:
    board = state.after.board if state.after else None
    assert board is not None
    red = (verdict.reason for verdict in state.verdicts if not is_green(state, verdict))
    told = tuple(f"an approval although verification failed ({reason})" for reason in red)
    return Restore(board.unapproved or board.legal, told)


def _run_checks(state: State) -> RunChecks:
    return RunChecks(state.iteration, unchecked(state))


def _commit(state: State) -> Commit:
    seen = state.delivery or Seen(state.now)
    return Commit(state.iteration, state.message, seen.delivery, seen.head, seen.tree)


_STEPS: dict[Phase, Callable[[State], Step]] = {
    Phase.BEFORE: _look,
    Phase.WORK: _run_agent,
    Phase.AFTER: _look,
    Phase.RESTORE: _restore,
    Phase.CHECK: _run_checks,
    Phase.CHANGES: _look,
    Phase.MESSAGE: _ask_message,
    Phase.COMMIT: _commit,
    Phase.CHILDREN: wait_for_children,
}

_RESULT_OF: dict[type[Step], type[Result]] = {
    Look: Seen,
    RunAgent: Ran,
    RunChecks: Checked,
    Restore: Did,
    Commit: Did,
    Hold: Did,
    Stop: Did,
}


# ---- the state after a result, phase by phase ----


def _before(state: State, seen: Seen) -> State:
    """Decide whether another iteration may start: first existing claims, then the limits."""
    start = state.start or _start_of_run(state, seen)
    state = replace(state, before=seen, after=None, claimed=False, judged=False, verdicts=(), start=start)
    if seen.problem:
        return stopped(state, Cause.CONFIG, seen.problem)
    if _claim_on_disk(state, seen):
        return claimed_without_work(replace(state, after=seen, claimed=True))
    if seen.wait:
        return stopped(state, Cause.WAIT_MARKER, seen.wait)
    if state.iteration >= state.limits.iterations:
        if state.plan.on_limit is OnLimit.APPROVE and not state.approved:
            return claimed_without_work(replace(state, after=seen, claimed=True, approved=True))
        return out_of_iterations(state)
    if cause := policy.spent(state.limits, state.usage, state.elapsed):
        return stopped(state, cause, f"{policy.BUDGETS[cause]} budget used up")
    if too_dear := policy.unaffordable(state.limits, state.usage, state.iteration):
        return stopped(state, *too_dear)
    if until := _all_limited_until(state):
        return _hold_for_limit(state, until)
    return replace(state, phase=Phase.WORK)


def _start_of_run(state: State, seen: Seen) -> str:
    """The tree that no agent has changed yet, if a check compares with it."""
    is_first = state.iteration == 0 and state.again == 0
    is_wanted = any(check.when is When.PROVED for check in state.plan.checks)
    return seen.tree if is_first and is_wanted else ""


def _worked(state: State, ran: Ran) -> State:
    """Handle the end of the agent's process; `ended` decides whether the iteration counts."""
    state = _undone(replace(state, ran=ran, usage=state.usage + ran.usage), _illegal(ran))
    if ran.ended is Ended.UNSTARTABLE:
        return _unstartable(state, ran)
    state = replace(state, started=True, unstartable_since=None, again=state.again + 1)
    if ran.ended is Ended.INTERRUPTED:
        return replace(state, phase=Phase.BEFORE)
    if ran.ended is Ended.LIMIT:
        return replace(_limited(state, ran), phase=Phase.BEFORE)
    if ran.ended in _FATAL:
        cause, reason = _FATAL[ran.ended]
        return stopped(state, cause, ran.detail or reason)
    state = replace(
        state,
        phase=Phase.AFTER,
        iteration=state.iteration + 1,
        again=0,
        limited_since=None,
        rechecked=False,
        delivery=None,
    )
    return state if _may_be_asked_again(state) else replace(_heard(state), steer=())


def _heard(state: State) -> State:
    """Drop the feedback that was delivered; keep the feedback for the next prompt."""
    ran = state.ran
    told = ran.board.illegal + ran.board.told if ran and ran.board else ()
    if ran and ran.unclaimed and not ran.claim:
        rule = state.plan.claim
        told = (*told, f"<{rule.tag}>{rule.text}</{rule.tag}> in your answer did not count: {ran.unclaimed}")
    return replace(state, feedback=(), told=told)


def _illegal(ran: Ran) -> tuple[str, ...]:
    return ran.board.illegal if ran.board else ()


def _undone(state: State, what: tuple[str, ...]) -> State:
    """Record the changes that Ralph undid, for the next prompt and the notes of the outcome."""
    state = replace(state, told=state.told + tuple(text for text in what if text not in state.told))
    for text in what:
        state = noted(state, f"undone: {text}")
    return state


def _after(state: State, seen: Seen) -> State:
    """Evaluate the result of the iteration: a claim, a wait marker."""
    ran = state.ran
    assert ran is not None
    state = replace(state, after=seen)
    if seen.problem:
        return stopped(state, Cause.CONFIG, seen.problem)
    if _is_retried_empty(state, seen):
        again = state.empties + 1
        return replace(state, phase=Phase.BEFORE, iteration=state.iteration - 1, empties=again, again=again)
    if _may_be_asked_again(state):
        state = _heard(state)
    state = replace(state, ran=replace(ran, board=None))  # from here on it is `after.board`
    claimed = _claim_on_disk(state, seen) or _claim_by_tag(state) or _claim_by_refusal(state)
    state = replace(state, claimed=claimed, empties=0)
    if not state.claimed and (reason := _wait_reason(state, seen)):
        return stopped(state, Cause.WAIT_MARKER, reason)
    if not state.claimed and ran.refusal and not state.old_red:
        return stopped(state, Cause.REFUSED, ran.refusal)
    return checks_or_settle(state)


def _restored(state: State, did: Did) -> State:
    return finish(_undone(state, _restore(state).told))


def _checked(state: State, checked: Checked) -> State:
    state = replace(
        _undone(state, checked.undone),
        verdicts=(*state.verdicts, *checked.verdicts),
        usage=state.usage + checked.usage,
    )
    if checked.retry_at is not None and unchecked(state):
        return _hold_for_limit(state, policy.limit_until(state, checked.retry_at))
    return checks_or_settle(state)


def _changes(state: State, seen: Seen) -> State:
    """Deliver what was checked: check again if the files have changed since, then commit."""
    if _is_changed(state, seen) and not state.rechecked:
        return _recheck(state, seen.tree, f"the checks changed {listed(seen.modified) or 'files'}")
    state = _described(replace(state, delivery=seen))
    if state.plan.scm is None or not seen.changed:
        return finish(state)
    if seen.lacking:
        return finish(_not_committed(state, f"{'; '.join(seen.lacking)}: remove it, or let git ignore it"))
    if message := state.message or state.plan.scm.message:
        return replace(state, phase=Phase.COMMIT, message=message)
    if _all_limited_until(state):
        return replace(state, phase=Phase.COMMIT, message=seen.message)
    return replace(state, phase=Phase.MESSAGE)


def _recheck(state: State, tree: str, why: str) -> State:
    """Run the required checks again, once, because the files are no longer those that were checked."""
    assert state.after is not None
    state = replace(
        state,
        rechecked=True,
        after=replace(state.after, tree=tree),
        verdicts=tuple(verdict for verdict in state.verdicts if not verdict.required),
    )
    if not unchecked(state):
        return replace(state, phase=Phase.CHANGES)
    told = (*state.told, f"{why}, so they ran again on the result")
    return replace(state, phase=Phase.CHECK, judged=False, told=told)


def _is_changed(state: State, seen: Seen) -> bool:
    """Whether the files differ from those on which checks have passed."""
    has_proof = any(verdict.required for verdict in state.verdicts)
    return has_proof and bool(seen.tree) and state.after is not None and seen.tree != state.after.tree


def _described(state: State) -> State:
    """Note the difference between what was checked, what is in the working tree, and what is committed."""
    seen = state.delivery
    assert seen is not None
    if _is_changed(state, seen):
        state = noted(state, f"changed by the checks each time they run: {listed(seen.modified)}")
    if seen.lacking and state.plan.scm is None:
        state = noted(state, f"not in the checked tree: {'; '.join(seen.lacking)}")
    return state


def _has_message(state: State, ran: Ran) -> State:
    """Take the agent's message, or one made from the prompt: what is green is committed."""
    state = replace(state, usage=state.usage + ran.usage)
    if ran.ended is Ended.INTERRUPTED:
        return state
    if ran.ended is Ended.LIMIT:
        state = _limited(state, ran)
    text = claims.message(ran.text) if ran.ended is Ended.OK and not ran.claim else ""
    if not text or claims.matches(text, state.plan.claim):
        state = noted(state, f"commit message of iteration {state.iteration} made from the prompt")
        text = state.delivery.message if state.delivery else ""
    return replace(state, phase=Phase.COMMIT, message=text or f"Work of iteration {state.iteration}")


def _committed(state: State, did: Did) -> State:
    state = _undone(state, did.undone)
    if not did.over:
        return state
    if did.detail:
        state = noted(state, did.detail)
    is_other = bool(did.tree) and not (did.refused and state.delivery and did.tree == state.delivery.tree)
    if is_other and not state.rechecked:
        return _recheck(state, did.tree, "the commit changed what the checks had seen")
    if did.refused or did.tree:
        why = did.refused or "what is on the branch is not what was checked"
        return finish(_not_committed(state, why))
    return finish(state)


def _not_committed(state: State, why: str) -> State:
    """Work that is not delivered is not done."""
    text = f"The work could not be committed: {claims.neutralise(why)}"
    verdict = Verdict("commit", green=False, reason=why, feedback=Feedback(FailAction.APPEND, text))
    return replace(state, judged=False, verdicts=(*state.verdicts, verdict))


def _children_gone(state: State, did: Did) -> State:
    if not did.over:
        rest = max(0.0, (wait_for_children(state).seconds or 0.0) - did.took)
        return replace(state, hold=Hold(HoldWhy.CHILDREN, seconds=rest))
    state = replace(state, hold=None)
    return complete_run(noted(state, did.detail) if did.detail else state)


_RESULTS: dict[Phase, Callable[[State, Any], State]] = {
    Phase.BEFORE: _before,
    Phase.WORK: _worked,
    Phase.AFTER: _after,
    Phase.RESTORE: _restored,
    Phase.CHECK: _checked,
    Phase.CHANGES: _changes,
    Phase.MESSAGE: _has_message,
    Phase.COMMIT: _committed,
    Phase.CHILDREN: _children_gone,
}


def _claim_on_disk(state: State, seen: Seen) -> bool:
    kind = state.plan.claim.kind
    if kind is ClaimKind.GIVEN:
        return True
    if kind is ClaimKind.DONE:
        return seen.done
    return kind is ClaimKind.BOARD and seen.board is not None and seen.board.done


def _claim_by_tag(state: State) -> bool:
    if state.plan.claim.kind is not ClaimKind.TAG or state.ran is None:
        return False
    return state.ran.claim and state.ran.ended in _CLAIMABLE


def _claim_by_refusal(state: State) -> bool:
    """Whether the agent says why old tests must change: its work is checked like claimed work, then the user decides."""
    ran = state.ran
    return bool(state.old_red) and ran is not None and bool(ran.refusal) and ran.ended in _CLAIMABLE


def _wait_reason(state: State, seen: Seen) -> str:
    ran = state.ran
    if state.plan.rules.waits_on_exit_code and ran is not None and ran.exit == WAIT_EXIT:
        return f"the agent exited with {WAIT_EXIT} to wait for something external"
    return seen.wait


def _is_retried_empty(state: State, seen: Seen) -> bool:
    """Whether an empty answer of a PRD loop is retried: it changed nothing and costs no iteration."""
    return (
        _may_be_asked_again(state)
        and state.empties < MAX_EMPTIES
        and state.before is not None
        and bool(seen.tree)
        and state.before.tree == seen.tree
        and _legal(state.before) == _legal(seen)
    )


def _may_be_asked_again(state: State) -> bool:
    ran = state.ran
    return state.plan.rules.asks_again and ran is not None and ran.ended is Ended.EMPTY and not _illegal(ran)


def _legal(seen: Seen) -> str:
    return seen.board.legal if seen.board else ""


def _role(state: State) -> str:
    if state.before and state.before.board:
        return state.before.board.role
    return state.plan.role


# ---- limits, failures, stagnation ----


def _free_agent(state: State) -> AgentSpec:
    """The first agent that is not at a usage limit. If all are, the run holds first."""
    limited = {name for name, until in state.limited if until > state.now}
    agents = state.plan.agents
    return next((agent for agent in agents if agent.name not in limited), agents[0])


def _limited(state: State, ran: Ran) -> State:
    """Record when this agent's limit resets. No iteration is spent; another agent takes over."""
    others = tuple((name, until) for name, until in state.limited if name != ran.agent)
    return replace(state, limited=(*others, (ran.agent, policy.limit_until(state, ran.retry_at))))


def _all_limited_until(state: State) -> float | None:
    """When the first limit resets if all agents are at a limit, otherwise None."""
    untils = [until for _, until in state.limited if until > state.now]
    return min(untils) if len(untils) == len(state.plan.agents) else None


def _hold_for_limit(state: State, until: float) -> State:
    since = state.limited_since if state.limited_since is not None else state.now
    if until - since > state.limits.limit_wait_seconds:
        resets = datetime.fromtimestamp(until, UTC)
        reason = f"usage limit resets at {resets:%Y-%m-%d %H:%M} UTC, later than maxLimitWaitSeconds allows"
        return replace(state, stop=stop_of(state, Cause.LIMIT_WAIT, reason))
    return replace(state, limited_since=since, hold=Hold(HoldWhy.LIMIT, until=until))


def _unstartable(state: State, ran: Ran) -> State:
    """Stop at once, unless the agent has worked before: it may be updating itself."""
    since = state.unstartable_since if state.unstartable_since is not None else state.elapsed
    if not state.started or state.elapsed - since >= policy.UNSTARTABLE_PATIENCE:
        return stopped(state, Cause.UNSTARTABLE, ran.detail or "the agent could not be started")
    hold = Hold(HoldWhy.RESTART, seconds=2.0)
    return replace(state, phase=Phase.BEFORE, unstartable_since=since, hold=hold)
