"""A warden for tests, and a program that has one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from conftest import Recorded, wait_until
from ralph.core.model import Ended, Exit
from ralph.process.client import ProcessCommand, Wakeup, Warden
from ralph.process.step import OutputReader, Watch

PATH = os.environ.get("PATH", os.defpath)

PREAMBLE = """
import os, sys
from ralph.process import client
from ralph.process.client import ProcessCommand, Wakeup, Warden

class Print:
    def stdout(self, data): os.write(1, data)
    def stderr(self, data): os.write(2, data)

def run(warden, argv, reader=Print(), watch=lambda seconds, idle: None):
    directory = os.open(".", os.O_RDONLY)
    try:
        return warden.run(ProcessCommand(argv, dict(os.environ), directory), reader, watch)
    finally:
        os.close(directory)
"""
"""The first lines of a separate program that runs commands under a warden."""


class Collected:
    """Everything that a command printed."""

    def __init__(self) -> None:
        self.out = b""
        self.err = b""

    def stdout(self, data: bytes) -> None:
        self.out += data

    def stderr(self, data: bytes) -> None:
        self.err += data

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


def after(limit: float, why: Ended = Ended.TIMEOUT) -> Watch:
    return lambda seconds, idle: why if seconds >= limit else None


bounded = after(45.0)

FOREVER = 600.0
"""Seconds, more than any test can take, so that a test that waits for them times out."""


@dataclass
class Rig:
    """A warden and the working directory of its commands. A command that hangs is killed when the test times
    out."""

    path: Path
    directory: int
    wakeup: Wakeup
    warden: Warden
    ran: list[Exit] = field(default_factory=list)

    def run(
        self,
        argv: Sequence[str],
        watch: Watch = bounded,
        environment: Mapping[str, str] | None = None,
        stdin: int | None = None,
        merged: bool = False,
        reader: OutputReader | None = None,
    ) -> Collected:
        """Run a command to completion and keep its exit status in `self.exit`."""
        collected = Collected()
        values = {"PATH": PATH} if environment is None else environment
        command = ProcessCommand(argv, values, self.directory, stdin, merged)
        self.ran.append(self.warden.run(command, reader or collected, watch))
        return collected

    def sh(self, script: str, watch: Watch = bounded, reader: OutputReader | None = None) -> Collected:
        return self.run(["/bin/sh", "-c", script], watch, reader=reader)

    def python(self, code: str, *arguments: str, watch: Watch = bounded) -> Collected:
        return self.run([sys.executable, "-I", "-S", "-c", code, *arguments], watch)

    @property
    def exit(self) -> Exit:
        return self.ran[-1]

    def survivors(self) -> list[int]:
        return Recorded(self.path / "pids").alive()

    def warden_pid(self) -> int:
        return int(self.sh("echo $PPID").out)

    def wait_for(self, name: str) -> str:
        """Return the content of a file as soon as there is any."""
        path = self.path / name
        wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
        return path.read_text()


@contextmanager
def rigged(path: Path) -> Iterator[Rig]:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    wakeup = Wakeup()
    with Warden(wakeup) as warden:
        yield Rig(path, directory, wakeup, warden)
    os.close(directory)


def lines_in(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0
