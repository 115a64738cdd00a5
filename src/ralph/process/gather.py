"""One thread that reads for many: where several wardens run commands at once, all output comes through here.

A thread for each pipe costs more than what it reads: two hundred of them, woken for every line, take a whole
core from each other. This one looks thirty times a second, takes whatever has come, and goes back to
sleep; only in a flood it does not.
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
"""Seconds from one look to the next: meanwhile output gathers, so that a line comes late, but with others."""

FLOOD_SECONDS = 1.0
"""For so long after a flood there are no pauses."""

_CHUNK = 1 << 16
_SMALL_PIPE = 1 << 13
_LINGER = 1.0
"""Seconds after which a thread that has nothing to read ends."""

_NOBODY = -1

Take = Callable[[bytes], None]


class _Taker(Struct, frozen=True):
    """`flood`: with so much in one pause, whoever writes would soon have to wait for us."""

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
        """From now on `take` gets what comes out of a pipe, from another thread; it must not raise."""
        os.set_blocking(descriptor, False)
        with self._guard:
            self._takers[descriptor] = _Taker(take, _capacity(descriptor) // 4)
            self._selector.register(descriptor, selectors.EVENT_READ)
            if self._thread is None or not self._thread.is_alive():  # a fork takes no threads along
                self._thread = threading.Thread(target=self._work, name="gatherer", daemon=True)
                self._thread.start()

    def remove(self, descriptor: int) -> None:
        """When this returns, `take` is not called any more; what has not been read is still there."""
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
        """Pass on what there is; was it a flood?

        Since it was ready, the number may have become another's: then there is nothing to read, or it is his.
        """
        self._in_hand = descriptor  # before looking who takes it: whoever removes it waits for us
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
