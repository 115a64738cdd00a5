"""One run of a harness with a scripted agent: a place of its own, bounded time, and nothing left behind."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.agents import play, project
from bench.agents.model import Agent, Shape
from bench.harness import keeper
from bench.harness.base import Finished, Harness, Job, Launch, environment
from bench.measure import write_program
from ralph.core.model import Ended
from ralph.process.client import ProcessCommand, Warden
from ralph.process.step import Watch
from ralph.store.runs import process_start

LIMIT = 5
"""Iterations that every harness is allowed."""

PATIENCE = 120.0
"""Seconds after which a run is a hang. Ten times what the longest takes, so that a busy machine is none."""

PROGRAMS = {Shape.CLAUDE: ("claude",), Shape.CODEX: ("codex",), Shape.PLAIN: ("agent", "copilot")}
_MAX_OUTPUT = 4 << 20


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of a run. `starts` counts the agent's starts by kind: work, refused, message, probe."""

    finished: Finished
    seconds: float
    hung: bool
    orphans: tuple[str, ...]
    starts: Counter[str]
    complete: bool
    done: bool
    """The oracle's word."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run happens: the project, and beside it all that is no business of the harness."""

    path: Path

    @property
    def project(self) -> Path:
        return self.path / "project"

    @property
    def home(self) -> Path:
        return self.path / "home"

    @property
    def programs(self) -> Path:
        return self.path / "bin"

    @property
    def private(self) -> Path:
        return self.path / "private"


@contextmanager
def place() -> Iterator[Place]:
    base = Path(tempfile.mkdtemp(prefix="ralph-arena-", dir=os.environ.get("RALPH_BENCH_DIR")))
    found = Place(base)
    try:
        for directory in (found.project, found.home, found.programs, found.private):
            directory.mkdir()
        yield found
    finally:
        shutil.rmtree(base, ignore_errors=True)


def run(warden: Warden, harness: Harness, agent: Agent, shape: Shape, limit: int = LIMIT) -> Trial:
    """Let a harness run an agent to its end, or to the end of our patience."""
    with place() as where:
        job = prepare(where, harness, agent, shape, limit)
        seen = attend(warden, where, harness.launch(job, where.private), PATIENCE, keeper.PATIENCE)
        return Trial(
            seen.finished,
            seen.seconds,
            seen.hung,
            (*seen.orphans, *end_survivors(where.private)),
            starts(where.private),
            complete=not seen.hung and harness.is_complete(seen.finished),
            done=project.is_done(where.project),
        )


@dataclass(frozen=True, slots=True)
class Attended:
    """From the start of a harness to its end. `orphans`: what it has left behind."""

    finished: Finished
    seconds: float
    hung: bool
    orphans: tuple[str, ...]


def attend(warden: Warden, where: Place, launch: Launch, patience: float, settling: float) -> Attended:
    """Start a harness in the project and stay with it for so long; what it leaves may take `settling` to end."""
    report = where.private / "report.json"
    return watched(
        warden, where, launch, lambda took, _: Ended.TIMEOUT if took > patience else None, report, settling
    )


def watched(
    warden: Warden,
    where: Place,
    launch: Launch,
    watch: Watch,
    report: Path,
    settling: float,
    wrapped: Sequence[str] = (),
) -> Attended:
    """The same, until `watch` ends it; `report` is what the keeper writes, `wrapped` what the harness is started by."""
    keep = (sys.executable, "-I", "-S", keeper.__file__, str(report), str(settling))
    output = _Output()
    directory = os.open(where.project, os.O_RDONLY)
    try:
        env = environment(where.home, where.programs, launch)
        exit = warden.run(ProcessCommand([*keep, *wrapped, *launch.argv], env, directory), output, watch)
    finally:
        os.close(directory)
    told = json.loads(report.read_text()) if report.exists() else {"code": None, "orphans": []}
    finished = Finished(told["code"], output.text(output.out), output.text(output.err), where.project)
    return Attended(finished, exit.seconds, exit.ended is not None, tuple(told["orphans"]))


def prepare(where: Place, harness: Harness, agent: Agent, shape: Shape, limit: int) -> Job:
    """The project with what the harness wants to find in it, and the agent on PATH."""
    install_agent(where, agent, shape, harness)
    originals = project.files(harness.tag)
    kept = "".join(_blob_id(originals[name]) + "\n" for name in project.KEPT)
    prompt = project.prompt(harness.tag)
    job = Job(shape, prompt, project.GUARDRAIL, project.KEPT, _blob_id(kept), limit)
    project.create(where.project, harness.tag, harness.files(job))
    return job


def install_agent(where: Place, agent: Agent, shape: Shape, harness: Harness) -> None:
    script = where.private / "script.json"
    script.write_text(agent.script(shape, harness.tag, str(where.private)))
    for name in PROGRAMS[shape]:
        install(where, name, play.__file__, str(script), name)


def install(where: Place, name: str, *words: str) -> None:
    """A program on PATH that is played by a Python file."""
    write_program(where.programs / name, f'exec {shlex.join((sys.executable, "-I", "-S", *words))} "$@"')


def starts(private: Path) -> Counter[str]:
    """How often the agent was started, by kind."""
    return Counter(start["kind"] for start in recorded(private))


def end_survivors(private: Path) -> list[str]:
    """Ends every agent that outlived even the warden's sweep; its number and start time tell which it is."""
    found = []
    for start in recorded(private):
        now = process_start(start["pid"])
        if now is not None and now.endswith(f"/{start['start']}"):
            os.kill(start["pid"], signal.SIGKILL)
            found.append(f"agent {start['pid']} ({start['kind']})")
    return found


def recorded(private: Path) -> list[dict[str, Any]]:
    """What the agents wrote down of themselves."""
    file = private / "starts"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _blob_id(text: str) -> str:
    data = text.encode()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Output:
    """The last of what a harness prints; the outcome stands at the end."""

    def __init__(self) -> None:
        self.out = b""
        self.err = b""

    def stdout(self, data: bytes) -> None:
        self.out = (self.out + data)[-_MAX_OUTPUT:]

    def stderr(self, data: bytes) -> None:
        self.err = (self.err + data)[-_MAX_OUTPUT:]

    @staticmethod
    def text(data: bytes) -> str:
        return data.decode(errors="replace")
