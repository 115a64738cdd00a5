"""The lock of a project that `ralph work` holds, and the wardens that hold it too."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ralph.errors import RalphError
from ralph.process.client import Wakeup, Warden
from ralph.runs.locking import DYING_SECONDS
from ralph.store import locks
from ralph.store.home import Home
from ralph.store.runs import process_start


class ProjectLocked(RalphError):
    """Another process works on the tasks of this project."""


class Wardens:
    """A pool of wardens for git commands between runs.

    They also hold the lock of the project, so that after a kill no other Ralph starts before the last git command exits.
    """

    def __init__(self, lock: int) -> None:
        self._lock = lock
        self._idle: list[Warden] = []

    @contextmanager
    def lent(self, wakeup: Wakeup) -> Iterator[Warden]:
        try:
            warden = self._idle.pop()
            warden.heed(wakeup)
        except IndexError:
            warden = Warden(wakeup, self._lock)
        try:
            yield warden
        except BaseException:
            warden.close()
            raise
        self._idle.append(warden)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def lock_project(home: Home, common: Path, owner: Path, wakeup: Wakeup) -> int:
    """Lock the project. After a killed Ralph, wait for its processes to exit."""
    deadline = time.monotonic() + DYING_SECONDS
    while True:
        try:
            return locks.acquire(common, home.path, above=False)
        except locks.Locked:
            if _is_alive(owner) or time.monotonic() > deadline:
                raise ProjectLocked(
                    "Another `ralph work` is running in this project.",
                    "`ralph status` shows it. You can add tasks while it runs.",
                ) from None
            if wakeup.count:
                raise KeyboardInterrupt from None


def _is_alive(owner: Path) -> bool:
    try:
        pid, _, start = owner.read_text().partition(" ")
    except OSError:
        return False
    return pid.isdigit() and process_start(int(pid)) == start
