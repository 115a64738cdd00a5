"""The meaning of a refusal and when it ends: statuses, error types, recorded messages and look-alikes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.agents.limits import by_status, by_wording, reset_at
from ralph.core.model import Ended, LimitKind

USAGE, RATE, OVERLOAD = LimitKind.USAGE, LimitKind.RATE, LimitKind.OVERLOAD
CREDIT, AUTH = LimitKind.CREDIT, LimitKind.AUTH


# ---- statuses and error types ----


@pytest.mark.parametrize(
    ("status", "name", "kind"),
    [
        (401, "", AUTH),
        (402, "", CREDIT),
        (403, "", AUTH),
        (429, "", RATE),
        (503, "", OVERLOAD),
        (529, "", OVERLOAD),
        (400, "", None),
        (404, "", None),
        (500, "", None),
        (None, "", None),
        (429, "usage_limit_reached", USAGE),
        (429, "insufficient_quota", CREDIT),
        (429, "RESOURCE_EXHAUSTED", USAGE),
        (500, "overloaded_error", OVERLOAD),
        (400, "billing_error", CREDIT),
        (None, "authentication_failed", AUTH),
        (429, "something_new", RATE),
        (400, "invalid_request_error", None),
    ],
)
def test_a_status_and_a_name(status: int | None, name: str, kind: LimitKind | None) -> None:
    """The provider's error type is more precise than the status."""
    assert by_status(status, name) is kind


def test_what_passes_and_what_needs_a_person() -> None:
    """Some limits pass; a missing key or credit does not."""
    ends = {kind: kind.ended for kind in LimitKind}
    assert ends == {
        USAGE: Ended.LIMIT,
        RATE: Ended.LIMIT,
        OVERLOAD: Ended.LIMIT,
        CREDIT: Ended.AUTH,
        AUTH: Ended.AUTH,
    }


# ---- wording ----

CODEX_USAGE = (
    "You’ve hit your usage limit. Upgrade to Pro (https://127.0.0.1/explore/pro), visit "
    "https://127.0.0.1/settings/usage to purchase more credits or try again at 10:57 PM."
)
RECORDED = {
    # Claude Code
    "You've hit your 5-hour limit · resets 1:01am (UTC)": USAGE,
    "You've hit your weekly limit · resets Mar 3, 9am (Europe/Berlin)": USAGE,
    "You've hit your Opus limit · resets 3:30pm (America/New_York)": USAGE,
    "Claude AI usage limit reached|1794790860": USAGE,
    "API Error: Request rejected (429) · This request would exceed your account's rate limit.": RATE,
    "API Error: Request rejected (429) · … exceeded your per-minute rate limit": RATE,
    "API Error: 529 Overloaded. This is a server-side issue, usually temporary — try again": OVERLOAD,
    "Invalid API key · Fix external API key": AUTH,
    "Not logged in · Please run /login": AUTH,
    "Failed to authenticate. API Error: 401 OAuth token has expired. Please obtain a new token": AUTH,
    "Credit balance is too low": CREDIT,
    # Codex
    CODEX_USAGE: USAGE,
    "rate limit exceeded: Rate limit reached for gpt-5.5 on tokens per min (TPM): Limit 30000.": RATE,
    "exceeded retry limit, last status: 429 Too Many Requests": RATE,
    "unexpected status 401 Unauthorized: Incorrect API key provided: sk-test-*ocal.": AUTH,
    "Selected model is at capacity. Please try a different model.": OVERLOAD,
    "Quota exceeded. Check your plan and billing details.": CREDIT,
    # OpenCode
    "Insufficient credits": CREDIT,
    "Rate limit reached for requests": RATE,
    # Gemini CLI
    "[API Error: You have exhausted your capacity on this model. Your quota will reset after 1h2m3s.]": USAGE,
    "[API Error: You have exhausted your daily quota on this model.]": USAGE,
    "[API Error: The model is overloaded. Please try again later.]": OVERLOAD,
}


@pytest.mark.parametrize(("words", "kind"), RECORDED.items())
def test_recorded_messages(words: str, kind: LimitKind) -> None:
    """Every agent has its own wording, with straight or curly apostrophes, in any case."""
    assert (by_wording(words), by_wording(words.replace("'", "’").upper())) == (kind, kind)


LOOK_ALIKES = [
    "File not found: src/ratelimit.ts",
    "src/rate_limit.py:3: SyntaxError",
    "src/rate-limit.ts: cannot find module",
    "Cannot find module './rate_limit'",
    "tests/rate_limit_test.go failed",
    "ENOENT: overloaded.py",
    "unknown option '--rate-limit'",
    "usage limit",
    "limit reached",
    "EDQUOT: disk quota exceeded, write",
    "quota.ts has an error",
    "Reached maximum budget ($0.1)",
    "Reached maximum number of turns (1)",
    "Prompt is too long",
    "API Error: 400 messages: at least one message is required",
    "API Error: 500 Internal server error. This is a server-side issue",
    "API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)",
    "If your context window is near capacity, try using /compress.",
    "exited with code 429",
    "line 401: unauthorized_access.ts",
    "",
]


@pytest.mark.parametrize("words", LOOK_ALIKES)
def test_look_alikes(words: str) -> None:
    """A file, an option or another limit is not a provider's limit."""
    assert by_wording(words) is None


# ---- reset times ----

