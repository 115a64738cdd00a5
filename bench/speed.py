"""Speed and memory of the loop, with trivial agents and no snapshots; start-up time of commands."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from bench.measure import RALPH, Measurement, Scratch, Spent, alternate, each_in_scratch, medians, scratch
from ralph.core.model import Ended
from ralph.process.client import ProcessCommand, Wakeup, Warden

FEW, MANY = 100, 500
MB = 1 << 20


def suite() -> Iterator[Measurement]:
    yield from each_in_scratch(overhead, gap, flood, long_line, held_pipe, kill_tree)
    for start in (version, help_page, help_of_run, status, first_agent, first_agent_in_git):
        with scratch() as place:
            yield from start(place)


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
    """From the last action of an agent to the first action of the next one."""
    log = place.path / "times"
    place.agent(f'echo "$EPOCHREALTIME" >> {log}; echo x; echo "$EPOCHREALTIME" >> {log}', shell="/bin/bash")
    place.ralph("run", "-p", "hello", "-m", "100", "--no-stream-agent-output")
    times = [float(line) for line in log.read_text().split()]
    gaps = [start - end for end, start in zip(times[1::2], times[2::2], strict=False)]
    value = statistics.median(gaps) * 1e3
    detail = "measured by the agents, including the start of bash"
    return Measurement("exit to next start", "≤ 5 ms", value, "ms", value <= 5.0, None, detail)


def flood(place: Scratch) -> Measurement:
    """Extra memory for 500 MB of output."""
    return _memory(place, "500 MB of output", "yes 'a line of output' | head -c 500000000", 16, expected=1)


def long_line(place: Scratch) -> Measurement:
    """Extra memory for a line of 50 MB; the tag after it must be found."""
    body = "head -c 50000000 /dev/zero | tr '\\0' x; echo; echo '<response>DONE</response>'"
    return _memory(place, "a line of 50 MB, with the tag found after it", body, 32, expected=0)


def _memory(place: Scratch, name: str, body: str, limit: int, expected: int) -> Measurement:
    place.agent("echo hello")
    *_, before = place.ralph("run", "-p", "hello", "-m", "1")
    place.agent(body)
    took, code, after = place.ralph("run", "-p", "hello", "-m", "1")
    grown = (after - before) / MB
    detail = f"exit code {code}, {took:.1f} s, peak {after / MB:.0f} MB"
    return Measurement(name, f"≤ {limit} MB", grown, "MB", grown <= limit and code == expected, None, detail)


def held_pipe(place: Scratch) -> Measurement:
    """Time to the next agent when a grandchild that ignores TERM holds stdout."""
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
    """From KILL to an empty tree, for 100 processes that ignore TERM."""
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
    return Measurement("100 processes gone after KILL", "≤ 50 ms", value, "ms", value <= 50.0)


class _Nothing:
    def stdout(self, data: bytes) -> None:
        pass

    def stderr(self, data: bytes) -> None:
        pass


# ---- start-up time ----

STARTS = 21


def version(place: Scratch) -> Iterator[Measurement]:
    return _starts("ralph --version", 2.0, place, lambda: place.spent(RALPH, "--version"))


def help_page(place: Scratch) -> Iterator[Measurement]:
    return _starts("ralph --help", 6.0, place, lambda: place.spent(RALPH, "--help"))


def help_of_run(place: Scratch) -> Iterator[Measurement]:
    return _starts("ralph run --help", 6.0, place, lambda: place.spent(RALPH, "run", "--help"))


def status(place: Scratch) -> Iterator[Measurement]:
    """With one run to show."""
    place.agent("echo hello")
    place.ralph("run", "-p", "hello", "-m", "1")
    return _starts("ralph status", 11.0, place, lambda: place.spent(RALPH, "status"))


def first_agent(place: Scratch) -> Iterator[Measurement]:
    """From calling `ralph run` to the first agent, in a directory without git."""
    return _first_agent("to the first agent", place, snapshots=False)


def first_agent_in_git(place: Scratch) -> Iterator[Measurement]:
    """The same in a repository, with its first snapshot."""
    identity = ("-c", "user.name=Bench", "-c", "user.email=bench@localhost")
    for words in (("init", "-q"), (*identity, "commit", "-q", "--allow-empty", "-m", "First")):
        subprocess.run(["git", *words], cwd=place.path, check=True)
    return _first_agent("to the first agent, in git", place, snapshots=True)


def _first_agent(name: str, place: Scratch, *, snapshots: bool) -> Iterator[Measurement]:
    """The agent records its own start and the processor time of warden and ralph until then."""
    noted = place.path.parent / "noted"
    body = (
        'began=$EPOCHREALTIME; read -r _ _ _ ralph _ < "/proc/$PPID/stat"\n'
        f'{{ echo "$began"; cat "/proc/$PPID/schedstat" "/proc/$ralph/task/"*/schedstat; }} > {noted}'
    )
    place.agent(body, shell="/bin/bash", snapshots=snapshots)

    def spent() -> Spent:
        called = time.time()
        place.ralph("run", "-p", "hello", "-m", "1")
        began, *used = noted.read_text().splitlines()
        return Spent(float(began) - called, sum(int(line.split()[0]) for line in used) / 1e9)

    return _starts(f"ralph run {name}", 15.0, place, spent, processor=13.0)


def _starts(
    name: str, limit: float, place: Scratch, ours: Callable[[], Spent], *, processor: float | None = None
) -> Iterator[Measurement]:
    """Yield wall-clock and processor time as multiples of an empty Python, measured alternately.

    `processor`: a separate limit for processor time; in wall-clock time, a run also waits for the disk.
    """
    pairs = [(ours(), place.spent(sys.executable, "-c", "pass")) for _ in range(STARTS)]
    mine, bare = medians([each for each, _ in pairs]), medians([each for _, each in pairs])
    load = f"load {os.getloadavg()[0]:.1f}"
    for what, took, floor, most in (
        ("", mine.wall, bare.wall, limit),
        (", processor time", mine.processor, bare.processor, processor or limit),
    ):
        ratio, detail = took / floor, f"{took * 1e3:.0f} ms against {floor * 1e3:.0f} ms, {load}"
        yield Measurement(
            f"{name}{what}, against python -c pass", f"≤ {most:g}×", ratio, "×", ratio <= most, 1.0, detail
        )
