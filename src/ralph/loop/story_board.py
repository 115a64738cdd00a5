"""The folder of a PRD loop: the task list, the changes of an iteration, and the marker for hooks.

Ralph trusts its own copies, out of the agent's reach. An iteration is active from `begin` to `rule`; a check or a
commit, which may run the agent's code, from `hold` to `release`. A note next to the copies records this, so that after
a crash the next loop settles the interrupted step first. Changes at any other time were made by people and count.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ralph.core.model import BoardSeen, Prd
from ralph.core.text import clean
from ralph.errors import RalphError
from ralph.files.storyfile import MAX_TASKS, TASKS, dumped, parsed, text_of, valid
from ralph.store import files
from ralph.store.marker import MARKER, Marker, live_process, this_process
from ralph.store.prd_folder import PrdFolder
from ralph.stories import rules
from ralph.stories.enforce import ReviewPolicy, Ruling, ruled
from ralph.stories.progress import grown

PRD, PROGRESS, PROMPT = "prd.md", "progress.txt", "prompt.md"
PEOPLES = (PRD, PROMPT)
"""Files that an iteration must not change."""

MAX_NAMES = 10
NOTE = "in_hand.json"
BEFORE, HELD, UNDONE = "before", "held", "undone"


class StoryBoard(Struct, frozen=True):
    """`project`: an open directory. `kept`: directory of the copies. `commit`: commits files. `branch`: current branch.

    `lost_tests`: test files that were deleted since a tree, and those that lost lines.
    `mode`: the sandbox mode, for readers of the marker.
    """

    prd: Prd
    project: int
    kept: Path
    commit: Callable[[list[str], str], None] = lambda names, message: None
    branch: Callable[[], str] = lambda: ""
    lost_tests: Callable[[str], tuple[Sequence[str], Sequence[str]]] = lambda tree: ((), ())
    mode: str = "direct"

    # ---- before an iteration ----

    def before(self) -> BoardSeen:
        """The list as people left it; an invalid one raises."""
        path = f"{self.prd.folder}/{TASKS}"
        text = text_of(self._folder.read(TASKS, MAX_TASKS), path)
        board = valid(text, path, self.prd)
        return BoardSeen(
            role=rules.mode_of(board, skip_review=self.prd.skip_review),
            done=rules.is_complete(board, skip_review=self.prd.skip_review),
            legal=text,
            story=rules.next_story(board, skip_review=self.prd.skip_review),
            at_cap=tuple(rules.approved_at_cap(board)),
        )

    def begin(self, iterations: int, before: BoardSeen) -> None:
        """Before an agent starts: copy the files, and write the marker that tells its hooks what is allowed."""
        marker = self._marker(iterations, before)
        found = {name: self._folder.read(name) for name in (PRD, PROMPT, PROGRESS)}
        self._copy(BEFORE, found | {MARKER: marker})
        note = {"role": before.role, "story": before.story, "legal": before.legal, "branch": self.branch()}
        self._write_note(note | {"skipReview": self.prd.skip_review, "reviewCap": self.prd.review_cap})
        Marker(self.project).write(marker)

    # ---- after it ----

    def rule(self, before: BoardSeen, tree: str = "") -> BoardSeen:
        """Judge the changes of an iteration; forbidden ones are reverted in a separate commit.

        `tree`: the tree before the iteration, if known.
        """
        old = json.loads(before.legal)
        text, board = self._left()
        ruling = self._ruling(old, board, before.role)
        legal = text if not ruling.undone else dumped(ruling.board)
        files_as_they_may_be = {PRD: self._kept(PRD), PROMPT: self._kept(PROMPT), PROGRESS: self._progress()}
        illegal = [*ruling.undone, *self._differences(files_as_they_may_be), *self._marker_problems()]
        if illegal:
            self._put_back(
                {TASKS: legal.encode(), **files_as_they_may_be},
                "undo forbidden changes of an iteration",
                illegal,
            )
        told = (*self._told(old, ruling, before), *self._told_of_tests(tree))
        self._forget_note()
        return BoardSeen(
            role=before.role,
            done=rules.is_complete(ruling.board, skip_review=self.prd.skip_review),
            approves=bool(ruling.approved),
            legal=legal,
            illegal=tuple(illegal),
            story=before.story,
            unapproved=dumped(ruling.unapproved) if ruling.approved else "",
            told=told,
            at_cap=tuple(rules.approved_at_cap(ruling.board)),
        )

    def _left(self) -> tuple[str, Any]:
        """The list as the agent left it; None if it is invalid."""
        try:
            text = text_of(self._folder.read(TASKS, MAX_TASKS), TASKS)
            return text, parsed(text)
        except (RalphError, ValueError, RecursionError):
            return "", None

    def _ruling(self, old: dict[str, Any], board: Any, mode: str) -> Ruling:
        policy = ReviewPolicy(mode, self.prd.skip_review, self.prd.review_cap)
        try:
            return ruled(old, board, policy)
        except RecursionError:
            return ruled(old, None, policy)

    def _progress(self) -> bytes | None:
        old, now = self._kept(PROGRESS), self._folder.read(PROGRESS)
        return grown(old, now) if old is not None else now

    def _differences(self, legal: Mapping[str, bytes | None]) -> Iterator[str]:
        for name in PEOPLES:
            if legal[name] is not None and self._folder.read(name) != legal[name]:
                yield f"{self.prd.folder}/{name} must not be changed by the agent; it was restored"
        if self._folder.read(PROGRESS) != legal[PROGRESS]:
            yield f"{self.prd.folder}/{PROGRESS} is append-only below its line; earlier text was restored"

    def _marker_problems(self) -> Iterator[str]:
        kept = self._kept(MARKER)
        if kept is not None and Marker(self.project).read() != kept:
            yield f"{MARKER} must not be changed by the agent"

    def _told(self, old: dict[str, Any], ruling: Ruling, before: BoardSeen) -> Iterator[str]:
        """Allowed changes that must not happen again."""
        worked_on = _changed(old, ruling.board, (*rules.REVIEW_FIELDS, "notes"))
        decided = _changed(old, ruling.board, rules.REVIEW_FIELDS)
        if len(worked_on) > 1:
            yield f"several stories were changed ({', '.join(worked_on)}); work on one story per iteration"
        if before.role == rules.REVIEW and not decided and not ruling.undone:
            yield f"the review made no decision about {before.story}; a review must approve or request changes"
        was, now = self._noted("branch"), self.branch()
        if was and now != was and now != old["branchName"]:
            yield f"the iteration left branch {was} for {now or 'no branch'}; switch back, the work belongs on {was}"

    def _told_of_tests(self, tree: str) -> Iterator[str]:
        """Removed tests: allowed, but the next iteration, usually a review, should know."""
        try:
            gone, cut = self.lost_tests(tree)
        except RalphError as error:
            yield f"whether tests were removed is unknown ({clean(error.message)}); check it"
            return
        if gone:
            yield f"tests were removed ({_some(gone)}); check whether that was right"
        if cut:
            yield f"lines of tests were changed or removed ({_some(cut)}); check whether they still test the same things"

    # ---- approvals that were refuted ----

    def refute(self, legal: str, unapproved: str, told: tuple[str, ...]) -> None:
        """Revoke approvals in the current list; `unapproved` is `legal` without them."""
        refuted = {
            new["id"]: new
            for old, new in zip(
                *(json.loads(text)["userStories"] for text in (legal, unapproved)), strict=True
            )
            if old != new
        }
        _, board = self._left()
        if not isinstance(board, dict) or rules.schema_problems(board):
            board = json.loads(legal)
        fields = (*rules.REVIEW_FIELDS, "reviewFeedback")
        for story in board["userStories"]:
            if story["id"] in refuted:
                story.update({field: refuted[story["id"]][field] for field in fields})
        self._put_back({TASKS: dumped(board).encode()}, "revoke approvals that verification refuted", told)

    # ---- while checks and hooks run the agent's code ----

    def hold(self) -> None:
        """Copy the files: changes from now on were not made by people."""
        self._copy(HELD, {name: self._folder.read(name) for name in (TASKS, PRD, PROMPT, PROGRESS)})
        self._write_note({})

    def release(self) -> list[str]:
        """Restore the files that changed since `hold`, and return the undone changes."""
        held = {name: self._copy_of(HELD, name) for name in (TASKS, PRD, PROMPT, PROGRESS)}
        changed = {n: data for n, data in held.items() if data is not None and self._folder.read(n) != data}
        told = [f"{self.prd.folder}/{name} was changed by a check or a commit hook" for name in changed]
        if told:
            self._put_back(changed, "undo forbidden changes of verification", told)
        self._forget_note()
        return told

    # ---- after a crash ----

    def settle(self) -> BoardSeen | None:
        """Settle an interrupted step: judge its iteration, or undo the changes of a check."""
        note = self._note()
        if note is None:
            return None
        if (holder := live_process(note)) is not None:
            raise RalphError(
                f"Another loop is running in {self.prd.folder} (process {holder}).", "Wait for it or stop it."
            )
        if "legal" in note:
            prd = replace(self.prd, skip_review=note["skipReview"], review_cap=note["reviewCap"])
            before = BoardSeen(note["role"], done=False, legal=note["legal"], story=note["story"])
            return replace(self, prd=prd).rule(before)
        return BoardSeen("", done=False, illegal=tuple(self.release()))

    @property
    def is_unsettled(self) -> bool:
        """Whether an earlier loop was killed here and its step is not settled yet."""
        note = self._note()
        return note is not None and live_process(note) is None

    def _note(self) -> dict[str, Any] | None:
        try:
            note: dict[str, Any] = json.loads((self.kept / NOTE).read_bytes())
        except (OSError, ValueError):
            return None
        return note

    def _noted(self, key: str) -> str:
        return str((self._note() or {}).get(key, ""))

    def _write_note(self, note: dict[str, Any]) -> None:
        with files.opened_directory(str(self.kept)) as kept:
            files.write(kept, NOTE, json.dumps(note | this_process()).encode())

    def _forget_note(self) -> None:
        (self.kept / NOTE).unlink(missing_ok=True)

    # ---- the marker ----

    def _marker(self, iterations: int, before: BoardSeen) -> bytes:
        payload = {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **this_process(),
            "max_iterations": iterations,
            "mode": self.mode,
            "skipReview": self.prd.skip_review,
            "reviewCap": self.prd.review_cap,
            "ralphDir": self.prd.folder,
            "iterationMode": before.role,
            "preIterationSnapshot": rules.snapshot(json.loads(before.legal)),
        }
        return (json.dumps(payload, indent=2) + "\n").encode()

    def unmark(self) -> None:
        """Remove the marker, whatever it contains: no other loop can be running here."""
        Marker(self.project).remove()

    # ---- files ----

    @property
    def _folder(self) -> PrdFolder:
        return PrdFolder(self.project, self.prd.folder)

    def _put_back(self, legal: Mapping[str, bytes | None], what: str, told: Iterable[str]) -> None:
        """Restore files that differ, keep a copy of the changed ones, and commit."""
        for name, data in legal.items():
            now = self._folder.read(name)
            if data is None or now == data:
                continue
            if now is not None:
                self._keep_undone(name, now)
            self._folder.write(name, data)
        lines = (clean(text).replace("\n", " ")[:500] for text in told)
        names = [f"{self.prd.folder}/{name}" for name, data in legal.items() if data is not None]
        self.commit(names, f"chore: [ralph] {what}\n\n" + "\n".join(f"- {line}" for line in lines))

    def _keep_undone(self, name: str, data: bytes) -> None:
        """Keep a copy: the change may have been made by a person."""
        self._copy(UNDONE, {f"{time.time_ns() // 1000}-{name}": data})

    @property
    def undone(self) -> Path:
        """The directory with copies of undone changes."""
        return self.kept / UNDONE

    def _copy(self, place: str, found: Mapping[str, bytes | None]) -> None:
        """Copy these files; remove the copy of a file that does not exist."""
        (self.kept / place).mkdir(mode=0o700, parents=True, exist_ok=True)
        with files.opened_directory(str(self.kept / place)) as directory:
            for name, data in found.items():
                if data is None:
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=directory)
                elif self._copy_of(place, name) != data:
                    files.write(directory, name, data)

    def _copy_of(self, place: str, name: str) -> bytes | None:
        try:
            return (self.kept / place / name).read_bytes()
        except FileNotFoundError:
            return None

    def _kept(self, name: str) -> bytes | None:
        return self._copy_of(BEFORE, name)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def _changed(old: dict[str, Any], new: dict[str, Any], fields: Iterable[str]) -> list[str]:
    """Ids of existing stories in which one of these fields changed."""
    known = {story["id"]: story for story in old["userStories"]}
    both = [(known[story["id"]], story) for story in new["userStories"] if story["id"] in known]
    return [now["id"] for was, now in both if any(was.get(field) != now.get(field) for field in fields)]
