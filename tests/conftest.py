"""A project in a scratch directory, with its own store, and ralph as a real subprocess."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from fork_support import NO_BYTECODE, RALPH, start_ralph
from ralph.store.home import Home
from ralph.store.runs import process_start

if TYPE_CHECKING:
    from tui_support import World

__all__ = ["RALPH", "Project", "Recorded", "Result", "some", "some_rows", "wait_until"]

sys.dont_write_bytecode = False  # so that the next run does not compile the tests again
os.environ[NO_BYTECODE] = "1"
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell inherits it ignored
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup

hypothesis.settings.register_profile("plain", max_examples=40, deadline=None)
hypothesis.settings.register_profile("all", max_examples=300, deadline=None)
hypothesis.settings.load_profile("plain")


@dataclass(frozen=True)
class Result:
    """The exit code and output of a ralph process."""

    code: int
    out: str
    err: str

    def lines(self) -> list[dict[str, Any]]:
        """The JSON objects on stdout, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Project:
    """A project directory. `home` is the store of its runs, separate from the user's own."""

    path: Path
    home: Home
    extra_env: dict[str, str] = field(default_factory=dict)
    real_process: bool = False
    """Whether ralph always starts as a new interpreter instead of a fork of one that has loaded it."""

    @property
    def env(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RALPH_", "GIT_"))}
        mine = {"RALPH_STATE_DIR": str(self.home.path), "HOME": str(self.home.path), "NO_COLOR": "1"}
        return inherited | mine | self.extra_env

    def settings(self, **values: Any) -> None:
        directory = self.path / ".ralph"
        directory.mkdir(exist_ok=True)
        (directory / "settings.json").write_text(json.dumps(values))

    def script(self, name: str, body: str) -> str:
        """Write an executable shell script into the project and return its absolute path."""
        path = self.path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    def agent(self, body: str, **settings: Any) -> None:
        """Configure a shell script as the agent, which gets the prompt as $1 and `$RALPH_ITERATION`."""
        command = self.script("agent.sh", body)
        agent = {"command": command} | settings.pop("agent", {})
        self.settings(**({"agent": agent, "snapshots": False} | settings))

    def run(
        self, *arguments: str, timeout: float = 60, stdin: str | None = None, real_process: bool = False
    ) -> Result:
        """Run ralph and wait until it exits."""
        with self._start(arguments, subprocess.PIPE, real_process) as ralph:
            try:
                out, err = ralph.communicate(stdin or "", timeout)
            except BaseException:
                ralph.kill()
                raise
        return Result(ralph.returncode, out, err)

    def start(self, *arguments: str, real_process: bool = False) -> subprocess.Popen[str]:
        """Start ralph without waiting for it."""
        return self._start(arguments, subprocess.DEVNULL, real_process)

    def _start(self, arguments: tuple[str, ...], stdin: int, real_process: bool) -> subprocess.Popen[str]:
        return start_ralph(
            arguments, self.path, self.env, stdin, real_process=real_process or self.real_process
        )

    def status(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("status", "--json").out)
        return found

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost"]
        done = subprocess.run(
            ["git", *identity, *arguments],
            cwd=self.path,
            env=self.env,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout


def pytest_xdist_auto_num_workers() -> int:
    """One more worker than cores, because some tests mostly wait."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Project]:
    """A plain directory."""
    path, state = tmp_path / "project", tmp_path / "state"
    path.mkdir()
    state.mkdir()
    yield Project(path, Home(state), real_process=bool(request.node.get_closest_marker("real_process")))


@pytest.fixture
def repository(project: Project) -> Project:
    """A git repository with one commit."""
    (project.path / "README.md").write_text("A project.\n")
    project.git("init", "-q", "-b", "main")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "First")
    return project


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A machine with many runs, tasks and stories; tests only read it."""
    from tui_support import make_world

    return make_world(tmp_path_factory.mktemp("world"))


def some(values: Iterable[Any], number: int) -> list[Any]:
    """Run only the first of many similar cases by default, and all of them with `make test-all`."""
    found = list(values)
    return found[:number] + [pytest.param(value, marks=pytest.mark.slow) for value in found[number:]]


def some_rows(values: Iterable[tuple[Any, ...]], number: int) -> list[Any]:
    """Like `some`, for cases with several values."""
    found = list(values)
    return found[:number] + [pytest.param(*value, marks=pytest.mark.slow) for value in found[number:]]


def wait_until(condition: Callable[[], Any], seconds: float = 20.0, every: float = 0.01) -> Any:
    """Wait until the condition returns a true value and return that value; fail on a timeout."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(every)
    raise AssertionError(f"not true within {seconds} s: {condition}")


@dataclass(frozen=True)
class Recorded:
    """Processes that wrote their PIDs into a file, one per line.

    A process that started after the last line was written has only reused a PID, and does not count.
    """

    file: Path

    def pids(self) -> list[int]:
        if not self.file.exists():
            return []
        return [int(line) for line in self.file.read_text().split() if line.isdigit()]

    def alive(self) -> list[int]:
        """The PIDs of the processes that are still running."""
        pids = self.pids()
        if not pids:
            return []
        silence = time.time() - self.file.stat().st_mtime
        return [pid for pid in pids if process_start(pid) is not None and _age(pid) > silence - 0.1]


def _age(pid: int) -> float:
    """The age of a process in seconds, precise to a hundredth; infinite if unknown."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return math.inf
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def bubblewrap() -> None:
    """Skip or fail the test without bubblewrap; see sandbox_support."""
    from sandbox_support import needs_bubblewrap

    needs_bubblewrap()
