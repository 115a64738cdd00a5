"""The story board of a PRD loop: what an iteration may change, and cleanup after a killed run."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from prd_support import board, story
from ralph.core.model import BoardSeen, Prd
from ralph.errors import RalphError
from ralph.loop.story_board import NOTE, StoryBoard
from ralph.scm.git import GitError
from ralph.store.files import opened_directory
from ralph.store.marker import MARKER
from ralph.store.runs import process_start
from ralph.stories.rules import IMPLEMENT, REVIEW, REVIEW_FIX

NESTED = '{"userStories": [' + 600 * "[" + 600 * "]" + "]}"
"""Nested so deeply that Python can parse it but not copy it."""

PROGRESS = "# Log\n\n---\n- planned\n"


@dataclass
class Place:
    """A board, its folder, and its commits."""

    path: Path
    board: StoryBoard
    commits: list[tuple[list[str], str]] = field(default_factory=list)
    branches: list[str] = field(default_factory=lambda: ["main"])
    lost: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    @property
    def folder(self) -> Path:
        return self.path / "ralph"

    def begin(self) -> BoardSeen:
        """Start an iteration."""
        before = self.board.before()
        self.board.begin(5, before)
        return before

    def write(self, *stories: dict[str, Any], **values: Any) -> None:
        (self.folder / "tasks.json").write_text(json.dumps(board(*stories, **values)))

    @property
    def stories(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.folder / "tasks.json").read_text())["userStories"]
        return found

    @property
    def note(self) -> Path:
        return self.board.kept / NOTE

    @property
    def undone(self) -> list[str]:
        """The names of the kept copies, without their times."""
        found = self.board.undone.iterdir() if self.board.undone.exists() else ()
        return sorted(path.name.partition("-")[2] for path in found)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    project = tmp_path / "project"
    (project / "ralph").mkdir(parents=True)
    with opened_directory(str(project)) as directory:
        found = Place(project, StoryBoard(Prd(), directory, tmp_path / "kept"))
        found.board = replace(
            found.board,
            commit=lambda names, message: found.commits.append((names, message)),
            branch=lambda: found.branches[-1],
            lost_tests=lambda tree: found.lost,
        )
        found.write(story())
        for name, text in (("prd.md", "# Calc\n"), ("prompt.md", "Go.\n"), ("progress.txt", PROGRESS)):
            (found.folder / name).write_text(text)
        yield found


IMPLEMENTED = story(reviewStatus="needs_review", notes="done")
APPROVED = story(reviewStatus="approved", passes=True, reviewCount=1, notes="done")


# ---- before ----


@pytest.mark.parametrize(
    ("found", "role", "done"),
    [
        (story(), IMPLEMENT, False),
        (IMPLEMENTED, REVIEW, False),
        (story(reviewStatus="changes_requested", reviewCount=1, reviewFeedback="x"), REVIEW_FIX, False),
        (APPROVED, "", True),
    ],
)
def test_the_list_says_what_is_next(place: Place, found: dict[str, Any], role: str, done: bool) -> None:
    """The list determines the next role and story, and whether all stories are done."""
    place.write(found)
    before = place.board.before()
    assert (before.done, before.story) == (done, "" if done else "US-001")
    assert before.role == role or done
    assert json.loads(before.legal)["userStories"] == [found]


@pytest.mark.parametrize("content", [None, "rubbish", '{"userStories": 7}', "[]"])
def test_an_unreadable_list_is_an_error(place: Place, content: str | None) -> None:
    """The error for a missing or broken list names the file."""
    path = place.folder / "tasks.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(RalphError, match=r"ralph/tasks\.json"):
        place.board.before()


def test_a_running_iteration_has_a_note_and_a_marker(place: Place) -> None:
    """The note is out of the agent's reach, the marker is in the project, and both name this process."""
    place.begin()
    note, marker = json.loads(place.note.read_text()), json.loads((place.path / MARKER).read_text())
    assert (note["role"], note["story"], note["branch"]) == (IMPLEMENT, "US-001", "main")
    assert note["pid"] == marker["pid"] == os.getpid()
    assert (marker["iterationMode"], marker["max_iterations"], marker["ralphDir"]) == (IMPLEMENT, 5, "ralph")
    place.board.unmark()
    assert not (place.path / MARKER).exists()


# ---- rule ----


def test_legal_changes_stay_and_are_not_committed(place: Place) -> None:
    """An implemented story with notes and a line of progress is left as it is."""
    before = place.begin()
    place.write(IMPLEMENTED)
    (place.folder / "progress.txt").write_text(PROGRESS + "- done\n")
    after = place.board.rule(before)
    assert (after.illegal, after.told, place.commits, place.undone) == ((), (), [], [])
    assert (after.approves, after.unapproved, place.stories) == (False, "", [IMPLEMENTED])
    assert not place.note.exists()


