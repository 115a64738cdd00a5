"""Undoes illegal changes of an iteration to the task list, field by field, and reports them.

    ruled(before, after, rules) -> Ruling

`before` is Ralph's own copy, a valid list; `after` is the agent's version. The board of a ruling is always valid
again, and equals `after` exactly if nothing was undone. The agent may add, split and reorder stories and write notes.
It must not remove stories or criteria, change how stories are verified, or make decisions that its mode does not allow.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ralph.stories import rules
from ralph.stories.rules import (
    APPROVED,
    AT_CAP,
    CHANGES_REQUESTED,
    IMPLEMENT,
    NEW,
    REVIEW,
    REVIEW_FIX,
    shown,
)

Board = dict[str, Any]
Story = dict[str, Any]

_DECIDED = (*rules.REVIEW_FIELDS, "reviewFeedback")
"""Fields that are undone together when a decision about a story does not count."""

_PEOPLES = ("project", "branchName", "description", "verifyCommands")
"""Fields of the list that the agent must not change."""

_BEGINNING: Story = {**NEW, "reviewFeedback": ""}

_MANY = "an iteration decides about one story, not multiple stories"
_WHY = {
    IMPLEMENT: "implement iterations cannot set passes=true or approve stories, only review iterations may;"
    ' they set reviewStatus "needs_review" for one story',
    REVIEW_FIX: "review-fix iterations cannot approve stories; the story goes back to needs_review for re-review,"
    " with reviewFeedback cleared",
}

UNVERIFIED = "The verify commands failed when this story was approved: run them, and fix what they report."
"""The feedback for a story whose approval failed verification."""


@dataclass(frozen=True, slots=True)
class ReviewPolicy:
    """How strict this run is."""

    mode: str
    skip_review: bool = False
    review_cap: int = rules.REVIEW_CAP


@dataclass(frozen=True, slots=True)
class Ruling:
    """The legal list, what was undone to get there, and what the iteration decided.

    `approved` are the stories that count as done if verification passes. `unapproved` is the list if it fails: then
    they need fixing, and the review does not count. `at_cap` are stories approved only because of the review cap.
    """

    board: Board
    unapproved: Board
    undone: tuple[str, ...] = ()
    approved: tuple[str, ...] = ()
    at_cap: tuple[str, ...] = ()


def ruled(before: Board, after: Any, policy: ReviewPolicy) -> Ruling:
    if not isinstance(after, dict) or not isinstance(after.get("userStories"), list):
        what = "tasks.json was no longer a task list; restored as it was before the iteration"
        return Ruling(before, before, (what,))
    keeper = _Keeper(before, deepcopy(after), policy)
    keeper.keep_fields()
    keeper.keep_stories()
    keeper.keep_dependencies()
    keeper.keep_decisions()
    return keeper.ruling()


class _Keeper:
    """Makes a list legal again, step by step."""

    def __init__(self, before: Board, board: Board, policy: ReviewPolicy) -> None:
        self._before = before
        self._old: dict[str, Story] = {story["id"]: story for story in before["userStories"]}
        self._board = board
        self._rules = policy
        self._undone: list[str] = []
        self._at_cap: list[str] = []

    @property
    def _stories(self) -> list[Story]:
        found: list[Story] = self._board["userStories"]
        return found

    # ---- form ----

    def keep_fields(self) -> None:
        """Restore the fields of the list that only people may change."""
        for key in _PEOPLES:
            if self._board.get(key) != self._before.get(key):
                self._undone.append(f"the agent must not change {key}; restored")
                _set(self._board, key, self._before.get(key))

    def keep_stories(self) -> None:
        """Keep every story exactly once, well-formed, with all its criteria."""
        kept: dict[str, Story] = {}
        left: list[Any] = self._board["userStories"]
        for story in left:
            if problem := self._unusable(story, kept):
                name = story.get("id") if isinstance(story, dict) else story
                self._undone.append(f"Removed a story ({shown(name)}): {problem}")
            else:
                kept[story["id"]] = story
        for number, (id, old) in enumerate(self._old.items()):
            if id not in kept:
                self._undone.append(f"Story {id} was removed; restored. Stories may be split, never removed")
                kept = dict([*list(kept.items())[:number], (id, deepcopy(old)), *list(kept.items())[number:]])
            self._keep_criteria(kept[id], old)
        self._board["userStories"] = list(kept.values())

    def _unusable(self, story: Any, kept: dict[str, Story]) -> str:
        """Why this is not a valid story, or "". A known story is repaired."""
        if not isinstance(story, dict) or not isinstance(story.get("id"), str) or not story["id"].strip():
            return "a story is an object with an id"
        if story["id"] in kept:
            return "duplicate id"
        if story["id"] in self._old:
            self._repair(story, self._old[story["id"]])
            return ""
        return self._unusable_id(story["id"], kept) or self._unusable_form(story)

    def _unusable_id(self, id: str, kept: dict[str, Story]) -> str:
        """Why a new id is invalid, or "": it must be plain and clearly different from other ids."""
        known = "".join(self._old)
        if id != id.strip() or not all((c.isascii() and c.isprintable()) or c in known for c in id):
            return "an id may only have printable ASCII characters and characters that other ids have"
        folded = id.casefold()
        alike = next((other for other in (*self._old, *kept) if other.casefold() == folded), None)
        return f"its id could be mistaken for {alike}" if alike is not None else ""

    def _unusable_form(self, story: Story) -> str:
        """Give a new story default values for missing fields; without criteria it is invalid."""
        if not rules.is_right(story, "acceptanceCriteria"):
            return "no acceptance criteria"
        usual: Story = {**_BEGINNING, "priority": len(self._stories), "title": story["id"]}
        for key, is_right, kind in (*rules.STORY, *rules.STORY_OPTIONAL):
            if key in story and is_right(story[key]):
                continue
            if key in usual:
                story[key] = usual[key]
                self._undone.append(
                    f"New story {story['id']}: '{key}' must be {kind}; set to {shown(story[key])}"
                )
            elif key in story:
                self._undone.append(f"New story {story['id']}: '{key}' must be {kind}; removed")
                del story[key]
        return ""

    def _repair(self, story: Story, old: Story) -> None:
        """Restore the missing or invalid fields of a known story."""
        for key, is_right, _ in (*rules.STORY, *rules.STORY_OPTIONAL):
            is_well = key in story and is_right(story[key])
            if not is_well and (key in old or key in story):
                self._put_back(story, old, key)

    def _keep_criteria(self, story: Story, old: Story) -> None:
        missing = [each for each in old["acceptanceCriteria"] if each not in story["acceptanceCriteria"]]
        if missing:
            new = [each for each in story["acceptanceCriteria"] if each not in old["acceptanceCriteria"]]
            story["acceptanceCriteria"] = [*old["acceptanceCriteria"], *new]
            gone = "; ".join(missing)
            self._undone.append(
                f"Story {story['id']} had lost acceptance criteria, which may only be added; restored: {gone}"
            )

    def keep_dependencies(self) -> None:
        """Remove dependencies on unknown stories and dependency cycles."""
        ids = {story["id"] for story in self._stories}
        for story in self._stories:
            unknown = [id for id in story.get("dependsOn", ()) if id not in ids]
            if unknown:
                story["dependsOn"] = [id for id in story["dependsOn"] if id in ids]
                self._undone.append(f"Story {story['id']} depended on unknown stories: {', '.join(unknown)}")
        if rules.cycle_of(self._board):
            for story in self._stories:
                old = self._old.get(story["id"], {})
                _set(story, "dependsOn", old.get("dependsOn"))
            self._undone.append(
                "Stories had a dependency cycle: dependsOn restored as it was before the iteration"
            )

    # ---- decisions ----

    def keep_decisions(self) -> None:
        """Keep only decisions that the mode allows, about one story."""
        for story in self._stories:
            if story["id"] not in self._old:
                self._begin(story)
        decided = None
        if self._rules.skip_review:
            self._keep_plain()
        else:
            decided = self._keep_reviewed()
        for story in self._stories:
            self._keep_words(story, is_decided=story is decided)

    def _begin(self, story: Story) -> None:
        for field, value in _BEGINNING.items():
            if story[field] != value:
                self._undone.append(
                    f"New story {story['id']} must start with {field}={shown(value)}, not {shown(story[field])}"
                )
                story[field] = value

    def _keep_plain(self) -> None:
        """Without reviews the iteration itself sets `passes`; the review fields must not change."""
        for story in self._stories:
            for field in ("reviewStatus", "reviewCount"):
                if story[field] != self._was(story)[field]:
                    self._put_back(story, self._was(story), field)

    def _keep_reviewed(self) -> Story | None:
        """Undo all decisions but one; returns the story of that one."""
        changed = [story for story in self._stories if self._has_changed(story)]
        legal = [story for story in changed if not self._problems(story)]
        chosen = self._chosen(legal)
        for story in changed:
            if story is not chosen:
                self._undo(story, next(iter(self._problems(story)), _MANY))
        if chosen is not None and self._rules.mode == REVIEW:
            self._mind_cap(chosen)
        return chosen

    def _chosen(self, legal: list[Story]) -> Story | None:
        """The story whose decision counts: the one whose turn it was, otherwise the first."""
        active = rules.next_story(self._before)
        return next((story for story in legal if story["id"] == active), legal[0] if legal else None)

    def _problems(self, story: Story) -> list[str]:
        """What is illegal about the change of one story, taken alone."""
        mode = self._rules.mode
        snapshot = {story["id"]: {field: self._was(story)[field] for field in rules.REVIEW_FIELDS}}
        found = rules.transition_problems(snapshot, {"userStories": [story]}, mode)
        found = [_WHY.get(mode) or each.partition(": ")[2].rstrip(".") for each in found]
        cap = self._rules.review_cap
        if self._approves(story) and _is_capped(story) and story["reviewCount"] < cap:
            found.append(f"it claims approval at the cap, after only {story['reviewCount']} of {cap} reviews")
        if self._approves(story) and not story.get("notes", "").strip():
            found.append("passes=true with empty notes; they must say what was done")
        return found

    def _mind_cap(self, story: Story) -> None:
        """At the review cap, approve the story and keep the remaining feedback as a note for people."""
        if story["reviewCount"] < self._rules.review_cap:
            return
        if story["reviewStatus"] == CHANGES_REQUESTED:
            story.update(reviewStatus=APPROVED, passes=True)
            story["reviewFeedback"] = f"{AT_CAP} {story['reviewFeedback']}"
            story["notes"] = story.get("notes", "").strip() or "Approved at the review cap."
            count = story["reviewCount"]
            self._undone.append(
                f"Story {story['id']} still had changes requested after review {count}, at the cap of"
                f" {self._rules.review_cap}: approved with a note"
            )
        if _is_capped(story):
            self._at_cap.append(story["id"])

    def _keep_words(self, story: Story, *, is_decided: bool) -> None:
        """Only reviews may write feedback, and the notes of a story that passes must stay."""
        was = self._was(story)
        may_write = is_decided and self._rules.mode in (REVIEW, REVIEW_FIX)
        if not may_write and story["reviewFeedback"] != was["reviewFeedback"]:
            self._put_back(story, was, "reviewFeedback")
        if story["passes"] and not story.get("notes", "").strip():
            if was["passes"]:
                self._put_back(story, was, "notes")
            else:
                self._undo(story, "passes=true with empty notes; they must say what was done")

    def _approves(self, story: Story) -> bool:
        return bool(story["passes"]) and not self._was(story)["passes"]

    def _has_changed(self, story: Story) -> bool:
        return any(story[field] != self._was(story)[field] for field in rules.REVIEW_FIELDS)

    def _was(self, story: Story) -> Story:
        return self._old.get(story["id"]) or {**_BEGINNING, "notes": ""}

    def _undo(self, story: Story, why: str) -> None:
        was = self._was(story)
        fields = [field for field in _DECIDED if story[field] != was[field]]
        changes = ", ".join(f"{field} {shown(story[field])} → {shown(was[field])}" for field in fields)
        for field in fields:
            story[field] = was[field]
        self._undone.append(f"Story {story['id']} was reverted ({changes}): {why}")

    def _put_back(self, story: Story, old: Story, key: str) -> None:
        change = f"{shown(story.get(key))} → {shown(old.get(key))}"
        self._undone.append(f"Story {story['id']}: '{key}' was reverted ({change})")
        _set(story, key, old.get(key))

    # ---- the result ----

    def ruling(self) -> Ruling:
        approved = [story["id"] for story in self._stories if self._approves(story)]
        without = deepcopy(self._board)
        for story in without["userStories"]:
            if story["id"] in approved:
                was = self._was(story)
                story.update({field: was[field] for field in _DECIDED})
                if not self._rules.skip_review:
                    story.update(reviewStatus=CHANGES_REQUESTED, reviewFeedback=UNVERIFIED)
        return Ruling(self._board, without, tuple(self._undone), tuple(approved), tuple(self._at_cap))


def _is_capped(story: Story) -> bool:
    return str(story["reviewFeedback"]).startswith(AT_CAP)


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    if value is None and key != "reviewStatus":
        values.pop(key, None)
    else:
        values[key] = value
