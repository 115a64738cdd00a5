"""The git directory of a run stays the one that it was: what is put in its place gets nothing written to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ralph.scm.git import GitError, GitOutput, Runner
from ralph.scm.repository import Repository

_WRITTEN = ("index", "objects", "refs", "refs/heads", "refs/ralph", "packed-refs", "logs", "COMMIT_EDITMSG")
"""What git writes to in its directories: a link there leads to another place."""


def pinned(run: Runner, repository: Repository, directory: int, known: str, hint: str) -> Runner:
    """A runner that refuses git once the repository, whose top is the open directory, is not the `known` one."""
    place = seen_from(repository.top, repository.git_dir)

    def checked(argv: list[str], variables: Mapping[str, str], stdin: bytes) -> GitOutput:
        if "GIT_DIR" in variables and not (known and identity(place, directory) == known):
            raise GitError(
                f"{repository.git_dir} is not the git directory any more that the run began with:"
                " snapshots and commits are refused.",
                hint,
            )
        return run(argv, variables, stdin)

    return checked


def seen_from(top: Path, place: Path | str) -> str:
    """A place by its way from the top, which holds wherever the top is moved; others by their full name."""
    return os.path.relpath(place, top) if Path(place).is_relative_to(top) else str(place)


def identity(git_dir: str, directory: int) -> str:
    """What git would write to, if it were told this directory, seen from an open one; "" if it is none.

    The inodes of the git directory and of the one that its worktrees share, and the links in them. Not their
    devices: the numbers of some change with a reboot.
    """
    try:
        with _opened(git_dir, directory) as own, _opened(_common(own), own) as common:
            inodes = [f"{os.fstat(each).st_ino}" for each in (own, common)]
            links = [_link(name, each) for each in (own, common) for name in _WRITTEN]
    except (OSError, ValueError):
        return ""
    return "\n".join(inodes + [link for link in links if link])


@contextmanager
def _opened(name: str, parent: int) -> Iterator[int]:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _common(git_dir: int) -> str:
    """Where the shared directory is; a pipe in the place of the file is not waited for."""
    try:
        descriptor = os.open("commondir", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=git_dir)
    except FileNotFoundError:
        return "."
    with open(descriptor, "rb") as file:
        return os.fsdecode(file.read(4096).strip())


def _link(name: str, directory: int) -> str:
    try:
        return f"{name} -> {os.readlink(name, dir_fd=directory)}"
    except OSError:
        return ""
