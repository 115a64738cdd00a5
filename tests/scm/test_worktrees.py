"""Ralph's own worktrees: created, repaired and removed, whatever agents and kills have done to them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import Project
from ralph.process.client import Wakeup, Warden
from ralph.runs.repository import scm_runner
from ralph.scm.baseline import Baseline
from ralph.scm.git import Git, GitDied, GitError, GitOutput
from ralph.scm.repository import find_repository
from ralph.scm.tree import Tree
from ralph.scm.worktrees import Worktrees, mark_ready
from ralph.store.files import opened_directory
from scm.worktree_support import Place, place

__all__ = ["place"]

ROUNDS = 12


# ---- making and removing ----


def test_a_worktree_is_found_when_it_is_complete(place: Place) -> None:
    """Not before it is marked; then wherever its HEAD has moved."""
    assert place.trees.found(place.path) is None
    mark_ready(place.repository, "")
    place.git("checkout", "-q", "--detach")
    assert place.trees.found(place.path) == place.repository


def test_a_worktree_of_another_repository_is_not_ours(place: Place, tmp_path: Path) -> None:
    """A directory that belongs to another repository is not taken for a worktree."""
    other = Project(tmp_path / "other", place.project.home)
    other.path.mkdir()
    other.git("init", "-q")
    (other.path / ".git/ralph-ready").touch()
    assert place.trees.found(other.path) is None


@pytest.mark.parametrize("state", ["whole", "gone", "read-only", "broken", "locked", "half gone"])
def test_a_worktree_is_removed_in_any_state(place: Place, state: str) -> None:
    """Neither the directory nor git's record is left, and the record of a user's unmounted worktree stays."""
    mine = place.path.parent / "mine"
    place.project.git("worktree", "add", "-q", "-b", "mine", str(mine))
    mine.rename(place.path.parent / "away")
    if state == "gone":
        place.path.rename(place.path.parent / "elsewhere")
    elif state == "read-only":
        (place.path / "deep").mkdir()
        (place.path / "deep" / "file").touch()
        (place.path / "deep").chmod(0o500)
    elif state == "broken":
        (place.path / ".git").write_text("nonsense")
    elif state == "locked":
        (place.repository.git_dir / "locked").write_text("initializing")
    elif state == "half gone":
        (place.repository.git_dir / "gitdir").unlink()
        (place.repository.git_dir / "index.lock").touch()
    place.trees.remove(place.path)
    assert not place.path.exists() and not place.repository.git_dir.exists()
    assert place.project.git("worktree", "list", "--porcelain").count("worktree ") == 2
    assert place.trees.add(place.path, "ralph/T", "main").top == place.path


def test_what_cannot_be_removed_is_an_error(place: Place) -> None:
    """It names the file; git's record of the worktree stays with it."""
    file = place.path / "deep" / "file"
    file.parent.mkdir()
    file.touch()
    if not shutil.which("chattr") or subprocess.run(["chattr", "+i", str(file)], check=False).returncode:
        pytest.skip("no file can be made immutable here")
    try:
        with pytest.raises(
            GitError, match=f"{place.path} cannot be removed: .*file: Operation not permitted"
        ):
            place.trees.remove(place.path)
        assert place.repository.git_dir.exists()
    finally:
        subprocess.run(["chattr", "-i", str(file)], check=True)
    place.trees.remove(place.path)
    assert not place.path.exists()


# ---- where HEAD is ----


@pytest.mark.parametrize(
    "deed",
    [
        ("checkout", "-q", "-b", "other"),
        ("checkout", "-q", "--detach"),
        ("update-ref", "-d", "refs/heads/ralph/T"),
        ("status",),
    ],
    ids=" ".join,
)
def test_head_is_put_back_on_its_branch(place: Place, deed: tuple[str, ...]) -> None:
    """The branch is where HEAD was last, and HEAD is on the branch."""
    last = place.commit("a", "a\n")
    place.git(*deed)
    place.tree.attach("ralph/T")
    assert place.git("symbolic-ref", "HEAD").strip() == "refs/heads/ralph/T"
    assert place.git("rev-parse", "ralph/T", "HEAD").split() == [last, last]
    assert place.git("status", "--porcelain") == ""


def test_history_that_was_lost(place: Place) -> None:
    """The tree of HEAD becomes one commit after the one the work started from."""
    place.git("checkout", "-q", "--orphan", "new")
    place.commit("a", "a\n")
    place.tree.put_on(place.began, "All")
    assert place.git("rev-parse", "HEAD^").strip() == place.began
    assert place.git("diff", "--name-only", "HEAD^", "HEAD") == "a\n"


# ---- keeping and merging ----


def test_everything_is_committed(place: Place) -> None:
    """No hook, no missing key and no unreadable file keeps the rest off the branch."""
    hook = place.project.path / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    place.project.git("config", "commit.gpgSign", "true")
    place.project.git("config", "gpg.program", "false")
    for name in ("README.md", "new", "lay there"):
        (place.path / name).write_text("changed\n")
    place.tree.keep("Kept", ["lay there"])
    assert place.git("show", "--format=%s", "--name-only", "HEAD").split() == ["Kept", "README.md", "new"]
    assert place.git("status", "--porcelain") == '?? "lay there"\n'


