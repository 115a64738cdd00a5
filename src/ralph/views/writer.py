"""Where views write to: a terminal that may stand still, or a stream that has to get everything."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import Protocol, TextIO

MAX_WAITING = 4 << 20
"""Characters that may wait for a terminal; what comes beyond is not shown, and counted."""

STATUS_SECONDS = 0.5
"""How often the line at the bottom is drawn anew."""

ERASE = "\r\x1b[2K"

PATIENCE = 2.0
"""Seconds without any progress after which a terminal is given up at the end."""


class Sink(Protocol):
    def write(self, text: str) -> None: ...

    def flush(self) -> None:
        """Wait until all is written."""


class DirectWriter:
    """Writes at once and waits for the reader, who gets everything; one who has gone is an error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


class ForgivingWriter(DirectWriter):
    """The same, but a reader who has gone does not matter."""

    def write(self, text: str) -> None:
        _put(self._stream, text)

    def flush(self) -> None:
        pass


class ThreadedWriter:
    """Writes in a thread of its own. A stream that is gone or stands still holds nobody up.

    `status` is asked for a line that stays at the bottom of the terminal while there is nothing below it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._changed = threading.Condition()
        self._waiting: list[str] = []
        self._size = 0
        self._skipped = 0
        self._written = 0
        self._thread: threading.Thread | None = None
        self.status: Callable[[], str] | None = None
        self._shown = ""
        self._at_line_start = True

    def write(self, text: str) -> None:
        with self._changed:
            if self._size > MAX_WAITING:
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
                atexit.register(self._end)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all is written, as long as it goes forward."""
        with self._changed:
            while self._size:
                before = self._written
                self._changed.wait(PATIENCE)
                if self._written == before:
                    return

    def _end(self) -> None:
        self.status = None
        self.flush()
        self._show("")

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._changed.wait(STATUS_SECONDS if self.status else None)
                pieces, self._waiting = self._waiting, []
            if pieces:
                self._show("")
            for piece in pieces:
                _put(self._stream, piece)
                self._at_line_start = piece.endswith("\n")
                with self._changed:
                    self._size -= len(piece)
                    self._written += len(piece)
                    self._changed.notify_all()
            if self.status and self._at_line_start:
                self._show(self.status())

    def _show(self, status: str) -> None:
        """Put this line in the place of the one at the bottom."""
        if status != self._shown:
            _put(self._stream, f"{ERASE if self._shown else ''}{status}")
            self._shown = status


def _put(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):
        pass
