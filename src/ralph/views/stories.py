"""The state of a PRD story in one word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ralph.stories import rules

TODO, PASSES, CAPPED = "todo", "passes", "auto-approved"


class StateStyle(NamedTuple):
    """A state's tone in the dashboard and colour in a table."""

    tone: str
    colour: str = ""


STATES = {
    TODO: StateStyle("dim"),
    rules.NEEDS_REVIEW: StateStyle("busy", "yellow"),
    rules.CHANGES_REQUESTED: StateStyle("wait", "red"),
    PASSES: StateStyle("done", "green"),
    CAPPED: StateStyle("wait", "yellow"),
    rules.APPROVED: StateStyle("done", "green"),
}
"""In the order in which a story passes through them."""


def state_of(story: Mapping[str, Any]) -> str:
    if is_capped(story):
        return CAPPED
    if status := story.get("reviewStatus"):
        return str(status)
    return PASSES if story.get("passes") is True else TODO


def is_capped(story: Mapping[str, Any]) -> bool:
    """Whether the story was approved only because it reached the review cap."""
    return story.get("passes") is True and str(story.get("reviewFeedback")).startswith(rules.AT_CAP)
