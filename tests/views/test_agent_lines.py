"""Agent activity as lines for people: the format, its settings, and the status line."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from ralph.core.events import (
    AgentError,
    AgentEvent,
    AgentProgress,
    Body,
    Limited,
    Noise,
    Result,
    Retry,
    Text,
    Todo,
    TodoItem,
    ToolEnd,
    ToolStart,
    Unread,
)
from ralph.core.model import LimitKind, TodoStatus, Usage
from ralph.views.agent import AgentLines, ViewOptions

EMOJI = ViewOptions(emoji=True, colour=False)
PLAIN = ViewOptions(emoji=False, colour=False)


def body(value: Any) -> Body:
    return Body(json.dumps(value).encode())


def start(name: str, id: str = "1", inside: str = "", **values: Any) -> ToolStart:
    return ToolStart(id, name, body(values), inside)


def end(output: Any, id: str = "1", *, is_error: bool = False) -> ToolEnd:
    return ToolEnd(id, body(output), is_error)


def show(events: Iterable[AgentEvent], look: ViewOptions = EMOJI) -> str:
    lines = AgentLines(look)
    lines.begin(1000.0)
    return "".join(lines(event, 1367.0) for event in events)


FILE = "package main\n" + "x" * 1177 + "\n" * 44

TODO = Todo(
    (
        TodoItem("Read the file", TodoStatus.DONE),
        TodoItem("Edit the code", TodoStatus.ACTIVE),
        TodoItem("Run tests", TodoStatus.PENDING),
    )
)


def test_the_documented_format() -> None:
    """Tools with their results, the task list and the totals look as documented."""
    errors = [each for id in range(4) for each in (start("Bash", str(id)), end("", str(id), is_error=True))]
    tools = [each for id in range(4, 57) for each in (start("Bash", str(id)), end("", str(id)))]
    usage = Usage(5.76, 350_000, 45_000, 850_000)
    read = start("Read", "x", file_path="/path/to/file.go")
    shown = show([read, end(FILE, "x"), TODO], replace(EMOJI, max_lines=1))
    assert shown == (
        "⏺ Read(/path/to/file.go)\n"
        "✅ Result ← Read (45 lines, 1234 chars)\n"
        "  ⎿  package main\n"
        "\n"
        "📋 Todo List\n"
        "  ✅ Read the file\n"
        "  🔄 Edit the code ← ACTIVE\n"
        "  ⏸️ Run tests\n"
        "  📊 Progress: 1/3 (33%)\n"
        "\n"
    )
    totals = show([*errors, *tools, start("Read", "x"), Result(usage)]).rpartition("\n\n")[2]
    assert totals == (
        "■ Agent finished (cost: $5.76, tokens: 1.2M in (850K cached) / 45K out, tools: 58, errors: 4, time: 6m7s)\n"
    )


def test_text_markers() -> None:
    """Without emoji, the output uses ASCII text markers."""
    shown = show(
        [
            start("Read", file_path="a.go"),
            end("package main"),
            start("Bash", command="make\ntest"),
            end("no rule", is_error=True),
            TODO,
            Limited(LimitKind.USAGE, "You've hit your limit"),
            Retry("overloaded", 2, 10, 1.5),
            AgentError("it broke"),
            Result(Usage(), is_error=True),
        ],
        PLAIN,
    )
    assert shown == (
        "[TOOL] Read(a.go)\n"
        "[OK] Result <- Read (1 line, 12 chars)\n"
        "  |  package main\n"
        "[TOOL] Bash(make test)\n"
        "[ERR] Error <- Bash (1 line, 7 chars)\n"
        "  |  no rule\n"
        "\n"
        "[TODO] Todo List\n"
        "  [x] Read the file\n"
        "  [>] Edit the code <- ACTIVE\n"
        "  [ ] Run tests\n"
        "  Progress: 1/3 (33%)\n"
        "\n"
        "[LIMIT] Usage limit: You've hit your limit\n"
        "[RETRY] Retry 2/10 in 1.5s: overloaded\n"
        "[ERR] it broke\n"
        "\n"
        "[ERR] Agent failed (tools: 2, errors: 1, time: 6m7s)\n"
    )


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (Usage(), ""),
        (Usage(0.004), "cost: $0.00, "),
        (Usage(input_tokens=999, output_tokens=1), "tokens: 999 in / 1 out, "),
        (Usage(0.0, 1_000, 1_500, 0, 500), "tokens: 1.5K in / 1.5K out, "),
        (Usage(12.5, 10, 2_000_000, 20), "cost: $12.50, tokens: 30 in (20 cached) / 2M out, "),
    ],
)
def test_unreported_usage_is_not_shown(usage: Usage, told: str) -> None:
    """Cost and tokens are shown as the agent reports them, and left out otherwise."""
    assert show([Result(usage)]) == f"\n■ Agent finished ({told}tools: 0, errors: 0, time: 6m7s)\n"


@pytest.mark.parametrize(
    ("values", "summary"),
    [
        ({"file_path": "/a/b", "content": "x" * 999}, "/a/b"),
        ({"filePath": "b.txt"}, "b.txt"),
        ({"command": "ls\n  -la"}, "ls -la"),
        ({"command": ["bash", "-lc", "ls"]}, "bash -lc ls"),
        ({"changes": [{"path": "a", "kind": "add"}, {"path": "b", "kind": "update"}]}, "a b"),
        ({"pattern": "def .*", "path": "src"}, "src"),
        ({"odd": 7}, "7"),
        ({}, ""),
        ({"query": "y" * 200}, "y" * 119 + "…"),
        ({"command": "printf '\x1b[31m\x07'"}, "printf '�'"),
    ],
)
def test_tool_arguments(values: dict[str, Any], summary: str) -> None:
    """The most useful argument is shown on one line, shortened and cleaned."""
    assert show([ToolStart("1", "Tool", body(values))]) == f"⏺ Tool({summary})\n"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b'"one"', "  ⎿  one\n"),
        (b'[{"type":"text","text":"one"},{"type":"image"}]', "  ⎿  one\n     [image]\n"),
        (b'{"a":1}', '  ⎿  {"a": 1}\n'),
        (b"null", ""),
        (b'" \\n"', ""),
        (b'"broken', '  ⎿  "broken\n'),
    ],
)
def test_any_output_can_be_shown(raw: bytes, shown: str) -> None:
    """Strings, content blocks, objects, empty output and garbage all have a readable form."""
    text = show([ToolEnd("1", Body(raw))])
    assert text.partition("\n")[2] == shown


@pytest.mark.parametrize(
    ("lines", "chars", "shown"),
    [
        (2, 0, "  ⎿  a\n     b\n"),
        (0, 0, "  ⎿  a\n     b\n     cccc\n"),
        (0, 4, "  ⎿  a\n     b\n     cc\n"),
        (5, 1, "  ⎿  a\n"),
    ],
)
def test_the_length_of_shown_output(lines: int, chars: int, shown: str) -> None:
    """The settings limit lines and characters (0: no limit)."""
    text = show([end("a\nb\ncccc")], replace(EMOJI, max_lines=lines, max_chars=chars))
    assert text.partition("\n")[2] == shown


def test_timestamps() -> None:
    """Each line starts with the time if that is configured."""
    at = time.mktime((2026, 1, 2, 3, 4, 5, 0, 0, -1))
    lines = AgentLines(replace(EMOJI, timestamp=True))
    assert lines(Text("one\ntwo\n"), at) == "[03:04:05] one\n[03:04:05] two\n"
    assert lines(end("out"), at).count("[03:04:05] ") == 2
    assert lines(Unread("x", "y"), at) == ""


def test_task_lists_are_not_shown_twice() -> None:
    """A call of a task tool shows the list instead of the call, but its errors are shown."""
    called = start("TodoWrite", todos=[])
    assert show([called, end("ok")]) == ""
    assert show([called, end("no such tool", is_error=True)]).startswith("❌ Error ← TodoWrite")


def test_a_subagent_is_indented() -> None:
    """Calls inside another tool are indented."""
    assert show([start("Bash", inside="7", command="ls")]) == "  ⏺ Bash(ls)\n"


def test_unknown_lines_are_shown_in_verbose_mode() -> None:
    """An unknown line is shown in verbose mode only."""
    event = Unread('{"type":"new"}', "unknown type 'new'")
    assert show([event]) == ""
    assert show([event], replace(EMOJI, verbose=True)) == (
        '[ralph] Unknown line (unknown type \'new\'): {"type":"new"}\n'
    )


def test_the_current_tool() -> None:
    """The newest unfinished tool is the current one."""
    lines = AgentLines(EMOJI)
    for event in (start("Task", "1", prompt="look"), start("Bash", "2", command="make"), end("", "2")):
        lines(event, 0.0)
    assert lines.current == "Task(look)"
    lines(Result(Usage()), 0.0)
    assert lines.current == ""


EVIL = "\x1b]0;t\x07\u009b31m\u202e\x7f"


@pytest.mark.parametrize(
    "event",
    [
        Text(EVIL),
        Noise(EVIL),
        start(EVIL, path=EVIL),
        end(EVIL),
        Todo((TodoItem(EVIL, TodoStatus.ACTIVE),)),
        AgentProgress(EVIL),
        Limited(LimitKind.RATE, EVIL),
        Retry(EVIL),
        AgentError(EVIL),
        Unread(EVIL, EVIL),
    ],
    ids=lambda event: type(event).__name__,
)
def test_nothing_raw_reaches_a_terminal(event: AgentEvent) -> None:
    """No escape or override character of an agent gets through, whatever the event."""
    shown = show([event], replace(EMOJI, verbose=True))
    assert not set(shown) & set("\x1b\x07\u009b\u202e\x7f")
