"""Readers of agent and check output: redact it, write it to a file, pass it on."""

from __future__ import annotations

from collections.abc import Callable

from ralph.agents.base import Parser
from ralph.core.command_output import CommandOutput, Gap
from ralph.core.events import Event, UsageReported
from ralph.core.text import clean
from ralph.redact import Redactor, Secrets
from ralph.store.runtime import Capped
from ralph.store.streams import STDERR, STDOUT, Stream

MAX_HEAD_BYTES, MAX_TAIL_BYTES = 1 << 20, 3 << 20
"""How much of the start and of the end of a check's output is kept for the prompt; the log has all of it."""

_CONTINUATION = bytes(range(0x80, 0xC0))
"""The bytes of a UTF-8 character after its first one."""

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
    """Writes check output to its log and keeps its start and its end for the prompt."""

    def __init__(self, log: Capped, limit: int, secrets: Secrets) -> None:
        self._log = log
        self._safe = Redactor(secrets)
        self._kept = HeadAndTail(max(MAX_HEAD_BYTES, 4 * limit), max(MAX_TAIL_BYTES, 8 * limit))

    def stdout(self, data: bytes) -> None:
        self._keep(self._safe.feed(data))

    def _keep(self, data: bytes) -> None:
        self._log.write(data)
        self._kept.write(data)

    stderr = stdout

    def output(self) -> CommandOutput:
        """What was printed, without escape sequences."""
        return self._kept.output()

    def close(self) -> str:
        """Returns why the log is incomplete, or ""."""
        self._keep(self._safe.finish())
        self._log.close()
        return self._log.problem


class HeadAndTail:
    """The first and the last bytes of a stream, and how many lines and characters it has in all."""

    def __init__(self, max_head: int, max_tail: int) -> None:
        self._max_head, self._max_tail = max_head, max_tail
        self._head, self._tail = bytearray(), bytearray()
        self._bytes = self._lines = self._characters = 0

    def write(self, data: bytes) -> None:
        self._bytes += len(data)
        self._lines += data.count(b"\n")
        self._characters += _characters(data)
        room = self._max_head - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._max_tail:
            del self._tail[: -self._max_tail]

    def output(self) -> CommandOutput:
        head, tail = bytes(self._head), bytes(self._tail[-self._max_tail :])
        if len(head) + len(tail) == self._bytes:
            return CommandOutput(_text(head + tail))
        head_end = head.rfind(b"\n", len(head) // 2) + 1
        tail_start = tail.find(b"\n", 0, len(tail) // 2) + 1
        head = head[: head_end or None]
        tail = tail[tail_start:] if tail_start else tail.lstrip(_CONTINUATION)
        lines = self._lines - head.count(b"\n") - tail.count(b"\n")
        characters = self._characters - _characters(head) - _characters(tail)
        gap = Gap(lines if head_end and tail_start else 0, characters)
        return CommandOutput(_text(head), _text(tail), gap)


def _characters(data: bytes) -> int:
    return len(data.translate(None, _CONTINUATION))


def _text(data: bytes) -> str:
    return clean(data.decode(errors="replace"))
