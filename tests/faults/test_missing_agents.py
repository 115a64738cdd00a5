"""P14: an agent that cannot be started is fatal at once; one that worked before is retried."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Project, wait_until
from faults.fault_support import DONE, ends, finish, lines, newest, status


def program(content: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(content)
        path.chmod(0o755)

    return make


def foreign() -> bytes:
    """The beginning of a program for another type of machine."""
    machine = 0x00F3 if os.uname().machine != "riscv64" else 0x003E
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    return ident + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, 0, 0, 0, 0)


UNSTARTABLE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "not executable": lambda path: path.write_text("#!/bin/sh\n"),
    "no interpreter line": program(b"echo hello\n"),
    "lost interpreter": program(b"#!/no/such/interpreter\n"),
    "other machine": program(foreign()),
    "empty": program(b""),
    "directory": lambda path: path.mkdir(),
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "pipe": lambda path: os.mkfifo(path, 0o755),
}


@pytest.mark.parametrize("kind", UNSTARTABLE)
def test_p14_an_agent_that_cannot_be_started_is_fatal_at_once(project: Project, kind: str) -> None:
    """One attempt, exit code 2, and the message names the command."""
    UNSTARTABLE[kind](project.path / "my-agent")
    project.settings(agent={"command": "./my-agent"}, snapshots=False)
    result = project.run("run", "-p", "x")
    assert result.code == 2, result.err
    run = newest(project)
    assert (run.outcome, run.cause) == ("fatal", "unstartable")
    assert ends(project) == ["unstartable"]
    assert "./my-agent: " in result.out


def test_p14_an_agent_that_is_not_on_the_path_is_named(project: Project) -> None:
    """A bare name that is not on the PATH is fatal too, and the message says so."""
    result = project.run("run", "-p", "x", "--agent", "no-such-agent --fast")
    assert (result.code, ends(project)) == (2, ["unstartable"])
    assert "no-such-agent: command not found" in result.out


def test_p14_an_agent_that_updates_itself_is_waited_for(project: Project) -> None:
    """An agent that worked before and is missing for a moment is retried without using up an iteration."""
    project.agent(
        "mv agent.sh away.sh; echo $RALPH_ITERATION >> started\n"
        f"[ $RALPH_ITERATION = 2 ] && {DONE} || echo working",
        maximumIterations=2,
    )
    ralph = project.start("run", "-p", "x")
    wait_until(lambda: status(project) and "unstartable" in ends(project))
    (project.path / "away.sh").rename(project.path / "agent.sh")
    result = finish(ralph)
    assert result.code == 0, result.err
    assert lines(project.path / "started") == ["1", "2"]
    assert [end for end in ends(project) if end != "unstartable"] == ["ok", "ok"]
