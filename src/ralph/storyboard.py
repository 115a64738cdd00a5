"""A PRD loop's folder as the loop sees it: the task list, what an iteration did to it, and the marker for hooks.

The harness believes its own copies, kept where the agent does not reach them: the list in the journal, the PRD and
the log of progress in the run's state directory.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralph.core import stories
from ralph.core.enforce import Rules, ruled
from ralph.core.model import BoardSeen, Prd
from ralph.errors import RalphError
from ralph.jsonfile import parse_strictly
from ralph.store import files
from ralph.store.runs import process_start

TASKS, PRD, PROGRESS, MARKER = "tasks.json", "prd.md", "progress.txt", ".ralph-active"
MOST_BYTES = 16 << 20
LINE = "\n---\n"
"""Below this line the log of progress only grows."""


@dataclass(frozen=True, slots=True)
class StoryBoard:
    """`project`: an open directory. `kept`: where copies are kept. `commit`: commits files of the folder."""

    prd: Prd
    project: int
    kept: Path
    commit: Callable[[list[str], str], None]

    # ---- looking ----

    def before(self, *, interrupted: BoardSeen | None = None) -> BoardSeen:
        """The list as it is before an iteration: what people have changed meanwhile counts.

        `interrupted`: the list before an iteration that was cut off; what that one did is ruled first.
        """
        if interrupted is not None and interrupted.legal:
            seen = self.after(interrupted)
            if seen.illegal:
                self.restore(seen.legal, seen.illegal)
        text = self._read(TASKS)
        board = valid(text, f"{self.prd.folder}/{TASKS}", self.prd)
        self._keep(PRD)
        self._keep(PROGRESS)
        return BoardSeen(
            role=stories.mode_of(board, skip_review=self.prd.skip_review),
            done=stories.is_complete(board, skip_review=self.prd.skip_review),
            legal=text,
            story=stories.next_story(board, skip_review=self.prd.skip_review),
            at_cap=tuple(stories.approved_at_cap(board)),
        )

    def after(self, before: BoardSeen) -> BoardSeen:
        """What the iteration has left, against what there was before it."""
        old = json.loads(before.legal)
        text, board = self._parsed()
        rules = Rules(before.role, self.prd.skip_review, self.prd.review_cap)
        ruling = ruled(old, board, rules)
        legal = text if not ruling.undone and ruling.board == board else _dumped(ruling.board)
        illegal = [*ruling.undone, *self._changed_files()]
        worked_on = _worked_on(old, ruling.board)
        several = f"The last iteration worked on several stories ({', '.join(worked_on)}): one per iteration."
        return BoardSeen(
            role=before.role,
            done=stories.is_complete(ruling.board, skip_review=self.prd.skip_review),
            approves=bool(ruling.approved),
            legal=legal,
            illegal=tuple(illegal),
            story=before.story,
            unapproved=_dumped(ruling.unapproved),
            told=(several,) if len(worked_on) > 1 else (),
            at_cap=tuple(stories.approved_at_cap(ruling.board)),
        )

    def restore(self, board: str, told: tuple[str, ...]) -> None:
        """Put back what was illegal, and commit it as that."""
        with self._folder() as folder:
            files.write(folder, TASKS, board.encode())
            for name in (PRD, PROGRESS):
                if (legal := self._legal(name)) is not None:
                    files.write(folder, name, legal)
        names = [f"{self.prd.folder}/{name}" for name in (TASKS, PRD, PROGRESS)]
        self.commit(
            names, "chore: [ralph] undo what an iteration may not do\n\n" + "\n".join(f"- {t}" for t in told)
        )

    def _parsed(self) -> tuple[str, Any]:
        try:
            text = self._read(TASKS)
            return text, parse_strictly(text)
        except (RalphError, ValueError, RecursionError):
            return "", None

    def _changed_files(self) -> list[str]:
        found = []
        if self._legal(PRD) is not None:
            found.append("prd.md is not the agent's to change; it is as it was")
        if self._legal(PROGRESS) is not None:
            found.append("progress.txt only grows below its line; what was there is back")
        return found

    def _legal(self, name: str) -> bytes | None:
        """What a file has to be; None: it is."""
        try:
            kept = (self.kept / name).read_bytes()
        except FileNotFoundError:
            return None
        now = self._bytes(name)
        legal = kept if name == PRD else grown(kept, now)
        return legal if legal != now else None

    # ---- the marker ----

    def mark(self, iterations: int, before: BoardSeen) -> None:
        """Tell the hooks inside the session what this iteration may do."""
        payload = {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "pid": os.getpid(),
            "pidStart": process_start(os.getpid()),
            "max_iterations": iterations,
            "mode": "direct",
            "skipReview": self.prd.skip_review,
            "reviewCap": self.prd.review_cap,
            "ralphDir": self.prd.folder,
            "iterationMode": before.role,
            "preIterationSnapshot": stories.snapshot(json.loads(before.legal)),
        }
        files.write(self.project, MARKER, (json.dumps(payload, indent=2) + "\n").encode(), durable=False)

    def unmark(self) -> None:
        """Remove the marker if it is ours; whatever else is there stays."""
        with suppress(OSError, ValueError):
            descriptor = os.open(MARKER, files.OLD_FILE | os.O_NONBLOCK, dir_fd=self.project)
            with open(descriptor, "rb") as file:
                payload = json.loads(file.read(MOST_BYTES))
            if payload.get("pid") == os.getpid():
                os.unlink(MARKER, dir_fd=self.project)

    # ---- files ----

    def _folder(self) -> Any:
        return files.opened_directory(self.prd.folder, self.project)

    def _bytes(self, name: str) -> bytes | None:
        try:
            with self._folder() as folder:
                descriptor = os.open(name, files.OLD_FILE | os.O_NONBLOCK, dir_fd=folder)
            with open(descriptor, "rb") as file:
                return file.read(MOST_BYTES)
        except (OSError, RalphError):
            return None

    def _read(self, name: str) -> str:
        path, data = f"{self.prd.folder}/{name}", self._bytes(name)
        if data is None:
            raise RalphError(f"{path} is not there, or no file.", "`ralph prd init` makes the folder.")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise RalphError(f"{path} is not UTF-8 text.") from None

    def _keep(self, name: str) -> None:
        data = self._bytes(name)
        if data is not None:
            self.kept.mkdir(parents=True, exist_ok=True)
            with files.opened_directory(str(self.kept)) as kept:
                files.write(kept, name, data)


def valid(text: str, path: str, prd: Prd) -> dict[str, Any]:
    """A task list that a loop can work on; what is wrong with it is one error."""
    try:
        board = parse_strictly(text)
    except (ValueError, RecursionError) as error:
        raise RalphError(f"{path}: not valid JSON: {error}.") from None
    found = stories.schema_problems(board)
    if not found and not prd.skip_review:
        found = stories.invariant_problems(board, prd.review_cap)
    if found:
        more = f" And {len(found) - 1} more." if len(found) > 1 else ""
        raise RalphError(f"{path}: {found[0]}{more}", "`ralph prd status` lists all of them.")
    checked: dict[str, Any] = board
    return checked


def grown(old: bytes, new: bytes | None) -> bytes:
    """The log of progress: its head may be rewritten, what stands below the line stays, whatever came is kept."""
    if new is None:
        return old
    old_head, old_line, old_log = old.partition(LINE.encode())
    new_head, new_line, new_log = new.partition(LINE.encode())
    if not old_line:
        return new if new.startswith(old) else old + b"\n" + new
    if not new_line:
        return old_head + old_line + old_log + b"\n" + new
    if new_log.startswith(old_log):
        return new
    return new_head + new_line + old_log.rstrip(b"\n") + b"\n\n" + new_log.lstrip(b"\n")


def _worked_on(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Stories whose decision or notes have changed; adding and reordering others is no work on them."""
    fields = (*stories.REVIEW_FIELDS, "notes")
    known = {story["id"]: story for story in old["userStories"]}
    return [
        story["id"]
        for story in new["userStories"]
        if story["id"] in known and any(story.get(f) != known[story["id"]].get(f) for f in fields)
    ]


def _dumped(board: dict[str, Any]) -> str:
    return json.dumps(board, indent=2, ensure_ascii=False) + "\n"