def test_a_git_that_is_killed_leaves_no_submodule_behind(place: Place) -> None:
    """Without the new commit of a nested repository the work would seem to be committed, and nobody would look again."""
    place.git("init", "-q", "lib")
    place.git("-C", "lib", "commit", "-q", "--allow-empty", "-m", "One")
    place.git("add", "lib")
    place.git("commit", "-qm", "Lib")
    place.git("-C", "lib", "commit", "-q", "--allow-empty", "-m", "Two")
    usual = place.tree.runner

    def killed(argv: list[str], variables: Mapping[str, str], stdin: bytes) -> GitOutput:
        dies = argv[1] == "update-index"
        return GitOutput(128, b"", "killed", died=True) if dies else usual(argv, variables, stdin)

    with pytest.raises(GitDied):
        Tree(place.repository, killed, place.baseline).keep("Kept", ())
    place.tree.keep("Kept", ())
    assert place.git("rev-parse", "HEAD:lib") == place.git("-C", "lib", "rev-parse", "HEAD")


def test_a_merge_without_changes_is_committed_too(place: Place) -> None:
    """Choosing one's own side entirely is still a merge."""
    place.commit("a", "mine\n")
    brought = place.base_commit("a", "theirs\n")
    place.tree.bring_in(brought, "Bring", is_clean=True)
    assert place.tree.is_merging() and "<<<<<<<" in (place.path / "a").read_text()
    (place.path / "a").write_text("mine\n")
    place.tree.keep("Merged", ())
    assert place.tree.has(brought) and not place.tree.is_merging()


def test_an_unfinished_merge_continues(place: Place) -> None:
    """Restored files belong to the merge, although git has forgotten it."""
    place.commit("a", "mine\n")
    brought = place.base_commit("a", "theirs\n")
    (place.path / "a").write_text("half resolved\n")
    place.tree.bring_in(brought, "Bring", is_clean=False)
    place.tree.keep("Merged", ())
    assert place.git("show", "HEAD:a") == "half resolved\n"
    assert place.tree.has(brought)


@pytest.mark.parametrize("conflict", [False, True])
def test_what_is_trusted_while_a_commit_is_merged_in(place: Place, conflict: bool) -> None:
    """What both sides have, and the merged-in side for conflicts."""
    place.commit("test", "of the tester\n")
    place.commit("a", "mine\n")
    brought = place.base_commit("a" if conflict else "b", "theirs\n")
    place.tree.bring_in(brought, "Bring", is_clean=True)
    trusted = place.tree.trusted(brought)
    expected = {"test": "of the tester\n", "a": "theirs\n" if conflict else "mine\n"}
    assert {name: place.git("show", f"{trusted}:{name}") for name in expected} == expected
    assert place.trees.is_ancestor(brought, trusted)


def test_which_commit_brought_something_into_a_branch(place: Place) -> None:
    """The merge that brought it in, or the commit itself after a fast-forward."""
    tip = place.commit("a", "a\n")
    assert place.trees.is_next(place.began, tip)
    place.project.git("merge", "-q", "--ff-only", "ralph/T")
    place.base_commit("later", "x\n")
    assert place.trees.brought(tip, place.trees.branch_commit("main")) != tip
    second = place.commit("b", "b\n")
    assert not place.trees.is_next(place.began, second)
    place.project.git("merge", "-q", "--no-ff", "-m", "Merge", "ralph/T")
    merge = place.project.git("rev-parse", "main").strip()
    place.base_commit("last", "x\n")
    assert place.trees.brought(second, place.trees.branch_commit("main")) == merge


# ---- the user's checkout ----


def test_half_a_fast_forward_is_undone(place: Place) -> None:
    """Files that git had written, completely or in part, are as before; files changed by the user stay."""
    names = ("changed", "begun", "mine", "gone")
    for name in names:
        place.base_commit(name, f"old {name}\n")
    place.git("merge", "-q", "main")
    for name in names:
        (place.path / name).write_text(f"new {name}\n")
    new = place.commit("added", "added\n")
    top = place.project.path
    (top / "changed").write_text("new changed\n")
    (top / "begun").write_text("new be")
    (top / "mine").write_text("something else\n")
    (top / "gone").unlink()
    (top / "added").write_text("")
    place.checkout.take_back(new)
    found = {
        path.name: path.read_text() for path in top.iterdir() if path.is_file() and path.name != "README.md"
    }
    assert found == {"changed": "old changed\n", "begun": "old begun\n", "mine": "something else\n"}


# ---- in parallel ----


def test_several_at_once(repository: Project, tmp_path: Path) -> None:
    """Git cannot read the list of worktrees while another git adds one, yet none of them fails."""
    found = find_repository(repository.path)
    assert found is not None

    def work(number: int) -> list[Path | None]:
        with opened_directory(str(found.top)) as directory, Warden(Wakeup()) as warden:
            runner = scm_runner(warden, directory, found.top)
            baseline = Baseline(Git(found, runner), tmp_path / f"record-{number}")
            baseline.record()
            trees, path = Worktrees(found, runner, baseline), tmp_path / "trees" / str(number)
            seen = []
            for _ in range(ROUNDS):
                trees.add(path, f"ralph/{number}", "main")
                seen.append(trees.checkout_of(f"ralph/{number}"))
                trees.remove(path)
            return seen

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(work, range(4)))
    assert made == [[tmp_path / "trees" / str(number)] * ROUNDS for number in range(4)]
