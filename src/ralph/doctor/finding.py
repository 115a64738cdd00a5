"""What `ralph doctor` finds out, as plain data."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class FindingState(StrEnum):
    """An error: a run cannot work here. A warning: something will be missing or may fail."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    ABSENT = "absent"


OK, WARNING, ERROR, ABSENT = FindingState


class Finding(Struct, frozen=True):
    """One thing that was looked at, what was found, and what to do if it is not as it should be."""

    name: str
    state: FindingState
    found: str
    advice: str = ""
