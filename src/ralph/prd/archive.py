"""`ralph prd archive`: archives the files of a loop with a summary, and resets the folder.

The archive is complete under its final name before anything in the folder changes: copies and summary are written to a
folder with a temporary name, which is then renamed. If killed at any moment, the next call continues where it stopped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from ralph.errors import RalphError
from ralph.files.storyfile import TASKS, load, text_of
from ralph.loop.story_board import PRD, PROGRESS, PROMPT
from ralph.prd import files as prd_files
from ralph.prd.plan import PrdInputs
from ralph.process.client import Wakeup, Warden
from ralph.runs.repository import scm_runner
from ralph.scm.baseline import Baseline
from ralph.scm.commits import Committer
from ralph.scm.git import Git
from ralph.scm.repository import find_repository
from ralph.store import files
from ralph.store.prd_folder import MAX_BYTES, PrdFolder
from ralph.stories import rules

ARCHIVE, SUMMARY = "ralph-archive", "summary.md"
MOVED = (PRD, TASKS, PROGRESS)
_PARTIAL = ".partial"


class Archived(Struct, frozen=True):
    """The path of the archive, relative to the project, and the result. `problem` is why it is not committed."""

    path: str
    summary: str
    counts: Counts
    commit: str = ""
    problem: str = ""


class Counts(Struct, frozen=True):
    done: int
    all: int
    reviews: int
    unfinished: tuple[str, ...]
    at_cap: tuple[str, ...]


def archive(inputs: PrdInputs, label: str = "") -> Archived:
    """Archive the files of a loop. The caller holds the lock of the directory, so no loop is running."""
    with prd_files.opened(inputs.directory, inputs.folder) as folder:
        old = {name: folder.read(name, MAX_BYTES) for name in MOVED}
        fresh = {name for name in MOVED if prd_files.is_fresh(name, old[name])}
        target = _unfinished(inputs.directory, old, fresh)
        if not target:
            if fresh >= {PRD, TASKS}:
                raise RalphError(f"Nothing to archive in {inputs.directory / inputs.folder}.")
            target = _new_target(inputs.directory, old, label)
            _write(inputs.directory, target, old)
        _reset(inputs.directory, folder)
    names = [f"{ARCHIVE}/{target}/{name}" for name in (*MOVED, SUMMARY)]
    kept = [name for name in names if (inputs.directory / name).exists()]
    files_of_folder = [f"{inputs.folder}/{name}" for name in (*MOVED, PROMPT)]
    summary = (inputs.directory / ARCHIVE / target / SUMMARY).read_text()
    commit, problem = _commit(inputs.directory, [*kept, *files_of_folder], f"chore: archive {target}")
    counts = _counted(_read_list(_bytes(inputs.directory / ARCHIVE / target / TASKS)))
    return Archived(f"{ARCHIVE}/{target}", summary, counts, commit, problem)


# ---- the name of the archive ----


def _new_target(directory: Path, old: dict[str, bytes | None], label: str) -> str:
    base = f"{time.strftime('%Y-%m-%d')}-{slug(label or _branch(old[TASKS]))}"
    name, number = base, 1
    while os.path.lexists(directory / ARCHIVE / name):
        number += 1
        name = f"{base}-{number}"
    return name


def slug(text: str) -> str:
    """A folder name made from a branch or a label."""
    words = re.sub(r"[^\w.-]+", "-", text.removeprefix("ralph/")).strip("-.")
    return words[:80] or "loop"


def _branch(tasks: bytes | None) -> str:
    board = _read_list(tasks)
    return str(board.get("branchName") or board.get("project") or "")


def _unfinished(directory: Path, old: dict[str, bytes | None], fresh: set[str]) -> str:
    """The name of an archive of these files that an earlier call started and did not finish, or "".

    In that case each file in the folder is either the one in the archive or already a fresh one.
    """
    for path in sorted((directory / ARCHIVE).glob("*/"), reverse=True):
        kept = {name: _bytes(path / name) for name in MOVED}
        same = {name for name in MOVED if kept[name] == old[name]}
        is_begun = same | fresh == set(MOVED) and (same - fresh or not _is_committed(directory, path))
        if is_begun and not path.name.startswith(".") and (path / SUMMARY).is_file():
            return path.name
    return ""


def _is_committed(directory: Path, path: Path) -> bool:
    """Whether an archive is committed; True without a repository, because then there is nothing left to do."""
    with _git(directory) as found:
        if found is None:
            return True
        name = os.path.relpath(path, found.top)
        return bool(found.git.value("rev-parse", "-q", "--verify", f"HEAD:{name}/{SUMMARY}"))


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


# ---- writing ----


def _write(directory: Path, target: str, old: dict[str, bytes | None]) -> None:
    """Write copies and summary under a temporary name, sync them to disk, then rename."""
    (directory / ARCHIVE).mkdir(exist_ok=True)
    for leftover in (directory / ARCHIVE).glob(f".*{_PARTIAL}"):
        shutil.rmtree(leftover)
    with files.opened_directory(str(directory / ARCHIVE)) as archives:
        partial = f".{target}{_PARTIAL}"
        place = PrdFolder(archives, partial)
        for name, data in old.items():
            if data is not None:
                place.write(name, data)
        place.write(SUMMARY, summary(old, target).encode())
        os.rename(partial, target, src_dir_fd=archives, dst_dir_fd=archives)
        os.fsync(archives)


def _reset(directory: Path, folder: PrdFolder) -> None:
    """Write fresh templates. The prompt stays, because it may be adapted to the project."""
    for name in MOVED:
        if name == PROGRESS or not prd_files.is_fresh(name, folder.read(name)):
            folder.write(name, prd_files.fresh(name, directory.name).encode())
    if folder.read(PROMPT) is None:
        folder.write(PROMPT, prd_files.fresh(PROMPT, directory.name).encode())


class _Found(Struct, frozen=True):
    top: Path
    git: Git
    committer: Committer


@contextmanager
def _git(directory: Path) -> Iterator[_Found | None]:
    repository = find_repository(directory)
    if repository is None:
        yield None
        return
    with (
        files.opened_directory(str(repository.top)) as top,
        Warden(Wakeup()) as warden,
        tempfile.TemporaryDirectory(prefix="ralph-archive-") as scratch,
    ):
        runner = scm_runner(warden, top, repository.top)
        git = Git(repository, runner)
        baseline = Baseline(git, Path(scratch))
        baseline.record()
        yield _Found(repository.top, git, Committer(repository, runner, baseline, directory))


def _commit(directory: Path, names: list[str], message: str) -> tuple[str, str]:
    """Commit the files; returns the commit, or why there is none."""
    with _git(directory) as found:
        if found is None:
            return "", "this is not a git repository"
        before = found.git.value("rev-parse", "-q", "--verify", "HEAD")
        problem = found.committer.commit_files(names, message)
        after = found.git.value("rev-parse", "-q", "--verify", "HEAD")
        return (after, "") if after != before else ("", problem or "these files are git-ignored")


# ---- the summary ----


def _read_list(data: bytes | None) -> dict[str, Any]:
    """The task list, or {} if it is invalid: an invalid list can be archived too."""
    try:
        board = load(text_of(data, TASKS), TASKS)
    except RalphError:
        return {}
    return board if isinstance(board, dict) and not rules.schema_problems(board) else {}


def _counted(board: dict[str, Any]) -> Counts:
    found = board.get("userStories", [])
    return Counts(
        done=sum(story["passes"] for story in found),
        all=len(found),
        reviews=sum(story["reviewCount"] for story in found),
        unfinished=tuple(story["id"] for story in found if not story["passes"]),
        at_cap=tuple(rules.approved_at_cap(board)) if board else (),
    )


def summary(old: dict[str, bytes | None], title: str) -> str:
    """The summary: stories done, dates, number of reviews, and what a person should check."""
    board = _read_list(old[TASKS])
    counts = _counted(board)
    first, last = dates((old[PROGRESS] or b"").decode(errors="replace"))
    found: list[dict[str, Any]] = board.get("userStories", [])
    lines = [f"# {title}", ""]
    if not board:
        lines += ["The task list was not valid. It is kept unchanged.", ""]
    if counts.unfinished:
        lines += [f"**Not finished**: {', '.join(counts.unfinished)}.", ""]
    most = max((story["reviewCount"] for story in found), default=0)
    lines += [
        f"- Project: {_line(board.get('project', ''))}, branch `{_line(board.get('branchName', ''))}`",
        *([f"- {_line(board['description'])}"] if board.get("description") else []),
        f"- Stories done: {counts.done} of {counts.all}",
        f"- From {first} to {last}",
        f"- Reviews: {counts.reviews} total, at most {most} for one story",
        f"- Approved only at the review cap: {', '.join(counts.at_cap) or 'none'}",
        "",
        "| story | title | state | reviews |",
        "| --- | --- | --- | --- |",
        *(f"| {_cell(s['id'])} | {_cell(s['title'])} | {_state(s)} | {s['reviewCount']} |" for s in found),
        "",
    ]
    for story in found:
        if story["id"] in counts.at_cap:
            lines += [
                f"## {_line(story['id'])}: {_line(story['title'])}",
                "",
                story["reviewFeedback"].strip(),
                "",
            ]
    return "\n".join(lines)


def _state(story: dict[str, Any]) -> str:
    return str(story["reviewStatus"] or ("passes" if story["passes"] else "todo"))


def _line(value: Any) -> str:
    return " ".join(str(value).split())


def _cell(value: Any) -> str:
    return _line(value).replace("|", "\\|")


_DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b")


def dates(progress: str) -> tuple[str, str]:
    """The first and last date in the progress log; without any, today."""
    today = time.strftime("%Y-%m-%d")
    began = re.search(r"^Started: *(\d{4}-\d\d-\d\d)", progress, re.MULTILINE)
    entries = [
        found[0] for line in progress.splitlines() if line.startswith("#") and (found := _DATE.search(line))
    ]
    known = [*([began[1]] if began else []), *entries]
    return (known[0], max(known)) if known else (today, today)


def as_json(done: Archived) -> str:
    counts = done.counts
    return json.dumps(
        {
            "archive": done.path,
            "commit": done.commit or None,
            "problem": done.problem or None,
            "stories": counts.all,
            "done": counts.done,
            "unfinished": list(counts.unfinished),
            "approvedAtCap": list(counts.at_cap),
            "reviews": counts.reviews,
        },
        indent=2,
        ensure_ascii=False,
    )
