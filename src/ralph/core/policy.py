"""Budgets, restart delays, crash loops, and when to stop an agent early."""

from __future__ import annotations

import zlib

from msgspec.structs import replace

from ralph.core.model import (
    AgentSpec,
    Cause,
    Ended,
    Left,
    Limits,
    Meter,
    Plan,
    Ran,
    Restart,
    RestartKind,
    Resume,
    Seen,
    State,
    Usage,
)

LIMIT_BACKOFF = 60.0
"""Seconds to wait at a usage limit whose reset time is unknown."""

UNSTARTABLE_PATIENCE = 60.0
"""Seconds for which an agent that has worked before may be missing: it may be updating itself."""


BUDGETS = {Cause.COST: "cost", Cause.TOKENS: "token", Cause.DURATION: "time"}
"""The words for each budget that a run can use up."""


def watch(limits: Left, meter: Meter) -> Ended | None:
    """Why the running agent must be stopped now, if it must. OK: it has finished but does not exit."""
    if meter.interrupted:
        return Ended.INTERRUPTED
    if _reached(limits.cost_usd, meter.usage.cost_usd) or _reached(limits.tokens, meter.usage.tokens):
        return Ended.BUDGET
    if _reached(limits.seconds, meter.seconds):
        return Ended.BUDGET
    if _reached(limits.iteration_seconds, meter.seconds):
        return Ended.TIMEOUT
    if meter.is_refused or (meter.is_over and _reached(limits.exit_grace_seconds, meter.idle)):
        return Ended.OK
    if meter.done and _reached(limits.done_seconds, meter.done):
        return Ended.OK
    return Ended.IDLE if _reached(limits.idle_seconds, meter.idle) else None


def _reached(limit: float | None, used: float) -> bool:
    return limit is not None and used >= limit


def spent(limits: Limits, usage: Usage, elapsed: float) -> Cause | None:
    """The budget that is used up, if any."""
    if limits.cost_usd and usage.cost_usd >= limits.cost_usd:
        return Cause.COST
    if limits.tokens and usage.tokens >= limits.tokens:
        return Cause.TOKENS
    if limits.seconds and elapsed >= limits.seconds:
        return Cause.DURATION
    return None


def unaffordable(limits: Limits, usage: Usage, iterations: int) -> tuple[Cause, str] | None:
    """Why an iteration of average cost would exceed the budget, if it would."""
    if not iterations:
        return None
    cost, tokens = usage.cost_usd / iterations, usage.tokens // iterations
    if limits.cost_usd and usage.cost_usd + cost > limits.cost_usd:
        rest = limits.cost_usd - usage.cost_usd
        return Cause.COST, f"the next iteration would cost about ${cost:.2f}, but only ${rest:.2f} is left"
    if limits.tokens and usage.tokens + tokens > limits.tokens:
        rest = limits.tokens - usage.tokens
        return (
            Cause.TOKENS,
            f"the next iteration would use about {tokens:,} tokens, but only {rest:,} are left",
        )
    return None


def left(limits: Limits, usage: Usage, elapsed: float, agent: AgentSpec) -> Left:
    """The remaining budget for the next agent process."""
    return Left(
        cost_usd=max(0.0, limits.cost_usd - usage.cost_usd) if limits.cost_usd else None,
        tokens=max(0, limits.tokens - usage.tokens) if limits.tokens else None,
        seconds=max(0.0, limits.seconds - elapsed) if limits.seconds else None,
        iteration_seconds=limits.iteration_seconds or None,
        idle_seconds=agent.idle_seconds or None,
        exit_grace_seconds=limits.exit_grace_seconds,
        done_seconds=limits.children_seconds,
    )


def raised(limits: Limits, resume: Resume) -> Limits:
    """The limits, with those that `ralph resume` raised."""
    names = ("iterations", "cost_usd", "tokens", "seconds")
    given = {name: value for name in names if (value := getattr(resume, name)) is not None}
    return replace(limits, **given)


def rejudged(plan: Plan, resume: Resume) -> Plan:
    """The plan, with the judge that `resume` names and its word on degraded verdicts."""
    allowed = plan.allow_degraded if resume.allow_degraded is None else resume.allow_degraded
    return replace(plan, judge=resume.judge or plan.judge, allow_degraded=allowed)


def is_healthy(restart: Restart, ran: Ran, before: Seen | None, after: Seen | None) -> bool:
    """Whether an attempt ran long enough or changed the tree; its exit code does not matter."""
    trees = (before.tree if before else "", after.tree if after else "")
    return ran.took >= restart.healthy_seconds or (all(trees) and trees[0] != trees[1])


def restart_delay(restart: Restart, failures: int, seed: str) -> float:
    """Seconds until the next attempt: doubles with every consecutive failure, up to a maximum."""
    if restart.kind is RestartKind.FIXED:
        return restart.delay
    if failures <= 1:
        return min(restart.delay, restart.longest)
    delay = min(restart.delay * 2.0 ** min(failures - 1, 60), restart.longest)
    return delay * (0.6 + 0.4 * jitter(f"{seed}/{failures}"))


def is_crash_loop(restart: Restart, failures: int, fingerprints: tuple[str, ...]) -> bool:
    if restart.kind is RestartKind.FIXED:
        return False
    last = fingerprints[-restart.most_same :]
    same = len(last) == restart.most_same and len(set(last)) == 1
    return failures >= restart.most_failures or same


def limit_until(state: State, retry_at: float | None) -> float:
    """When to try a limited agent again: at its reset, plus a little jitter."""
    until = retry_at if retry_at is not None else state.now + LIMIT_BACKOFF
    return max(until, state.now) + 10.0 * jitter(f"{state.plan.run}/{state.iteration}/{until}")


def jitter(seed: str) -> float:
    """A number in [0, 1) derived from the seed alone."""
    return zlib.crc32(seed.encode()) / 2**32
