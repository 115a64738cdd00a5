"""Cost of one process that reads many agents in parallel, and whether lines are lost or late.

Each agent runs as in a real run: in a thread with its own warden, with its output going through the reader that
redacts, stores and parses it. The agents only lend their stdout.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.agents import talkers
from bench.measure import Measurement
from ralph.agents.base import Reading
from ralph.agents.registry import AGENTS
from ralph.core import policy
from ralph.core.events import Event, Text, ToolEnd, ToolStart
from ralph.core.model import Ended, Exit, Left, Meter
from ralph.loop.output import Tee
from ralph.process.client import ProcessCommand, Wakeup, Warden
from ralph.redact import Secrets
from ralph.store.files import opened_directory

MANY, RATE, SECONDS = 200, 100.0, 10.0
LONGEST = 120.0
"""Seconds after which an agent is killed, so that nothing runs forever."""

TIMED = (Text, ToolStart, ToolEnd)
PYTHON = (sys.executable, "-I", "-S", talkers.__file__)
SOCKET = "mouth"
"""A relative name in their shared directory, because a socket path must be short."""


@dataclass(frozen=True, slots=True)
class Found:
    """`user` and `system`: processor seconds of the reading process while the agents printed."""

    agents: int
    lines: int
    """Number of lines per agent."""
    seconds: float
    user: float
    system: float
    late: list[float]
    """Seconds between printing a line and its event."""
    kept: int
    """Lines in the raw streams."""

    @property
    def printed(self) -> int:
        return self.agents * self.lines

    @property
    def lost(self) -> int:
        return self.printed - min(len(self.late), self.kept)


def suite() -> Iterator[Measurement]:
    yield from judge(measure(MANY, RATE, SECONDS), RATE)


def judge(found: Found, rate: float) -> Iterator[Measurement]:
    """Yield the results; the goal is missed if the agents were too slow."""
    share, pace = (found.user + found.system) / found.seconds * 100, found.lines / found.seconds
    yield Measurement(
        f"{found.agents} agents of {rate:.0f} lines/s, read by one process",
        "≤ 35 %",
        share,
        "%",
        share <= 35 and pace >= rate * 0.98,
        detail=f"of one core: {found.user / found.seconds:.0%} user, {found.system / found.seconds:.0%} system, "
        f"{share / 100 / pace / found.agents * 1e6:.1f} µs per line; {pace * found.agents:,.0f} lines/s",
    )
    counts = (
        f"{found.printed:,} printed, {len(found.late):,} parsed as events, {found.kept:,} in the raw streams"
    )
    yield Measurement("lines lost", "0 lines", found.lost, "lines", not found.lost, detail=counts)
    late = [seconds * 1e3 for seconds in statistics.quantiles(found.late, n=100)]
    others = f"median {late[49]:.0f} ms, worst {max(found.late) * 1e3:.0f} ms"
    name = "line printed to event, p99"
    yield Measurement(name, "≤ 50 ms", late[98], "ms", late[98] <= 50, detail=others)


# ---- one process, many threads ----


def measure(agents: int, rate: float, seconds: float) -> Found:
    with (
        tempfile.TemporaryDirectory(prefix="ralph-many-", dir=os.environ.get("RALPH_BENCH_DIR")) as name,
        opened_directory(name) as streams,
    ):
        wakeup, secrets = Wakeup(), Secrets()
        readers = [_Thread(number, streams, wakeup, secrets) for number in range(agents)]
        with _mouth(name, agents, rate, seconds) as mouth:
            for reader in readers:
                reader.start()
            _expect(mouth, "begin")
            before = resource.getrusage(resource.RUSAGE_SELF)
            told = json.loads(_expect(mouth, "{"))
            after = resource.getrusage(resource.RUSAGE_SELF)
        for reader in readers:
            reader.join()
        if failed := [reader.exit for reader in readers if reader.exit is None or reader.exit.code != 0]:
            raise RuntimeError(f"{len(failed)} of {agents} agents failed, one with {failed[0]}")
        return Found(
            agents,
            told["lines"],
            told["seconds"],
            after.ru_utime - before.ru_utime,
            after.ru_stime - before.ru_stime,
            [seconds for reader in readers for seconds in reader.late],
            sum(path.read_bytes().count(b"\n") for path in Path(name).glob("*.stdout")),
        )


@contextmanager
def _mouth(directory: str, agents: int, rate: float, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Start the process that prints for all agents; they exit with it."""
    words = [*PYTHON, SOCKET, str(agents), str(rate), str(seconds)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=directory, stdin=pipe, stdout=pipe, text=True) as mouth:
        _expect(mouth, "ready")
        yield mouth


def _expect(mouth: subprocess.Popen[str], word: str) -> str:
    assert mouth.stdout is not None
    line = mouth.stdout.readline()
    if not line.startswith(word):
        raise RuntimeError(f"the talker printed {line!r} instead of {word!r}")
    return line


class _Thread(threading.Thread):
    """Reads one agent from start to exit."""

    def __init__(self, number: int, streams: int, wakeup: Wakeup, secrets: Secrets) -> None:
        super().__init__(name=f"reader-{number}")
        self.late: list[float] = []
        self.exit: Exit | None = None
        self._command = ProcessCommand([*PYTHON, SOCKET], {}, streams)
        self._parser = AGENTS["claude"].parser(Reading())
        self._tee = Tee(self._parser, self._told, streams, f"{number:03}", secrets)
        self._wakeup = wakeup

    def run(self) -> None:
        with Warden(self._wakeup) as warden:
            self.exit = warden.run(self._command, self._tee, self._watch)
        self._tee.close()

    def _told(self, event: Event) -> None:
        if isinstance(event, TIMED) and event.at is not None:
            self.late.append(time.time() - event.at)

    def _watch(self, seconds: float, idle: float) -> Ended | None:
        limits, parser = Left(iteration_seconds=LONGEST), self._parser
        return policy.watch(
            limits, Meter(seconds, idle, parser.usage, False, parser.is_over, parser.is_refused)
        )
