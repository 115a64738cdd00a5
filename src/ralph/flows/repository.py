"""The repository of a run, for commands that look at it or go back: git under a warden of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ralph.core.model import Ended
from ralph.errors import RalphError
from ralph.process.client import Wakeup, Warden, child_environment, output_of
from ralph.scm.git import Output, Runner, without_local
from ralph.scm.repository import Repository, find_repository
from ralph.store.files import opened_directory
from ralph.store.home import Home
from ralph.store.runs import Run

SCM_SECONDS = 600.0
"""A version control command that hangs (a push that waits for a password) is ended after so long."""


@dataclass(frozen=True, slots=True)
class Opened:
    repository: Repository
    run: Runner
    scratch: Path


@contextmanager
def opened_repository(home: Home, run: Run) -> Iterator[Opened]:
    """The repository that a run worked in."""
    repository = find_repository(Path(run.directory))
    if repository is None:
        raise RalphError(f"{run.directory} is no git repository: there are no snapshots of run {run.id}.")
    with Warden(Wakeup()) as warden:
        yield Opened(repository, scm_runner(warden, repository.top), home.streams(run.id) / "scm")


def scm_runner(warden: Warden, top: Path) -> Runner:
    """Runs version control commands in a directory, without variables that would lead them elsewhere."""

    def watch(seconds: float, idle: float) -> Ended | None:
        if warden.wakeup.count > 1:
            return Ended.INTERRUPTED
        return Ended.TIMEOUT if seconds >= SCM_SECONDS else None

    def run(argv: list[str], variables: Mapping[str, str], stdin: bytes) -> Output:
        environment = without_local(child_environment({})) | dict(variables)
        with opened_directory(str(top)) as directory:
            done = output_of(warden, argv, directory, environment, stdin, watch)
        code = done.exit.code if done.exit.code is not None else 128
        return Output(code, done.out, done.problem or done.err.decode(errors="replace"))

    return run
