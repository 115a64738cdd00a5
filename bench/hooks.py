"""Cost of the plugin's hooks, against the bare interpreter that runs them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import ralph
from bench.measure import Measurement, Scratch, scratch

SCRIPTS = Path(ralph.__file__).parent / "plugin" / "hooks" / "scripts"
PYTHON = (sys.executable, "-I", "-S")
BARE = (*PYTHON, "-c", "pass")
READER = (*PYTHON, "-c", "import posix\nwhile posix.read(0, 1 << 16): pass")
MB = 1 << 20
LIMIT = 1.5
REPEAT = 101
ENV = {"CLAUDE_CONTEXT_WINDOW": "1000000000"}


def suite() -> Iterator[Measurement]:
    with scratch() as place:
        output = 'a "line" of output\\\n' * (5 * MB // 20)
        yield after_a_tool(place, 40_000, "hello\n", BARE)
        yield after_a_tool(place, 400_000_000, "hello\n", BARE)
        yield after_a_tool(place, 40_000, output, READER)
        yield after_stop(place)


def after_a_tool(place: Scratch, size: int, output: str, floor: tuple[str, ...]) -> Measurement:
    """The context monitor without an alert, the usual case."""
    transcript = place.path / "transcript.jsonl"
    with open(transcript, "wb") as file:
        file.truncate(size)
    given = {
        "session_id": "bench",
        "transcript_path": str(transcript),
        "cwd": str(place.path),
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "make test"},
        "tool_response": {"stdout": output, "stderr": ""},
    }
    hook = (*PYTHON, str(SCRIPTS / "context_monitor.py"))
    what = f"context monitor, transcript of {size // 1000:,} kB"
    if floor == READER:
        what += f", {len(output) / MB:.0f} MB of tool output"
    whose = "python -I -S -c pass" if floor == BARE else "a bare reader"
    return _against(f"{what}, against {whose}", hook, floor, given, LIMIT)


def after_stop(place: Scratch) -> Measurement:
    """The stop hook without an active loop, as in every ordinary session."""
    hook = (*PYTHON, str(SCRIPTS / "stop_loop_reminder.py"))
    return _against(
        "stop hook without a loop, against python -I -S -c pass", hook, BARE, {"cwd": str(place.path)}
    )


def _against(
    name: str, hook: tuple[str, ...], floor: tuple[str, ...], given: object, limit: float | None = None
) -> Measurement:
    text = json.dumps(given, separators=(",", ":")).encode()
    pairs = [(_run(hook, text), _run(floor, text)) for _ in range(REPEAT)]
    mine, bare = (_median([pair[which] for pair in pairs]) for which in (0, 1))
    ratio = mine.wall / bare.wall
    detail = (
        f"{mine.wall * 1e3:.1f} ms against {bare.wall * 1e3:.1f} ms;"
        f" processor time {mine.cpu * 1e3:.1f} against {bare.cpu * 1e3:.1f} ({mine.cpu / bare.cpu:.2f}×)"
    )
    goal = f"≤ {limit:g}×" if limit else "measured"
    return Measurement(name, goal, ratio, "×", limit is None or ratio <= limit, 1.0, detail)


@dataclass(frozen=True, slots=True)
class Took:
    """Wall-clock and processor seconds of a process."""

    wall: float
    cpu: float


def _run(command: tuple[str, ...], text: bytes) -> Took:
    """Run a hook with this text on stdin."""
    started = time.perf_counter()
    process = subprocess.Popen(command, env=ENV, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(text)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return Took(wall, usage.ru_utime + usage.ru_stime)


def _median(times: list[Took]) -> Took:
    return Took(statistics.median(t.wall for t in times), statistics.median(t.cpu for t in times))
