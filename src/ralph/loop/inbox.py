"""Input of a running loop: signals, and commands queued for it in the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ralph.core.events import Event, Notice
from ralph.core.model import Cancel, Command, Pause, Resume, Steer
from ralph.errors import RalphError
from ralph.loop.clock import Clock
from ralph.process.client import Wakeup
from ralph.store.database import reason_to_wait
from ralph.store.runs import Runs

COMMAND_SECONDS = 0.25
"""How often the store is polled for commands during a step."""

DISK_SECONDS = 1.0
"""How often a run that waits for disk space retries."""

SHUTTING_DOWN = ("Received signal, shutting down...", "Finishing this step; press Ctrl-C again to stop now.")

T = TypeVar("T")


class Inbox:
    """Receives signals and commands for one run. `on_guidance` is called whenever guidance is waiting."""

    def __init__(
        self, runs: Runs, run: str, wakeup: Wakeup, clock: Clock, tell: Callable[[Event], None]
    ) -> None:
        self._runs = runs
        self._run = run
        self._wakeup = wakeup
        self._clock = clock
        self._tell = tell
        self.on_guidance: Callable[[tuple[Steer, ...]], None] = lambda guidance: None
        self._waiting: list[tuple[int, Command]] = []
        self._asked_at = 0.0
        self._told = 0

    def new_commands(self) -> list[tuple[int, Command]]:
        """New commands since the last call, each with its number."""
        if self._waiting or self._runs.has_news():
            self._ask()
        heard, self._waiting = self._waiting, []
        return heard

    @property
    def signalled_by(self) -> str:
        return self._wakeup.by

    def signals(self) -> int:
        """Number of signals received; the first two are acknowledged."""
        count = self._wakeup.count
        if count > self._told:
            self._told = count
            for text in SHUTTING_DOWN if count == 1 else ("Stopping now.",):
                self._tell(Notice(text))
        return count

    def is_interrupted(self) -> bool:
        """Whether the running process must stop now: a second signal, or `ralph cancel`."""
        if self.signals() > 1:
            return True
        return any(isinstance(c, Cancel) and c.now for _, c in self._look())

    def is_woken(self, known_signals: int) -> bool:
        """Whether anything arrived that must end a hold."""
        if self.signals() > known_signals:
            return True
        return any(isinstance(c, Cancel | Pause | Resume) for _, c in self._look())

    def _look(self) -> list[tuple[int, Command]]:
        now = self._clock.monotonic()
        if now - self._asked_at >= COMMAND_SECONDS:
            self._asked_at = now
            if self._runs.has_news():
                self._ask()
        return self._waiting

    def _ask(self) -> None:
        self._waiting = self._runs.waiting(self._run)
        self.on_guidance(tuple(command for _, command in self._waiting if isinstance(command, Steer)))

    def retry_when_full(self, write: Callable[[], T]) -> T:
        """Call `write`; if the disk is full, wait for space instead of losing data."""
        told = False
        while True:
            try:
                return write()
            except (RalphError, OSError) as error:
                why = reason_to_wait(error)
                if not why:
                    raise
                if self._wakeup.count:
                    raise InterruptedWait from None
                if not told:
                    self._tell(Notice(why))
                told = True
                self._wakeup.wait(DISK_SECONDS)


class InterruptedWait(Exception):
    """A signal arrived while the run waited for disk space."""
