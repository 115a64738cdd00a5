"""Tools for fair measurements: alternating repeats, medians, a scratch project, memory."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from resource import struct_rusage

RALPH = str(Path(sys.executable).parent / "ralph")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One result. `value` is in `unit`; `floor` is the comparison measured in the same run."""

    name: str
    goal: str
    value: float
    unit: str
    met: bool
    floor: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Spent:
    """Wall-clock and processor seconds of a command, including its children."""

    wall: float
    processor: float


@dataclass(frozen=True, slots=True)
class Scratch:
    """A project directory with its own store."""

    path: Path
    state: Path

    @property
    def env(self) -> dict[str, str]:
        keep = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return keep | {"RALPH_STATE_DIR": str(self.state), "NO_COLOR": "1"}

    def agent(self, body: str, shell: str = "/bin/sh", **settings: object) -> Path:
        agent = self.path / "agent"
        write_program(agent, body, shell)
        values = {"agent": {"command": str(agent)}, "snapshots": False} | settings
        (self.path / ".ralph").mkdir(exist_ok=True)
        (self.path / ".ralph" / "settings.json").write_text(json.dumps(values))
        return agent

    def run(self, command: list[str], **more: str) -> tuple[float, int, struct_rusage]:
        """Run a command with extra variables; return seconds, exit code and resource usage."""
        null, started = subprocess.DEVNULL, time.perf_counter()
        process = subprocess.Popen(
            command, cwd=self.path, env=self.env | more, stdin=null, stdout=null, stderr=null
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return time.perf_counter() - started, process.returncode, usage

    def ralph(self, *arguments: str) -> tuple[float, int, int]:
        """Run ralph; return seconds, exit code and peak memory in bytes."""
        seconds, code, usage = self.run([RALPH, *arguments])
        return seconds, code, usage.ru_maxrss * 1024

    def spent(self, *command: str) -> Spent:
        took, _, usage = self.run(list(command))
        return Spent(took, usage.ru_utime + usage.ru_stime)


def write_program(path: Path, body: str, shell: str = "/bin/sh") -> None:
    path.write_text(f"#!{shell}\n{body}\n")
    path.chmod(0o755)


@contextmanager
def scratch() -> Iterator[Scratch]:
    """Create a scratch project outside /tmp, which may be in memory: the journal must reach a disk."""
    base = Path(tempfile.mkdtemp(prefix="ralph-bench-", dir=os.environ.get("RALPH_BENCH_DIR", Path.home())))
    try:
        place = Scratch(base / "project", base / "state")
        place.path.mkdir()
        place.state.mkdir()
        yield place
    finally:
        shutil.rmtree(base, ignore_errors=True)


def each_in_scratch(*measures: Callable[[Scratch], Measurement]) -> Iterator[Measurement]:
    """Run each measurement in its own directory."""
    for measure in measures:
        with scratch() as place:
            yield measure(place)


def alternate(ours: Callable[[], float], floor: Callable[[], float], repeat: int) -> tuple[float, float]:
    """Return the medians of two alternating measurements, so that a busy moment affects both."""
    pairs = [(ours(), floor()) for _ in range(repeat)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def medians(spent: Sequence[Spent]) -> Spent:
    return Spent(
        statistics.median(each.wall for each in spent), statistics.median(each.processor for each in spent)
    )
