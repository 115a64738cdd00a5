"""The repository of a run, for commands that look at it or go back: git under a warden of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from msgspec import Struct

from ralph.core.model import Ended
from ralph.errors import RalphError
from ralph.process.client import Wakeup, Warden, child_environment, output_of
from ralph.scm.git import GitOutput, Runner, without_local
from ralph.scm.pinned import identity, pinned, seen_from
from ralph.scm.repository import Repository, find_repository
from ralph.store.files import opened_directory, write
from ralph.store.home import Home
from ralph.store.runs import Run

SCM_SECONDS = 600.0
"""A version control command that hangs (a push that waits for a password) is ended after so long."""


class Opened(Struct, frozen=True):
    repository: Repository
    run: Runner
    scratch: Path


@contextmanager
def opened_repository(home: Home, run: Run, most: int | None = None) -> Iterator[Opened]:
    """The repository that a run worked in; the worktree of a task may be gone, its snapshots are not.

    `most`: so many bytes are read of what any command says.
    """
    repository = find_repository(Path(run.directory))
    is_gone = repository is None and run.task is not None
    if is_gone:
        repository = find_repository(Path(run.project).parent)
    if repository is None:
        raise RalphError(f"{run.directory} is no git repository: there are no snapshots of run {run.id}.")
    with opened_directory(str(repository.top)) as directory, Warden(Wakeup()) as warden:
        scratch = home.streams(run.id) / "scm"
        runner = scm_runner(warden, directory, repository.top, most=most)
        if not is_gone:
            runner = pinned_runner(runner, repository, directory, scratch)
        yield Opened(repository, runner, scratch)


def scm_runner(
    warden: Warden,
    directory: int,
    top: Path,
    is_interrupted: Callable[[], bool] | None = None,
    most: int | None = None,
) -> Runner:
    """Runs version control commands in an open directory, `top` when it was opened.

    Git's directories are named from there: if an agent puts another repository in the place of ours, nothing
    is written to that one. `is_interrupted` is asked while a command runs; by default a second signal is heard.
    """
    is_interrupted = is_interrupted or (lambda: warden.wakeup.count > 1)

    def watch(seconds: float, idle: float) -> Ended | None:
        if is_interrupted():
            return Ended.INTERRUPTED
        return Ended.TIMEOUT if seconds >= SCM_SECONDS else None

    usual, seen = without_local(child_environment({})), cache(partial(seen_from, top))

    def run(argv: list[str], variables: Mapping[str, str], stdin: bytes) -> GitOutput:
        places = {name: seen(variables[name]) for name in _PLACES if name in variables}
        environment = usual | dict(variables) | places
        done = output_of(warden, argv, directory, environment, stdin, watch, most)
        if done.is_cut:
            return GitOutput(0, done.out, "")
        code = done.exit.code if done.exit.code is not None else 128
        return GitOutput(code, done.out, done.problem or done.err.decode(errors="replace"))

    return run


_PLACES = ("GIT_DIR", "GIT_WORK_TREE")


def pinned_runner(runner: Runner, repository: Repository, directory: int, scratch: Path) -> Runner:
    """Git for the repository that the run began with, as `scratch` tells, and for no other."""
    record = _pin(scratch)
    try:
        known = os.fsdecode(record.read_bytes())
    except FileNotFoundError:
        known = identity(seen_from(repository.top, repository.git_dir), directory)
        scratch.mkdir(parents=True, exist_ok=True)
        with opened_directory(str(scratch)) as state:
            write(state, record.name, os.fsencode(known))
    hint = f"Put the right one back. If this is the right one, from a backup perhaps: rm {record}"
    return pinned(runner, repository, directory, known, hint)


def forget_pin(scratch: Path) -> None:
    """The worktree of a run was made again: the git directory that it has now is the right one."""
    _pin(scratch).unlink(missing_ok=True)


def _pin(scratch: Path) -> Path:
    return scratch / "git_directory"
