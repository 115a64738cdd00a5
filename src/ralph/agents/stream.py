"""The common part of all structured streams: lines of JSON, a final message, and how the process ended.

The parser of an agent is a `StreamParser` with one handler in `_handlers` for each type of line. Handlers yield
events and call these methods where they apply:
    _begin   a message starts, so earlier text was not the final message
    _say     the agent wrote text that may be its final message
    _act     the agent did something, so earlier text was not the final message
    _refuse  the provider refuses to serve it
    _fail    it failed, with this error message
    _succeed it reported its result, without an error
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec

from ralph.agents import limits
from ralph.agents.base import AgentReport, Ends, LineText, Reading
from ralph.agents.plain import signal_name
from ralph.core import claims
from ralph.core.events import AgentEvent, Limited, Noise, Text, Todo, TodoItem, Unread
from ralph.core.model import Ended, Exit, LimitKind, Permissions, Purpose, TodoStatus, Usage
from ralph.core.text import clean

MAX_LINE_BYTES = 8 << 20
"""Longer lines are dropped with a note."""

Count = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
Money = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
"""Tokens and US dollars. Larger values cannot be real, and the journal could not hold their sum."""

_SHOWN = 200


Handler = Callable[[Any], Iterable[AgentEvent]]

Line = bytes | memoryview
"""A whole line, usually a view into the data read: lines may be long, and copying them costs more than reading."""


class LineSplitter:
    """Turns bytes that arrive in pieces into whole lines. None means that a line was too long."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Line | None]:
        lines: list[Line | None] = []
        view, start = memoryview(data), 0
        while (end := data.find(b"\n", start)) >= 0:
            lines.append(self._take(data[:end]) if self._size else view[start:end])
            start = end + 1
        self._keep(data[start:])
        return lines

    def finish(self) -> list[Line | None]:
        return [self._take(b"")] if self._size else []

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_LINE_BYTES:
            self._parts = []
        elif data:
            self._parts.append(data)

    def _take(self, data: bytes) -> bytes | None:
        self._keep(data)
        line = b"".join(self._parts) if self._size <= MAX_LINE_BYTES else None
        self._parts, self._size = [], 0
        return line


