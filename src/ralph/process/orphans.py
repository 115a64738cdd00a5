"""Ralph's own children: wardens, and the orphans of a lost warden.

Ralph starts only wardens, and only under one lock, so any other child is an orphan of a lost warden. Orphans are
killed from here, except spared ones, which stay children of Ralph from then on.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence

from ralph.process import warden

starting = threading.Lock()
"""Held while a warden is started and while orphans are examined."""

wardens: set[int] = set()
_strangers: frozenset[int] | None = None
"""Children that existed before the first warden."""

_adopted: set[int] = set()
"""PIDs spared by any thread."""

_given_up: set[int] = set()
"""PIDs that could not be killed."""


def note_strangers() -> None:
    global _strangers
    with starting:
        if _strangers is None:
            tree = warden.children_by_parent() if warden.has_children() else {}
            _strangers = frozenset(tree.get(os.getpid(), ()))


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def forget(pid: int, patience: float) -> bool:
    """Wait for a warden to exit, and kill it after `patience` seconds. Return whether it exited by itself."""
    deadline = time.monotonic() + patience
    willing = True
    try:
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                willing = False
                kill(pid)
            time.sleep(0.001)
    except ChildProcessError:
        pass
    wardens.discard(pid)
    return willing


class Orphans:
    """The processes that lost wardens have left to one run."""

    def __init__(self) -> None:
        self.adopted: set[int] = set()
        """PIDs of the spared branches."""

    def sweep(self, spare: Sequence[int] = (), main: int = 0) -> int:
        """Kill all orphans except the branches with `spare`, which are adopted. `main` is always killed.

        Returns the number of passes.
        """
        with starting:
            passes, spared = 0, self._others() | frozenset(spare)
            deadline = time.monotonic() + warden.GIVE_UP
            while _is_somebody_left(spared, main):
                if time.monotonic() > deadline:
                    _given_up.update(warden.children_without(spared, main))
                    break
                warden.signal_tree(signal.SIGKILL, spared, main)
                passes += 1
                time.sleep(0.002)
            _adopted.difference_update(self.adopted)
            self.adopted = _branches(spare)
            _adopted.update(self.adopted)
        return passes

    def count(self) -> int:
        """Return how many orphaned process trees there are."""
        if not self.adopted:
            return 0
        with starting:
            others = self._others()
            return len(warden.children_without(others)) if _is_somebody_left(others) else 0

    def _others(self) -> frozenset[int]:
        """Return the children of this process that are not orphans of this run."""
        return frozenset(wardens | _given_up | (_adopted - self.adopted)) | (_strangers or frozenset())


def _is_somebody_left(spared: frozenset[int], main: int = 0) -> bool:
    """Reap dead children and return whether any child is left besides the branches with `spared`."""
    dead, is_left = warden.reap(spared, main)
    _given_up.difference_update(dead)
    return is_left


def _branches(pids: Sequence[int]) -> set[int]:
    """Return those of these PIDs that are our descendants, and the processes between us and them."""
    tree = warden.children_by_parent()
    parents = {child: parent for parent, children in tree.items() for child in children}
    found: set[int] = set()
    for pid in pids:
        path = set()
        while pid and pid != os.getpid():
            path.add(pid)
            pid = parents.get(pid, 0)
        found |= path if pid else set()
    return found
