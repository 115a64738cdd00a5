"""Fault D9: many processes post to one bus, some are killed: each message complete and once, in order per sender.

`RALPH_FAULT_RUNS=1000` posts 100,000 messages.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import wait_until
from faults.fault_support import RUNS, lines, seeded
from ralph.store.bus import Bus, BusReader, read, task_bus
from ralph.store.messages import BusMessage, Damage

SENDERS = 8
EACH = max(25, RUNS * 100 // SENDERS)
KILLS = 40

_SENDER = """
import random, sys, time, zlib
from pathlib import Path
from ralph.store.bus import Bus

path, log, first, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
bus = Bus(path)
with log.open("a") as said:
    for number in range(first, count):
        chance = random.Random(f"{log.name}.{number}")
        size = round(2 ** (20 * chance.random() ** 8))
        body = chance.randbytes((size + 1) // 2).hex()[: size - 1] + chance.choice("x\\n")
        bus.post(time.time(), "INFO", body, task=str(zlib.crc32(body.encode())), run=log.name, seq=number)
        print(number, file=said, flush=True)
"""

_TORN = """
import os, random, signal, sys
from pathlib import Path
from ralph.store.bus import Bus

class Torn(Bus):
    def _append(self, descriptor, data, end):
        os.write(descriptor, data[: random.randrange(1, len(data))])
        os.kill(os.getpid(), signal.SIGKILL)

Torn(Path(sys.argv[1])).post(0, "INFO", "x\\n" * random.randrange(1 << random.randrange(20)))
"""


class Sender:
    """A process that posts its numbers in order. After a kill it continues with the first unconfirmed one."""

    def __init__(self, bus: Path, log: Path) -> None:
        self._bus = bus
        self._log = log
        self.start()

    def start(self) -> None:
        done = str(len(lines(self._log)))
        words = [sys.executable, "-c", _SENDER, str(self._bus), str(self._log), done, str(EACH)]
        self.process = subprocess.Popen(words)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def name(self) -> str:
        return self._log.name


@contextmanager
def senders(bus: Path) -> Iterator[list[Sender]]:
    """Start that many at once, and leave none behind."""
    found = [Sender(bus, bus.with_name(f"sender-{number}")) for number in range(SENDERS)]
    try:
        yield found
    finally:
        for sender in found:
            sender.kill()


def checked(items: Iterable[BusMessage | Damage]) -> list[str]:
    """The ids, and "torn" for truncated messages; every body matches what its sender posted."""
    ids = []
    for item in items:
        if isinstance(item, BusMessage):
            assert item.task == str(zlib.crc32(item.body.encode()))
        ids.append(item.id if isinstance(item, BusMessage) else item.kind.value)
    return ids


@pytest.mark.slow
@pytest.mark.timeout(300 + 10 * RUNS)
def test_each_message_is_complete_and_unique(tmp_path: Path) -> None:
    """D9: 1 B to 1 MB, writers killed between and within messages; a follower gets the same messages."""
    bus, chance = task_bus(tmp_path), seeded()
    followed: list[str] = []
    reader = BusReader(bus)
    with senders(bus) as found:
        wait_until(bus.exists)
        kills = 0
        while working := [sender for sender in found if sender.process.poll() is None]:
            time.sleep(chance.uniform(0, 0.1))
            followed += checked(reader.news())
            if kills < KILLS:
                kills += 1
                victim = chance.choice(working)
                victim.kill()
                torn = subprocess.run([sys.executable, "-c", _TORN, str(bus)])
                assert torn.returncode == -signal.SIGKILL
                victim.start()
        assert [sender.process.returncode for sender in found] == [0] * SENDERS
    Bus(bus).post(time.time(), "FACT", "all done", task=str(zlib.crc32(b"all done")))
    followed += checked(reader.news())
    ids = checked(read(bus))
    assert [id for id in followed if id != "torn"] == ids
    assert bus.with_name(f"{bus.name}.torn").stat().st_size > 0
    for sender in found:
        mine = [id for id in ids if id.startswith(f"{sender.name}.")]
        assert mine == [f"{sender.name}.{number}" for number in range(EACH)]
    assert len(ids) == SENDERS * EACH + 1
