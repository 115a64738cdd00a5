"""Where views write to: a terminal that may stand still, or a stream that has to get everything."""

from __future__ import annotations

import atexit
import threading
from typing import Protocol, TextIO

MOST_WAITING = 4 << 20
"""Characters that may wait for a terminal; what comes beyond is not shown, and counted."""

PATIENCE = 2.0
"""Seconds without any progress after which a terminal is given up at the end."""


class Sink(Protocol):
    def write(self, text: str) -> None: ...

    def flush(self) -> None:
        """Wait until all is written."""


class Direct:
    """Writes at once and waits for the reader, who gets everything; one who has gone is an error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


class Forgiving(Direct):
    """The same, but a reader who has gone does not matter."""

    def write(self, text: str) -> None:
        _put(self._stream, text)

    def flush(self) -> None:
        pass


class Outlet:
    """Writes in a thread of its own. A stream that is gone or stands still holds nobody up."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._changed = threading.Condition()
        self._waiting: list[str] = []
        self._size = 0
        self._skipped = 0
        self._written = 0
        self._thread: threading.Thread | None = None

    def write(self, text: str) -> None:
        with self._changed:
            if self._size > MOST_WAITING:
                self._skipped += len(text)
                return
            if self._skipped:
                text = f"\n[... {self._skipped:,} characters were not shown ...]\n{text}"
                self._skipped = 0
            self._waiting.append(text)
            self._size += len(text)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
                atexit.register(self.flush)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all is written, as long as it goes forward."""
        with self._changed:
            while self._size:
                before = self._written
                self._changed.wait(PATIENCE)
                if self._written == before:
                    return

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                pieces, self._waiting = self._waiting, []
            for piece in pieces:
                _put(self._stream, piece)
                with self._changed:
                    self._size -= len(piece)
                    self._written += len(piece)
                    self._changed.notify_all()


def _put(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):
        pass
