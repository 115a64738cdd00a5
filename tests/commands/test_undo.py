"""`ralph rewind`, `ralph diff` and `ralph prune` as a user sees them."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess

import pytest

from conftest import RALPH, Project, some_rows, wait_until

GIT = shutil.which("git") or "git"


@pytest.fixture
def worked(repository: Project) -> Project:
    """A repository after a run of two iterations: the first adds a file, the second changes and removes."""
    (repository.path / "old.txt").write_text("old\n")
    repository.agent(
        """
        case $RALPH_ITERATION in
            1) echo one > one.txt;;
            2) echo two >> README.md; rm old.txt; echo '<response>DONE</response>';;
        esac
        true
        """,
        snapshots=True,
    )
    assert repository.run("run", "-p", "x").code == 0
    return repository


def run_id(project: Project) -> str:
    found: str = project.status()[0]["id"]
    return found


def test_the_end_of_a_run_says_what_changed_and_how_to_undo_it(worked: Project) -> None:
    """The number of files, and the two commands."""
    result = worked.run("logs")
    run = run_id(worked)
    assert "Unverified: no checks configured" in result.out
    assert worked.run("diff", "--stat").out.splitlines()[-1].strip().startswith("3 files changed")
    assert (worked.run("rewind", run, "1", "--yes").code, (worked.path / "old.txt").read_text()) == (
        0,
        "old\n",
    )


def test_diff_of_an_iteration(worked: Project) -> None:
    """The changes of iteration 1, and those of the whole run."""
    run = run_id(worked)
    first = worked.run("diff", run, "1")
    assert "+one" in first.out and "+two" not in first.out
    whole = worked.run("diff")
    assert "+one" in whole.out and "+two" in whole.out and "-old" in whole.out


def test_diff_of_an_iteration_that_does_not_exist(worked: Project) -> None:
    """It is one clear error."""
    result = worked.run("diff", run_id(worked), "7")
    assert (result.code, "no snapshot '7'" in result.err) == (2, True)


def test_diff_of_a_run_without_snapshots(repository: Project) -> None:
    """With snapshots off there is nothing to compare, and the error says so."""
    repository.agent("echo '<response>DONE</response>'")
    repository.run("run", "-p", "x")
    assert repository.run("diff").code == 2


def test_rewind_shows_what_will_change_and_can_be_undone(worked: Project) -> None:
    """Each file with its change; the command to undo is printed and works."""
    run = run_id(worked)
    result = worked.run("rewind", run, "2", "--yes")
    assert result.out.splitlines() == ["  change   README.md", "  restore  old.txt"]
    assert (worked.path / "one.txt").exists() and (worked.path / "old.txt").exists()
    undo = result.err.partition("To undo: ralph ")[2].split()
    assert worked.run(*undo, "--yes").code == 0
    assert not (worked.path / "old.txt").exists()


@pytest.mark.parametrize(
    ("scm", "content", "said"),
    [
        ({"command": "git", "tasks": ["commit"]}, "content of a\n", ""),
        (None, "pointer of a\n", "a.big: restored as git stores it."),
    ],
)
def test_rewind_applies_the_filters_of_the_user(
    repository: Project, scm: object, content: str, said: str
) -> None:
    """A file that git stores through a filter (as of Git LFS) is back with its content, or the user hears about it."""
    repository.git("config", "filter.big.clean", "sed s/content/pointer/")
    repository.git("config", "filter.big.smudge", "sed s/pointer/content/")
    for name in ("user.name", "user.email"):
        repository.git("config", name, "ada@localhost")
    (repository.path / ".gitattributes").write_text("*.big filter=big\n")
    one, two = (repository.path / name for name in ("a.big", "b.big"))
    for file in (one, two):
        file.write_text("content of a\n")
        os.utime(file, (1, 1))
    repository.git("add", "-A")
    repository.git("commit", "-qm", "Large files")
    two.write_text("content of b\n")
    work = "echo content of c | tee a.big > b.big; echo '<response>DONE</response>'"
    repository.agent(f'[ "$RALPH_ITERATION" != 1 ] || {{ {work}; }}', snapshots=True, scm=scm)
    assert repository.run("run", "-p", "x").code == 0
    result = repository.run("rewind", run_id(repository), "1", "--yes")
    assert (one.read_text(), two.read_text()) == (content, "content of b\n")
    assert result.code == 0 and said in result.err


def test_rewind_without_a_terminal_needs_yes(worked: Project) -> None:
    """Nothing is changed if there is no terminal to ask on."""
    result = worked.run("rewind", run_id(worked), "1")
    assert (result.code, (worked.path / "one.txt").exists()) == (2, True)


@pytest.mark.parametrize(("answer", "is_back"), some_rows([("y\n", True), ("n\n", False), ("\n", False)], 1))
def test_rewind_asks_on_a_terminal(worked: Project, answer: str, is_back: bool) -> None:
    """No is the default."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [RALPH, "rewind", run_id(worked), "1"],
        cwd=worked.path,
        env=worked.env,
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    os.write(leader, answer.encode())
    try:
        while os.read(leader, 4096):
            pass
    except OSError:
        pass
    os.close(leader)
    assert (process.wait(), (worked.path / "old.txt").exists()) == (0, is_back)


def test_rewind_to_the_current_state(worked: Project) -> None:
    """It says that there is nothing to do."""
    result = worked.run("rewind", run_id(worked), "3", "--yes")
    assert (result.code, result.err) == (0, "Nothing to do: the files are already in that state.\n")


