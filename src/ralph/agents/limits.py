"""The meaning of a provider's refusal, and when it ends.

Status and error type come first, wording last. Wording is matched only against the agent's own error messages,
never against tool results or text written by the model.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo

from ralph.core.model import LimitKind

_STATUS = {
    401: LimitKind.AUTH,
    402: LimitKind.CREDIT,
    403: LimitKind.AUTH,
    429: LimitKind.RATE,
    503: LimitKind.OVERLOAD,
    529: LimitKind.OVERLOAD,
}
_TYPES = {
    "authentication_error": LimitKind.AUTH,
    "authentication_failed": LimitKind.AUTH,
    "permission_error": LimitKind.AUTH,
    "invalid_api_key": LimitKind.AUTH,
    "oauth_org_not_allowed": LimitKind.AUTH,
    "billing_error": LimitKind.CREDIT,
    "insufficient_quota": LimitKind.CREDIT,
    "usage_limit_reached": LimitKind.USAGE,
    "usage_not_included": LimitKind.CREDIT,
    "rate_limit": LimitKind.RATE,
    "rate_limit_error": LimitKind.RATE,
    "rate_limit_exceeded": LimitKind.RATE,
    "resource_exhausted": LimitKind.USAGE,
    "overloaded": LimitKind.OVERLOAD,
    "overloaded_error": LimitKind.OVERLOAD,
    "server_is_overloaded": LimitKind.OVERLOAD,
}

_WINDOW = r"(?:usage|session|weekly|daily|monthly|hourly|\d+-hour|opus|sonnet)"
_WORDS = {
    LimitKind.CREDIT: r"credit balance (?:is )?too low|insufficient[_ ](?:quota|credits?|funds|balance)"
    r"|\bout of (?:usage )?credits\b|\bpayment required\b|\bplan and billing details\b"
    r"|\bspend(?:ing)? (?:limit|cap) (?:reached|exceeded)|\bhit your (?:[\w']+ ){0,3}(?:spend limit|budget)\b",
    LimitKind.USAGE: rf"\b{_WINDOW} (?:limit|quota) (?:has been )?(?:reached|exceeded|hit)"
    rf"|\b(?:hit|reached|exceeded|exhausted) your (?:{_WINDOW} )?(?:limit|quota|capacity)\b"
    r"|(?<!disk )\bquota exceeded\b|\bresource_exhausted\b",
    LimitKind.AUTH: r"\binvalid (?:x-)?api[ -]key\b|\bnot logged in\b|\brun /login\b|\b401 unauthorized\b"
    r"|\b(?:oauth|access|refresh) token (?:has )?(?:expired|been revoked)|\bauthentication_error\b"
    r"|\bapi[ _]key (?:not (?:found|set|valid)|is (?:missing|invalid)|must be)"
    r"|\bincorrect api key\b",
    LimitKind.OVERLOAD: r"\boverloaded\b(?!\.\w)|\b503 service unavailable\b|\bat capacity\b",
    LimitKind.RATE: r"(?<![\w./-])rate[ _]limit(?:ed|_error|_exceeded)?\b(?![\w./-]*\.\w)|\btoo many requests\b"
    r"|\bstatus:? 429\b",
}
"""Tried in this order. Compiled when an agent first fails: most runs never need them."""


def by_status(status: int | None, type: str = "") -> LimitKind | None:
    """The limit meant by an HTTP status and the provider's error type. The type is more precise."""
    named = _TYPES.get(type.casefold())
    return named or (_STATUS.get(status) if status is not None else None)


def by_wording(text: str) -> LimitKind | None:
    """The limit meant by an agent's error message, if it is about one."""
    plain = text.replace("’", "'").casefold()
    return next((kind for kind, pattern in _WORDS.items() if re.search(pattern, plain)), None)


# ---- reset times ----

_EPOCH = r"limit reached\|(\d{10})\b"
_DURATION = r"\b(?:in|after)\s+((?:\d+(?:\.\d+)?\s*[a-z]+[\s,]*(?:and\s+)?)+)"
_PART = r"(\d+(?:\.\d+)?)\s*([a-z]+)"
_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hr": 3600, "d": 86400}
_UNITS |= {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_CLOCK = (
    r"\b(?:at|resets?(?: at| on)?)\s+"
    r"(?:(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+"
    r"(?:(?P<year>\d{4}),?\s+)?(?:at\s+)?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>am|pm)?\b(?:\s*\((?P<zone>[a-z_]+(?:/[a-z0-9_+-]+)*)\))?"
)
_JUST_PASSED = timedelta(minutes=5)
"""A reset less than this ago is not tomorrow's: times come without seconds, and clocks differ."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def reset_at(text: str, now: float) -> float | None:
    """When the limit resets, from the text of the refusal: a timestamp, a duration or a time of day."""
    plain = text.casefold()
    if found := re.search(_EPOCH, plain):
        return float(found[1])
    if found := re.search(_CLOCK, text, re.IGNORECASE):
        return _clock(found, now)
    if found := re.search(_DURATION, plain):
        parts = [(float(number), _unit(unit)) for number, unit in re.findall(_PART, found[1])]
        seconds = sum(number * unit for number, unit in parts if unit)
        return now + seconds if seconds else None
    return None


def _unit(word: str) -> float:
    return _UNITS.get(word) or _UNITS.get(word.rstrip("s"), 0)


def _clock(found: re.Match[str], now: float) -> float | None:
    zone = _zone(found["zone"])
    here = datetime.fromtimestamp(now, zone)
    hour = int(found["hour"])
    if found["half"]:
        hour = hour % 12 + (12 if found["half"].casefold() == "pm" else 0)
    elif found["minute"] is None:
        return None
    try:
        then = here.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
        if not found["month"]:
            then += timedelta(days=1 if then + _JUST_PASSED <= here else 0)
            then -= timedelta(days=1 if then - here > timedelta(days=1) - _JUST_PASSED else 0)
        else:
            month, day = _MONTHS.index(found["month"].casefold()) + 1, int(found["day"])
            then = then.replace(year=int(found["year"] or here.year), month=month, day=day)
            if then + _JUST_PASSED <= here and not found["year"]:
                then = then.replace(year=here.year + 1)
        return then.timestamp() if then > here else now + 60
    except (ValueError, OverflowError):
        return None


def _zone(name: str | None) -> tzinfo | None:
    """The named time zone, or None for the local one."""
    if name is None:
        return None
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # imported here: few limits name a zone

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
