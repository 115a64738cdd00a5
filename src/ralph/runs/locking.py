"""The lock of a directory: only one run at a time works there, and an error names that run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from ralph.core.events import Event, Notice
from ralph.errors import RalphError
from ralph.process.client import Wakeup
from ralph.runs.location import Location
from ralph.store import locks
from ralph.store.home import Home
from ralph.store.runs import parent_run

DYING_SECONDS = 10.0
"""How long to wait for the processes of a killed ralph to exit and free its directory."""


def lock(
    home: Home, where: Location, wakeup: Wakeup, tell: Callable[[Event], None], *, alone: bool = False
) -> int:
    """Acquire the lock of a directory, or raise an error that names the run holding it.

    `alone` ignores locks of parent directories. A run started by an agent shares the lock of its parent run.
    """
    if not where.lock.is_dir():
        raise RalphError(f"{where.lock} no longer exists.", "A run can only continue in its own directory.")
    deadline = time.monotonic() + DYING_SECONDS
    told = False
    while True:
        try:
            return locks.acquire(where.lock, home.path, above=not alone)
        except locks.Locked as locked:
            if _is_held_for_us(home, locked.directory):
                return os.open(where.lock, os.O_RDONLY | os.O_CLOEXEC)
            holder, is_dying = _holder(home, locked.directory)
            if holder or not is_dying or time.monotonic() > deadline:
                raise RalphError(
                    f"Another run is working in {locked.directory}{holder}.",
                    "Wait for it, or stop it with `ralph cancel`. `ralph status` shows it.",
                ) from None
            if not told:
                tell(Notice("Waiting for the processes of a killed run to exit..."))
            told = True
            if wakeup.count:
                raise KeyboardInterrupt from None


def _is_held_for_us(home: Home, directory: str) -> bool:
    """Whether this lock is held by the run whose agent started us, or by one of its parent runs."""
    runs = home.runs()
    try:
        known = {run.id: run for run in runs.all()}
        parent = known.get(parent_run() or "")
        while parent is not None and parent.is_live:
            if parent.directory == directory:
                return True
            parent = known.get(parent.parent or "")
        return False
    finally:
        runs.db.close()


def _holder(home: Home, directory: str) -> tuple[str, bool]:
    """The run that holds a lock, as text, and whether only the warden of a killed run is still cleaning up."""
    runs = home.runs()
    try:
        for _ in range(50):
            known = runs.in_directory(directory)
            live = next((run for run in known if run.is_live), None)
            if live:
                return f": {live.id} (process {live.pid})", False
            if any(run.pid is not None for run in known):
                return "", True
            time.sleep(0.01)
        return "", False
    finally:
        runs.db.close()
