"""What an iteration did to the task list that it may not: undone field by field, and told.

    ruled(before, after, rules) -> Ruling

`before` is the harness's own copy, a valid list; `after` is whatever the agent has left. The board of a ruling is
always valid again. The agent may add and split stories, reorder them, write notes; it may not remove stories or
criteria, change how stories are verified, or decide what its mode does not let it decide.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ralph.core import stories
from ralph.core.stories import (
    APPROVED,
    AT_CAP,
    CHANGES_REQUESTED,
    NEW,
    REVIEW,
    shown,
)

Board = dict[str, Any]
Story = dict[str, Any]

_DECIDED = (*stories.REVIEW_FIELDS, "reviewFeedback")
"""What is undone together when a decision about a story does not count."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How strict this run is."""

    mode: str
    skip_review: bool = False
    review_cap: int = stories.REVIEW_CAP


@dataclass(frozen=True, slots=True)
class Ruling:
    """The list as it may be, what was undone to make it so, and what the iteration has decided.

    `approved`: stories that count as done from now on, if they are verified. `unapproved`: the list without that.
    `at_cap`: those that are approved only because there were enough reviews.
    """

    board: Board
    unapproved: Board
    undone: tuple[str, ...] = ()
    approved: tuple[str, ...] = ()
    at_cap: tuple[str, ...] = ()


def ruled(before: Board, after: Any, rules: Rules) -> Ruling:
    if not isinstance(after, dict) or not isinstance(after.get("userStories"), list):
        what = "tasks.json was no task list any more; it is as it was before the iteration"
        return Ruling(before, before, (what,))
    keeper = _Keeper(before, deepcopy(after), rules)
    keeper.keep_fields()
    keeper.keep_stories()
    keeper.keep_dependencies()
    keeper.keep_decisions()
    return keeper.ruling()