def test_an_approval_can_be_taken_back_later(place: Place) -> None:
    """The ruling has the list both with and without the approval."""
    place.write(IMPLEMENTED)
    before = place.begin()
    place.write(APPROVED)
    after = place.board.rule(before)
    assert (after.approves, after.done, after.illegal) == (True, True, ())
    (taken_back,) = json.loads(after.unapproved)["userStories"]
    assert (taken_back["passes"], taken_back["reviewStatus"]) == (False, "changes_requested")


def test_forbidden_changes_are_undone_and_committed(place: Place) -> None:
    """An implementer that approves its own story is undone, and a copy of its file is kept."""
    before = place.begin()
    place.write(APPROVED)
    after = place.board.rule(before)
    assert not after.done and "cannot set passes=true" in " ".join(after.illegal)
    assert place.stories[0]["passes"] is False and place.undone == ["tasks.json"]
    ((names, message),) = place.commits
    assert names == [f"ralph/{name}" for name in ("tasks.json", "prd.md", "prompt.md", "progress.txt")]
    assert message.startswith("chore: [ralph] undo forbidden changes of an iteration\n\n- ")


@pytest.mark.parametrize("left", [None, "rubbish", "[" * 100_000, NESTED, '{"userStories": 7}'])
def test_a_list_broken_by_the_agent_is_restored(place: Place, left: str | None) -> None:
    """A missing, unreadable, deeply nested or invalid list is replaced by Ralph's copy."""
    before = place.begin()
    path = place.folder / "tasks.json"
    path.unlink() if left is None else path.write_text(left)
    after = place.board.rule(before)
    assert "no longer a task list" in " ".join(after.illegal) and place.stories == [story()]


@pytest.mark.parametrize("name", ["prd.md", "prompt.md"])
@pytest.mark.parametrize("how", ["changed", "removed"])
def test_the_users_files_are_restored(place: Place, name: str, how: str) -> None:
    """The agent cannot change the PRD or the prompt."""
    was = (place.folder / name).read_text()
    before = place.begin()
    (place.folder / name).unlink() if how == "removed" else (place.folder / name).write_text("mine")
    after = place.board.rule(before)
    assert after.illegal == (f"ralph/{name} must not be changed by the agent; it was restored",)
    assert (place.folder / name).read_text() == was
    assert place.undone == ([name] if how == "changed" else [])


def test_a_missing_file_may_be_created(place: Place) -> None:
    """The agent may write a PRD or a progress log if there is none."""
    for name in ("prd.md", "progress.txt"):
        (place.folder / name).unlink()
    before = place.begin()
    for name in ("prd.md", "progress.txt"):
        (place.folder / name).write_text("new\n")
    assert place.board.rule(before).illegal == ()


def test_the_log_of_progress_only_grows(place: Place) -> None:
    """Removed progress is restored, with the agent's new lines below it."""
    before = place.begin()
    (place.folder / "progress.txt").write_text("# Log\n\n---\n- other\n")
    after = place.board.rule(before)
    assert after.illegal == ("ralph/progress.txt is append-only below its line; earlier text was restored",)
    text = (place.folder / "progress.txt").read_text()
    assert text.index("- planned") < text.index("- other")


@pytest.mark.parametrize("how", ["removed", "changed"])
def test_the_agent_cannot_change_the_marker(place: Place, how: str) -> None:
    """A removed or changed marker is reported."""
    before = place.begin()
    marker = place.path / MARKER
    marker.unlink() if how == "removed" else marker.write_text("{}")
    assert place.board.rule(before).illegal == (f"{MARKER} must not be changed by the agent",)


def test_unwanted_changes_are_reported(place: Place) -> None:
    """Several stories at once, another branch, and removed or shortened tests are reported."""
    place.write(story(), story("US-002"))
    before = place.begin()
    place.write(story(notes="a"), story("US-002", notes="b"), story("US-003"))
    place.branches.append("")
    place.lost = ([f"test_{n}.py" for n in range(12)], ["test_cut.py"])
    several, branch, gone, cut = place.board.rule(before, "tree").told
    assert "several stories were changed (US-001, US-002)" in several
    assert "left branch main for no branch" in branch
    assert "tests were removed (test_0.py, " in gone and gone.count(".py") == 10 and "and 2 more" in gone
    assert "lines of tests were changed or removed (test_cut.py)" in cut


def test_a_git_that_cannot_say_which_tests_were_removed(place: Place) -> None:
    """That is unknown then, and the next iteration is told so."""

    def fails(tree: str) -> tuple[list[str], list[str]]:
        raise GitError("git status: killed by signal 9")

    place.board = replace(place.board, lost_tests=fails)
    before = place.begin()
    place.write(story(notes="a"))
    (told,) = place.board.rule(before, "tree").told
    assert told == "whether tests were removed is unknown (git status: killed by signal 9); check it"


def test_switching_to_the_lists_branch_is_not_reported(place: Place) -> None:
    """Switching to the branch named in the list is expected."""
    place.write(story(), branchName="feature")
    before = place.begin()
    place.branches.append("feature")
    assert place.board.rule(before).told == ()


