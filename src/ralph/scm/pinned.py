"""Pins the git directory of a run, so that nothing is written to one put in its place."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ralph.scm.git import GitError, GitOutput, Runner
from ralph.scm.repository import Repository

_WRITTEN = ("index", "objects", "refs", "refs/heads", "refs/ralph", "packed-refs", "logs", "COMMIT_EDITMSG")
"""What git writes to in its directories. A link there would redirect the writes."""


def pinned(run: Runner, repository: Repository, directory: int, known: str, hint: str) -> Runner:
    """A runner that refuses git if the repository at the open directory is no longer the `known` one."""
    place = seen_from(repository.top, repository.git_dir)

    def checked(argv: list[str], variables: Mapping[str, str], stdin: bytes) -> GitOutput:
        if "GIT_DIR" in variables and not (known and identity(place, directory) == known):
            raise GitError(
                f"{repository.git_dir} is no longer the git directory that the run started with:"
                " snapshots and commits are refused.",
                hint,
            )
        return run(argv, variables, stdin)

    return checked


@contextmanager
def held(repository: Repository) -> Iterator[None]:
    """Keep the git directories open, so that directories put in their place cannot get the same inodes."""
    with ExitStack() as stack:
        for place in dict.fromkeys((repository.git_dir, repository.common)):
            with suppress(OSError):  # it is gone, which `pinned` notices
                descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
        yield


def seen_from(top: Path, place: Path | str) -> str:
    """A path relative to the top, so that it stays valid if the top is moved; outside of it, the full path."""
    return os.path.relpath(place, top) if Path(place).is_relative_to(top) else str(place)


def identity(git_dir: str, directory: int) -> str:
    """The identity of the places git would write to with this git directory; "" if it is not one.

    `git_dir` is relative to the open directory. The identity consists of the inodes of the git directory and of
    the one its worktrees share, and the links in them. Device numbers are left out: some change at a reboot.
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
    """The path of the shared directory. A pipe in place of the file does not block."""
    try:
        descriptor = os.open("commondir", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=git_dir)
    except FileNotFoundError:
        return "."
    with open(descriptor, "rb") as file:
        return os.fsdecode(file.read(4096).strip())


def _link(name: str, directory: int) -> str:
    try:
        return f"{name} -> {os.readlink(name, dir_fd=directory)}"
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):  # not a link, or not there
            raise
        return ""
