"""The rules for when people are notified, and the wording of notifications."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ralph.core.model import Cause, Limits, Occasion, Outcome, Stop, Usage, complete

BUDGET_SHARE = 0.8
"""The share of a budget at which a notification is sent, once."""

_ENDS = complete(
    Outcome,
    {
        Outcome.COMPLETE: Occasion.FINISHED,
        Outcome.LIMIT: Occasion.FAILED,
        Outcome.FATAL: Occasion.FAILED,
        Outcome.WAITING: Occasion.WAITING,
        Outcome.INTERRUPTED: None,  # whoever interrupted it already knows
    },
)


class Wording(Struct, frozen=True):
    """How a title starts for an occasion, and the apprise notification type."""

    words: str
    type: str


WORDING = complete(
    Occasion,
    {
        Occasion.FINISHED: Wording("Ralph finished", "success"),
        Occasion.FAILED: Wording("Ralph did not finish", "failure"),
        Occasion.WAITING: Wording("Ralph needs you", "warning"),
        Occasion.LIMIT: Wording("Ralph is waiting for a usage limit", "warning"),
        Occasion.BUDGET: Wording("Ralph has used 80% of a budget", "warning"),
    },
)


class Notification(Struct, frozen=True):
    """One notification.

    `key` identifies the subject, so that the same one is not sent twice. `until` is when the run continues by itself.
    """

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
    """The notification for this end of a run, or None if nothing is sent."""
    return _ENDS[outcome]


def key_of_end(stop: Stop, last_agent: int) -> str:
    """The key of an end. It changes only after an agent has worked: a resume that stops the same way is not news."""
    return f"end-{stop.cause}-{last_agent}"


class NearlySpent(Struct, frozen=True):
    """A budget that is at least 80% used."""

    cause: Cause
    words: str
    key: str


def nearly_spent(limits: Limits, usage: Usage, elapsed: float) -> Iterator[NearlySpent]:
    """The budgets that are at least 80% used. A raised budget counts as a new one."""
    budgets = (
        (Cause.COST, limits.cost_usd, usage.cost_usd, f"${usage.cost_usd:.2f} of ${limits.cost_usd:.2f}"),
        (Cause.TOKENS, limits.tokens, usage.tokens, f"{usage.tokens:,} of {limits.tokens:,} tokens"),
        (Cause.DURATION, limits.seconds, elapsed, f"{elapsed:.0f} of {limits.seconds:.0f} seconds"),
    )
    for cause, most, used, words in budgets:
        if most and used >= BUDGET_SHARE * most:
            yield NearlySpent(cause, words, f"budget-{cause}-{most:g}")
