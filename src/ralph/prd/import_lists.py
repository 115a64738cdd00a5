"""`ralph prd import`: makes the folder of a PRD loop from another tool's list or from a Markdown checklist.

Fields that `tasks.json` does not have are kept in the notes of their story or in `prd.md`, and reported: nothing is lost
silently. A story marked as done is only a claim: it waits for its review, unless the user trusts it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from ralph.errors import RalphError
from ralph.files.jsonfile import parse_any
from ralph.files.paths import real
from ralph.files.storyfile import MAX_TASKS, TASKS, dumped
from ralph.files.textfile import read_text
from ralph.loop.story_board import PRD
from ralph.prd import files
from ralph.prd.checklist import Item, checklist
from ralph.stories import rules

_VERIFY = ("verifyCommands", "verificationCommands")
_DEPENDS = ("dependsOn", "dependencies")
_LIST_FIELDS = {"project", "branchName", "description", "userStories", *_VERIFY}
_STORY_FIELDS = {name for name, _, _ in (*rules.STORY, *rules.STORY_OPTIONAL)} | {*_DEPENDS}


class Imported(Struct):
    """The list and the PRD made from a file, and messages for the user."""

    board: dict[str, Any]
    prd: str
    said: list[str] = field(default_factory=list)

    @property
    def claimed(self) -> list[str]:
        """Stories marked as done in the source that wait for their review."""
        return [s["id"] for s in self.board["userStories"] if s["reviewStatus"] == rules.NEEDS_REVIEW]


def read(path: Path, branch: str = "", *, trust: bool = False) -> Imported:
    """Read a file to import. `branch` is for a list without one; by default it is named after the file."""
    text = read_text(str(path), most=MAX_TASKS, what="list to import").removeprefix("\ufeff")
    try:
        values = parse_any(text, str(path))
    except json.JSONDecodeError as error:
        if path.suffix == ".json" or text.lstrip().startswith("{"):
            raise RalphError(f"{path}:{error.lineno}: not valid JSON: {error.msg}.") from None
        return _from_markdown(path, text, branch, trust=trust)
    if isinstance(values, list):
        values = {"userStories": values}
    if not isinstance(values, dict) or not isinstance(values.get("userStories"), list):
        raise RalphError(
            f"{path}: not a list of stories: no array 'userStories'.",
            "Supported: a prd.json with userStories, an array of stories, or a Markdown checklist.",
        )
    return _from_json(path, values, branch, trust=trust)


def write(directory: Path, folder: str, imported: Imported, *, force: bool = False) -> list[str]:
    """Write the folder. Files with content are replaced only with `force`, and kept; returns messages about those."""
    with files.opened(directory, folder) as place:
        taken = [name for name in (TASKS, PRD) if not files.is_fresh(name, place.read(name))]
    if taken and not force:
        names = " and ".join(f"{folder}/{name}" for name in taken)
        raise RalphError(
            f"{names} already {'has' if len(taken) == 1 else 'have'} content.",
            "Use --force to replace it (the old content is kept under another name), or run `ralph prd archive` first.",
        )
    kept = [(name, files.keep_old(directory, folder, name)) for name in taken]
    files.make(directory, folder, force=True)
    with files.opened(directory, folder) as place:
        place.write(PRD, imported.prd.encode())
        place.write(TASKS, dumped(imported.board).encode())
    return [f"Renamed {folder}/{name} to {folder}/{other}." for name, other in kept if other]


# ---- JSON ----


def _from_json(path: Path, values: dict[str, Any], branch: str, *, trust: bool) -> Imported:
    said: list[str] = []
    found = [
        _story(story, number, path.name, said, trust=trust)
        for number, story in enumerate(values["userStories"], 1)
    ]
    project = _text(values.get("project")) or real(path).parent.name
    board = {
        "project": project,
        "branchName": _text(values.get("branchName")) or branch or _branch_of(path),
        "description": _text(values.get("description")),
        "verifyCommands": list(_commands(values, said)),
        "userStories": _connected(found, said),
    }
    rest = {key: value for key, value in values.items() if key not in _LIST_FIELDS}
    if rest:
        said.append(f"Kept in prd.md, because tasks.json has no field for it: {', '.join(rest)}.")
    return _checked(path, Imported(board, _prd(board, rest, path.name), said))


def _branch_of(path: Path) -> str:
    return f"ralph/{files.branch_name(path.stem)}"


def _commands(values: Mapping[str, Any], said: list[str]) -> Iterator[str]:
    for key in _VERIFY:
        found = values.get(key) or []
        for command in (
            found.values() if isinstance(found, dict) else found if isinstance(found, list) else [found]
        ):
            if isinstance(command, str) and command.strip():
                said.append(f"Ralph will run this command to verify every approval: {command}")
                yield command


def _story(story: Any, number: int, source: str, said: list[str], *, trust: bool) -> dict[str, Any]:
    if not isinstance(story, dict):
        raise RalphError(f"{source}: userStories[{number - 1}] is not an object.")
    title = (
        _text(story.get("title")) or _text(story.get("description")).partition("\n")[0] or f"Story {number}"
    )
    id = _text(story.get("id")).strip() or f"US-{number:03d}"
    notes = [_text(story.get("notes"))]
    criteria, met = _criteria(story.get("acceptanceCriteria"))
    if met:
        notes.append(f"Marked as met in {source}: {'; '.join(met)}")
    if not criteria:
        criteria = [title]
        said.append(f"{id} had no acceptance criteria: its title is now its only criterion.")
    priority = story.get("priority")
    if not rules.is_right(story, "priority"):
        if priority is not None:
            notes.append(f"Priority in {source}: {_shown(priority)}")
        priority = number
    rest = {key: value for key, value in story.items() if key not in _STORY_FIELDS}
    rest |= {key: story[key] for key in ("reviewFeedback", "reviewCount", "reviewStatus") if story.get(key)}
    if story.get("passes") not in (None, True, False):
        rest["passes"] = story["passes"]
    if rest:
        notes.append(f"From {source}: {_shown(rest)}")
        said.append(f"Kept in the notes of {id}, because a story has no field for it: {', '.join(rest)}.")
    depends: Any = next((story[key] for key in _DEPENDS if story.get(key)), [])
    made = {
        "id": id,
        "title": title,
        "description": _text(story.get("description")),
        "acceptanceCriteria": criteria,
        "priority": priority,
        "dependsOn": [_text(each) for each in depends] if isinstance(depends, list) else [_text(depends)],
    }
    return _claimed(made, notes, source, is_done=story.get("passes") is True, trust=trust)


def _claimed(
    given: dict[str, Any], notes: list[str], source: str, *, is_done: bool, trust: bool
) -> dict[str, Any]:
    """A story in our form. A story done elsewhere has to be reviewed here, unless it is trusted."""
    depends = given.pop("dependsOn", [])
    story = {**given, **rules.NEW, "reviewFeedback": "", "notes": "", "dependsOn": depends}
    if is_done and trust:
        story.update(passes=True, reviewStatus=rules.APPROVED)
        notes.append(f"Already done in {source}, and trusted.")
    elif is_done:
        story.update(reviewStatus=rules.NEEDS_REVIEW)
        notes.append(f"Marked as done in {source}; not reviewed yet.")
    story["notes"] = "\n".join(note.strip() for note in notes if note.strip())
    return story


def _criteria(found: Any) -> tuple[list[str], list[str]]:
    """The criteria as texts, and those marked as met."""
    texts, met = [], []
    for each in found if isinstance(found, list) else [found] if found else []:
        text = _criterion(each)
        if text:
            texts.append(text)
            if isinstance(each, dict) and each.get("passes") is True:
                met.append(text)
    return texts, met


def _criterion(value: Any) -> str:
    """A criterion as text. An object with more than a description and `passes` becomes JSON."""
    if isinstance(value, dict) and value.keys() <= {"description", "passes"}:
        return _text(value.get("description")).strip()
    return _text(value).strip()


def _connected(found: list[dict[str, Any]], said: list[str]) -> list[dict[str, Any]]:
    """Make ids unique, and remove dependencies on unknown stories and dependency cycles."""
    seen: set[str] = set()
    for story in found:
        number, id = 1, story["id"]
        while story["id"] in seen:
            number += 1
            story["id"] = f"{id}-{number}"
        if number > 1:
            said.append(f"Duplicate id {id}: renamed the second to {story['id']}.")
        seen.add(story["id"])
    for story in found:
        unknown = [id for id in story["dependsOn"] if id not in seen]
        if unknown:
            story["dependsOn"] = [id for id in story["dependsOn"] if id in seen]
            _note(story, f"Depended on {', '.join(unknown)}, which was not in the list.")
            said.append(
                f"{story['id']} depended on {', '.join(unknown)}, which is not in the list: kept in its notes."
            )
    if cycle := rules.cycle_of({"userStories": found}):
        said.append(f"Dependency cycle ({' → '.join(cycle)}): removed, and kept in the notes of the stories.")
        for story in found:
            if story["id"] in cycle:
                _note(story, f"Depended on {', '.join(story['dependsOn'])}.")
                story["dependsOn"] = []
    return found


def _note(story: dict[str, Any], text: str) -> None:
    story["notes"] = f"{story['notes']}\n{text}".strip()


def _prd(board: Mapping[str, Any], rest: Mapping[str, Any], source: str) -> str:
    lines = [
        f"# PRD: {board['project']}",
        "",
        "## 1. Summary",
        "",
        board["description"] or board["project"],
        "",
    ]
    if rest:
        lines += [f"## Imported from {source}", "", "```json", _shown(rest, indent=2), "```", ""]
    return "\n".join(lines)


def _checked(path: Path, imported: Imported) -> Imported:
    problems = rules.schema_problems(imported.board) or rules.invariant_problems(imported.board)
    if problems:
        raise RalphError(f"{path}: {problems[0]}")
    if not imported.board["userStories"]:
        raise RalphError(f"{path} has no stories.")
    return imported


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else _shown(value)


def _shown(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


# ---- Markdown ----


def _from_markdown(path: Path, text: str, branch: str, *, trust: bool) -> Imported:
    """Import a Markdown file: the whole text becomes the PRD, checkboxes become stories."""
    title, items = checklist(text)
    if not items:
        raise RalphError(
            f"{path}: no checkboxes found.",
            "A story is a line like `- [ ] Title`; its criteria are the items below it.",
        )
    said = [f"Copied {path.name} to prd.md."]
    found = [_of_item(item, number, path.name, said, trust=trust) for number, item in enumerate(items, 1)]
    board = {
        "project": title or real(path).parent.name,
        "branchName": branch or _branch_of(path),
        "description": title,
        "verifyCommands": [],
        "userStories": found,
    }
    return _checked(path, Imported(board, text if text.endswith("\n") else f"{text}\n", said))


def _of_item(item: Item, number: int, source: str, said: list[str], *, trust: bool) -> dict[str, Any]:
    criteria = [text for text, _ in item.criteria]
    notes = []
    if met := [text for text, is_met in item.criteria if is_met]:
        notes.append(f"Marked as met in {source}: {'; '.join(met)}")
    id = f"US-{number:03d}"
    if not criteria:
        criteria = [item.title]
        said.append(f"{id} had no items below it: its title is its acceptance criterion.")
    group = " / ".join(item.groups)
    lines = [f"Part of: {group}"] if group else []
    story = {
        "id": id,
        "title": item.title,
        "description": "\n\n".join([*lines, *([item.text] if item.text else [])]),
        "acceptanceCriteria": criteria,
        "priority": number,
    }
    return _claimed(story, notes, source, is_done=item.is_done, trust=trust)
