"""The findings of `ralph doctor`, as plain data."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class FindingState(StrEnum):
    """ERROR means a run cannot work here; WARNING means something is missing or might fail."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    ABSENT = "absent"


OK, WARNING, ERROR, ABSENT = FindingState


class Finding(Struct, frozen=True):
    """One thing that was checked: what was found, and what to do if there is a problem."""

    name: str
    state: FindingState
    found: str
    advice: str = ""
