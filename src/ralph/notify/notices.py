"""What people are notified of, and when: the rules, and the words."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ralph.core.model import Cause, Limits, Occasion, Outcome, Stop, Usage, complete

BUDGET_SHARE = 0.8
"""From such a part of a budget on its owner is told, once."""

_ENDS = complete(
    Outcome,
    {
        Outcome.COMPLETE: Occasion.FINISHED,
        Outcome.LIMIT: Occasion.FAILED,
        Outcome.FATAL: Occasion.FAILED,
        Outcome.WAITING: Occasion.WAITING,
        Outcome.INTERRUPTED: None,  # who interrupts knows of it
    },
)


class Wording(Struct, frozen=True):
    """How an occasion is put in a title, and the type that apprise knows it by."""

    words: str
    type: str


WORDING = complete(
    Occasion,
    {
        Occasion.FINISHED: Wording("finished", "success"),
        Occasion.FAILED: Wording("is not done", "failure"),
        Occasion.WAITING: Wording("waits for you", "warning"),
        Occasion.LIMIT: Wording("waits for a limit", "warning"),
        Occasion.BUDGET: Wording("has used 80 % of a budget", "warning"),
    },
)


class Notification(Struct, frozen=True):
    """One notification. `key`: what it is about; nobody is told of one thing twice. `until`: when it goes on by itself."""

    key: str
    occasion: Occasion
    title: str
    text: str
    directory: str
    run: str = ""
    task: str = ""
    flow: str = ""
    outcome: str = ""
    cause: str = ""
    reason: str = ""
    iterations: int = 0
    cost_usd: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    until: float | None = None


def occasion_of(outcome: Outcome) -> Occasion | None:
    """How the end of a run is told; None: not at all."""
    return _ENDS[outcome]


def key_of_end(stop: Stop, last_agent: int) -> str:
    """An end is another one when an agent has worked since: a resume that comes to the same end is no news."""
    return f"end-{stop.cause}-{last_agent}"


class NearlySpent(Struct, frozen=True):
    """A budget of which 80 % are used."""

    cause: Cause
    words: str
    key: str


def nearly_spent(limits: Limits, usage: Usage, elapsed: float) -> Iterator[NearlySpent]:
    """A budget that was raised is another one."""
    budgets = (
        (Cause.COST, limits.cost_usd, usage.cost_usd, f"${usage.cost_usd:.2f} of ${limits.cost_usd:.2f}"),
        (Cause.TOKENS, limits.tokens, usage.tokens, f"{usage.tokens:,} of {limits.tokens:,} tokens"),
        (Cause.DURATION, limits.seconds, elapsed, f"{elapsed:.0f} of {limits.seconds:.0f} seconds"),
    )
    for cause, most, used, words in budgets:
        if most and used >= BUDGET_SHARE * most:
            yield NearlySpent(cause, words, f"budget-{cause}-{most:g}")