def test_a_review_without_a_decision_is_reported(place: Place) -> None:
    """A review has to approve or to request changes."""
    place.write(IMPLEMENTED)
    before = place.begin()
    (told,) = place.board.rule(before).told
    assert "made no decision about US-001" in told


# ---- refute ----


def test_an_approval_that_was_refuted_is_taken_back(place: Place) -> None:
    """The approval is removed from the current list, and stories added meanwhile stay."""
    place.write(IMPLEMENTED)
    before = place.begin()
    place.write(APPROVED)
    after = place.board.rule(before)
    place.write(APPROVED, story("US-002"))
    place.board.refute(after.legal, after.unapproved, ("tests are red\nin two lines",))
    first, second = place.stories
    assert (first["passes"], first["reviewStatus"], first["notes"]) == (False, "changes_requested", "done")
    assert second["id"] == "US-002"
    ((names, message),) = place.commits
    assert names == ["ralph/tasks.json"] and "- tests are red in two lines" in message


@pytest.mark.parametrize("left", ["rubbish", '{"userStories": [{}]}'])
def test_a_list_broken_meanwhile_is_rewritten(place: Place, left: str) -> None:
    """The list is rewritten from Ralph's copy, without the approval."""
    legal, unapproved = json.dumps(board(APPROVED)), json.dumps(board(IMPLEMENTED))
    (place.folder / "tasks.json").write_text(left)
    place.board.refute(legal, unapproved, ())
    assert place.stories == [IMPLEMENTED]


# ---- hold and release ----


def test_changes_by_checks_are_undone(place: Place) -> None:
    """Changes between hold and release are undone, but new files are left alone."""
    place.board.hold()
    assert place.note.exists() and place.board.release() == []
    assert (place.commits, place.note.exists()) == ([], False)
    place.board.hold()
    place.write(APPROVED)
    (place.folder / "prd.md").unlink()
    (place.folder / "other.md").touch()
    told = place.board.release()
    changed = "was changed by a check or a commit hook"
    assert told == [f"ralph/{name} {changed}" for name in ("tasks.json", "prd.md")]
    assert place.stories == [story()] and (place.folder / "prd.md").exists()
    assert [names for names, _ in place.commits] == [["ralph/tasks.json", "ralph/prd.md"]]


def test_changes_between_two_holds_are_kept(place: Place) -> None:
    """Each hold makes new copies and notices removed files."""
    place.board.hold()
    place.board.release()
    place.write(IMPLEMENTED)
    (place.folder / "prd.md").unlink()
    place.board.hold()
    assert place.board.release() == [] and place.stories == [IMPLEMENTED]
    assert not (place.folder / "prd.md").exists()


# ---- interrupted iterations ----


def killed(place: Place) -> None:
    """Make the note name a process that no longer exists."""
    process = subprocess.Popen(["true"])
    process.wait()
    note = json.loads(place.note.read_text())
    place.note.write_text(json.dumps(note | {"pid": process.pid, "pidStart": "then"}))


def test_without_a_note_there_is_nothing_to_settle(place: Place) -> None:
    """Without a readable note, no iteration was interrupted."""
    assert (place.board.is_unsettled, place.board.settle()) == (False, None)
    place.board.kept.mkdir()
    place.note.write_text("rubbish")
    assert (place.board.is_unsettled, place.board.settle()) == (False, None)


def test_the_rules_apply_to_an_interrupted_iteration(place: Place) -> None:
    """An interrupted iteration is judged by the rules that it started with."""
    board = place.board
    place.board = replace(board, prd=Prd(skip_review=True))
    place.begin()
    place.write(story(passes=True, notes="done"))
    (place.folder / "prd.md").write_text("mine")
    killed(place)
    place.board = board
    assert place.board.is_unsettled
    seen = place.board.settle()
    assert seen is not None and [text.partition(" ")[0] for text in seen.illegal] == ["ralph/prd.md"]
    assert place.stories[0]["passes"] and not place.board.is_unsettled


def test_changes_by_an_interrupted_check_are_undone(place: Place) -> None:
    """The next run undoes the changes of a check that was killed."""
    place.board.hold()
    place.write(APPROVED)
    killed(place)
    seen = place.board.settle()
    assert seen is not None and len(seen.illegal) == 1 and place.stories == [story()]
    assert place.board.settle() is None


def test_a_live_loop_is_not_cleaned_up(place: Place) -> None:
    """A note that names a live process is an error, and nothing is touched."""
    place.begin()
    with subprocess.Popen(["sleep", "60"]) as process:
        note = json.loads(place.note.read_text())
        start = process_start(process.pid)
        place.note.write_text(json.dumps(note | {"pid": process.pid, "pidStart": start}))
        assert not place.board.is_unsettled
        with pytest.raises(RalphError, match=f"process {process.pid}"):
            place.board.settle()
        process.kill()
    assert place.note.exists()
