"""Where the store of this user is, and where a run keeps its streams."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ralph.errors import RalphError
from ralph.store.database import open_database
from ralph.store.files import opened_directory
from ralph.store.runs import Runs
from ralph.store.runtime import ignore_runtime_files


@dataclass(frozen=True, slots=True)
class Home:
    """The state directory. `warning` says why it is not where it usually is."""

    path: Path
    warning: str = ""

    @property
    def database(self) -> Path:
        return self.path / "ralph.db"

    def streams(self, run: str) -> Path:
        return self.path / "runs" / run

    def make_streams(self, run: str) -> Path:
        """The same, made where it is missing: a run that was killed at its very beginning has none yet."""
        path = self.streams(run)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def runs(self, patience: float = 30.0) -> Runs:
        """The list of runs, on a connection of its own that waits so long for others."""
        return Runs(open_database(self.database, patience), self.database)


def find_home(directory: Path) -> Home:
    """The state directory of this user, made if need be; with a read-only home, one in the project."""
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
            f"Neither {usual} ({problem}) nor {path} ({worse}) can be written.",
            "Set RALPH_STATE_DIR to a directory you may write to.",
        )
    with opened_directory(str(path.parent)) as ralph:
        ignore_runtime_files(ralph)
    return Home(path, f"{usual} cannot be written ({problem}): the journal is kept in {path}.")


def _make(path: Path) -> str:
    """Make the directory, readable by its owner only. Returns what is wrong with it, if anything."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return error.strerror or str(error)
    return "" if os.access(path, os.W_OK | os.X_OK) else "not writable"
