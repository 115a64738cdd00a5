"""Fault O6: damaged recordings of streams. Every one is read to its end, shown and journalled.

`RALPH_FAULT_RUNS=100` makes 10,000 of them; `RALPH_FAULT_SEED` repeats a failure.
"""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agents.test_decoys import SHAPES
from faults.fault_support import REPEATED, RUNS, seeded
from ralph.agents.base import AgentReport, Reading
from ralph.agents.registry import AGENTS
from ralph.core.events import AgentEnded, AgentEvent, Text, UsageReported
from ralph.core.model import AgentSpec, Ended, Exit, Permissions, Purpose, Ran
from ralph.store import codec
from ralph.views.agent import AgentLines, ViewOptions
from ralph.views.jsonl import JsonLines
from ralph.views.writer import DirectWriter

STREAMS = Path(__file__).parent / "streams"
EACH = 100 * RUNS // len(SHAPES)
TAG = "<response>DONE</response>"
SAID_AGAIN = re.compile(rb'"result": ?"[^"]*<response>DONE', re.IGNORECASE)

VALUES: list[Any] = [None, True, 0, -1, 3.5, "", "x", [], {}, [[]], {"type": "text"}, ["result"], "\x1b[2J\0"]
NUMBERS = ["9" * 400, "-" + "9" * 30, "18446744073709551616", "1e308", "-1e308", "1e999", "0.1e-999", "-0"]
DEPTHS = (90, 400, 900, 5_000, 200_000)
RUBBISH = [b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\xf0\x9f", b"\0", b"\x1b]0;x\x07", "\u202e".encode()]
EXITS = [Exit(0), Exit(1), Exit(255), Exit(signal=9), Exit(143, ended=Ended.IDLE), Exit(0, ended=Ended.OK)]


# ---- ways to damage a stream ----


def flip_bytes(chance: random.Random, data: bytes) -> bytes:
    damaged = bytearray(data)
    for _ in range(chance.randint(1, 20) if data else 0):
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def cut(chance: random.Random, data: bytes) -> bytes:
    start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return chance.choice([data[:start], data[end:], data[:start] + data[end:]])


def lose_lines(chance: random.Random, data: bytes) -> bytes:
    return b"".join(line for line in data.splitlines(keepends=True) if chance.random() > 0.3)


def repeat_lines(chance: random.Random, data: bytes) -> bytes:
    return b"".join(line * chance.choice([1, 1, 2, 5]) for line in data.splitlines(keepends=True))


