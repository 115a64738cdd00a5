"""Speed and memory of the loop itself, with trivial agents and snapshots off."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import RALPH, Measurement, Scratch, alternate, each_in_scratch, seconds
from ralph.core.model import Ended
from ralph.process.client import ProcessCommand, Wakeup, Warden

FEW, MANY = 100, 500
MB = 1 << 20


def suite() -> Iterator[Measurement]:
    yield from each_in_scratch(overhead, gap, flood, long_line, held_pipe, kill_tree, version, help_page)


def overhead(place: Scratch) -> Measurement:
    """One iteration with prompt file, raw stream and durable journal, against a bare shell loop."""
    agent = place.agent("echo hello", maximumIterations=MANY, streamAgentOutput=False)
    loop = f"i=0; while [ $i -lt $1 ]; do {agent} hello > out.txt; i=$((i+1)); done"

    def ours() -> float:
        return (
            place.ralph("run", "-p", "hello", "-m", str(MANY))[0]
            - place.ralph("run", "-p", "hello", "-m", str(FEW))[0]
        )

    def floor() -> float:
        times = []
        for count in (MANY, FEW):
            started = time.perf_counter()
            subprocess.run(["sh", "-c", loop, "sh", str(count)], cwd=place.path, check=True)
            times.append(time.perf_counter() - started)
        return times[0] - times[1]

    mine, bare = alternate(ours, floor, 5)
    ratio = mine / bare
    detail = f"{mine / (MANY - FEW) * 1e3:.2f} ms against {bare / (MANY - FEW) * 1e3:.2f} ms"
    return Measurement(
        "iteration, against a bare shell loop", "≤ 2.3×", ratio, "×", ratio <= 2.3, 1.0, detail
    )


def gap(place: Scratch) -> Measurement:
    """From the last thing an agent does to the first thing the next one does."""
    log = place.path / "times"
    place.agent(f'echo "$EPOCHREALTIME" >> {log}; echo x; echo "$EPOCHREALTIME" >> {log}', shell="/bin/bash")
    place.ralph("run", "-p", "hello", "-m", "100", "--no-stream-agent-output")
    times = [float(line) for line in log.read_text().split()]
    gaps = [start - end for end, start in zip(times[1::2], times[2::2], strict=False)]
    value = statistics.median(gaps) * 1e3
    detail = "measured by the agents themselves, the start of bash included"
    return Measurement("exit to next start", "≤ 5 ms", value, "ms", value <= 5.0, None, detail)


def flood(place: Scratch) -> Measurement:
    """How much memory 500 MB of output cost."""
    return _memory(place, "500 MB of output", "yes 'a line of output' | head -c 500000000", 16, expected=1)


def long_line(place: Scratch) -> Measurement:
    """How much memory a line of 50 MB costs; the tag after it must be found."""
    body = "head -c 50000000 /dev/zero | tr '\\0' x; echo; echo '<response>DONE</response>'"
    return _memory(place, "a line of 50 MB, and the tag after it is found", body, 32, expected=0)


def _memory(place: Scratch, name: str, body: str, limit: int, expected: int) -> Measurement:
    place.agent("echo hello")
    *_, before = place.ralph("run", "-p", "hello", "-m", "1")
    place.agent(body)
    took, code, after = place.ralph("run", "-p", "hello", "-m", "1")
    grown = (after - before) / MB
    detail = f"exit code {code}, {took:.1f} s, peak {after / MB:.0f} MB"
    return Measurement(name, f"≤ {limit} MB", grown, "MB", grown <= limit and code == expected, None, detail)


def held_pipe(place: Scratch) -> Measurement:
    """An agent exits while a grandchild that ignores TERM holds its stdout: when does the next one start?"""
    log = place.path / "times"
    holder = "bash -c 'trap \"\" TERM; while :; do sleep 60; done' &"
    body = f'echo "$EPOCHREALTIME" >> {log}; {holder} echo "$EPOCHREALTIME" >> {log}'
    place.agent(body, shell="/bin/bash")
    place.ralph("run", "-p", "hello", "-m", "5")
    times = [float(line) for line in log.read_text().split()]
    worst = max(start - end for end, start in zip(times[1::2], times[2::2], strict=False))
    detail = "worst of 4; the grandchild gets TERM, 0.5 s, KILL"
    return Measurement(
        "next start while a pipe is held", "≤ 550 ms", worst * 1e3, "ms", worst <= 0.55, None, detail
    )


def kill_tree(place: Scratch) -> Measurement:
    """A tree of 100 processes that ignore TERM, from KILL to empty."""
    ready = place.path / "ready"
    script = f"trap '' TERM; for i in $(seq 100); do sleep 60 & done; touch {ready}; sleep 60"
    times = []
    with Warden(Wakeup()) as warden:
        directory = os.open(place.path, os.O_RDONLY)
        for _ in range(5):
            ready.unlink(missing_ok=True)
            sent: list[float] = []

            def watch(elapsed: float, idle: float, sent: list[float] = sent) -> Ended | None:
                if ready.exists() and not sent:
                    sent.append(time.perf_counter())
                    warden.end(0)
                return None

            warden.run(
                ProcessCommand(["/bin/sh", "-c", script], dict(os.environ), directory), _Nothing(), watch
            )
            times.append(time.perf_counter() - sent[0])
        os.close(directory)
    value = statistics.median(times) * 1e3
    return Measurement("100 processes ended after KILL", "≤ 50 ms", value, "ms", value <= 50.0)


class _Nothing:
    def stdout(self, data: bytes) -> None:
        pass

    def stderr(self, data: bytes) -> None:
        pass


def version(place: Scratch) -> Measurement:
    return _start(place, ["--version"], 2.0)


def help_page(place: Scratch) -> Measurement:
    return _start(place, ["--help"], 6.0)


def _start(place: Scratch, arguments: list[str], limit: float) -> Measurement:
    python = str(Path(sys.executable))
    mine, bare = alternate(
        lambda: seconds([RALPH, *arguments], place.env, 5),
        lambda: seconds([python, "-c", "pass"], place.env, 5),
        7,
    )
    ratio = mine / bare
    detail = f"{mine * 1e3:.0f} ms against {bare * 1e3:.0f} ms"
    name = f"ralph {' '.join(arguments)}, against python -c pass"
    return Measurement(name, f"≤ {limit:g}×", ratio, "×", ratio <= limit, 1.0, detail)