NOW = datetime(2026, 11, 15, 23, 0, 30, tzinfo=UTC)


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata", "Pacific/Auckland"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZoneInfo]:
    """The time zone of this machine."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield ZoneInfo(request.param)
    monkeypatch.undo()
    time.tzset()


def reset(words: str, now: datetime = NOW) -> datetime | None:
    at = reset_at(words, now.timestamp())
    return None if at is None else datetime.fromtimestamp(at, UTC)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("words", "then"),
    [
        ("usage limit reached|1794790860", utc(2026, 11, 16, 1, 1)),
        ("resets 1:01am (UTC)", utc(2026, 11, 16, 1, 1)),
        ("resets 12am (UTC)", utc(2026, 11, 16)),
        ("resets 12pm (UTC)", utc(2026, 11, 16, 12)),
        ("resets 11:30PM (UTC)", utc(2026, 11, 15, 23, 30)),
        ("resets 10am (UTC)", utc(2026, 11, 16, 10)),
        ("resets at 23:45 (UTC)", utc(2026, 11, 15, 23, 45)),
        ("resets 3:30pm (America/New_York)", utc(2026, 11, 16, 20, 30)),
        ("resets 7pm (America/New_York)", utc(2026, 11, 16)),
        ("resets 5am (Asia/Kolkata)", utc(2026, 11, 15, 23, 30)),
        ("resets 5am (Etc/GMT+5)", utc(2026, 11, 16, 10)),
        ("resets 9pm (America/Port-au-Prince)", utc(2026, 11, 16, 2)),
        ("resets Nov 18, 9am (Europe/Berlin)", utc(2026, 11, 18, 8)),
        ("resets Mar 3, 9am (Europe/Berlin)", utc(2027, 3, 3, 8)),
        ("resets on December 1 at 4pm (UTC)", utc(2026, 12, 1, 16)),
    ],
)
@pytest.mark.usefixtures("zone")
def test_a_time_with_its_zone(words: str, then: datetime) -> None:
    """A timestamp, a time of day or a date with a zone does not depend on this machine's zone."""
    assert reset(words) == then


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("try again at Nov 20th, 2026 1:53 PM.", (2026, 11, 20, 13, 53)),
        ("try again at Dec 1st, 2026, 8:05 am", (2026, 12, 1, 8, 5)),
        ("resets Jan 2 at 3pm", (2027, 1, 2, 15)),
        ("resets Nov 20, 15:04 (Nowhere/Land)", (2026, 11, 20, 15, 4)),
        ("resets Nov 20, 15:04 (America)", (2026, 11, 20, 15, 4)),
    ],
)
def test_a_date_without_a_zone(zone: ZoneInfo, words: str, parts: tuple[int, ...]) -> None:
    """It is local time, and so is one in an unknown zone."""
    assert reset(words) == datetime(*parts, tzinfo=zone)  # type: ignore[misc, arg-type]


def test_a_time_of_day_without_a_zone(zone: ZoneInfo) -> None:
    """It is the next such time in the local zone."""
    here = NOW.astimezone(zone)
    soon = (here + timedelta(hours=2)).replace(second=0)
    assert reset(f"try again at {soon:%I:%M %p}.") == soon
    earlier = (here - timedelta(hours=2)).replace(second=0)
    assert reset(f"try again at {earlier:%I:%M %p}.") == earlier + timedelta(days=1)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Please try again in 1.5s.", 1.5),
        ("Please retry in 400.5s", 400.5),
        ("retry after 30 seconds", 30),
        ("try again in 250ms", 0.25),
        ("Your quota will reset after 1h2m3s.", 3723),
        ("try again in 2 hours and 5 minutes", 7500),
        ("try again in 1 day, 3 hours", 97_200),
        ("resets in 3 hr 10 min", 11_400),
        ("try again in 2 weeks", 1_209_600),
    ],
)
def test_a_duration(words: str, seconds: float) -> None:
    """It counts from now."""
    assert reset_at(words, NOW.timestamp()) == NOW.timestamp() + seconds


@pytest.mark.parametrize(
    "words",
    [
        "",
        "try again later",
        "Upgrade at https://127.0.0.1/pro",
        "try again in a moment",
        "in 5 apples",
        "at 7",
        "resets 25:99 (UTC)",
        "resets Feb 31, 2026 at 3pm (UTC)",
        "usage limit reached|12",
    ],
)
def test_no_time(words: str) -> None:
    """Without a valid time the reset is unknown."""
    assert reset_at(words, NOW.timestamp()) is None


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (utc(2026, 11, 15, 22, 57, 5), "try again at 10:57 PM (UTC)"),
        (utc(2026, 11, 15, 22, 59, 59), "try again at 10:57 PM (UTC)"),
        (utc(2026, 11, 16, 0, 1, 0), "resets 11:59pm (UTC)"),
        (utc(2026, 11, 15, 22, 57, 5), "resets Nov 15, 10:57pm (UTC)"),
        (utc(2026, 11, 20, 14, 0, 0), "resets Nov 20, 2026 1:53 PM (UTC)"),
    ],
)
def test_a_time_that_has_just_passed(now: datetime, words: str) -> None:
    """Times come without seconds, and clocks differ: this must not mean a wait until tomorrow."""
    assert reset(words, now) == now + timedelta(minutes=1)


def test_the_skipped_hour() -> None:
    """A reset after a clock change uses the new offset."""
    before = datetime(2026, 10, 24, 23, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    assert reset("resets 9am (Europe/Berlin)", before.astimezone(UTC)) == utc(2026, 10, 25, 8)


@given(st.text(), st.text(alphabet="at resets in0123456789:apmNov(/)UTC,. hd", max_size=60))
def test_any_text_can_be_read(text: str, noise: str) -> None:
    """Any text gives a kind or None, and a time or None."""
    for words in (text, f"resets {noise}", f"try again in {noise}"):
        kind = by_wording(words)
        assert kind is None or isinstance(kind, LimitKind)
        at = reset_at(words, NOW.timestamp())
        assert at is None or isinstance(at, float)
