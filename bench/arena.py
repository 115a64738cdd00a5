"""Runs a harness with a scripted agent: in its own directory, with a time limit, leaving nothing behind."""

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

from bench.agents import failing_git, play, project
from bench.agents.model import Agent, Assignment, Shape
from bench.harness import keeper
from bench.harness.base import Finished, Harness, Job, Launch, environment
from bench.measure import write_program
from ralph.core.model import Ended
from ralph.process.client import ProcessCommand, Warden
from ralph.process.step import Watch
from ralph.store.runs import process_start

LIMIT = 5
"""Iteration limit of every harness."""

PATIENCE = 120.0
"""Seconds after which a run counts as hung: ten times the longest run, to allow for a busy machine."""

PROGRAMS = {Shape.CLAUDE: ("claude",), Shape.CODEX: ("codex",), Shape.PLAIN: ("agent", "copilot")}
_MAX_OUTPUT = 4 << 20


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a run. `starts` counts the agent's starts by kind: work, refused, message, probe."""

    finished: Finished
    seconds: float
    hung: bool
    orphans: tuple[str, ...]
    starts: Counter[str]
    complete: bool
    done: bool
    """The oracle's verdict."""
    harmed: bool = False
    """A file of the user was lost, changed or committed."""
    asks: bool = False
    """The harness stopped and left the decision on changed tests to the user."""


@dataclass(frozen=True, slots=True)
class Place:
    """The directories of a run: the project, and next to it files that the harness should not see."""

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
    """Let a harness run an agent until it exits or times out."""
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
            done=assignment_of(agent).is_done(where.project),
            harmed=project.is_harmed(where.project),
            asks=not seen.hung and harness.asks(seen.finished),
        )


@dataclass(frozen=True, slots=True)
class Attended:
    """One harness process from start to exit. `orphans`: processes it left behind."""

    finished: Finished
    seconds: float
    hung: bool
    orphans: tuple[str, ...]


def attend(warden: Warden, where: Place, launch: Launch, patience: float, settling: float) -> Attended:
    """Start a harness in the project and wait up to `patience` seconds; leftovers get `settling` seconds to exit."""
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
    """Start a harness and wait until `watch` stops it.

    `report` is the file that the keeper writes, `wrapped` the command that starts the harness.
    """
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
    """Create the project with the files the harness expects, and put the agent on PATH."""
    install_agent(where, agent, shape, harness)
    given = assignment_of(agent)
    originals = given.files(harness.tag)
    kept = "".join(_blob_id(originals[name]) + "\n" for name in given.kept)
    prompt = given.prompt(harness.tag)
    job = Job(shape, prompt, given.guardrail, given.kept, _blob_id(kept), limit, allow=given.allow)
    if given.needs_python:
        install_python(where)
    project.create(where.project, {**originals, **harness.files(job)})
    return job


def assignment_of(agent: Agent) -> Assignment:
    return agent.assignment or project.SCRIPTS


def install_python(where: Place) -> None:
    """Put our interpreter on PATH as `python`, with pytest."""
    quiet = "export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONDONTWRITEBYTECODE=1"
    write_program(where.programs / "python", f'{quiet}\nexec {sys.executable} "$@"')


def install_agent(where: Place, agent: Agent, shape: Shape, harness: Harness) -> None:
    script = where.private / "script.json"
    script.write_text(agent.script(shape, harness.tag, str(where.private)))
    if agent.breaks_git:
        failing_git.install(where.programs, where.private)
    for name in PROGRAMS[shape]:
        install(where, name, play.__file__, str(script), name)


def install(where: Place, name: str, *words: str) -> None:
    """Put a program on PATH that runs a Python file."""
    write_program(where.programs / name, f'exec {shlex.join((sys.executable, "-I", "-S", *words))} "$@"')


def starts(private: Path) -> Counter[str]:
    """Count the agent's starts by kind."""
    return Counter(start["kind"] for start in recorded(private))


def end_survivors(private: Path) -> list[str]:
    """Kill agents that outlived even the warden's sweep, identified by pid and start time; return their names."""
    found = []
    for start in recorded(private):
        now = process_start(start["pid"])
        if now is not None and now.endswith(f"/{start['start']}"):
            os.kill(start["pid"], signal.SIGKILL)
            found.append(f"agent {start['pid']} ({start['kind']})")
    return found


def recorded(private: Path) -> list[dict[str, Any]]:
    """Return the entries that agents recorded about themselves."""
    file = private / "starts"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _blob_id(text: str) -> str:
    data = text.encode()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Output:
    """The end of a harness's output, which contains the outcome."""

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
