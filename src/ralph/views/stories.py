"""Where a story of a PRD loop stands, in one word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ralph.stories import rules

TODO, PASSES, CAPPED = "todo", "passes", "auto-approved"
STATES = (TODO, rules.NEEDS_REVIEW, rules.CHANGES_REQUESTED, PASSES, CAPPED, rules.APPROVED)
"""In the order in which a story goes through them."""


def state_of(story: Mapping[str, Any]) -> str:
    if is_capped(story):
        return CAPPED
    if status := story.get("reviewStatus"):
        return str(status)
    return PASSES if story.get("passes") is True else TODO


def is_capped(story: Mapping[str, Any]) -> bool:
    """Is it approved only because there were enough reviews?"""
    return story.get("passes") is True and str(story.get("reviewFeedback")).startswith(rules.AT_CAP)