def test_rewind_of_an_unknown_iteration_names_the_known_ones(worked: Project) -> None:
    """The error lists the snapshots."""
    result = worked.run("rewind", run_id(worked), "9", "--yes")
    assert (result.code, "Snapshots: 1, 2, 3." in result.err) == (2, True)


def test_a_live_run_is_not_rewound(repository: Project) -> None:
    """Two processes must not change one tree: refused."""
    repository.agent("touch started; sleep 30", snapshots=True)
    process = repository.start("run", "-p", "x")
    wait_until((repository.path / "started").exists)
    result = repository.run("rewind", run_id(repository), "1", "--yes")
    repository.run("cancel", run_id(repository))
    process.communicate()
    assert (result.code, "ralph cancel" in result.err) == (2, True)


def test_files_that_git_does_not_save_are_not_replaced(worked: Project) -> None:
    """Before anything changes, they are named with what to do; when they are moved away, the rewind works."""
    (worked.path / ".git/info/exclude").write_text("old.txt\n")
    (worked.path / "old.txt").write_text("mine\n")
    run = run_id(worked)
    refused = worked.run("rewind", run, "1", "--yes")
    assert refused.code == 2 and "would replace them: old.txt." in refused.err
    assert f"Move them away, then run it again: ralph rewind {run} 1" in refused.err
    assert (worked.path / "old.txt").read_text() == "mine\n" and (worked.path / "one.txt").exists()
    (worked.path / "old.txt").rename(worked.path.parent / "moved")
    assert worked.run("rewind", run, "1", "--yes").code == 0
    assert (worked.path / "old.txt").read_text() == "old\n"


def test_a_directory_that_git_does_not_save_is_not_replaced(worked: Project) -> None:
    """A link to it is not followed either."""
    (worked.path / ".git/info/exclude").write_text("old.txt\n")
    (worked.path / "old.txt").symlink_to(worked.path.parent / "far")
    assert worked.run("rewind", run_id(worked), "1", "--yes").code == 2
    assert (worked.path / "old.txt").is_symlink()


def test_a_git_that_cannot_say_what_is_ignored(worked: Project) -> None:
    """Nothing is removed then: it may be one of the files that have to stay."""
    program = worked.path.parent / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$1" = check-ignore ] && exit 128\nexec {GIT} "$@"\n')
    program.chmod(0o755)
    run = run_id(worked)
    worked.extra_env["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    assert worked.run("rewind", run, "1", "--yes").code == 2
    assert (worked.path / "one.txt").exists()


def test_an_interrupted_iteration_keeps_its_first_snapshot(repository: Project) -> None:
    """After a kill in mid-iteration, rewind restores the files from before the iteration."""
    repository.agent(
        """
        if [ -e ruined ]; then echo '<response>DONE</response>'; exit; fi
        echo ruined > README.md; touch ruined; sleep 30
        """,
        snapshots=True,
    )
    process = repository.start("run", "-p", "x")
    wait_until((repository.path / "ruined").exists)
    process.kill()
    process.communicate()
    assert repository.run("resume").code == 0
    assert repository.run("rewind", run_id(repository), "1", "--yes").code == 0
    assert (repository.path / "README.md").read_text() == "A project.\n"


def test_prune_shows_first_and_removes_only_when_told(worked: Project) -> None:
    """Old runs are removed with their streams and refs; recent ones stay."""
    run = run_id(worked)
    assert worked.run("prune").err == "Nothing to remove.\n"
    shown = worked.run("prune", "--older-than", "0h")
    assert (run in shown.out, len(worked.status())) == (True, 1)
    assert [c["id"] for c in json.loads(worked.run("prune", "--older-than", "0h", "--json").out)] == [run]
    assert worked.run("prune", "--older-than", "0h", "--yes").code == 0
    assert (worked.status(), worked.git("for-each-ref", "refs/ralph")) == ([], "")
    assert not (worked.home.path / "runs" / run).exists()


def test_prune_by_size_takes_the_oldest_first(project: Project) -> None:
    """With a size to keep, the newest runs that fit stay."""
    project.agent("head -c 600000 /dev/zero | tr '\\0' x; echo; echo '<response>DONE</response>'")
    for _ in range(3):
        project.run("run", "-p", "x")
    newest = project.status()[0]["id"]
    project.run("prune", "--keep", "1MB", "--yes")
    assert [run["id"] for run in project.status()] == [newest]


def test_a_live_run_is_never_pruned(project: Project) -> None:
    """However old it is."""
    project.agent("touch started; sleep 30")
    process = project.start("run", "-p", "x")
    wait_until((project.path / "started").exists)
    project.run("prune", "--older-than", "0h", "--yes")
    found = len(project.status())
    project.run("cancel", project.status()[0]["id"])
    process.communicate()
    assert found == 1


@pytest.mark.parametrize("arguments", [["--older-than", "soon"], ["--keep", "some"]])
def test_prune_needs_a_valid_age_and_size(project: Project, arguments: list[str]) -> None:
    """Anything else is refused with an example."""
    result = project.run("prune", *arguments)
    assert (result.code, "Examples: " in result.err) == (2, True)


def test_a_pruned_run_leaves_the_repository_whole(worked: Project) -> None:
    """Only Ralph's refs are removed: the user's files are not touched."""
    worked.run("prune", "--older-than", "0h", "--yes")
    assert worked.git("status", "--porcelain", "one.txt") == "?? one.txt\n"
