"""The stories of a PRD loop: their states and reviews."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ralph.core.model import BoardSeen
from ralph.views.report.model import Review, Story

MAX_FEEDBACK = 5_000

Board = dict[str, dict[str, Any]]


class StoryHistory:
    """Follows the task lists of a run. `verify_commands`: those of the last task list."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._board: Board = {}
        self._at_cap: set[str] = set()
        self.verify_commands: tuple[str, ...] = ()

    def listed(self) -> tuple[Story, ...]:
        return tuple(
            Story(
                id,
                str(each.get("title", "")),
                str(each.get("reviewStatus") or ("passes" if each.get("passes") else "not begun")),
                each.get("passes") is True,
                int(each.get("reviewCount") or 0),
                id in self._at_cap,
            )
            for id, each in self._board.items()
        )

    def look(self, text: str) -> None:
        """Record the task list as Ralph found it."""
        new, self.verify_commands = _read(text)
        self._board = new or self._board

    def ruled(self, board: BoardSeen, by: str, iteration: int, at: float) -> Iterator[Review]:
        """The story changes that an iteration made."""
        new, commands = _read(board.legal)
        for id, status in self._changed(new):
            told = new[id].get("notes") if status == "needs_review" else new[id].get("reviewFeedback")
            text = str(told or "")[:MAX_FEEDBACK]
            yield Review(at, id, by, status, text, self._run, iteration)
        self._board = new or self._board
        self.verify_commands = commands or self.verify_commands

    def taken_back(self, text: str, told: str, iteration: int, at: float) -> Iterator[Review]:
        """Approvals withdrawn because the verify commands failed; none before the first iteration."""
        new, _ = _read(text)
        for id, _ in self._changed(new) if iteration else ():
            yield Review(at, id, "verify commands", "approval taken back", told, self._run, iteration)
        self._board = new or self._board

    def _changed(self, new: Board) -> Iterator[tuple[str, str]]:
        """The stories whose status has changed, with the new status."""
        for id, story in new.items():
            if (status := _status(story)) != _status(self._board.get(id)):
                yield id, status

    def newly_at_cap(self, board: BoardSeen) -> set[str]:
        """The stories just approved only because they reached the review cap."""
        found = set(board.at_cap) - self._at_cap
        self._at_cap |= found
        return found


def _read(text: str) -> tuple[Board, tuple[str, ...]]:
    """The stories of a task list by id, and its verify commands; both are empty if it cannot be read."""
    try:
        found = json.loads(text)
        commands = tuple(map(str, found.get("verifyCommands") or ()))
    except (ValueError, AttributeError, RecursionError):
        return {}, ()
    except TypeError:
        commands = ()
    try:
        return {str(story["id"]): story for story in found["userStories"]}, commands
    except (TypeError, KeyError):
        return {}, commands


def _status(story: dict[str, Any] | None) -> str:
    if story is None:
        return ""
    return str(story.get("reviewStatus") or ("passes" if story.get("passes") else ""))