class StreamParser:
    """Reads an agent that prints one JSON object per line."""

    _editors: Collection[str] = ()
    _shell = ""

    def __init__(self, reading: Reading, decode: Callable[[Line], Any]) -> None:
        self.usage = Usage()
        self.is_over = False
        self.is_refused = False
        self._reading = reading
        self._decode = decode
        self._handlers: Mapping[str, Handler] = {}
        self._lines, self._err = LineSplitter(), LineText()
        self._complaint = Ends()
        self._unread = 0
        self._final = Ends()
        self._has_answered = False
        self._has_succeeded = False
        self._limit: Limited | None = None
        self._failure = ""
        self._writes = _Writes(self._editors, self._shell)

    # ---- called by the driver ----

    def stdout(self, data: bytes) -> Sequence[AgentEvent]:
        return self._read(self._lines.feed(data))

    def stderr(self, data: bytes) -> Sequence[AgentEvent]:
        text = self._err.feed(data)
        self._complaint.add(text)
        return (Noise(text),) if text else ()

    def finish(self, exit: Exit) -> tuple[Sequence[AgentEvent], AgentReport]:
        last = self._read(self._lines.finish())
        if rest := self._err.finish():
            self._complaint.add(rest)
            last.append(Noise(rest))
        if not self._has_succeeded and self._limit is None:
            last += self._limit_by_wording(exit)
        text = clean(self._final.text)
        seen = claims.look(text, self._reading.claim, self._reading.prompt)
        ended = self._ended(exit, seen.claimed)
        retry_at = self._limit.retry_at if self._limit and ended is Ended.LIMIT else None
        return last, AgentReport(
            ended,
            seen.claimed,
            text,
            self.usage,
            retry_at,
            self._detail(ended, exit),
            self._unread,
            seen.unclaimed if self._reading.purpose is Purpose.WORK else "",
        )

    # ---- called by the handlers of an agent ----

    def _begin(self) -> None:
        self._final = Ends()
        self.is_over = self._has_succeeded = False

    def _say(self, text: str) -> None:
        self._has_answered = self._has_answered or bool(text.strip())
        self._final.add(text)

    def _act(self) -> None:
        self._has_answered = True
        self._begin()

    def _refuse(self, kind: LimitKind, text: str, retry_at: float | None = None) -> Limited:
        if retry_at is None:
            retry_at = limits.reset_at(text, self._reading.now())
        self._limit = Limited(kind, text, retry_at)
        return self._limit

    def _fail(self, text: str) -> None:
        self._has_succeeded, self._failure = False, text
        self.is_over = True

    def _succeed(self) -> None:
        self._has_succeeded, self._failure, self._limit = True, "", None
        self.is_over = True

    # ---- internals ----

    def _read(self, lines: list[Line | None]) -> list[AgentEvent]:
        events: list[AgentEvent] = []
        for line in lines:
            if line is None:
                events.append(self._unreadable(b"", f"longer than {MAX_LINE_BYTES >> 20} MB"))
            elif line:
                try:
                    events += self._events(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    if text := bytes(line).strip():
                        events.append(self._unreadable(text, str(error)))
        return events

    def _events(self, line: Line) -> Iterable[AgentEvent]:
        """The events of one line. Raises msgspec.DecodeError if it cannot be read."""
        found = self._decode(line)
        handler = self._handlers.get(found.type)
        if handler is None:
            raise msgspec.DecodeError(f"unknown type {found.type!r}")
        return handler(found)

    def _unreadable(self, line: bytes, why: str) -> Unread:
        self._unread += 1
        return Unread(line[:_SHOWN].decode(errors="replace"), why)

    def _limit_by_wording(self, exit: Exit) -> Iterator[AgentEvent]:
        """A limit by its wording: the last resort, only after a failure and only from its error messages."""
        if exit.ended is not None or exit.signal is not None or not (exit.code or self._failure):
            return
        words = self._failure or clean(self._complaint.text)[-2000:]
        if kind := limits.by_wording(words):
            yield self._refuse(kind, words.strip()[:500])

    def _ended(self, exit: Exit, claim: bool) -> Ended:
        if self._has_succeeded:
            if self._reading.purpose is Purpose.WORK and self._writes.are_denied(claim):
                return Ended.DENIED
            return Ended.OK if self._has_answered else Ended.EMPTY
        if self._limit is not None:
            return self._limit.kind.ended
        return Ended.FAILED if exit.signal is None else Ended.KILLED

    def _detail(self, ended: Ended, exit: Exit) -> str:
        if ended is Ended.DENIED:
            return self._writes.advice(self._reading.spec.permissions)
        if ended in (Ended.OK, Ended.EMPTY):
            return ""
        if self._limit is not None:
            return self._limit.text
        if self._failure:
            return self._failure
        if exit.signal is not None:
            return f"by signal {exit.signal} ({signal_name(exit.signal)})"
        lines = clean(self._complaint.text).strip().splitlines()
        errors = [line for line in lines if line.casefold().startswith("error:")]
        return (errors or lines or ["exited without a result"])[-1][:500]


class _Writes:
    """Counts the agent's attempts to change something with these edit tools and this shell."""

    def __init__(self, editors: Collection[str], shell: str) -> None:
        self._editors, self._shell = editors, shell
        self.done = 0
        self.silent_commands = 0
        self.denied_edits: list[str] = []
        self.denied_commands: list[str] = []

    def deny(self, tool: str) -> None:
        if tool in self._editors:
            self.denied_edits.append(tool)
        elif tool == self._shell:
            self.denied_commands.append(tool)

    def are_denied(self, claim: bool) -> bool:
        """Whether nothing was changed because the attempts were denied.

        A denied command may only have inspected finished work, so after a claim the checks decide. A command that
        succeeded and printed nothing did not inspect anything: it may have changed something.
        """
        commands = self.denied_commands and not self.silent_commands and not claim
        return not self.done and bool(self.denied_edits or commands)

    def advice(self, permissions: Permissions) -> str:
        more = "bypass" if permissions is Permissions.EDIT else "edit"
        tools = ", ".join(dict.fromkeys(self.denied_edits + self.denied_commands))
        return (
            f"every change the agent tried was denied ({tools}): "
            f'set "agent": {{"permissions": "{more}"}}, or allow these tools in "flags"'
        )


def seconds_of(timestamp: str | None) -> float | None:
    """An ISO timestamp as seconds since 1970."""
    if not timestamp:
        return None
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except (ValueError, OverflowError):
        return None


def whole(text: str, *, thinking: bool = False, at: float | None = None) -> Text:
    """A complete message, which ends its line."""
    return Text(text if text.endswith("\n") else f"{text}\n", thinking, at)


def todo_list(values: Any, text: str = "content") -> Todo | None:
    """A tool's whole task list without cancelled entries. `text` is the key of an entry's text."""
    todos = values.get("todos") if isinstance(values, dict) else None
    if not isinstance(todos, list):
        return None
    items = [item for item in todos if isinstance(item, dict) and item.get("status") != "cancelled"]
    return Todo(tuple(TodoItem(str(item.get(text, "")), todo_status(item.get("status"))) for item in items))


def todo_status(value: object, otherwise: TodoStatus = TodoStatus.PENDING) -> TodoStatus:
    """The status of an entry. `blocked` and unknown values count as `otherwise`."""
    return next((status for status in TodoStatus if status == value), otherwise)
