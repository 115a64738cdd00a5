"""A fake container engine on PATH, and a backend to drive it with."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conftest import wait_until
from ralph.core.model import Ended, Exit
from ralph.process.client import ProcessCommand, Wakeup, Warden, child_environment, output_of
from ralph.process.step import Watch
from ralph.sandbox import container, outside
from ralph.sandbox.base import Mounts, Sandbox, SandboxOutput

GOLDEN = Path(__file__).parents[1] / "golden" / "sandbox"
FAKE = Path(__file__).with_name("fake_engine.py")
NEVER: Watch = lambda seconds, idle: Ended.TIMEOUT if seconds > 30 else None  # noqa: E731


class Heard:
    """Everything that a command printed."""

    def __init__(self) -> None:
        self.out = b""
        self.err = b""

    def stdout(self, data: bytes) -> None:
        self.out += data

    def stderr(self, data: bytes) -> None:
        self.err += data


@dataclass
class Bench:
    """A warden, a working directory and the engine's own directory. A hanging backend command times out at
    once."""

    work: Path
    state: Path
    place: Path
    warden: Warden
    directory: int
    told: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], seconds: float) -> SandboxOutput:
        assert 0 < seconds < 1000, "every call has its time"
        hangs = self.place / "hangs"

        def watch(elapsed: float, idle: float) -> Ended | None:
            return Ended.TIMEOUT if hangs.exists() or elapsed >= seconds else None

        done = output_of(self.warden, argv, self.directory, child_environment({}), watch=watch)
        hangs.unlink(missing_ok=True)
        return SandboxOutput(done.exit.code, done.out, done.problem or done.err.decode(errors="replace"))

    def tell(self, text: str) -> None:
        self.told.append(text)

    def step(
        self,
        sandbox: Sandbox,
        *argv: str,
        mounts: Mounts | None = None,
        watch: Watch = NEVER,
        stdin: Path | None = None,
        **environment: str,
    ) -> tuple[Exit, Heard]:
        """Run one command inside, as the driver of a run does."""
        heard = Heard()
        variables = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **environment}
        wrapped = sandbox.wrap(argv, variables, mounts or self.mounts())
        given = os.open(stdin, os.O_RDONLY) if stdin else None
        command = ProcessCommand(wrapped.argv, wrapped.environment, self.directory, given)
        exit = sandbox.after(self.warden.run(command, heard, watch), wrapped)
        if given is not None:
            os.close(given)
        return exit, heard

    def mounts(self, **more: Any) -> Mounts:
        return Mounts(str(self.work), (str(self.work),), **more)

    # ---- the engine ----

    def log(self) -> list[list[str]]:
        file = self.place / "log"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def said(self, *beginning: str) -> list[list[str]]:
        return [line for line in self.log() if line[: len(beginning)] == list(beginning)]

    def forget(self) -> None:
        (self.place / "log").unlink(missing_ok=True)

    def fault(self, at: str, what: str, times: int = 1) -> None:
        file = self.place / "faults"
        faults = json.loads(file.read_text()) if file.exists() else []
        file.write_text(json.dumps([*faults, {"at": at, "is": what, "times": times}]))

    def containers(self) -> list[dict[str, Any]]:
        return [json.loads(file.read_text()) for file in (self.place / "containers").iterdir()]

    def sandboxes(self) -> dict[str, dict[str, Any]]:
        return {file.name: json.loads(file.read_text()) for file in (self.place / "sandboxes").iterdir()}


@contextmanager
def benched(path: Path) -> Iterator[Bench]:
    work, state, place = path / "work", path / "state", path / "engine"
    for each in (work, state, place):
        each.mkdir(exist_ok=True)
    directory = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    with Warden(Wakeup()) as warden:
        yield Bench(work, state, place, warden, directory)
    os.close(directory)


@contextmanager
def faked(path: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[Bench]:
    """Make these programs fakes, so that no others of their kind are found."""
    place, programs = path / "engine", path / "bin"
    place.mkdir()
    programs.mkdir()
    for name in names:
        shim = programs / name
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {FAKE} client {place} {name} "$@"\n')
        shim.chmod(0o755)
    home = path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(outside, "USUAL", str(programs))
    monkeypatch.setattr(container, "ENGINES", names)
    engine = subprocess.Popen([sys.executable, "-I", "-S", FAKE, "serve", place])
    try:
        wait_until(lambda: (place / "socket").exists())
        with benched(path) as bench:
            yield bench
    finally:
        engine.kill()
        engine.wait()


def golden(file_name: str, lines: list[list[str]], **replaced: str) -> None:
    """Compare the command lines with those in the file. `RALPH_UPDATE_GOLDEN=1` rewrites it."""
    text = "\n".join(shlex.join(line) for line in lines)
    for word, value in sorted(replaced.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, f"<{word}>")
    file = GOLDEN / f"{file_name}.txt"
    if os.environ.get("RALPH_UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{text}\n")
    assert text == file.read_text().rstrip("\n")


def lives(pid: int) -> bool:
    """Whether a process is running. A zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


DRIVER = """
import os, sys
from ralph.core.model import Ended
from ralph.process.client import ProcessCommand, Wakeup, Warden, child_environment, output_of
from ralph.sandbox import container, outside
from ralph.sandbox.base import Boundary, Mounts, SandboxOutput
state, work, image, engine = sys.argv[1:]
outside.USUAL, container.ENGINES = os.environ["PATH"], (engine,)
directory = os.open(work, os.O_RDONLY)

class Quiet:
    def stdout(self, data): pass
    def stderr(self, data): pass

with Warden(Wakeup()) as warden:
    def run(argv, seconds):
        done = output_of(warden, argv, directory, child_environment({}))
        return SandboxOutput(done.exit.code, done.out, done.err.decode())

    boundary = Boundary(os.path.basename(state), state, (work,))
    with container.Container(image).opened(boundary, run, print) as box:
        mounts = Mounts(work, (work,))
        wrapped = box.wrap(["/bin/sh", "-c", "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done"], {}, mounts)
        command = ProcessCommand(wrapped.argv, wrapped.environment, directory)
        box.after(warden.run(command, Quiet(), lambda s, i: None), wrapped)
"""
"""A separate ralph that runs a command forever in a container."""


def kill_tree(pid: int) -> None:
    """Kill ralph, its warden and the client, all at once."""
    below = [pid]
    for each in below:
        children = Path(f"/proc/{each}/task/{each}/children")
        below += [int(child) for child in children.read_text().split()] if children.exists() else []
    for each in below:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            pass
