"""The rules of a PRD loop: the form of a task list, the mode of an iteration, and the changes it may make.

Both Ralph (after every iteration) and the plugin's stop hook (inside a session) use this file, so it has no
imports and takes `tasks.json` as plain values. Every rule is a function that returns a list of problems as text, the
most important first; an empty list means that all is well.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

IMPLEMENT, REVIEW, REVIEW_FIX = "implement", "review", "review-fix"
NEEDS_REVIEW, CHANGES_REQUESTED, APPROVED = "needs_review", "changes_requested", "approved"

REVIEW_CAP = 5
AT_CAP = "[AUTO-APPROVED AT CAP]"

REVIEW_FIELDS = ("passes", "reviewStatus", "reviewCount")
"""The fields of each story in a snapshot; changes to them are transitions."""

NEW = {"passes": False, "reviewStatus": None, "reviewCount": 0}
"""The state of a new story."""


# ---- check 1: the form of a task list ----


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    """Whether a value is a finite number; 1e999 in JSON is read as infinity."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _are_criteria(value: Any) -> bool:
    return _are_texts(value) and any(each.strip() for each in value)


def _is_review_status(value: Any) -> bool:
    return value is None or value in (NEEDS_REVIEW, CHANGES_REQUESTED, APPROVED)


BOARD: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("project", _is_text, "a string"),
    ("branchName", _is_text, "a string"),
    ("description", _is_text, "a string"),
    ("userStories", _is_list, "an array"),
)
BOARD_OPTIONAL: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("verifyCommands", _are_texts, "an array of strings"),
)
STORY: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("id", _is_name, "a non-empty string"),
    ("title", _is_text, "a string"),
    ("passes", _is_truth, "true or false"),
    ("priority", _is_number, "a number"),
    ("acceptanceCriteria", _are_criteria, "a non-empty array of strings"),
    ("reviewStatus", _is_review_status, 'null, "needs_review", "changes_requested" or "approved"'),
    ("reviewCount", _is_count, "a non-negative integer"),
    ("reviewFeedback", _is_text, "a string"),
)
STORY_OPTIONAL: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("description", _is_text, "a string"),
    ("notes", _is_text, "a string"),
    ("dependsOn", _are_texts, "an array of story ids"),
)


def is_right(story: Mapping[str, Any], key: str) -> bool:
    """Whether a story has this field with a valid value."""
    return key in story and next(test(story[key]) for name, test, _ in STORY + STORY_OPTIONAL if name == key)


def schema_problems(board: Any) -> list[str]:
    """The problems with the form of `tasks.json`."""
    if not isinstance(board, dict):
        return [f"tasks.json must be an object, not {_kind(board)}."]
    found = list(_wrong_fields(board, BOARD, BOARD_OPTIONAL, "tasks.json"))
    stories = board.get("userStories")
    for number, story in enumerate(stories if isinstance(stories, list) else (), 1):
        if not isinstance(story, dict):
            found.append(f"userStories[{number - 1}] must be an object, not {_kind(story)}.")
            continue
        name = f"Story {story['id']}" if _is_name(story.get("id")) else f"Story number {number}"
        found += _wrong_fields(story, STORY, STORY_OPTIONAL, name)
        if story.get("passes") is True and not str(story.get("notes") or "").strip():
            found.append(f"{name} has passes=true but empty notes: write down what was done.")
    return found + _wrong_ids(board)


def _wrong_fields(
    values: Mapping[str, Any],
    required: Sequence[tuple[str, Callable[[Any], bool], str]],
    optional: Sequence[tuple[str, Callable[[Any], bool], str]],
    name: str,
) -> Iterator[str]:
    for key, _, kind in required:
        if key not in values:
            yield f"{name}: the field '{key}' is missing; it must be {kind}."
    for key, is_right, kind in (*required, *optional):
        if key in values and not is_right(values[key]):
            yield f"{name}: '{key}' must be {kind}, not {shown(values[key])}."


def _wrong_ids(board: Mapping[str, Any]) -> list[str]:
    """Duplicate ids, dependencies on unknown stories, and dependency cycles."""
    listed = _dependencies(board)
    ids = [id for id, _ in listed]
    found = [f"Duplicate story id: {id}." for id in dict.fromkeys(id for id in ids if ids.count(id) > 1)]
    for id, others in listed:
        found += [
            f"Story {id}: 'dependsOn' names {other}, which is not a story."
            for other in others
            if other not in ids
        ]
    if not found and (cycle := cycle_of(board)):
        found.append(f"Stories have a dependency cycle: {' → '.join(cycle)}.")
    return found


