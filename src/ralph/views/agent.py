"""Agent events as lines of text: tools and their results, task lists, totals."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ralph.core.events import (
    AgentError,
    AgentProgress,
    Limited,
    Noise,
    Result,
    Retry,
    Text,
    Todo,
    ToolEnd,
    ToolStart,
    Unread,
)
from ralph.core.model import LimitKind, TodoStatus, Usage
from ralph.core.text import clean

COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class ViewOptions(Struct, frozen=True):
    """Display options. `stream`: show agent output. `verbose`: show everything else too.

    Emoji and colour are None if they depend on the terminal.
    """

    stream: bool = True
    verbose: bool = False
    emoji: bool | None = None
    colour: bool | None = None
    timestamp: bool = False
    max_lines: int = 5
    max_chars: int = 2000


class _Marks(Struct, frozen=True):
    tool: str
    ok: str
    error: str
    end: str
    back: str
    output: str
    todo: str
    states: dict[TodoStatus, str]
    active: str
    progress: str
    limit: str
    retry: str


_EMOJI = _Marks(
    tool="⏺ ",
    ok="✅ ",
    error="❌ ",
    end="■ ",
    back="←",
    output="⎿ ",
    todo="📋 ",
    states={TodoStatus.DONE: "✅", TodoStatus.ACTIVE: "🔄", TodoStatus.PENDING: "⏸️"},
    active=" ← ACTIVE",
    progress="📊 ",
    limit="⏳ ",
    retry="🔁 ",
)
_TEXT = _Marks(
    tool="[TOOL] ",
    ok="[OK] ",
    error="[ERR] ",
    end="[END] ",
    back="<-",
    output="| ",
    todo="[TODO] ",
    states={TodoStatus.DONE: "[x]", TodoStatus.ACTIVE: "[>]", TodoStatus.PENDING: "[ ]"},
    active=" <- ACTIVE",
    progress="",
    limit="[LIMIT] ",
    retry="[RETRY] ",
)

_TODO_TOOLS = {
    "TodoWrite",
    "TaskCreate",
    "TaskUpdate",
    "todowrite",
    "todo_write",
    "write_todos",
    "update_plan",
}
_TELLING = (
    *("file_path", "filePath", "notebook_path", "absolute_path", "path", "command", "cmd", "pattern"),
    *("query", "url", "subject", "description", "prompt", "name"),
)
_MAX_SUMMARY = 120
_MAX_KEPT = 10_000

_LIMITS = {
    LimitKind.USAGE: "Usage limit",
    LimitKind.RATE: "Rate limit",
    LimitKind.OVERLOAD: "Overloaded",
    LimitKind.CREDIT: "Out of credit",
    LimitKind.AUTH: "Not logged in",
}


class AgentLines:
    """Turns the events of consecutive agent processes into text; call `begin` before each."""

    def __init__(self, look: ViewOptions) -> None:
        self._look = look
        self._marks = _EMOJI if look.emoji else _TEXT
        self._handlers: dict[type[Any], Callable[[Any], str]] = {
            Text: self._text,
            Noise: self._noise,
            ToolStart: self._tool_start,
            ToolEnd: self._tool_end,
            Todo: self._todo,
            AgentProgress: self._progress,
            Result: self._result,
            Limited: self._limited,
            Retry: self._retry,
            AgentError: self._problem,
            Unread: self._unread,
        }
        self.begin(0.0)

    def begin(self, at: float) -> None:
        self._began = self._at = at
        self._running: dict[str, str] = {}
        self._tools = self._errors = 0

    @property
    def current(self) -> str:
        """The tool that is running now."""
        return next(reversed(self._running.values()), "")

    def __call__(self, event: Any, at: float) -> str:
        """The event as whole lines, or "" if it is not shown."""
        self._at = at
        text = self._handlers[type(event)](event)
        if not text or not self._look.timestamp:
            return text
        stamp = time.strftime("[%H:%M:%S] ", time.localtime(at))
        body = text[:-1] if text.endswith("\n") else text
        return stamp + body.replace("\n", f"\n{stamp}") + text[len(body) :]

    # ---- one kind of event each ----

    def _text(self, event: Text) -> str:
        text = clean(event.text)
        return self._paint("dim", text) if event.thinking else text

    def _noise(self, event: Noise) -> str:
        return self._paint("dim", clean(event.text))

    def _tool_start(self, event: ToolStart) -> str:
        self._tools += 1
        name = clean(event.name)
        summary = _summary(event.input.value)
        if len(self._running) < _MAX_KEPT:
            self._running[event.id] = f"{name}({summary})"
        if event.name in _TODO_TOOLS:
            return ""
        inside = "  " if event.inside else ""
        return f"{inside}{self._paint('cyan', self._marks.tool)}{self._paint('bold', name)}({summary})\n"

    def _tool_end(self, event: ToolEnd) -> str:
        called = self._running.pop(event.id, "")
        name = called.partition("(")[0]
        self._errors += event.is_error
        if name in _TODO_TOOLS and not event.is_error:
            return ""
        text = event.output.text
        what = (
            self._paint("red", f"{self._marks.error}Error") if event.is_error else f"{self._marks.ok}Result"
        )
        of = f" {self._marks.back} {name}" if name else ""
        lines = text.count("\n") + (not text.endswith("\n")) if text else 0
        head = f"{what}{of} ({count(lines, 'line')}, {count(len(text), 'char')})\n"
        return head + self._preview(text)

    def _preview(self, text: str) -> str:
        """The start of an output, made harmless. The rest is not even processed."""
        max_lines, max_chars = self._look.max_lines or len(text), self._look.max_chars or len(text)
        lines = clean("\n".join(text[: 2 * max_chars].split("\n", max_lines)[:max_lines])).splitlines()
        shown, room = [], max_chars
        for line in lines:
            if room <= 0:
                break
            shown.append(line[:room])
            room -= len(line)
        if not any(line.strip() for line in shown):
            return ""
        first, *rest = shown
        body = "\n".join([f"  {self._marks.output} {first}", *(f"     {line}" for line in rest)])
        return f"{self._paint('dim', body)}\n"

    def _todo(self, event: Todo) -> str:
        marks = self._marks
        lines = ["", f"{marks.todo}Todo List"]
        for item in event.items:
            active = marks.active if item.status is TodoStatus.ACTIVE else ""
            lines.append(f"  {marks.states[item.status]} {_one_line(item.text)}{active}")
        done, of = sum(item.status is TodoStatus.DONE for item in event.items), len(event.items)
        percent = f" ({100 * done // of}%)" if of else ""
        return "\n".join([*lines, f"  {marks.progress}Progress: {done}/{of}{percent}", "", ""])

    def _progress(self, event: AgentProgress) -> str:
        return self._paint("dim", f"{_one_line(event.text)}\n")

    def _result(self, event: Result) -> str:
        self._running.clear()
        facts = [*usage_facts(event.usage), f"tools: {self._tools}", f"errors: {self._errors}"]
        facts.append(f"time: {duration(max(0.0, (event.at or self._at) - self._began))}")
        if event.is_error:
            return "\n" + self._paint("red", f"{self._marks.error}Agent failed ({', '.join(facts)})\n")
        return "\n" + self._paint("dim", f"{self._marks.end}Agent finished ({', '.join(facts)})\n")

    def _limited(self, event: Limited) -> str:
        return self._paint("yellow", f"{self._marks.limit}{_LIMITS[event.kind]}: {_one_line(event.text)}\n")

    def _retry(self, event: Retry) -> str:
        count = f" {event.attempt}/{event.of}" if event.of else ""
        wait = "" if event.seconds is None else f" in {duration(event.seconds)}"
        return self._paint("yellow", f"{self._marks.retry}Retry{count}{wait}: {_one_line(event.why)}\n")

    def _problem(self, event: AgentError) -> str:
        return self._paint("red", f"{self._marks.error}{_one_line(event.text)}\n")

    def _unread(self, event: Unread) -> str:
        if not self._look.verbose:
            return ""
        return self._paint("dim", f"[ralph] Unknown line ({_one_line(event.why)}): {_one_line(event.line)}\n")

    def _paint(self, colour: str, text: str) -> str:
        return paint(colour, text) if self._look.colour else text


def paint(colour: str, text: str) -> str:
    """The text in a colour; a newline at its end stays outside."""
    if not text:
        return text
    body, newline = (text[:-1], "\n") if text.endswith("\n") else (text, "")
    return f"\x1b[{COLOURS[colour]}m{body}\x1b[0m{newline}"


def _summary(value: Any) -> str:
    """A short summary of a tool's input."""
    if isinstance(value, dict):
        told = next((value[key] for key in _TELLING if value.get(key)), None)
        if told is None:
            told = next((each for each in value.values() if each), "")
        value = told
    if isinstance(value, list):
        value = " ".join(_summary(each) for each in value[:20])
    text = _one_line(str(value)) if value is not None else ""
    return text if len(text) <= _MAX_SUMMARY else f"{text[: _MAX_SUMMARY - 1]}…"


def _one_line(text: str) -> str:
    return " ".join(clean(text[:2000]).split())


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def usage_facts(usage: Usage) -> list[str]:
    """Cost only if the agent reports it: `cost: $5.76`, `tokens: 1.2M in (850K cached) / 45K out`."""
    facts = [f"cost: ${usage.cost_usd:.2f}"] if usage.cost_usd else []
    if usage.tokens:
        cached = f" ({short(usage.cache_read_tokens)} cached)" if usage.cache_read_tokens else ""
        read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        facts.append(f"tokens: {short(read)} in{cached} / {short(usage.output_tokens)} out")
    return facts


def short(number: int) -> str:
    """1234567 as 1.2M, 850000 as 850K, 999 as it is."""
    for size, unit in ((1_000_000, "M"), (1_000, "K")):
        if number >= size:
            return f"{number / size:.1f}".removesuffix(".0") + unit
    return str(number)


def duration(seconds: float) -> str:
    """A duration as people say it: 0.4s, 12s, 3m5s, 2h10m."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest}s" if minutes else f"{rest}s"
    return f"{minutes // 60}h{minutes % 60}m"
