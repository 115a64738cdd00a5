"""A supervised agent: the markers in its folder, and its child processes and runs."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from ralph.core.model import Cancel, HoldWhy, Seen, Stop
from ralph.process.client import Warden
from ralph.process.warden import LIVE_GRACE
from ralph.store.runs import Run, Runs
from ralph.store.task_folder import Folder

CHILD_SECONDS = LIVE_GRACE + 2.0
"""How long child runs may take to stop."""


class Supervised(Struct):
    """The task's folder, and the children of its agent: leftover processes and child runs."""

    folder: Folder
    warden: Warden
    runs: Runs
    run: str
    post_end: Callable[[Stop, int], None]
    """Posts the outcome and the number of attempts to the buses; idempotent."""
    _done_since: float | None = None

    def __post_init__(self) -> None:
        self.warden.keep(self._child_pids)

    def done_for(self) -> float:
        """Age of the DONE file in seconds, 0 if there is none."""
        now = time.monotonic()
        if not self.folder.markers().done:
            self._done_since = None
            return 0.0
        if self._done_since is None:
            self._done_since = now
        return max(now - self._done_since, 1e-9)

    def look(self, seen: Seen, *, after_attempt: int | None) -> Seen:
        """Add the markers and the number of children. Messages count only right after an attempt.

        With DONE, children may continue for a while; without it only child runs survive into the next attempt.
        """
        markers, waited = self.folder.markers(), self.done_for()
        wait, problem = markers.wait, seen.problem or markers.problem
        if after_attempt is not None and not wait:
            wait = self.folder.wait_message(after_attempt)
        if not markers.done and self.warden.leftovers():
            self.warden.sweep(self._child_pids())
        children = self.children() if markers.done else 0
        return replace(seen, problem=problem, done=markers.done, wait=wait, children=children, waited=waited)

    def is_hold_over(self, why: HoldWhy) -> bool:
        """Whether the reason for the hold has disappeared early."""
        if why is HoldWhy.CHILDREN:
            return not self.children()
        return why in (HoldWhy.RESTART, HoldWhy.LIMIT) and self.folder.has_news()

    def children(self) -> int:
        return max(self.warden.leftovers(), len(self._child_runs()))

    def end_children(self) -> int:
        """Stop all children, child runs gracefully first, and return their number."""
        found = self.children()
        for child in self._child_runs():
            self.runs.send(child.id, Cancel(time.time()))
        deadline = time.monotonic() + CHILD_SECONDS
        while self._child_runs() and time.monotonic() < deadline and self.warden.wakeup.count < 2:
            time.sleep(0.05)
        if self.warden.leftovers():
            self.warden.sweep()
        return found

    def _child_pids(self) -> list[int]:
        return [run.pid for run in self._child_runs() if run.pid]

    def _child_runs(self) -> list[Run]:
        return [run for run in self.runs.children(self.run) if run.is_live]
