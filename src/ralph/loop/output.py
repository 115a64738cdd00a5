"""Readers of agent and check output: redact it, write it to a file, pass it on."""

from __future__ import annotations

from collections.abc import Callable

from ralph.agents.base import Parser
from ralph.core.events import Event, UsageReported
from ralph.redact import Redactor, Secrets
from ralph.store.runtime import Capped
from ralph.store.streams import STDERR, STDOUT, Stream

MAX_HEAD_BYTES = 4 << 20
"""How much of a check's output is considered for the prompt; the log has all of it."""

Tell = Callable[[Event], None]


class Tee:
    """Writes raw agent output to a file and parses it into events."""

    def __init__(self, parser: Parser, tell: Tell, directory: int, name: str, secrets: Secrets) -> None:
        self._parser = parser
        self._tell = tell
        self._out = Stream(directory, name + STDOUT)
        self._err = Stream(directory, name + STDERR)
        self._safe_out, self._safe_err = Redactor(secrets), Redactor(secrets)
        self._used = parser.usage

    def stdout(self, data: bytes) -> None:
        self._printed(self._safe_out.feed(data))

    def stderr(self, data: bytes) -> None:
        self._complained(self._safe_err.feed(data))

    def _printed(self, data: bytes) -> None:
        self._out.write(data)
        for event in self._parser.stdout(data):
            self._tell(event)
        if self._parser.usage is not self._used:
            self._used = self._parser.usage
            self._tell(UsageReported(self._used))

    def _complained(self, data: bytes) -> None:
        self._err.write(data)
        for event in self._parser.stderr(data):
            self._tell(event)

    def close(self) -> str:
        """Flush both streams; returns why one is incomplete, or ""."""
        self._printed(self._safe_out.finish())
        self._complained(self._safe_err.finish())
        return self._out.close() or self._err.close()


class CheckLog:
    """Writes check output to its log and keeps the start for the prompt."""

    def __init__(self, log: Capped, limit: int, secrets: Secrets) -> None:
        self._log = log
        self._safe = Redactor(secrets)
        self._most = max(MAX_HEAD_BYTES, 8 * limit)
        self._head = b""
        self.is_cut = False

    def stdout(self, data: bytes) -> None:
        self._keep(self._safe.feed(data))

    def _keep(self, data: bytes) -> None:
        self._log.write(data)
        room = self._most - len(self._head)
        self._head += data[:room]
        self.is_cut = self.is_cut or len(data) > room

    stderr = stdout

    @property
    def head(self) -> str:
        return self._head.decode(errors="replace")

    def close(self) -> str:
        """Returns why the log is incomplete, or ""."""
        self._keep(self._safe.finish())
        self._log.close()
        return self._log.problem
