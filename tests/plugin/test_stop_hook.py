"""The stop hook as a process: every rule, how it finds its loop, and odd input."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Project
from plugin.plugin_support import EVERY_PYTHON, SCRIPTS, Said, hook_inputs, interpreter, loaded, run_hook
from ralph.scm.caches import CACHES
from ralph.store.runs import process_start
from ralph.store.runtime import _GITIGNORE
from ralph.stories import rules
from ralph.stories.rules import APPROVED, CHANGES_REQUESTED, IMPLEMENT, NEEDS_REVIEW, REVIEW, REVIEW_FIX
from stories.test_rules import FIELDS, MODES, STATES, any_story, board, near, story

HOOK = SCRIPTS / "stop_loop_reminder.py"
hook = loaded("stop_loop_reminder")
copied_rules = loaded("story_rules")

REVIEWED: dict[str, Any] = {"passes": True, "reviewStatus": APPROVED, "reviewCount": 1}
WAITING: dict[str, Any] = {"reviewStatus": NEEDS_REVIEW}
REJECTED: dict[str, Any] = {"reviewStatus": CHANGES_REQUESTED, "reviewFeedback": "no tests"}


@dataclass
class Looping(Project):
    """A repository with an active loop."""

    marker: dict[str, Any] = field(default_factory=dict)

    def mark(self, **values: Any) -> None:
        usual = {
            "timestamp": "2025-06-15T10:30:00Z",
            "pid": os.getpid(),
            "pidStart": process_start(os.getpid()),
            "max_iterations": 15,
            "mode": "direct",
            "skipReview": False,
            "reviewCap": 5,
            "ralphDir": "ralph",
        }
        self.marker = usual | values
        (self.path / ".ralph-active").write_text(json.dumps(self.marker))

    def begin(self, mode: str, *found: dict[str, Any], **values: Any) -> None:
        """An iteration starts with these stories."""
        snapshot = rules.snapshot(board(*found))
        self.mark(iterationMode=mode, preIterationSnapshot=snapshot, **values)

    def write(self, content: Any) -> None:
        """Commit this as the task list that the iteration leaves."""
        path = self.path / "ralph" / "tasks.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "Work")

    def leave(self, *found: Any) -> None:
        self.write(board(*found))

    def stop(self, cwd: Path | None = None, **values: Any) -> Said:
        recorded = hook_inputs()["Stop"]
        return run_hook(HOOK, recorded | {"cwd": str(cwd or self.path)} | values, env=self.extra_env)


@pytest.fixture
def loop(repository: Project) -> Iterator[Looping]:
    """A loop with one story to implement."""
    looping = Looping(repository.path, repository.home)
    (looping.path / ".gitignore").write_text(".ralph-active\n")
    looping.leave(story())
    looping.begin(IMPLEMENT, story())
    yield looping


def test_without_a_loop_every_stop_is_approved(repository: Project) -> None:
    """Whatever the tree and the task list look like."""
    (repository.path / "new.txt").write_text("not committed")
    assert run_hook(HOOK, {"cwd": str(repository.path)}).approves


def test_valid_work_is_approved(loop: Looping) -> None:
    """A valid list, nothing illegal, everything committed: exactly `{"decision": "approve"}`, nothing on stderr."""
    said = loop.stop()
    assert said.approves and said.err == ""


# ---- check 1 ----


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "ralph/tasks.json is not valid JSON"),
        ("", "is not valid JSON"),
        ("[]", "must be an object, not an array"),
        ('{"project": "a", "project": "b"}', "duplicate key 'project'"),
        ('{"project": NaN}', "NaN is not a JSON value"),
        ("[" * 100_000, "nested too deeply"),
        ("\ufeff{}", "is not valid JSON"),
        ({}, "the field 'userStories' is missing"),
        (board(story(), story()), "Duplicate"),
        (board(story(reviewCount=-1)), "non-negative"),
        (board(story(passes=True, notes="")), "empty notes"),
        (board(story(acceptanceCriteria=[])), "Story US-001: 'acceptanceCriteria' must be a non-empty array"),
    ],
)
def test_a_malformed_task_list_blocks(loop: Looping, content: Any, words: str) -> None:
    """Check 1 names the field and the story."""
    loop.write(content)
    reason = loop.stop().reason
    assert "Check 1" in reason and words in reason


def test_a_missing_task_list_blocks(loop: Looping) -> None:
    """So does a folder or a link in its place."""
    path = loop.path / "ralph" / "tasks.json"
    path.rename(loop.path / "elsewhere.json")
    assert "ralph/tasks.json does not exist" in loop.stop().reason
    path.symlink_to("../elsewhere.json")
    assert "ralph/tasks.json cannot be read" in loop.stop().reason
    path.unlink()
    path.mkdir()
    assert "not a regular file" in loop.stop().reason
    path.rmdir()
    os.mkfifo(path)
    assert "not a regular file" in loop.stop().reason


def test_all_reasons_of_the_first_failing_check(loop: Looping) -> None:
    """All problems of that check are listed, but none of later checks, which rely on it."""
    loop.leave(story("A", passes=1), story("B", priority="x"), story("C", passes=True))
    (loop.path / "new.txt").touch()
    reason = loop.stop().reason
    assert "Story A: 'passes'" in reason and "Story B: 'priority'" in reason
    assert "not 'approved'" not in reason and "uncommitted" not in reason


def test_thousands_of_reasons_are_cut(loop: Looping) -> None:
    """The model gets the first ones and the number of the rest."""
    loop.leave(*(story(f"US-{n}", passes=1) for n in range(5000)))
    reason = loop.stop().reason
    assert "Story US-39:" in reason and "… and 4960 more" in reason and len(reason) < 5000


# ---- check 2: review integrity, line by line ----


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"passes": True}, "passes=true but reviewStatus is 'null', not 'approved'"),
        ({"passes": True, **WAITING}, "reviewStatus is 'needs_review', not 'approved'"),
        ({"passes": True, **REJECTED}, "reviewStatus is 'changes_requested', not 'approved'"),
        (REVIEWED, None),
        ({"reviewStatus": CHANGES_REQUESTED}, "feedback is required"),
        ({"reviewStatus": APPROVED}, "passes=false: the two are out of sync"),
        ({"reviewCount": -1}, "non-negative"),
        ({"reviewCount": 7}, "at most 6"),
        ({"reviewCount": 6}, None),
    ],
)
def test_review_integrity(loop: Looping, values: dict[str, Any], words: str | None) -> None:
    """The invariants of every state; without a snapshot there is a warning, and they are still checked."""
    loop.leave(story(**values))
    loop.mark(iterationMode=IMPLEMENT)
    said = loop.stop()
    if words is None:
        assert said.approves
        assert "has no preIterationSnapshot: transitions are not checked" in said.err
    else:
        assert words in said.reason


def test_without_reviews_review_checks_are_skipped(loop: Looping) -> None:
    """`skipReview`: checks 2 and 2.5 are skipped entirely, 1 and 3 are not."""
    loop.begin(IMPLEMENT, story(), skipReview=True)
    loop.leave(story(passes=True))
    said = loop.stop()
    assert said.approves and said.err == ""
    (loop.path / "new.txt").touch()
    assert "uncommitted" in loop.stop().reason


def test_the_review_cap_is_that_of_the_marker(loop: Looping) -> None:
    """One more than the cap is allowed; an invalid cap means the default."""
    loop.leave(story(reviewCount=3))
    loop.mark(reviewCap=2)
    assert loop.stop().approves
    loop.mark(reviewCap=1)
    assert "at most 2" in loop.stop().reason
    loop.mark(reviewCap="1")
    assert loop.stop().approves


# ---- check 2.5: transitions, line by line ----


@pytest.mark.parametrize(
    ("mode", "old", "new", "words"),
    [
        (IMPLEMENT, {}, {"passes": True}, "passes=true"),
        (
            IMPLEMENT,
            {},
            {"passes": True, "reviewStatus": APPROVED},
            "Implement iterations cannot set passes=true",
        ),
        (IMPLEMENT, {}, {"reviewStatus": APPROVED}, "passes=false"),
        (IMPLEMENT, {}, {"reviewCount": 1}, "Story US-001 had illegal transition: reviewCount 0 → 1"),
        (IMPLEMENT, {}, WAITING, None),
        (REVIEW, {**WAITING, "reviewCount": 1}, {**REVIEWED, "reviewCount": 2}, None),
        (REVIEW, {**WAITING, "reviewCount": 1}, {**REJECTED, "reviewCount": 2}, None),
        (
            REVIEW,
            {**WAITING, "reviewCount": 1},
            REVIEWED,
            "a review must increment reviewCount by 1, not 1 → 1",
        ),
        (REVIEW, WAITING, REJECTED, "must increment reviewCount"),
        (REVIEW, WAITING, WAITING, "must increment reviewCount of exactly one"),
        (
            REVIEW_FIX,
            REJECTED,
            {"passes": True, "reviewStatus": APPROVED},
            "Review-fix iterations cannot approve",
        ),
        (REVIEW_FIX, REJECTED, {**REJECTED, "passes": True}, "passes=true"),
        (REVIEW_FIX, REJECTED, WAITING, None),
        (REVIEW_FIX, REJECTED, {**WAITING, "reviewCount": 1}, "Illegal transition: reviewCount 0 → 1"),
        (REVIEW_FIX, REJECTED, {**REJECTED, **WAITING}, "reviewFeedback was not cleared"),
    ],
)
def test_transitions(
    loop: Looping, mode: str, old: dict[str, Any], new: dict[str, Any], words: str | None
) -> None:
    """Only changes that the mode of the iteration allows."""
    loop.begin(mode, story(**old))
    loop.leave(story(**new))
    said = loop.stop()
    if words is None:
        assert said.approves and said.err == ""
    else:
        assert words in said.reason


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, None),
        (REVIEWED, "New stories start incomplete"),
        (WAITING, 'reviewStatus=null, not "needs_review"'),
    ],
)
def test_new_stories(loop: Looping, values: dict[str, Any], words: str | None) -> None:
    """They may be added, and start incomplete."""
    loop.leave(story(), story("US-002", **values))
    said = loop.stop()
    assert said.approves if words is None else words in said.reason


def test_a_review_is_of_one_story(loop: Looping) -> None:
    """Two stories decided in one review: `multiple stories`."""
    loop.begin(REVIEW, story("A", **WAITING), story("B", **WAITING))
    loop.leave(story("A", **REVIEWED), story("B", **REVIEWED))
    reason = loop.stop().reason
    assert "Check 2.5" in reason and "multiple stories" in reason and "A, B" in reason


@pytest.mark.parametrize("marker", [{"preIterationSnapshot": {}}, {"iterationMode": IMPLEMENT}])
@pytest.mark.parametrize("odd", [{"preIterationSnapshot": {"US-001": {}}}, {"iterationMode": "dance"}, {}])
def test_half_a_marker(loop: Looping, marker: dict[str, Any], odd: dict[str, Any]) -> None:
    """Without a mode or a complete snapshot there is a warning, and check 2 still runs."""
    loop.mark(**(marker | odd))
    said = loop.stop()
    assert said.approves and "transitions are not checked" in said.err
    loop.leave(story(passes=True))
    assert "not 'approved'" in loop.stop().reason


# ---- the same rules as in Ralph ----


def found_by_hook(marker: dict[str, Any], content: Any) -> list[str]:
    each = hook.problems(hook.Loop("/nowhere", marker), content, copied_rules)
    return next((found for _, found in each if found), [])


def found_by_rules(marker: dict[str, Any], content: Any) -> list[str]:
    return (
        rules.schema_problems(content)
        or rules.invariant_problems(content, marker["reviewCap"])
        or rules.transition_problems(marker["preIterationSnapshot"], content, marker["iterationMode"])
    )


def every_transition() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for mode, old, new in itertools.product(MODES, STATES, STATES):
        snapshot = {"US-001": {name: old[name] for name in FIELDS}}
        yield {"iterationMode": mode, "preIterationSnapshot": snapshot, "reviewCap": 5}, board(story(**new))


def test_the_hook_finds_what_the_rules_find() -> None:
    """All transitions of a story in all modes."""
    for marker, content in every_transition():
        assert found_by_hook(marker, content) == found_by_rules(marker, content)


@pytest.mark.slow
def test_the_process_finds_what_the_rules_find(loop: Looping) -> None:
    """A sample through the real script, the same every time."""
    sample = random.Random(7).sample(list(every_transition()), 30)
    shutil.rmtree(loop.path / ".git")
    for marker, content in sample:
        loop.mark(**marker)
        (loop.path / "ralph" / "tasks.json").write_text(json.dumps(content))
        said, expected = loop.stop(), found_by_rules(marker, content)
        assert said.approves if not expected else all(each in said.reason for each in expected)


@given(st.sampled_from(MODES), st.lists(any_story(), max_size=3), near(["true"]))
def test_whatever_an_agent_leaves_the_hook_has_an_answer(mode: str, left: Any, commands: Any) -> None:
    """Every damaged list gets an answer."""
    snapshot = rules.snapshot(board(story("A"), story("B", **WAITING)))
    marker = {"iterationMode": mode, "preIterationSnapshot": snapshot, "reviewCap": 5}
    content = board(verifyCommands=commands) | {"userStories": left}
    assert found_by_hook(marker, content) == found_by_rules(marker, content)


# ---- check 3 ----


def test_uncommitted_changes_block(loop: Looping) -> None:
    """New, changed and staged files; the reason has the three instructions."""
    (loop.path / "new file.txt").touch()
    (loop.path / "README.md").write_text("changed")
    (loop.path / "staged.txt").touch()
    loop.git("add", "staged.txt")
    reason = loop.stop().reason
    assert reason.splitlines()[1:] == [
        "1. Update ralph/progress.txt with what was accomplished and what was learned.",
        "2. Consider whether any lasting patterns belong in CLAUDE.md or .claude/rules/.",
        "3. Commit ALL changes, including progress.txt and tasks.json.",
    ]
    assert all(name in reason for name in ("new file.txt", "README.md", "staged.txt"))


def test_many_changes_are_counted(loop: Looping) -> None:
    """A few names are enough, even in a folder that git does not know yet."""
    (loop.path / "folder").mkdir()
    for number in range(30):
        (loop.path / "folder" / f"{number:02}").touch()
    assert "folder/09 and 20 more" in loop.stop().reason


def test_caches_need_no_commit(loop: Looping) -> None:
    """Files that tools leave behind are ignored, as in Ralph; but tracked ones count."""
    assert hook.CACHES == CACHES
    for name in ("src/__pycache__", "node_modules/left-pad"):
        (loop.path / name).mkdir(parents=True)
        (loop.path / name / "file").touch()
    assert loop.stop().approves
    loop.git("add", "-f", "node_modules")
    assert "node_modules/left-pad/file" in loop.stop().reason


def test_files_of_ralph_need_no_commit(loop: Looping) -> None:
    """The marker without a .gitignore, and everything that `.ralph/.gitignore` names."""
    loop.git("rm", "-q", ".gitignore")
    loop.git("commit", "-q", "-m", "Nothing is ignored")
    ours = ["current_run", "guardrail_001_make_test.log", "prompt_001.txt", "settings.local.json", ".tmp-7-x"]
    ours += ["old/20260101-000000-0000/prompt_001.txt", "state/ralph.db", ".gitignore"]
    for name in ours:
        path = loop.path / ".ralph" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert loop.git("status", "--porcelain") != ""
    assert loop.stop().approves
    (loop.path / ".ralph" / "settings.json").touch()
    assert ".ralph/settings.json" in loop.stop().reason


def test_the_hook_knows_every_runtime_file() -> None:
    """Each pattern of `.ralph/.gitignore`, at the top and in a subproject."""
    for pattern in _GITIGNORE.decode().splitlines():
        name = pattern.replace("[0-9]", "1").replace("*", "x") + ("x" if pattern.endswith("/") else "")
        assert hook.is_runtime_file(f".ralph/{name}") and hook.is_runtime_file(f"sub/.ralph/{name}"), name
        assert not hook.is_runtime_file(f"x.ralph/{name}") and not hook.is_runtime_file(f"ralph/{name}")
    assert hook.is_runtime_file(".ralph-active") and hook.is_runtime_file("sub/.ralph-active")
    assert not hook.is_runtime_file("x.ralph-active") and not hook.is_runtime_file(".ralph/settings.json")


def test_the_hook_takes_no_lock(loop: Looping) -> None:
    """Git running in the background is not disturbed, and a leftover lock does not matter."""
    before = (loop.path / ".git" / "index").read_bytes()
    os.utime(loop.path / "README.md", (1, 1))
    (loop.path / ".git" / "index.lock").touch()
    assert loop.stop().approves
    assert (loop.path / ".git" / "index").read_bytes() == before


def test_no_repository_no_commit(loop: Looping) -> None:
    """Outside a git repository there is a warning instead."""
    shutil.rmtree(loop.path / ".git")
    said = loop.stop()
    assert said.approves and "is not in a git repository" in said.err


def test_a_git_that_fails_or_hangs_blocks(loop: Looping, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is reported, and a hang times out."""
    (loop.path / ".git" / "HEAD").write_text("nonsense")
    assert "git status failed: fatal: not a git repository" in loop.stop().reason
    programs = loop.path.parent / "bin"
    programs.mkdir()
    (programs / "git").write_text("#!/bin/sh\nsleep 60 & sleep 60\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(hook, "GIT_SECONDS", 0.1)
    with pytest.raises(hook.Problem, match=r"git status took longer than 0\.1 s"):
        hook.changed_files(str(loop.path))


# ---- finding the loop ----


def test_a_loop_is_found_from_below(loop: Looping) -> None:
    """From a folder of the project, even a deleted one; not from outside its repository."""
    (loop.path / "new.txt").touch()
    (loop.path / "a" / "b").mkdir(parents=True)
    assert "uncommitted" in loop.stop(cwd=loop.path / "a" / "b").reason
    assert "uncommitted" in loop.stop(cwd=loop.path / "gone" / "too").reason
    subprocess.run(["git", "init", "-q", loop.path / "a"], check=True)
    assert loop.stop(cwd=loop.path / "a" / "b").approves
    assert loop.stop(cwd=loop.path.parent).approves


def test_a_session_in_another_directory_is_still_in_its_loop(loop: Looping) -> None:
    """Claude Code reports where it was started."""
    (loop.path / "new.txt").touch()
    loop.extra_env = {"CLAUDE_PROJECT_DIR": str(loop.path)}
    assert "uncommitted" in loop.stop(cwd=loop.path.parent).reason


def test_without_a_repository_only_the_directory_itself_counts(loop: Looping) -> None:
    """A marker in a directory far above belongs to another project."""
    shutil.rmtree(loop.path / ".git")
    (loop.path / "sub").mkdir()
    (loop.path / "ralph" / "tasks.json").unlink()
    assert loop.stop(cwd=loop.path / "sub").approves
    assert "does not exist" in loop.stop().reason


def test_the_task_list_is_where_the_marker_says(loop: Looping) -> None:
    """`ralphDir`, relative to the project or absolute."""
    shutil.move(loop.path / "ralph", loop.path / "plans" / "one")
    loop.git("add", "-A")
    loop.git("commit", "-q", "-m", "Moved")
    for place in ("./plans/one", str(loop.path / "plans" / "one")):
        loop.begin(IMPLEMENT, story(), ralphDir=place)
        assert loop.stop().approves
    (loop.path / "new.txt").touch()
    loop.begin(IMPLEMENT, story(), ralphDir="./plans/one/")
    assert "Update plans/one/progress.txt" in loop.stop().reason


def test_a_stale_marker_is_ignored(loop: Looping) -> None:
    """Its process is gone, or another one has its number now."""
    (loop.path / "new.txt").touch()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as gone:
        began = process_start(gone.pid)
        loop.mark(pid=gone.pid, pidStart=began)
        assert "uncommitted" in loop.stop().reason
    loop.mark(pid=gone.pid, pidStart=began)
    assert loop.stop().approves
    loop.mark(pidStart="00000000/1")
    assert loop.stop().approves
    loop.mark(pid=-1, pidStart="00000000/1")
    assert loop.stop().approves
    loop.mark()
    assert "uncommitted" in loop.stop().reason


def test_a_marker_without_its_process_counts_as_a_loop(loop: Looping) -> None:
    """In the original format, or unreadable: everything else has default values."""
    (loop.path / "new.txt").touch()
    for text in ('{"pid": 12345}', "{}", "[]", "{", "", '{"pid": "x", "pidStart": 7, "ralphDir": 3}'):
        (loop.path / ".ralph-active").write_text(text)
        assert "uncommitted" in loop.stop().reason


def test_inside_a_sandbox_the_process_of_the_loop_is_not_visible(loop: Looping) -> None:
    """There a session started by Ralph is in a loop; any other marker is judged by its process."""
    (loop.path / "new.txt").touch()
    loop.mark(mode="sandbox", pidStart="00000000/1")
    assert loop.stop().approves
    loop.extra_env = {"RALPH_RUN_ID": "20260101-000000-0000"}
    assert "uncommitted" in loop.stop().reason
    loop.mark(pidStart="00000000/1")
    assert loop.stop().approves


def test_the_hook_sees_processes_as_ralph_does() -> None:
    """The same text for a live process, None for one that is gone, invalid or a zombie."""
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    for pid in (os.getpid(), 1, zombie.pid, 0, -1, 2**31, 2**70):
        assert hook.process_start(pid) == process_start(pid)
    assert hook.process_start(zombie.pid) is None
    zombie.wait()


# ---- odd things ----


@pytest.mark.parametrize(
    "given", [b"", b"{", b"[]", b"null", b"{}", b'{"cwd": 3}', b'{"cwd": "x"}', b"\xff", b"[" * 10**5]
)
def test_input_that_cannot_be_read(loop: Looping, given: bytes) -> None:
    """Approved without a loop; blocked in a loop, with the reason."""
    said = run_hook(HOOK, given, cwd=loop.path)
    assert "The input of the stop hook could not be read" in said.reason
    assert run_hook(HOOK, given, cwd=loop.path.parent).approves


def test_a_stop_that_was_blocked_before_is_checked_again(loop: Looping) -> None:
    """`stop_hook_active` does not turn it off: Claude Code itself stops after eight blocks in a row."""
    (loop.path / "new.txt").touch()
    assert "uncommitted" in loop.stop(stop_hook_active=True).reason


def test_an_error_of_the_hook_blocks_and_has_no_traceback(loop: Looping) -> None:
    """With a loop; without one it is approved."""
    place = loop.path.parent / "scripts"
    place.mkdir()
    shutil.copy(HOOK, place)
    said = run_hook(place / HOOK.name, {"cwd": str(loop.path)})
    assert "The checks could not run (ModuleNotFoundError)" in said.reason
    assert run_hook(place / HOOK.name, {"cwd": str(loop.path.parent)}).approves
    (place / "story_rules.py").write_text("schema_problems = invariant_problems = None")
    assert (
        "The checks could not run (TypeError)" in run_hook(place / HOOK.name, {"cwd": str(loop.path)}).reason
    )


def test_closed_streams(loop: Looping) -> None:
    """No input, or no reader: no traceback."""
    command = f"exec {sys.executable} -I -S {HOOK}"
    for closed, words in (("<&-", "could not be read"), ("2>&-", "could not be read"), (">&-", "")):
        done = subprocess.run(
            ["sh", "-c", f"{command} {closed}"], cwd=loop.path, input="", capture_output=True, text=True
        )
        assert words in done.stdout and "Traceback" not in done.stderr


@EVERY_PYTHON
def test_every_python_from_3_8_on(loop: Looping, minor: int) -> None:
    """A hook has to work with the Python of the machine; nothing is written next to the hook."""
    python, given = interpreter(minor), {"cwd": str(loop.path)}
    assert run_hook(HOOK, given, python=python).approves
    loop.leave(story(**REVIEWED), story("B", reviewCount=-1), story("B"))
    said = run_hook(HOOK, given, python=python)
    assert "non-negative" in said.reason
    loop.leave(story(**REVIEWED))
    assert "cannot set passes=true" in run_hook(HOOK, given, python=python).reason
    assert not (SCRIPTS / "__pycache__").exists()
