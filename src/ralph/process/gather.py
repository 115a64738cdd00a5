"""One thread that reads the output of all commands when several wardens run commands at once.

A thread per pipe costs more than the reading: two hundred threads, each woken for every line, keep a whole core busy
with switching. This thread wakes thirty times a second, reads all available output and goes back to sleep. During a
flood of output, it does not sleep.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import threading
import time
from collections.abc import Callable

from msgspec import Struct

PERIOD = 0.03
"""Seconds between two reads. Output gathers meanwhile, so a line arrives later, but together with others."""

FLOOD_SECONDS = 1.0
"""Seconds without pauses after a flood of output."""

_CHUNK = 1 << 16
_SMALL_PIPE = 1 << 13
_LINGER = 1.0
"""Seconds after which the thread exits if there is nothing to read."""

_NOBODY = -1

Take = Callable[[bytes], None]


class _Taker(Struct, frozen=True):
    """Receiver of one pipe's data. With `flood` bytes per pause, the pipe would soon fill up and block the writer."""

    take: Take
    flood: int


class Gatherer:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._takers: dict[int, _Taker] = {}
        self._in_hand = _NOBODY
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, descriptor: int, take: Take) -> None:
        """From now on, call `take` in another thread with the data from a pipe. `take` must not raise."""
        os.set_blocking(descriptor, False)
        with self._guard:
            self._takers[descriptor] = _Taker(take, _capacity(descriptor) // 4)
            self._selector.register(descriptor, selectors.EVENT_READ)
            if self._thread is None or not self._thread.is_alive():  # threads do not survive a fork
                self._thread = threading.Thread(target=self._work, name="gatherer", daemon=True)
                self._thread.start()

    def remove(self, descriptor: int) -> None:
        """Stop calling `take`. It is not running any more when this returns. Unread data stays in the pipe."""
        self._forget(descriptor)
        while self._in_hand == descriptor:
            time.sleep(0.0005)

    def _forget(self, descriptor: int) -> None:
        with self._guard:
            if self._takers.pop(descriptor, None) is not None:
                self._selector.unregister(descriptor)

    def _work(self) -> None:
        calm_at = 0.0
        while True:
            ready = self._selector.select(_LINGER)
            if not ready and self._is_over():
                return
            began = time.monotonic()
            floods = [key.fd for key, _ in ready if self._read(key.fd)]
            now = time.monotonic()
            if floods:
                calm_at = now + FLOOD_SECONDS
            elif now >= calm_at:
                time.sleep(max(0.0, began + PERIOD - now))

    def _is_over(self) -> bool:
        with self._guard:
            if self._takers:
                return False
            self._thread = None
            return True

    def _read(self, descriptor: int) -> bool:
        """Pass on the available data and return whether it was a flood.

        The descriptor number may have been reused since it became ready. Then there is nothing to read, or the
        data belongs to the new owner.
        """
        self._in_hand = descriptor  # set before the look-up: `remove` waits for it
        try:
            taker = self._takers.get(descriptor)
            if taker is None:
                return False
            data = os.read(descriptor, _CHUNK)
            if data:
                taker.take(data)
            else:
                self._forget(descriptor)
            return len(data) >= taker.flood
        except BlockingIOError:
            return False
        finally:
            self._in_hand = _NOBODY


def _capacity(descriptor: int) -> int:
    if hasattr(fcntl, "F_GETPIPE_SZ"):
        return fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
    return _SMALL_PIPE
