"""The files of a PRD loop before it starts: creates them from templates, and recognises unchanged ones."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from ralph.errors import RalphError
from ralph.files.paths import PLUGIN
from ralph.files.storyfile import MAX_TASKS, TASKS, dumped
from ralph.loop.story_board import PRD, PROGRESS, PROMPT
from ralph.store.files import opened_directory
from ralph.store.marker import MARKER
from ralph.store.prd_folder import PrdFolder, put_aside

TEMPLATES = {
    PROMPT: "prompt.md",
    PRD: "prd-template.md",
    TASKS: "tasks-template.json",
    PROGRESS: "progress-template.md",
}
"""Each file of the folder, and its template."""

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FREE = re.compile(r"\{\{(?:DATE|PROJECT_NAME)\}\}")


def template(name: str) -> str:
    return (PLUGIN / "templates" / TEMPLATES[name]).read_text()


# ---- creating them ----


class Made(Struct, frozen=True):
    """The files that were created, and those that already existed."""

    new: tuple[str, ...]
    old: tuple[str, ...]
    branch: str


def make(directory: Path, folder: str, feature: str = "", *, force: bool = False) -> Made:
    """Create the folder with all its files. Files with content are kept."""
    path = directory / folder
    refuse_others(path)
    if path.is_dir() and not force:
        raise RalphError(
            f"{path} already exists.",
            "Use --force to add missing files (nothing is overwritten), or `ralph prd archive` to archive a finished loop.",
        )
    branch = f"ralph/{branch_name(feature)}" if feature else ""
    new, old = [], []
    with opened(directory, folder) as place:
        for name in TEMPLATES:
            if (place.read(name) or b"").strip():
                old.append(name)
            else:
                place.write(name, fresh(name, feature or directory.name, branch).encode())
                new.append(name)
    if ignore_marker(directory):
        new.append(".gitignore")
    return Made(tuple(new), tuple(old), branch)


def require_folder(path: Path) -> None:
    refuse_others(path)
    if not path.is_dir():
        raise RalphError(f"{path} not found.", "Create it with: ralph prd init")


def refuse_others(path: Path) -> None:
    """Raise an error if a link or a file is in the place of the folder."""
    if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
        raise RalphError(f"{path} is not a folder (it is a file or a link).", f"Remove {path}.")


@contextmanager
def opened(directory: Path, folder: str) -> Iterator[PrdFolder]:
    """The folder, open for reading and writing. A link or a file in its place is an error."""
    refuse_others(directory / folder)
    with opened_directory(str(directory)) as project:
        yield PrdFolder(project, folder)


def fresh(name: str, project: str, branch: str = "") -> str:
    """A template with its variables filled in. With a branch, the PRD and the list also get the feature's name."""
    text = template(name).replace("{{DATE}}", time.strftime("%Y-%m-%d")).replace("{{PROJECT_NAME}}", project)
    if name == PRD and branch:
        return text.replace("# PRD: <feature>", f"# PRD: {project}", 1)
    if name == TASKS and branch:
        return dumped(json.loads(text) | {"project": project, "branchName": branch})
    return text


def branch_name(feature: str) -> str:
    """A branch name made from the name of a feature."""
    words = re.sub(r"[^\w./-]+", "-", feature.strip())
    name = re.sub(r"\.{2,}|/{2,}|(?<=/)\.", "-", words).strip("-./").removesuffix(".lock")
    if not name:
        raise RalphError(f"--name {feature!r} cannot become a branch name.", "Use letters and digits.")
    return name


def ignore_marker(directory: Path) -> bool:
    """Add the marker of a running loop to .gitignore; returns whether it had to be added."""
    path = directory / ".gitignore"
    try:
        text = path.read_text(errors="surrogateescape")
    except FileNotFoundError:
        text = ""
    if {MARKER, f"/{MARKER}"} & {line.strip() for line in text.splitlines()}:
        return False
    with path.open("a") as file:
        file.write(("\n" if text and not text.endswith("\n") else "") + f"{MARKER}\n")
    return True


# ---- recognising them ----


def is_fresh(name: str, data: bytes | None) -> bool:
    """Whether a file is empty or still the unchanged template."""
    text = (data or b"").decode(errors="replace")
    if not text.strip():
        return True
    if name == TASKS:
        return is_unplanned(text)
    return not _said(name, text) if name == PRD else _matches(name, text)


def is_unplanned(text: str) -> bool:
    """Whether a list has no stories, or only those of the template."""
    try:
        board: Any = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(board, dict) and board.get("userStories") in (
        [],
        json.loads(template(TASKS))["userStories"],
    )


def named_branch(directory: Path, folder: str) -> str:
    """The branch that `ralph prd init --name` gave to a list that is not planned yet; otherwise ""."""
    with opened(directory, folder) as place:
        text = (place.read(TASKS, MAX_TASKS) or b"").decode(errors="replace")
    if not is_unplanned(text):
        return ""
    branch = str(json.loads(text).get("branchName") or "")
    return "" if is_template_branch(branch) else branch


def is_template_branch(branch: str) -> bool:
    return bool(branch == json.loads(template(TASKS))["branchName"])


def _said(name: str, text: str) -> list[str]:
    """The lines that people wrote: without comments, headings and lines of the template."""
    scaffold = {line.strip() for line in _COMMENT.sub("", template(name)).splitlines()}
    lines = (line.strip() for line in _COMMENT.sub("", text).splitlines())
    return [line for line in lines if line and not line.startswith("#") and line not in scaffold]


def _matches(name: str, text: str) -> bool:
    pattern = ".*".join(map(re.escape, _FREE.split(template(name).strip())))
    return re.fullmatch(pattern, text.strip()) is not None


def has_prd(directory: Path, folder: str) -> bool:
    """Whether the PRD has content."""
    with opened(directory, folder) as place:
        return not is_fresh(PRD, place.read(PRD))


def keep_old(directory: Path, folder: str, name: str) -> str:
    """Rename a file with content; returns the new name, or "" if there was nothing to keep."""
    with opened(directory, folder) as place:
        if is_fresh(name, place.read(name, MAX_TASKS if name == TASKS else 16 << 20)):
            return ""
    with opened_directory(str(directory / folder)) as inside:
        return put_aside(inside, name, ".old")
