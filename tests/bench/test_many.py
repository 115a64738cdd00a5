"""Many agents read by one process: their output, and the evaluation of the measurement."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not installed

from bench.agents import talkers
from bench.many import Found

from bench import many
from ralph.agents.base import Reading
from ralph.agents.registry import AGENTS
from ralph.core.events import Text, ToolEnd, ToolStart

GOOD = Found(agents=2, lines=1000, seconds=10.0, user=2.0, system=1.0, late=[0.01] * 2000, kept=2000)


def met(found: Found) -> list[bool]:
    return [each.met for each in many.judge(found, 100.0)]


def test_a_line_is_read_as_one_event_with_its_time() -> None:
    """The lines are a text, a tool call and its result, of realistic length."""
    parser, now = AGENTS["claude"].parser(Reading()), time.time()
    lines = [talkers.line(number, now) for number in range(6)]
    events = list(parser.stdout(b"".join(lines)))
    assert [type(event) for event in events] == [Text, ToolStart, ToolEnd] * 2
    assert all(isinstance(event, many.TIMED) and abs((event.at or 0) - now) < 1e-3 for event in events)
    assert all(400 < len(line) < 700 for line in lines)


@pytest.mark.slow
def test_no_line_is_lost() -> None:
    """With real wardens and pipes, every line becomes an event and is in the raw streams."""
    found = many.measure(4, 100.0, 0.4)
    assert (found.printed, found.lost, len(found.late)) == (160, 0, 160)
    assert found.user + found.system > 0


def test_a_measurement_fails_if_lines_are_expensive_lost_or_late() -> None:
    """It also fails if the agents were too slow."""
    assert met(GOOD) == [True, True, True]
    assert met(replace(GOOD, user=3.0)) == [False, True, True]
    assert met(replace(GOOD, seconds=11.0)) == [False, True, True]
    assert met(replace(GOOD, kept=1999)) == [True, False, True]
    assert met(replace(GOOD, late=[0.01] * 1900 + [0.06] * 100)) == [True, True, False]


def test_the_share_is_of_one_core() -> None:
    """Three processor seconds in ten are 30 %."""
    assert next(many.judge(GOOD, 100.0)).value == 30.0
