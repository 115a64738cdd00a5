"""Where a command was called: the directory, the lock it needs, the project, and the runs that belong there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ralph.errors import RalphError
from ralph.files.paths import real
from ralph.scm.repository import find_repository

if TYPE_CHECKING:
    from ralph.store.runs import Run, Runs


class Location(Struct, frozen=True):
    """A working directory, the directory whose lock it needs, and the project it belongs to."""

    directory: Path
    lock: Path
    project: str


def here(directory: Path) -> Location:
    directory = real(directory)
    try:
        str(directory).encode()
    except UnicodeEncodeError:
        raise RalphError(
            f"The directory name {os.fsencode(directory)!r} is not valid UTF-8.", "Rename the directory."
        ) from None
    repository = find_repository(directory)
    if repository is None:
        return Location(directory, directory, str(directory))
    return Location(directory, repository.top, str(repository.common))


def runs_of(runs: Runs, where: Location) -> Iterator[Run]:
    """The runs of a directory, newest first, including supervise runs, which lock their task folder instead."""
    for run in runs.around(str(where.lock), where.project):
        if run.directory == str(where.lock) or _is_supervised_from(runs, run, where.lock):
            yield run


def _is_supervised_from(runs: Runs, run: Run, lock: Path) -> bool:
    plan = runs.plan(run.id)
    return plan is not None and here(Path(plan.directory)).lock == lock


def location_of(run: Run) -> Location:
    """The location of a stored run."""
    return Location(Path(run.directory), Path(run.directory), run.project)
