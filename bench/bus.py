"""Message bus: eight concurrent writers and reading 100,000 messages, both against bare disk access."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Measurement, Scratch, alternate, each_in_scratch
from ralph.store.bus import Bus, read, task_bus
from ralph.store.messages import BusMessage, Damage, encode

WRITERS, EACH, MANY = 8, 250, 100_000
BODY = "All 214 tests pass; the schema of the store is frozen at version 3.\n" * 3

_WRITER = """
import os, sys, time
from pathlib import Path
from ralph.store.bus import Bus
how, path, count, body = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
bus = Bus(path)
bare = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
data = body.encode() + bytes(int(sys.argv[5]) - len(body.encode()))
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    if how == "bus":
        bus.post(time.time(), "INFO", body, run=str(os.getpid()), seq=number)
    else:
        os.write(bare, data)
        os.fsync(bare)
"""


def suite() -> Iterator[Measurement]:
    yield from each_in_scratch(writers, reading, memory, since)


def writers(place: Scratch) -> Measurement:
    """Eight processes post concurrently, each message durable before the next, against a bare append and fsync."""
    path = task_bus(place.path)
    size = len(encode(BusMessage("20260102-030405-abcd.100", time.time(), "INFO", "", "20260102", BODY)))

    def ours() -> float:
        path.unlink(missing_ok=True)
        return _together("bus", path, size)

    mine, bare = alternate(ours, lambda: _together("bare", place.path / "bare", size), 3)
    items = list(read(path))
    whole = len({item.id for item in items if isinstance(item, BusMessage)})
    total = WRITERS * EACH
    detail = f"{total / mine:,.0f} messages/s against {total / bare:,.0f}; {whole:,} of {total:,} complete, each once"
    ratio = mine / bare
    met = ratio <= 2 and whole == total and not any(isinstance(item, Damage) for item in items)
    return Measurement("8 writers on one bus, against append + fsync", "≤ 2×", ratio, "×", met, 1.0, detail)


def _together(how: str, path: Path, size: int) -> float:
    words = [sys.executable, "-c", _WRITER, how, str(path), str(EACH), BODY, str(size)]
    pipe = subprocess.PIPE
    started = [subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) for _ in range(WRITERS)]
    for process in started:
        assert process.stdout and process.stdout.readline() == "ready\n"
    begin = time.perf_counter()
    for process in started:
        process.communicate("go\n")
    return time.perf_counter() - begin


def _filled(place: Scratch) -> Path:
    path = task_bus(place.path)
    with path.open("wb") as file:
        for number in range(MANY):
            file.write(encode(BusMessage(f"run.{number}", time.time(), "INFO", "build", "run", BODY)))
    return path


def reading(place: Scratch) -> Measurement:
    """Every message is checked and decoded, against reading the bytes."""
    path = _filled(place)

    def ours() -> float:
        begin = time.perf_counter()
        assert sum(1 for _ in read(path)) == MANY
        return time.perf_counter() - begin

    def floor() -> float:
        begin = time.perf_counter()
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
        return time.perf_counter() - begin

    mine, bare = alternate(ours, floor, 3)
    megabytes = path.stat().st_size / 1e6
    detail = f"{MANY / mine:,.0f} messages/s, {megabytes / mine:.0f} MB/s against {megabytes / bare:,.0f}"
    return Measurement("100,000 messages read", "≤ 2 s", mine, "s", mine <= 2.0, bare, detail)


def memory(place: Scratch) -> Measurement:
    """Extra memory of a process that reads them."""
    path = _filled(place)
    program = (
        "import sys; from pathlib import Path; from ralph.store.bus import read\n"
        "def peak(): return int(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])\n"
        "before = peak()\n"
        "for item in read(Path(sys.argv[1])): pass\n"
        "print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    value = int(done.stdout) / 1024
    return Measurement("memory for 100,000 messages", "≤ 8 MB", value, "MB", value <= 8.0)


def since(place: Scratch) -> Measurement:
    """The last ten of 100,000 messages by the id before them, and a post that must have a new id."""
    path = _filled(place)
    begin = time.perf_counter()
    assert sum(1 for _ in read(path, f"run.{MANY - 11}")) == 10
    value = (time.perf_counter() - begin) * 1e3
    begin = time.perf_counter()
    assert Bus(path).post(time.time(), "INFO", BODY, run="another", seq=1).is_new
    first = (time.perf_counter() - begin) * 1e3
    detail = f"the first post of a run there: {first:.0f} ms"
    return Measurement(
        "messages since an id, of 100,000", "≤ 100 ms", value, "ms", value <= 100.0, None, detail
    )