def _dependencies(board: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Every story that has an id, with its dependencies."""
    stories, found = board.get("userStories"), []
    for each in stories if isinstance(stories, list) else ():
        if isinstance(each, dict) and _is_name(each.get("id")):
            waits = each.get("dependsOn") or []
            found.append((each["id"], waits if _are_texts(waits) else []))
    return found


def cycle_of(board: Mapping[str, Any]) -> list[str]:
    """The ids of a dependency cycle, ending with the first one again; empty if there is no cycle."""
    open_ids = dict(_dependencies(board))
    while free := [id for id, others in open_ids.items() if not any(other in open_ids for other in others)]:
        for id in free:
            del open_ids[id]
    if not open_ids:
        return []
    path = [next(iter(open_ids))]
    while path.count(path[-1]) == 1:
        path.append(next(other for other in open_ids[path[-1]] if other in open_ids))
    return path[path.index(path[-1]) :]


# ---- modes, order, completion ----


def mode_of(board: Mapping[str, Any], *, skip_review: bool = False) -> str:
    """The mode of the next iteration: first fix what a review found, then review, then implement."""
    found = {story["reviewStatus"] for story in board["userStories"] if not story["passes"]}
    if skip_review:
        return IMPLEMENT
    if CHANGES_REQUESTED in found:
        return REVIEW_FIX
    return REVIEW if NEEDS_REVIEW in found else IMPLEMENT


_SELECTED = {IMPLEMENT: None, REVIEW: NEEDS_REVIEW, REVIEW_FIX: CHANGES_REQUESTED}


def next_story(board: Mapping[str, Any], *, skip_review: bool = False) -> str:
    """The story of the next iteration: by mode, then dependencies, then priority; "" if there is none."""
    mode = mode_of(board, skip_review=skip_review)
    passed = {story["id"] for story in board["userStories"] if story["passes"]}
    open_stories = [
        story
        for story in board["userStories"]
        if not story["passes"] and (skip_review or story["reviewStatus"] == _SELECTED[mode])
    ]
    free = [story for story in open_stories if passed.issuperset(story.get("dependsOn", ()))]
    chosen = sorted(free if mode == IMPLEMENT else open_stories, key=lambda story: story["priority"])
    return str(chosen[0]["id"]) if chosen else ""


def is_complete(board: Mapping[str, Any], *, skip_review: bool = False) -> bool:
    """Whether every story passes and, with reviews, is approved. A list without stories is not complete."""
    stories = board["userStories"]
    return bool(stories) and all(
        story["passes"] and (skip_review or story["reviewStatus"] == APPROVED) for story in stories
    )


def approved_at_cap(board: Mapping[str, Any]) -> list[str]:
    """Stories approved only because they reached the review cap."""
    return [s["id"] for s in board["userStories"] if s["passes"] and s["reviewFeedback"].startswith(AT_CAP)]


def snapshot(board: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The review fields of every story by id, to check transitions against."""
    return {story["id"]: {field: story[field] for field in REVIEW_FIELDS} for story in board["userStories"]}


# ---- check 2: invariants of every state ----


def invariant_problems(board: Mapping[str, Any], review_cap: int = REVIEW_CAP) -> list[str]:
    found = []
    for story in board["userStories"]:
        id, status, passes = story["id"], story["reviewStatus"], story["passes"]
        if passes and status != APPROVED:
            found.append(
                f"Story {id} has passes=true but reviewStatus is '{shown(status, plain=True)}', not 'approved'."
                " Only review iterations may approve stories."
                " Set passes back to false or complete the review cycle."
            )
        if status == APPROVED and not passes:
            found.append(
                f"Story {id} has reviewStatus 'approved' but passes=false: the two are out of sync."
                " An approved story has passes=true."
            )
        if status == CHANGES_REQUESTED and not story["reviewFeedback"].strip():
            found.append(
                f"Story {id} has reviewStatus 'changes_requested' but an empty reviewFeedback:"
                " feedback is required: say what has to be fixed and where."
            )
        if not 0 <= story["reviewCount"] <= review_cap + 1:
            found.append(
                f"Story {id} has reviewCount {story['reviewCount']}; it must be a non-negative integer, at most"
                f" {review_cap + 1} (the review cap is {review_cap})."
            )
    return found


# ---- check 2.5: allowed changes of an iteration ----


def transition_problems(
    before: Mapping[str, Mapping[str, Any]], board: Mapping[str, Any], mode: str
) -> list[str]:
    """The changes of review fields since a snapshot that this mode does not allow."""
    stories = {story["id"]: story for story in board["userStories"]}
    found = [
        f"Story {id} was removed. Stories may be added and split, never removed."
        for id in before
        if id not in stories
    ]
    found += [each for id, story in stories.items() if id not in before for each in _new_story(story)]
    changed = {
        id: changes for id in stories if id in before and (changes := _changes(before[id], stories[id]))
    }
    return found + _TRANSITIONS[mode](stories, changed)


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {field: (old[field], new[field]) for field in REVIEW_FIELDS if old[field] != new[field]}


def _new_story(story: Mapping[str, Any]) -> Iterator[str]:
    for field, value in NEW.items():
        if story[field] != value:
            yield (
                f"New story {story['id']} must start with {field}={shown(value)}, not {shown(story[field])}."
                " New stories start incomplete."
            )


def _implemented(stories: Mapping[str, Any], changed: Mapping[str, Any]) -> list[str]:
    found, submitted = [], []
    for id, changes in changed.items():
        if changes == {"reviewStatus": (None, NEEDS_REVIEW)}:
            submitted.append(id)
            continue
        for field, (old, new) in changes.items():
            if (field, old, new) != ("reviewStatus", None, NEEDS_REVIEW):
                found.append(
                    "Implement iterations cannot set passes=true or approve stories."
                    " Only review iterations may approve, and only they change reviewCount."
                    f" Story {id} had illegal transition: {field} {shown(old)} → {shown(new)}."
                )
    if len(submitted) > 1:
        found.append(
            f"Implement iterations submit one story, not multiple stories: {', '.join(submitted)}."
            " One story per iteration."
        )
    return found


def _reviewed(stories: Mapping[str, Any], changed: Mapping[str, Any]) -> list[str]:
    wrong = "Review iteration made illegal transition on story {}: {}."
    if not changed:
        return [
            "Review iteration reviewed no story: it must increment reviewCount of exactly one story and decide."
        ]
    if len(changed) > 1:
        ids = ", ".join(changed)
        return [wrong.format(ids, "it changed multiple stories, and may only modify one story")]
    ((id, changes),) = changed.items()
    return [wrong.format(id, each) for each in _verdict_problems(stories[id], changes)]


def _verdict_problems(story: Mapping[str, Any], changes: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
    old_count, new_count = changes.get("reviewCount", (story["reviewCount"], story["reviewCount"]))
    if new_count != old_count + 1:
        yield f"a review must increment reviewCount by 1, not {old_count} → {new_count}"
    old, new = changes.get("reviewStatus", (story["reviewStatus"], story["reviewStatus"]))
    if old != NEEDS_REVIEW:
        yield f"only a story that needs review may be reviewed; its reviewStatus was {shown(old)}"
    elif new == APPROVED:
        if not story["passes"]:
            yield "it was approved, but passes is still false"
    elif new == CHANGES_REQUESTED:
        if story["passes"]:
            yield "changes were requested, but passes=true"
        if not story["reviewFeedback"].strip():
            yield "changes were requested without reviewFeedback"
    else:
        yield f"a review must end with approved or changes_requested, not reviewStatus {shown(old)} → {shown(new)}"


def _fixed(stories: Mapping[str, Any], changed: Mapping[str, Any]) -> list[str]:
    found, submitted = [], []
    for id, changes in changed.items():
        wrong = (
            f"Review-fix iterations cannot approve stories. Story {id} must go back to needs_review for re-review."
            " Illegal transition: "
        )
        for field, (old, new) in changes.items():
            if (field, old, new) != ("reviewStatus", CHANGES_REQUESTED, NEEDS_REVIEW):
                found.append(f"{wrong}{field} {shown(old)} → {shown(new)}.")
        if changes.get("reviewStatus") == (CHANGES_REQUESTED, NEEDS_REVIEW):
            submitted.append(id)
            if stories[id]["reviewFeedback"].strip():
                found.append(f"{wrong}reviewFeedback was not cleared.")
    if len(submitted) > 1:
        found.append(
            f"Review-fix iterations address one story, not multiple stories: {', '.join(submitted)}."
        )
    return found


_TRANSITIONS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], list[str]]] = {
    IMPLEMENT: _implemented,
    REVIEW: _reviewed,
    REVIEW_FIX: _fixed,
}


# ---- text ----


def shown(value: Any, *, plain: bool = False) -> str:
    """A value as in JSON, shortened if it is long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= 60 else text[:60] + "…"
    return text if plain or not isinstance(value, str) else f'"{text}"'


def _kind(value: Any) -> str:
    kinds = ((dict, "an object"), (list, "an array"), (str, "a string"), (bool, "a boolean"))
    return next(
        (name for type_, name in kinds if isinstance(value, type_)), "null" if value is None else "a number"
    )
