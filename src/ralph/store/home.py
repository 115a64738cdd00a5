"""The locations of the user's store and of a run's streams."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ralph.errors import RalphError
from ralph.store.database import open_database, open_to_read
from ralph.store.files import opened_directory
from ralph.store.runtime import ignore_runtime_files

if TYPE_CHECKING:
    from ralph.store.runs import Runs
    from ralph.store.tasks import Tasks


class Home(Struct, frozen=True):
    """The state directory. `warning` says why it is not in the usual place."""

    path: Path
    warning: str = ""

    @property
    def database(self) -> Path:
        return self.path / "ralph.db"

    def streams(self, run: str) -> Path:
        return self.path / "runs" / run

    def copies(self, run: str) -> Path:
        """The directory for copies of the project that a run makes."""
        return self.streams(run) / "copies"

    def make_streams(self, run: str) -> Path:
        """The same directory, created if missing: a run killed right at its start has none yet."""
        path = self.streams(run)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def runs(self, patience: float = 30.0) -> Runs:
        """The list of runs, on a separate connection that waits `patience` seconds for others."""
        from ralph.store.runs import (
            Runs,
        )  # imported here: it loads the state machine, which tasks do not need

        return Runs(open_database(self.database, patience), self.database)

    def tasks(self, project: str) -> Tasks:
        """The tasks of a project, on a separate connection."""
        from ralph.store.tasks import Tasks

        return Tasks(open_database(self.database), self.database, project)

    def to_read(self) -> Runs:
        """The list of runs, on a read-only connection. Raises `Missing` if there is no store yet."""
        from ralph.store.runs import Runs

        return Runs(open_to_read(self.database), self.database)

    @property
    def environments(self) -> Path:
        """The directory for installed dependencies that copies of projects share, by its real path."""
        return Path(os.path.realpath(self.path)) / "environments"

    def prd(self, directory: str, folder: str) -> Path:
        """The directory for copies of a PRD loop's files, derived from the name of its folder alone."""
        path = os.path.join(os.path.realpath(directory), os.path.normpath(folder))
        return self.path / "prd" / _digest(os.fsencode(path))[:32]

    def worktree(self, project: str, task: str, attempt: int = 1) -> Path:
        """The worktree of an attempt at a task."""
        place = _digest(project.encode(errors="surrogateescape"))[:8]
        name = task if attempt == 1 else f"{task}+{attempt}"
        return self.path / "worktrees" / f"{Path(project).parent.name}-{place}" / name


def _digest(data: bytes) -> str:
    import hashlib  # imported here: it loads OpenSSL

    return hashlib.sha256(data).hexdigest()


def find_home(directory: Path) -> Home:
    """The user's state directory, created if missing. With a read-only home it is in the project."""
    if chosen := os.environ.get("RALPH_STATE_DIR"):
        path = Path(chosen).absolute()
        if problem := _make(path):
            raise RalphError(
                f"RALPH_STATE_DIR: {path} cannot be used: {problem}.", "Choose another directory."
            )
        return Home(path)
    import platformdirs

    usual = platformdirs.user_state_path("ralph", appauthor=False)
    if not (problem := _make(usual)):
        return Home(usual)
    path = directory / ".ralph" / "state"
    if worse := _make(path):
        raise RalphError(
            f"Neither {usual} ({problem}) nor {path} ({worse}) is writable.",
            "Set RALPH_STATE_DIR to a writable directory.",
        )
    with opened_directory(str(path.parent)) as ralph:
        ignore_runtime_files(ralph)
    return Home(path, f"{usual} is not writable ({problem}): using {path} for the journal.")


def known_home(directory: Path) -> Home:
    """The user's state directory, which is not created and may not exist."""
    if chosen := os.environ.get("RALPH_STATE_DIR"):
        return Home(Path(chosen).absolute())
    import platformdirs

    usual, here = platformdirs.user_state_path("ralph", appauthor=False), directory / ".ralph" / "state"
    return Home(usual if (usual / "ralph.db").exists() or not here.exists() else here)


def _make(path: Path) -> str:
    """Create the directory, readable by its owner only. Returns what is wrong with it, or ""."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return error.strerror or str(error)
    return "" if os.access(path, os.W_OK | os.X_OK) else "not writable"