class _Keeper:
    """Brings a list back to what it may be, step by step."""

    def __init__(self, before: Board, board: Board, rules: Rules) -> None:
        self._before = before
        self._old: dict[str, Story] = {story["id"]: story for story in before["userStories"]}
        self._board = board
        self._rules = rules
        self._undone: list[str] = []
        self._at_cap: list[str] = []

    @property
    def _stories(self) -> list[Story]:
        found: list[Story] = self._board["userStories"]
        return found

    # ---- form ----

    def keep_fields(self) -> None:
        """The list's own fields: of the right type, and `verifyCommands` as they were."""
        for key, is_right, _ in (*stories.BOARD, *stories.BOARD_OPTIONAL):
            value = self._board.get(key)
            if key == "userStories" or (value is not None and is_right(value)):
                continue
            self._put_back(self._board, self._before, key, "tasks.json")
        old, new = self._before.get("verifyCommands"), self._board.get("verifyCommands")
        if old != new:
            self._undone.append("verifyCommands are not the agent's to change; they are as they were")
            _set(self._board, "verifyCommands", old)

    def keep_stories(self) -> None:
        """Every story is there once, well-formed, with all of its criteria."""
        kept: dict[str, Story] = {}
        left: list[Any] = self._board["userStories"]
        for story in left:
            if not isinstance(story, dict) or story.get("id") in kept or not self._form(story):
                name = story.get("id") if isinstance(story, dict) else None
                self._undone.append(f"A story that is none was left out ({shown(name)})")
                continue
            kept[story["id"]] = story
        for number, (id, old) in enumerate(self._old.items()):
            if id not in kept:
                self._undone.append(
                    f"Story {id} was removed: it is back. Stories may be split, never removed"
                )
                kept = dict([*list(kept.items())[:number], (id, deepcopy(old)), *list(kept.items())[number:]])
            self._keep_criteria(kept[id], old)
        self._board["userStories"] = list(kept.values())

    def _form(self, story: Story) -> bool:
        """Make a story well-formed; what is missing in a new one gets its usual value. False: it cannot be."""
        if not isinstance(story.get("id"), str) or not story["id"].strip():
            return False
        old = self._old.get(story["id"])
        usual: Story = {**NEW, "reviewFeedback": "", "priority": len(self._stories), "title": story["id"]}
        for key, is_right, _ in (*stories.STORY, *stories.STORY_OPTIONAL):
            if key in story and is_right(story[key]):
                continue
            if old is not None:
                if key in old or key in story:
                    self._put_back(story, old, key, f"Story {story['id']}")
            elif key in usual:
                story[key] = usual[key]
            elif key in story:
                del story[key]
        return "acceptanceCriteria" in story

    def _keep_criteria(self, story: Story, old: Story) -> None:
        missing = [each for each in old["acceptanceCriteria"] if each not in story["acceptanceCriteria"]]
        if missing:
            new = [each for each in story["acceptanceCriteria"] if each not in old["acceptanceCriteria"]]
            story["acceptanceCriteria"] = [*old["acceptanceCriteria"], *new]
            gone = "; ".join(missing)
            self._undone.append(
                f"Story {story['id']} had lost acceptance criteria, which may only be added: {gone}"
            )

    def keep_dependencies(self) -> None:
        """Stories depend on stories that there are, and not on each other in a circle."""
        ids = {story["id"] for story in self._stories}
        for story in self._stories:
            unknown = [id for id in story.get("dependsOn", ()) if id not in ids]
            if unknown:
                story["dependsOn"] = [id for id in story["dependsOn"] if id in ids]
                self._undone.append(f"Story {story['id']} depended on what is no story: {', '.join(unknown)}")
        if any("wait for each other" in each for each in stories.schema_problems(self._without_verdicts())):
            for story in self._stories:
                old = self._old.get(story["id"], {})
                story["dependsOn"] = [id for id in old.get("dependsOn", ()) if id in ids]
            self._undone.append("Stories waited for each other: dependsOn is as it was before the iteration")

    def _without_verdicts(self) -> Board:
        plain = [story | {"passes": False} for story in self._stories]
        return self._board | {"userStories": plain}

    # ---- decisions ----

    def keep_decisions(self) -> None:
        """Only what the mode lets an iteration decide, about one story."""
        for story in self._stories:
            if story["id"] not in self._old:
                self._begin(story)
        if self._rules.skip_review:
            self._keep_plain()
        else:
            self._keep_reviewed()
        for story in self._stories:
            if story["passes"] and not story.get("notes", "").strip() and not self._was(story)["passes"]:
                self._undo(story, "passes=true with empty notes; they say what was done")

    def _begin(self, story: Story) -> None:
        for field, value in NEW.items():
            if story[field] != value:
                self._undone.append(
                    f"New story {story['id']} must start with {field}={shown(value)}, not {shown(story[field])}"
                )
                story[field] = value

    def _keep_plain(self) -> None:
        """Without reviews a story passes by the word of its iteration; the review fields are nobody's."""
        for story in self._stories:
            was = self._was(story)
            for field in ("reviewStatus", "reviewCount"):
                if story[field] != was[field]:
                    self._put_back(story, was, field, f"Story {story['id']}")

    def _keep_reviewed(self) -> None:
        changed = [story for story in self._stories if self._has_changed(story)]
        legal = [story for story in changed if not self._problems(story)]
        chosen = self._chosen(legal)
        for story in changed:
            if story is chosen:
                continue
            problems = self._problems(story) or ["an iteration decides about one story, not multiple stories"]
            self._undo(story, problems[0])
        if chosen is not None and self._rules.mode == REVIEW:
            self._mind_cap(chosen)

    def _chosen(self, legal: list[Story]) -> Story | None:
        """The story whose decision counts: the one that it was its turn to decide about, else the first."""
        active = stories.next_story(self._before)
        return next((story for story in legal if story["id"] == active), legal[0] if legal else None)

    def _problems(self, story: Story) -> list[str]:
        """What is illegal about the change of one story, as if it were the only one."""
        id = story["id"]
        alone = {"userStories": [story]}
        snapshot = {id: {field: self._was(story)[field] for field in stories.REVIEW_FIELDS}}
        return stories.transition_problems(snapshot, alone, self._rules.mode)

    def _mind_cap(self, story: Story) -> None:
        """Enough reviews: what is still wanted is a note for people, and the story is approved."""
        if story["reviewCount"] < self._rules.review_cap:
            return
        if story["reviewStatus"] == CHANGES_REQUESTED:
            story.update(reviewStatus=APPROVED, passes=True)
            story["reviewFeedback"] = f"{AT_CAP} {story['reviewFeedback']}"
            story["notes"] = story.get("notes", "").strip() or "Approved at the review cap."
            times = f"{story['reviewCount']} reviews"
            self._undone.append(
                f"Story {story['id']} has had {times}, as many as there may be: it is approved"
            )
        if story["reviewFeedback"].startswith(AT_CAP):
            self._at_cap.append(story["id"])

    def _has_changed(self, story: Story) -> bool:
        return any(story[field] != self._was(story)[field] for field in stories.REVIEW_FIELDS)

    def _was(self, story: Story) -> Story:
        return self._old.get(story["id"]) or NEW | {"reviewFeedback": "", "notes": ""}

    def _undo(self, story: Story, why: str) -> None:
        was = self._was(story)
        fields = [field for field in _DECIDED if story[field] != was[field]]
        changes = ", ".join(f"{field} {shown(story[field])} → {shown(was[field])}" for field in fields)
        for field in fields:
            story[field] = was[field]
        self._undone.append(f"Story {story['id']} was put back ({changes}): {why}")

    def _put_back(self, values: dict[str, Any], old: dict[str, Any], key: str, name: str) -> None:
        self._undone.append(
            f"{name}: '{key}' was put back ({shown(values.get(key))} → {shown(old.get(key))})"
        )
        _set(values, key, old.get(key))

    # ---- the result ----

    def ruling(self) -> Ruling:
        approved = [s["id"] for s in self._stories if s["passes"] and not self._was(s)["passes"]]
        without = deepcopy(self._board)
        for story in without["userStories"]:
            if story["id"] in approved:
                was = self._was(story)
                story.update({field: was[field] for field in _DECIDED})
        return Ruling(self._board, without, tuple(self._undone), tuple(approved), tuple(self._at_cap))


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    if value is None and key != "reviewStatus":
        values.pop(key, None)
    else:
        values[key] = value
