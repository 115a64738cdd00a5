"""The repository of a run, for commands that inspect it or roll back: git under a separate warden."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from msgspec import Struct

from ralph.core.model import Ended, Exit
from ralph.errors import RalphError
from ralph.process.client import Wakeup, Warden, child_environment, output_of
from ralph.scm.git import GitOutput, Runner, without_local
from ralph.scm.pinned import identity, pinned, seen_from
from ralph.scm.repository import Repository, find_repository
from ralph.store.files import opened_directory, write
from ralph.store.home import Home
from ralph.store.runs import Run

SCM_SECONDS = 600.0
"""Timeout for a version control command that hangs, such as a push that waits for a password."""


class Opened(Struct, frozen=True):
    repository: Repository
    run: Runner
    scratch: Path


@contextmanager
def opened_repository(home: Home, run: Run, most: int | None = None) -> Iterator[Opened]:
    """The repository that a run worked in. The worktree of a task may be gone, but its snapshots remain.

    `most` is the maximum number of bytes read from the output of any command.
    """
    repository = find_repository(Path(run.directory))
    is_gone = repository is None and run.task is not None
    if is_gone:
        repository = find_repository(Path(run.project).parent)
    if repository is None:
        raise RalphError(f"{run.directory} is not a git repository, so run {run.id} has no snapshots.")
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
    """A runner for version control commands in an open directory, whose path was `top` when it was opened.

    Git's directories are named relative to it: if an agent puts another repository in its place, nothing is
    written to that one. `is_interrupted` is polled while a command runs; by default a second signal interrupts.
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
        error = done.err.decode(errors="replace")
        if done.exit.code is not None:
            return GitOutput(done.exit.code, done.out, error)
        is_stopped = done.exit.ended is not None or is_interrupted()
        why = done.problem or f"{error}\n{_why(done.exit)}"
        return GitOutput(128, done.out, why, died=True, stopped=is_stopped)

    return run


def _why(exit: Exit) -> str:
    """Why a command has no exit code."""
    if exit.ended is not None:
        return "interrupted" if exit.ended is Ended.INTERRUPTED else f"no result after {SCM_SECONDS:g} s"
    if exit.error is not None:
        return f"could not be started: {os.strerror(exit.error)}"
    return f"killed by signal {exit.signal}" if exit.signal else "killed"


_PLACES = ("GIT_DIR", "GIT_WORK_TREE")


def pinned_runner(runner: Runner, repository: Repository, directory: int, scratch: Path) -> Runner:
    """Git only for the repository that the run started with, as recorded in `scratch`."""
    record = _pin(scratch)
    try:
        known = os.fsdecode(record.read_bytes())
    except FileNotFoundError:
        known = identity(seen_from(repository.top, repository.git_dir), directory)
        scratch.mkdir(parents=True, exist_ok=True)
        with opened_directory(str(scratch)) as state:
            write(state, record.name, os.fsencode(known))
    hint = f"Restore the original repository. If this one is correct (for example, restored from a backup): rm {record}"
    return pinned(runner, repository, directory, known, hint)


def is_pinned(scratch: Path) -> bool:
    """Whether the run started in a git repository."""
    return _pin(scratch).exists()


def forget_pin(scratch: Path) -> None:
    """Accept the current git directory after the worktree of a run was created again."""
    _pin(scratch).unlink(missing_ok=True)


def _pin(scratch: Path) -> Path:
    return scratch / "git_directory"
