"""Output for views: a terminal that may stall, or a stream that must get everything."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import Protocol, TextIO

MAX_WAITING = 4 << 20
"""Characters that may wait for a terminal; further output is skipped and counted."""

STATUS_SECONDS = 0.5
"""Seconds between redraws of the status line."""

ERASE = "\r\x1b[2K"

PATIENCE = 2.0
"""Seconds without progress after which a final flush gives up on a terminal."""


class Sink(Protocol):
    def write(self, text: str) -> None: ...

    def flush(self) -> None:
        """Wait until everything is written."""


class DirectWriter:
    """Writes immediately and waits for the reader; a closed stream is an error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


class ForgivingWriter(DirectWriter):
    """Like `DirectWriter`, but ignores a closed stream."""

    def write(self, text: str) -> None:
        _put(self._stream, text)

    def flush(self) -> None:
        pass


class ThreadedWriter:
    """Writes in a separate thread, so that a closed or stalled stream blocks nobody.

    `status` returns the line to keep at the bottom of the terminal.
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
                text = f"\n[... {self._skipped:,} characters not shown ...]\n{text}"
                self._skipped = 0
            self._waiting.append(text)
            self._size += len(text)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
                atexit.register(self._end)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until everything is written, as long as there is progress."""
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
        """Replace the status line at the bottom."""
        if status != self._shown:
            _put(self._stream, f"{ERASE if self._shown else ''}{status}")
            self._shown = status


def _put(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):
        pass
