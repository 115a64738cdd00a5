"""One command run by a warden, from its start until every process it started is gone."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ralph.core.model import Ended, Exit
from ralph.process import orphans, warden
from ralph.process.gather import Gatherer

if TYPE_CHECKING:
    from ralph.process.client import Warden

ANSWER_SECONDS = 5.0
"""Seconds after which a warden that does not answer is killed. Its process tree is then swept from here."""

TICK_SECONDS = 0.25
"""Seconds between calls of `watch` when nothing happens."""

_CHUNK = 1 << 20

_gatherer = Gatherer()
"""Reads for all wardens if there are several. A single warden's output is read directly."""


class OutputReader(Protocol):
    """Receives command output in large chunks that can end anywhere, one at a time but from any thread."""

    def stdout(self, data: bytes) -> None: ...

    def stderr(self, data: bytes) -> None: ...


Watch = Callable[[float, float], Ended | None]
"""(seconds since the start, seconds since the last output) -> why the command must stop now, or None."""


class Step:
    """The current command: its pipes, the warden's messages and the clock."""

    def __init__(self, owner: Warden, readers: dict[int, Callable[[bytes], None]], watch: Watch) -> None:
        self._warden = owner
        self._readers = readers
        self._watch = watch
        self._started = self._last_output = self._last_answer = time.monotonic()
        self._asked_at: float | None = None
        self._main = 0
        self._status: int | None = None
        self._error: int | None = None
        self._ended: Ended | None = None
        self._interrupts = owner.wakeup.count
        self._passes = -1
        self._left = False
        self._problem: Exception | None = None

    def until_swept(self) -> Exit:
        if len(orphans.wardens) == 1:
            return self._exit() if self._is_swept(self._readers) else self.lost()
        for descriptor in self._readers:
            _gatherer.add(descriptor, partial(self._take, descriptor))
        try:
            is_swept = self._is_swept(())
        finally:
            for descriptor in self._readers:
                _gatherer.remove(descriptor)
        return self._exit() if is_swept else self.lost()

    def _is_swept(self, pipes: Iterable[int]) -> bool:
        """Read these pipes until every process of the command is gone. Return False if the warden is lost."""
        poll = select.poll()
        for descriptor in (*pipes, self._warden.fileno(), self._warden.wakeup.fileno()):
            poll.register(descriptor, select.POLLIN)
        while self._passes < 0 and self._error is None:
            for descriptor, _ in poll.poll(TICK_SECONDS * 1000):
                if descriptor == self._warden.fileno():
                    if not self._hear():
                        return False
                elif descriptor == self._warden.wakeup.fileno():
                    self._warden.wakeup.drain()
                elif not self._read(descriptor):
                    poll.unregister(descriptor)
            if self._problem is not None:
                raise self._problem
            if self._is_silent():
                return False
            self._watch_it()
        return True

    def _take(self, descriptor: int, data: bytes) -> None:
        """Receive data in the gatherer's thread and keep any error for our own thread."""
        try:
            self._pass_on(descriptor, data)
        except Exception as error:
            self._problem = self._problem or error

    def _hear(self) -> bool:
        messages = self._warden.receive()
        if messages is None:
            return False
        self._last_answer, self._asked_at = time.monotonic(), None
        for verb, *fields in messages:
            if verb == b"started":
                self._main = int(fields[0])
            elif verb == b"exited":
                self._status, self._main = int(fields[0]), 0
            elif verb == b"failed":
                self._error = int(fields[0])
            elif verb == b"swept":
                self._passes, self._left = int(fields[0]), fields[1] != b"0"
            elif verb == b"kept":
                self._passes = 0
        return True

    def _read(self, descriptor: int) -> bool:
        data = os.read(descriptor, _CHUNK)
        if data:
            self._pass_on(descriptor, data)
        return bool(data)

    def _pass_on(self, descriptor: int, data: bytes) -> None:
        self._last_output = time.monotonic()
        self._readers[descriptor](data)

    def _is_silent(self) -> bool:
        """Ping a quiet warden, and return whether it has failed to answer for too long."""
        now = time.monotonic()
        if self._asked_at is not None:
            if now - self._asked_at <= ANSWER_SECONDS:
                return False
            return not select.select([self._warden.fileno()], [], [], 0)[0]
        if now - self._last_answer > ANSWER_SECONDS / 2:
            self._warden.ping()
            self._asked_at = now
        return False

    def _watch_it(self) -> None:
        if self._status is not None:
            return
        now = time.monotonic()
        if self._ended is None:
            self._ended = self._watch(now - self._started, now - self._last_output)
            if self._ended is not None:
                self._end(warden.LIVE_GRACE)
        elif self._warden.wakeup.count > self._interrupts:
            self._end(0)

    def _end(self, grace: float) -> None:
        """Stop the command: TERM, then KILL after `grace`. A second interrupt kills it at once."""
        self._interrupts = self._warden.wakeup.count
        self._warden.end(0 if self._interrupts > 1 else grace)

    def lost(self) -> Exit:
        """Sweep from here, because the warden is gone or does not respond."""
        passes = self._warden.lost(self._main)
        self._drain()
        seconds = time.monotonic() - self._started
        return Exit(lost=True, ended=self._ended, seconds=seconds, passes=passes)

    def _exit(self) -> Exit:
        self._drain()
        seconds = time.monotonic() - self._started
        if self._error is not None:
            return Exit(error=self._error, seconds=seconds)
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        killed_by = -code if code < 0 else None
        return Exit(
            code=None if code < 0 else code,
            signal=killed_by,
            ended=self._ended,
            seconds=seconds,
            passes=self._passes,
            left=self._left,
        )

    def _drain(self) -> None:
        """Read what is left in the pipes, without waiting for another process that holds one open."""
        for descriptor in self._readers:
            os.set_blocking(descriptor, False)
            deadline = time.monotonic() + 1.0
            try:
                while time.monotonic() < deadline and self._read(descriptor):
                    pass
            except BlockingIOError:
                pass
