"""Where a story of a PRD loop stands, in one word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ralph.core import stories

TODO, PASSES, CAPPED = "todo", "passes", "auto-approved"
STATES = (TODO, stories.NEEDS_REVIEW, stories.CHANGES_REQUESTED, PASSES, CAPPED, stories.APPROVED)
"""In the order in which a story goes through them."""


def state_of(story: Mapping[str, Any]) -> str:
    if is_capped(story):
        return CAPPED
    if status := story.get("reviewStatus"):
        return str(status)
    return PASSES if story.get("passes") is True else TODO


def is_capped(story: Mapping[str, Any]) -> bool:
    """Is it approved only because there were enough reviews?"""
    return story.get("passes") is True and str(story.get("reviewFeedback")).startswith(stories.AT_CAP)
