"""The dashboard with a full store: time to first screen, response time, and slowdown of a running loop."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from bench.measure import RALPH, Measurement, Scratch, scratch
from ralph.core import machine
from ralph.core.model import (
    AgentSpec,
    Did,
    Ended,
    Flow,
    Limits,
    Look,
    Plan,
    PromptSource,
    Ran,
    Result,
    RunAgent,
    Seen,
    Step,
    Stop,
    Usage,
)
from ralph.store.home import Home
from ralph.store.journal import Journal
from ralph.store.runs import process_start

MANY = 1_000
STREAM_BYTES = 200 << 20
COLUMNS, LINES = 120, 40
KEYS = 40


def suite() -> Iterator[Measurement]:
    with scratch() as place:
        big = fill(place)
        yield shown(place)
        yield answered(place)
        yield opened(place, big)
        yield slowed(place)


# ---- a full store ----


def fill(place: Scratch) -> str:
    """Create a thousand finished runs and a live one with a stream of 200 MB; return the id of the latter."""
    home = Home(place.state)
    runs = home.runs()
    with closing(runs.db):
        runs.db.execute("PRAGMA synchronous = OFF")
        for _ in range(MANY):
            _ended(home, place)
        run = runs.create(_plan("", place), str(place.path), str(place.path))
        journal, state = Journal(runs.db, runs.path, run.id), machine.start(_plan(run.id, place), run.created)
        look = machine.next_step(state)
        journal.begin(look, run.created)
        state = machine.apply(state, Seen(run.created))
        journal.complete(look, Seen(run.created), state)
        journal.begin(machine.next_step(state), run.created)
        journal.flush()
        own = (os.getpid(), process_start(os.getpid()), run.id)
        runs.db.execute("UPDATE runs SET pid = ?, pid_start = ? WHERE id = ?", own)
    line = json.dumps({"type": "assistant", "message": {"content": [{"type": "text", "text": "x" * 800}]}})
    piece = f"{line}\n".encode() * 1000
    with (home.make_streams(run.id) / "001-2.work.stdout").open("wb") as file:
        while file.tell() < STREAM_BYTES:
            file.write(piece)
    return run.id


def _plan(run: str, place: Scratch) -> Plan:
    agent = AgentSpec("claude", "claude", "claude")
    return Plan(run, Flow.RUN, str(place.path), (agent,), PromptSource("x"), limits=Limits(iterations=3))


def _ended(home: Home, place: Scratch) -> None:
    runs = home.runs()
    with closing(runs.db):
        runs.db.execute("PRAGMA synchronous = OFF")
        run = runs.create(_plan("", place), str(place.path), str(place.path))
        state, journal = machine.start(_plan(run.id, place), run.created), Journal(runs.db, runs.path, run.id)
        used = Usage(cost_usd=0.1, input_tokens=50_000, output_tokens=900)
        results: dict[type, Result] = {
            Look: Seen(run.created),
            RunAgent: Ran(run.created, Ended.OK, took=60.0, usage=used, text="I have done some of it. " * 20),
            Stop: Did(run.created),
        }
        step: Step | None = None
        while not isinstance(step, Stop):
            step = machine.next_step(state)
            journal.begin(step, run.created)
            state = machine.apply(state, results[type(step)])
            journal.complete(step, results[type(step)], state)
        journal.flush()
        runs.let_go(run.id)


# ---- a terminal ----


class Terminal:
    """The dashboard in a pseudo-terminal."""

    def __init__(self, place: Scratch, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        environment = place.env | {"TERM": "xterm-256color"}
        environment.pop("NO_COLOR")
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [RALPH, "tui", *arguments],
            cwd=place.path,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def expect(self, wanted: bytes, seconds: float = 60.0) -> float:
        """Read until this text appears; return the time."""
        seen, deadline = b"", time.perf_counter() + seconds
        while wanted not in seen:
            if not select.select([self._master], [], [], max(0.0, deadline - time.perf_counter()))[0]:
                raise AssertionError(f"no {wanted!r} in {seconds} s: {seen[-2000:]!r}")
            seen = seen[-(1 << 16) :] + os.read(self._master, 1 << 16)
        return time.perf_counter()

    def drain(self, seconds: float) -> None:
        """Read until nothing arrives for this many seconds."""
        while select.select([self._master], [], [], seconds)[0]:
            os.read(self._master, 1 << 16)

    def type(self, keys: bytes) -> float:
        os.write(self._master, keys)
        return time.perf_counter()

    def close(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._master)


@contextmanager
def terminal(place: Scratch, *arguments: str) -> Iterator[Terminal]:
    found = Terminal(place, *arguments)
    try:
        yield found
    finally:
        found.close()


# ---- measurements ----


def shown(place: Scratch) -> Measurement:
    """From the command to the list of runs on screen."""
    bare = _median(lambda: _bare(place), 5)
    mine = _median(lambda: _first_row(place), 5)
    detail = f"{MANY:,} runs and a live one; python -c 'import textual.app' takes {bare:.2f} s"
    return Measurement("first screen, 1,000 runs", "≤ 1 s", mine, "s", mine <= 1.0, bare, detail)


def _first_row(place: Scratch) -> float:
    with terminal(place) as screen:
        return screen.expect(b"1001 runs") - screen.began


def _bare(place: Scratch) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import textual.app"], env=place.env, check=True)
    return time.perf_counter() - begin


def answered(place: Scratch) -> Measurement:
    """From a key to the first change on screen, in the list of a thousand runs."""
    with terminal(place) as screen:
        screen.expect(b"1001 runs")
        screen.drain(0.4)
        times = [_answer(screen, b"j" if number % 4 else b"\x1b[6~") for number in range(KEYS)]
    value = statistics.median(times)
    detail = f"median of {KEYS} keys, the slowest {max(times) * 1000:.0f} ms"
    return Measurement(
        "response to a key, 1,000 runs", "≤ 50 ms", value * 1000, "ms", value <= 0.05, None, detail
    )


def _answer(screen: Terminal, key: bytes) -> float:
    screen.drain(0.02)
    begin = screen.type(key)
    return screen.expect(b"\x1b[") - begin


def opened(place: Scratch, run: str) -> Measurement:
    """From Enter to the end of a 200 MB stream on screen."""
    times = []
    for _ in range(3):
        with terminal(place) as screen:
            screen.expect(b"1001 runs")
            screen.drain(0.4)
            begin = screen.type(b"\r")
            times.append(screen.expect(b"x" * 60) - begin)
    value = statistics.median(times)
    detail = "the last half MB of 200 MB is read, parsed and shown"
    return Measurement("opening a run with 200 MB", "≤ 1 s", value, "s", value <= 1.0, None, detail)


def slowed(place: Scratch) -> Measurement:
    """A loop of a hundred iterations with and without a dashboard, alternating."""
    place.agent("i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo working")

    def loop() -> float:
        begin = time.perf_counter()
        subprocess.run(
            [RALPH, "run", "-p", "x", "-m", "100"],
            cwd=place.path,
            env=place.env,
            capture_output=True,
            check=False,
        )
        return time.perf_counter() - begin

    def watched() -> float:
        with terminal(place) as screen, _drained(screen):
            return loop()

    loop()
    pairs = [(watched(), loop()) for _ in range(5)]
    mine, bare = (statistics.median(times) for times in zip(*pairs, strict=True))
    percent = 100 * (mine / bare - 1)
    detail = f"{mine:.2f} s against {bare:.2f} s, medians of 5, alternating"
    return Measurement(
        "slowdown of a running loop by an open dashboard", "≤ 1 %", percent, "%", percent <= 1.0, 0.0, detail
    )


@contextmanager
def _drained(screen: Terminal) -> Iterator[None]:
    """Read the terminal continuously in another process, as a real terminal would."""
    screen.expect(b"runs")
    screen.drain(0.4)
    reader = os.fork()
    if reader == 0:
        while os.read(screen._master, 1 << 16):
            pass
        os._exit(0)
    try:
        yield
    finally:
        os.kill(reader, signal.SIGKILL)
        os.waitpid(reader, 0)


def _median(measure: Callable[[], float], times: int) -> float:
    return statistics.median(measure() for _ in range(times))
