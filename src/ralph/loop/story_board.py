"""A PRD loop's folder as the loop sees it: the task list, what an iteration did to it, and the marker for hooks.

The harness believes its own copies, kept where the agent does not reach them. An iteration is *in hand* from `begin` to
`rule`; a check or a commit, which may run what the agent has written, from `hold` to `release`. A note beside the copies
says so: whoever works on the folder next, after whatever end, first settles what that one left. What changes at any
other time is the work of people, and counts.
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
"""Files that an iteration may not change at all."""

MAX_NAMES = 10
NOTE = "in_hand.json"
BEFORE, HELD, UNDONE = "before", "held", "undone"


class StoryBoard(Struct, frozen=True):
    """`project`: an open directory. `kept`: where copies are kept. `commit`: commits files. `branch`: the one in use.
    `lost_tests`: those of a tree that are gone, and those that have lost lines.
    `mode`: whether the loop runs in a sandbox, for those who read the marker.
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
        """The list as people have left it; what is wrong with it is an error."""
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
        """An agent is about to start: keep what it finds, and tell the hooks inside its session what it may do."""
        marker = self._marker(iterations, before)
        found = {name: self._folder.read(name) for name in (PRD, PROMPT, PROGRESS)}
        self._copy(BEFORE, found | {MARKER: marker})
        note = {"role": before.role, "story": before.story, "legal": before.legal, "branch": self.branch()}
        self._write_note(note | {"skipReview": self.prd.skip_review, "reviewCap": self.prd.review_cap})
        Marker(self.project).write(marker)

    # ---- after it ----

    def rule(self, before: BoardSeen, tree: str = "") -> BoardSeen:
        """What the iteration has made of the list; what it may not do is put back, and committed as that.

        `tree`: the files as it has found them, if that is known.
        """
        old = json.loads(before.legal)
        text, board = self._left()
        ruling = self._ruling(old, board, before.role)
        legal = text if not ruling.undone else dumped(ruling.board)
        files_as_they_may_be = {PRD: self._kept(PRD), PROMPT: self._kept(PROMPT), PROGRESS: self._progress()}
        illegal = [*ruling.undone, *self._differences(files_as_they_may_be), *self._marker_problems()]
        if illegal:
            self._put_back(
                {TASKS: legal.encode(), **files_as_they_may_be}, "undo what an iteration may not do", illegal
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
        """The list as the agent has left it; None: it is none."""
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
                yield f"{self.prd.folder}/{name} is not the agent's to change; it is as it was"
        if self._folder.read(PROGRESS) != legal[PROGRESS]:
            yield f"{self.prd.folder}/{PROGRESS} only grows below its line; what was there is back"

    def _marker_problems(self) -> Iterator[str]:
        kept = self._kept(MARKER)
        if kept is not None and Marker(self.project).read() != kept:
            yield f"{MARKER} is not the agent's to change"

    def _told(self, old: dict[str, Any], ruling: Ruling, before: BoardSeen) -> Iterator[str]:
        """What was legal and should not happen again."""
        worked_on = _changed(old, ruling.board, (*rules.REVIEW_FIELDS, "notes"))
        decided = _changed(old, ruling.board, rules.REVIEW_FIELDS)
        if len(worked_on) > 1:
            yield f"It worked on several stories ({', '.join(worked_on)}): one story per iteration"
        if before.role == rules.REVIEW and not decided and not ruling.undone:
            yield f"It was a review and decided nothing about {before.story}: a review approves or requests changes"
        was, now = self._noted("branch"), self.branch()
        if was and now != was and now != old["branchName"]:
            yield f"It left branch {was} and stayed on {now or 'no branch'}: the work belongs on {was}, go back to it"

    def _told_of_tests(self, tree: str) -> Iterator[str]:
        """Nobody has forbidden it; whoever comes next, a review as a rule, should know."""
        gone, cut = self.lost_tests(tree)
        if gone:
            yield f"It removed tests ({_some(gone)}): see whether that was right"
        if cut:
            yield f"It changed or removed lines of tests ({_some(cut)}): see whether they still test what they did"

    # ---- approvals that were refuted ----

    def refute(self, legal: str, unapproved: str, told: tuple[str, ...]) -> None:
        """Take approvals back in the list as it is now; `unapproved` is `legal` without them."""
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
        self._put_back({TASKS: dumped(board).encode()}, "take back what verification has refuted", told)

    # ---- while others run what the agent has written ----

    def hold(self) -> None:
        """From now on, whatever happens to the files is not the work of people."""
        self._copy(HELD, {name: self._folder.read(name) for name in (TASKS, PRD, PROMPT, PROGRESS)})
        self._write_note({})

    def release(self) -> list[str]:
        """Put back what has happened to them since; returns what that was."""
        held = {name: self._copy_of(HELD, name) for name in (TASKS, PRD, PROMPT, PROGRESS)}
        changed = {n: data for n, data in held.items() if data is not None and self._folder.read(n) != data}
        told = [
            f"{self.prd.folder}/{name} was changed by what was run to verify or commit" for name in changed
        ]
        if told:
            self._put_back(changed, "undo what verification may not do", told)
        self._forget_note()
        return told

    # ---- what was cut off ----

    def settle(self) -> BoardSeen | None:
        """Finish what somebody before us could not: rule an iteration, or put back what a check has changed."""
        note = self._note()
        if note is None:
            return None
        if (holder := live_process(note)) is not None:
            raise RalphError(
                f"A loop is at work in {self.prd.folder} (process {holder}).", "Wait for it or end it."
            )
        if "legal" in note:
            prd = replace(self.prd, skip_review=note["skipReview"], review_cap=note["reviewCap"])
            before = BoardSeen(note["role"], done=False, legal=note["legal"], story=note["story"])
            return replace(self, prd=prd).rule(before)
        return BoardSeen("", done=False, illegal=tuple(self.release()))

    @property
    def is_unsettled(self) -> bool:
        """Was somebody killed here, and nobody has settled since what that one left?"""
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
        """Remove the marker, whatever has become of it: nobody else may run a loop here meanwhile."""
        Marker(self.project).remove()

    # ---- files ----

    @property
    def _folder(self) -> PrdFolder:
        return PrdFolder(self.project, self.prd.folder)

    def _put_back(self, legal: Mapping[str, bytes | None], what: str, told: Iterable[str]) -> None:
        """Write what differs, keep what was there, commit it."""
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
        """Perhaps it was a person's: nothing is lost."""
        self._copy(UNDONE, {f"{time.time_ns() // 1000}-{name}": data})

    @property
    def undone(self) -> Path:
        """Where there are copies of what was put back."""
        return self.kept / UNDONE

    def _copy(self, place: str, found: Mapping[str, bytes | None]) -> None:
        """Keep these; a file that is not there is not there in the copies either."""
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
    """Stories of which one of these has changed; those that were added are not meant."""
    known = {story["id"]: story for story in old["userStories"]}
    both = [(known[story["id"]], story) for story in new["userStories"] if story["id"] in known]
    return [now["id"] for was, now in both if any(was.get(field) != now.get(field) for field in fields)]
