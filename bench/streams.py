"""Parsing and rendering agent output: from a pipe to typed events, from events to lines."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from bench.measure import Measurement, alternate
from ralph.agents.base import Parser, Reading
from ralph.agents.registry import AGENTS
from ralph.core.events import AgentEvent
from ralph.views.agent import AgentLines, ViewOptions

SOURCES = Path(os.__file__).parent
SIZE = 32 << 20
CHUNK = 1 << 20
PIPE_BYTES = 1 << 18
"""The size of the pipes of a run."""


def suite() -> Iterator[Measurement]:
    yield parsing("claude", claude_session())
    yield parsing("codex", codex_session())
    yield rendering()


def claude_session(size: int = SIZE, most: int = 1 << 20) -> bytes:
    """A long session of text, file reads and their results, which Claude Code prints twice."""
    lines: list[object] = []
    for number, text in enumerate(each[:most] for each in files()):
        call, common = f"toolu_{number:024}", {"session_id": "0" * 36, "uuid": "1" * 36}
        usage = {"input_tokens": 12013, "cache_read_input_tokens": 0, "output_tokens": 1}
        for block in (
            {"type": "text", "text": "Now I read the next file, to see how it does that."},
            {"type": "tool_use", "id": call, "name": "Read", "input": {"file_path": f"/src/{number}.py"}},
        ):
            message = {"id": f"msg_{number:024}", "role": "assistant", "content": [block], "usage": usage}
            lines.append({"type": "assistant", "message": message, "parent_tool_use_id": None, **common})
        result = {"tool_use_id": call, "type": "tool_result", "content": text}
        message = {"role": "user", "content": [result]}
        read = {"type": "text", "file": {"filePath": f"/src/{number}.py", "content": text}}
        lines.append({"type": "user", "message": message, **common, "tool_use_result": read})
        size -= 2 * len(text)
        if size < 0:
            break
    lines.append(
        {"type": "result", "is_error": False, "result": "done", "total_cost_usd": 1.0, "usage": usage}
    )
    return encoded(lines)


def codex_session() -> bytes:
    lines: list[object] = [{"type": "turn.started"}]
    size = 0
    for number, text in enumerate(files()):
        item = {
            "id": f"item_{number}",
            "type": "command_execution",
            "command": f"/bin/bash -lc 'cat {number}'",
        }
        begun = item | {"aggregated_output": "", "exit_code": None, "status": "in_progress"}
        ended = item | {"aggregated_output": text, "exit_code": 0, "status": "completed"}
        lines += [{"type": "item.started", "item": begun}, {"type": "item.completed", "item": ended}]
        size += len(text)
        if size > SIZE:
            break
    return encoded([*lines, {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}}])


def files() -> Iterator[str]:
    """Texts an agent might read: the source files of Python's standard library."""
    return cycle([path.read_text() for path in sorted(SOURCES.glob("*.py"))])


def encoded(lines: list[object]) -> bytes:
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def parsing(agent: str, data: bytes) -> Measurement:
    """From a pipe to typed events, against `json.loads` of the same lines in memory."""
    lines = data.splitlines()

    def floor() -> float:
        started = time.perf_counter()
        for line in lines:
            json.loads(line)
        return time.perf_counter() - started

    def ours() -> float:
        reader, child = _writer(data)
        started = time.perf_counter()
        events = sum(len(events) for events in _events(AGENTS[agent].parser(Reading()), reader))
        took = time.perf_counter() - started
        os.close(reader)
        os.waitpid(child, 0)
        assert events > len(lines) // 2
        return took

    mine, plain = alternate(ours, floor, 5)
    speed = f"{len(data) / mine / 1e6:.0f} MB/s against {len(data) / plain / 1e6:.0f}, {len(lines):,} lines"
    ratio = plain / mine
    return Measurement(
        f"{agent}: pipe to events, against json", "≥ 2.5×", ratio, "×", ratio >= 2.5, 1.0, speed
    )


def _events(parser: Parser, reader: int) -> Iterator[list[AgentEvent]]:
    while data := os.read(reader, CHUNK):
        yield list(parser.stdout(data))


def _writer(data: bytes) -> tuple[int, int]:
    """Fork a process that writes the data into a pipe; return the reading end and the pid."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    child = os.fork()
    if child == 0:
        os.close(reader)
        with open(writer, "wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest[:CHUNK]) :]
        os._exit(0)
    os.close(writer)
    return reader, child


def rendering() -> Measurement:
    """Cost of rendering one line of agent output: emoji, colours, outputs of 4 kB that are cut."""
    parser = AGENTS["claude"].parser(Reading())
    events = list(parser.stdout(claude_session(8 << 20, most=4000)))
    lines = AgentLines(ViewOptions(emoji=True, colour=True))
    started = time.perf_counter()
    shown = sum(lines(event, 0.0).count("\n") for event in events)
    micro = (time.perf_counter() - started) / shown * 1e6
    detail = f"{len(events):,} events made {shown:,} lines"
    return Measurement(
        "one line of agent output, rendered", "≤ 10 µs", micro, "µs", micro <= 10, None, detail
    )
