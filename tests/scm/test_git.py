"""Git's answers: yes, no, a value, none; and never an error or a death."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import Project
from ralph.process.client import Wakeup, Warden
from ralph.runs.repository import scm_runner
from ralph.scm.git import MAX_REPEATS, Git, GitDied, GitError
from ralph.scm.repository import find_repository
from ralph.store.files import opened_directory

GIT = shutil.which("git") or "git"
Calls = Callable[[str], Callable[[], int]]
MISSING = "1234567890123456789012345678901234567890"


@contextmanager
def opened(project: Project, is_interrupted: Callable[[], bool] | None = None) -> Iterator[Git]:
    """Git as a run calls it."""
    found = find_repository(project.path)
    assert found is not None
    with opened_directory(str(found.top)) as directory, Warden(Wakeup()) as warden:
        yield Git(found, scm_runner(warden, directory, found.top, is_interrupted))


@pytest.fixture
def git(repository: Project) -> Iterator[Git]:
    with opened(repository) as git:
        yield git


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Put a git on the PATH that runs a script (the number of the call is `$n`); returns a counter of its calls."""

    def put(script: str) -> Callable[[], int]:
        log, program = tmp_path / "log", tmp_path / "bin" / "git"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\necho >> {log}; n=$(wc -l < {log})\n{script}\nexec {GIT} "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        log.touch()
        return lambda: len(log.read_text().splitlines())

    return put


# ---- answers ----


def test_a_question_is_answered_with_yes_or_no(git: Git) -> None:
    """By exit 0 and 1; a commit that does not exist is an error."""
    first = git.line("rev-parse", "HEAD")
    second = git.line("commit-tree", "HEAD^{tree}", "-p", first, "-m", "Second")
    assert git.asks("merge-base", "--is-ancestor", first, second)
    assert not git.asks("merge-base", "--is-ancestor", second, first)
    with pytest.raises(GitError, match="Not a valid commit name"):
        git.asks("merge-base", "--is-ancestor", MISSING, first)


@pytest.mark.parametrize(
    "words",
    [
        ("rev-parse", "-q", "--verify", "refs/heads/none^{commit}"),
        ("rev-parse", "-q", "--verify", f"{MISSING}^{{commit}}"),
        ("rev-parse", "-q", "--verify", "HEAD:none"),
        ("config", "--get-regexp", "^none"),
    ],
    ids=" ".join,
)
def test_there_is_no_such_value(git: Git, words: tuple[str, ...]) -> None:
    """A missing name, commit, file or setting is an empty text."""
    assert git.value(*words) == ""


def test_a_value_or_none(git: Git, repository: Project) -> None:
    """A detached HEAD is on no branch; a broken configuration is an error."""
    assert git.value("symbolic-ref", "-q", "--short", "HEAD") == "main"
    repository.git("checkout", "-q", "--detach")
    assert git.value("symbolic-ref", "-q", "--short", "HEAD") == ""
    with (repository.path / ".git/config").open("a") as file:
        file.write("[commit]\n\tgpgSign = perhaps\n")
    with pytest.raises(GitError, match="bad boolean"):
        git.value("config", "--type=bool", "commit.gpgSign")


def test_what_git_ignores(git: Git, repository: Project) -> None:
    """Those of the names that a pattern matches, perhaps none; outside of the repository is an error."""
    (repository.path / ".gitignore").write_text("*.log\n")
    assert git.ignored(["a.log", "b c.log", "d"]) == {"a.log", "b c.log"}
    assert git.ignored(["d"]) == git.ignored([]) == set()
    with pytest.raises(GitError, match="outside repository"):
        git.ignored(["../x"])


def test_filters_are_disarmed_or_it_is_an_error(repository: Project, calls: Calls) -> None:
    """If the configuration cannot be read, no file of the tree is read either."""
    calls("echo 'fatal: odd' >&2; exit 128")
    with opened(repository) as git, pytest.raises(GitError, match="fatal: odd"):
        git.disarm_filters()


# ---- deaths ----


def test_a_reading_command_that_was_killed_is_repeated(repository: Project, calls: Calls) -> None:
    """Twice at most; then its answer counts."""
    made = calls(f"[ $n -gt {MAX_REPEATS} ] || kill -9 $$")
    with opened(repository) as git:
        assert git.value("symbolic-ref", "-q", "--short", "HEAD") == "main"
    assert made() == MAX_REPEATS + 1


def test_a_reading_command_that_always_dies(repository: Project, calls: Calls) -> None:
    """The error says that it was killed; neither yes nor no is read from it."""
    made = calls("kill -9 $$")
    with opened(repository) as git, pytest.raises(GitDied, match="git merge-base: killed by signal 9"):
        git.asks("merge-base", "--is-ancestor", "HEAD", "HEAD")
    assert made() == MAX_REPEATS + 1


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("kill -9 $$", ("update-ref", "refs/heads/x", "HEAD")),
        ("kill -9 $$", ("symbolic-ref", "HEAD", "refs/heads/main")),
        ("exit 128", ("rev-parse", "HEAD")),
    ],
    ids=["that writes", "that writes a link", "with an exit code"],
)
def test_other_commands_are_not_repeated(
    repository: Project, calls: Calls, script: str, words: tuple[str, ...]
) -> None:
    """What a killed one has written is not known, and an exit code is an answer."""
    made = calls(script)
    with opened(repository) as git, pytest.raises(GitError):
        git(*words)
    assert made() == 1


def test_an_interrupted_command_is_not_repeated(repository: Project, calls: Calls) -> None:
    """Ralph itself has stopped it."""
    made = calls("sleep 60")
    with opened(repository, lambda: True) as git, pytest.raises(GitDied, match="interrupted"):
        git.value("rev-parse", "HEAD")
    assert made() <= 1


def test_without_git(repository: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says that it is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with opened(repository) as found, pytest.raises(GitDied, match="git: command not found"):
        found.line("rev-parse", "HEAD")