def reorder_lines(chance: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


def join_lines(chance: random.Random, data: bytes) -> bytes:
    return b"".join(line + chance.choice([b"\n", b"\n", b""]) for line in data.splitlines())


def split_lines(chance: random.Random, data: bytes) -> bytes:
    place = chance.randrange(len(data) + 1)
    return data[:place] + b"\n" + data[place:]


def insert_rubbish(chance: random.Random, data: bytes) -> bytes:
    for _ in range(chance.randint(1, 5)):
        place = chance.randrange(len(data) + 1)
        data = data[:place] + chance.choice(RUBBISH) + data[place:]
    return data


def change_values(chance: random.Random, data: bytes) -> bytes:
    return _replaced(chance, data, lambda: json.dumps(chance.choice(VALUES)))


def change_numbers(chance: random.Random, data: bytes) -> bytes:
    return _replaced(chance, data, lambda: chance.choice(NUMBERS), only=(int, float))


def nest_deeply(chance: random.Random, data: bytes) -> bytes:
    depth, (left, right) = chance.choice(DEPTHS), chance.choice([("[", "]"), ('{"a":', "}")])
    return _replaced(chance, data, lambda: left * depth + "1" + right * depth)


def _replaced(
    chance: random.Random, data: bytes, value: Callable[[], str], only: tuple[type, ...] = (object,)
) -> bytes:
    """The stream with one to three values in some lines replaced by JSON text."""
    lines = data.splitlines(keepends=True)
    for _ in range(chance.randint(1, 3) if lines else 0):
        number = chance.randrange(len(lines))
        try:
            line = json.loads(lines[number])
            places = _places(line, only)
        except (ValueError, RecursionError):
            continue
        if places:
            inside, key = chance.choice(places)
            inside[key] = "@replaced@"
            lines[number] = json.dumps(line).replace('"@replaced@"', value()).encode() + b"\n"
    return b"".join(lines)


def _places(value: Any, only: tuple[type, ...]) -> list[tuple[Any, Any]]:
    """The positions of values of these types, at any depth."""
    if isinstance(value, dict):
        keys: Any = list(value)
    elif isinstance(value, list):
        keys = range(len(value))
    else:
        return []
    here = [(value, key) for key in keys if isinstance(value[key], only)]
    return here + [place for key in keys for place in _places(value[key], only)]


WAYS = (
    flip_bytes,
    cut,
    lose_lines,
    repeat_lines,
    reorder_lines,
    join_lines,
    split_lines,
    insert_rubbish,
    change_values,
    change_numbers,
    nest_deeply,
)


# ---- reading them ----


@cache
def streams(name: str) -> dict[str, bytes]:
    """The recorded streams of an agent; Amp's have the same shape as Claude Code's."""
    prefix = {"amp": "claude"}.get(name, name)
    found = {path.name: path.read_bytes() for path in sorted(STREAMS.glob(f"{prefix}_*.ndjson"))}
    assert len(found) > 5
    return found


def read(name: str, pieces: list[bytes], stderr: bytes, exit: Exit) -> tuple[list[AgentEvent], AgentReport]:
    spec = AgentSpec(name, name, name, permissions=Permissions.NONE)
    parser = AGENTS[name].parser(Reading(spec=spec, now=lambda: 1794783600.0))
    events = [event for piece in pieces for event in parser.stdout(piece)]
    events += parser.stderr(stderr)
    assert isinstance(parser.is_over, bool)
    last, report = parser.finish(exit)
    return [*events, *last], report


def in_pieces(chance: random.Random, data: bytes) -> list[bytes]:
    places = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice([0, 1, 10])))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def show(events: list[AgentEvent], report: AgentReport) -> None:
    """As people and programs see it, and as the journal stores it."""
    ran = Ran(1.0, report.ended, claim=report.claim, usage=report.usage, retry_at=report.retry_at)
    lines, out = AgentLines(ViewOptions(verbose=True, emoji=True, colour=True, timestamp=True)), io.StringIO()
    tell = JsonLines(DirectWriter(out))
    lines.begin(1.0)
    for event in events:
        assert isinstance(lines(event, 2.0), str)
        tell(event)
    tell(UsageReported(report.usage))
    tell(AgentEnded(Purpose.WORK, ran, report.unread))
    assert all(json.loads(line) for line in out.getvalue().split("\n")[:-1])
    assert codec.decode("ran", codec.encode(ran)).ended is report.ended


def has_said_the_tag(events: list[AgentEvent], data: bytes) -> bool:
    """In its own text, or in the result, where some agents repeat their final message."""
    said = "".join(event.text for event in events if isinstance(event, Text) and not event.thinking)
    return TAG.casefold() in "".join(said.split()).casefold() or bool(SAID_AGAIN.search(data))


@REPEATED
@pytest.mark.parametrize("name", SHAPES)
def test_o6_damaged_streams_are_read_to_their_end(name: str) -> None:
    """No exception, a report, something to show, and no claim that is not in the agent's own text."""
    chance = seeded()
    for _ in range(EACH):
        file, data = chance.choice(list(streams(name).items()))
        ways = chance.sample(WAYS, chance.choice([1, 1, 2, 3]))
        for way in ways:
            data = way(chance, data)
        stderr = chance.choice([b"", chance.choice(RUBBISH), data[:2000]])
        exit = chance.choice(EXITS)
        try:
            events, report = read(name, in_pieces(chance, data), stderr, exit)
            show(events, report)
        except Exception as error:
            error.add_note(f"{file}: {', '.join(way.__name__ for way in ways)}, {exit}")
            raise
        assert not report.claim or has_said_the_tag(events, data), file


@pytest.mark.parametrize("name", SHAPES)
def test_o6_without_damage_the_claims_are_unchanged(name: str) -> None:
    """Recordings are shown unchanged; some contain a claim, most do not."""
    claims = []
    for data in streams(name).values():
        events, report = read(name, [data], b"", Exit(0))
        show(events, report)
        claims.append(report.claim)
    assert 0 < sum(claims) < len(claims) / 2
