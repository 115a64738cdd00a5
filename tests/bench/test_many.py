"""Many agents read by one process: what they print, and what is made of the measurement."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are no part of what is installed

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
    """It says something, calls a tool, gets the answer; each is as long as such a line is."""
    parser, now = AGENTS["claude"].parser(Reading()), time.time()
    lines = [talkers.line(number, now) for number in range(6)]
    events = list(parser.stdout(b"".join(lines)))
    assert [type(event) for event in events] == [Text, ToolStart, ToolEnd] * 2
    assert all(isinstance(event, many.TIMED) and abs((event.at or 0) - now) < 1e-3 for event in events)
    assert all(400 < len(line) < 700 for line in lines)


@pytest.mark.slow
def test_nothing_of_what_some_agents_print_is_lost() -> None:
    """Real wardens, real pipes; all of it is told, and is in the raw streams."""
    found = many.measure(4, 100.0, 0.4)
    assert (found.printed, found.lost, len(found.late)) == (160, 0, 160)
    assert found.user + found.system > 0


def test_a_measurement_is_good_as_long_as_nothing_is_dear_lost_or_late() -> None:
    """And where the agents were too slow, it has not shown what it should."""
    assert met(GOOD) == [True, True, True]
    assert met(replace(GOOD, user=3.0)) == [False, True, True]
    assert met(replace(GOOD, seconds=11.0)) == [False, True, True]
    assert met(replace(GOOD, kept=1999)) == [True, False, True]
    assert met(replace(GOOD, late=[0.01] * 1900 + [0.06] * 100)) == [True, True, False]


def test_the_share_is_of_one_core() -> None:
    """Three seconds of ten."""
    assert next(many.judge(GOOD, 100.0)).value == 30.0
