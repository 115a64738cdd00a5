"""The folder of a supervised task: its DONE file, its markers, its message bus."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from ralph.core.model import Steer, TaskFolder
from ralph.errors import RalphError
from ralph.store.bus import FACT, INFO, WAIT, Bus, BusReader, project_bus, read, task_bus
from ralph.store.messages import BusMessage

DONE, WAIT_MARKER = "DONE", "WAIT_WITHOUT_RESTART"

GUIDANCE = 1_000_000
"""The message numbers of guidance start here."""

STARTED = 1
"""The kind of message that announces the start of an attempt."""


class Markers(Struct, frozen=True):
    """The marker files in the folder. `problem` says that a marker is not a regular file."""

    done: bool = False
    wait: str = ""
    problem: str = ""


class Folder:
    """Reads and writes the folder of one task for one run."""

    def __init__(self, task: TaskFolder, run: str) -> None:
        self.path = Path(task.path)
        self._task = task
        self._run = run
        self._bus, self._project = Bus(task_bus(self.path)), Bus(project_bus(self.path))
        self._news: BusReader | None = None

    # ---- markers ----

    def markers(self) -> Markers:
        done, problem = self._has(DONE)
        waits, unclear = self._has(WAIT_MARKER)
        wait = f"{self.path / WAIT_MARKER} exists" if waits else ""
        return Markers(done, wait, problem or unclear)

    def has_news(self) -> bool:
        """Whether a marker ends the wait for the next attempt."""
        markers = self.markers()
        return markers.done or bool(markers.wait or markers.problem)

    def _has(self, name: str) -> tuple[bool, str]:
        """Whether a marker exists, and what is wrong with it: only a regular file counts."""
        path = self.path / name
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return False, ""
        except OSError as error:
            return False, f"{path} cannot be checked: {error.strerror}."
        if stat.S_ISREG(mode):
            return True, ""
        return False, f"{path} is {_kind(mode)}, not a regular file: remove it"

    # ---- messages ----

    def begin_attempt(self) -> None:
        """Start an attempt. Earlier messages do not count as its signals."""
        self._news = BusReader(task_bus(self.path))
        with suppress(RalphError):
            self._news.skip()

    def wait_message(self, attempt: int) -> str:
        """The reason to wait, from a message that this attempt posted; "" without one. The attempt has just finished."""
        with suppress(RalphError):
            if self._news is None:  # ralph was killed meanwhile: start at the attempt's first message
                self._news = BusReader(task_bus(self.path), f"{self._run}.{sequence(attempt, STARTED)}")
            for message in self._news.news():
                if isinstance(message, BusMessage) and message.type == WAIT:
                    return (
                        message.body.strip().partition("\n")[0]
                        or "the agent is waiting for an external event"
                    )
        return ""

    def post(self, at: float, type: str, body: str, seq: int) -> str:
        """Post a message for this run. Returns what went wrong, since a message must never fail a run."""
        return self._post(self._bus, at, type, body, seq)

    def post_to_project(self, at: float, body: str, seq: int) -> str:
        return self._post(self._project, at, FACT, body, seq)

    def _post(self, bus: Bus, at: float, type: str, body: str, seq: int) -> str:
        try:
            bus.post(at, type, body, task=self._task.name, run=self._run, seq=seq)
        except RalphError as error:
            return error.message
        return ""

    def post_guidance(self, steer: Steer) -> str:
        """Post guidance, for an agent command that has no prompt."""
        return self.post(steer.at, INFO, steer.text, GUIDANCE + steer.id)

    def has_guidance(self, number: int) -> bool:
        id = f"{self._run}.{GUIDANCE + number}"
        return any(isinstance(item, BusMessage) and item.id == id for item in read(task_bus(self.path)))

    # ---- watching ----

    @contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` as soon as anything changes in the folder, by polling if file watching is unavailable."""
        from watchdog.events import FileSystemEvent, FileSystemEventHandler
        from watchdog.observers import Observer
        from watchdog.observers.polling import PollingObserver

        class Waker(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                wake()

        observer = Observer()
        try:
            observer.schedule(Waker(), str(self.path))
            observer.start()
        except OSError:
            observer = PollingObserver(timeout=max(0.01, self._task.poll_seconds))
            observer.schedule(Waker(), str(self.path))
            observer.start()
        try:
            yield
        finally:
            observer.stop()
            observer.join(timeout=2)


def sequence(attempt: int, kind: int) -> int:
    """The number of a run's message: one of each kind per attempt, even if the attempt is repeated."""
    return attempt * 10 + kind


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")
