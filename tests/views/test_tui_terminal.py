"""`ralph tui` in a real terminal (tmux): keys are typed and the screen is read."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import RALPH, Project
from ralph.store.home import Home
from tui_support import World

PAGER = "{ cat; echo That was the log.; read line < /dev/tty; }"
"""Waits for Enter, as pagers do."""


@dataclass(frozen=True)
class Tmux:
    """A separate tmux server on its own socket."""

    socket: Path
    environment: dict[str, str]

    def __call__(self, *words: str) -> str:
        command = ["tmux", "-S", str(self.socket), "-f", "/dev/null", *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True)
        return done.stdout

    @property
    def screen(self) -> str:
        return self("capture-pane", "-p", "-t", "0")

    def type(self, *keys: str) -> None:
        self("send-keys", "-t", "0", *keys)

    def expect(self, *words: str, without: str = "\0") -> str:
        """Wait until all these words are on the screen and `without` is not."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                screen = self.screen
            except subprocess.CalledProcessError as error:  # on a loaded machine it may not know its pane yet
                screen = error.stderr
            if all(word in screen for word in words) and without not in screen:
                return screen
            time.sleep(0.05)
        raise AssertionError(f"no {words} on the screen:\n{screen}")


@pytest.fixture(scope="session")
def tmux_program() -> str:
    """Install tmux if it is missing and possible; in CI a missing tmux fails the test."""
    if shutil.which("tmux") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-qq", "tmux"], capture_output=True, check=False)
    found = shutil.which("tmux")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("tmux is missing, and could not be installed")
        pytest.skip("tmux is missing")
    return found


@contextmanager
def dashboard(
    project: Project, tmp_path: Path, *arguments: str, size: tuple[int, int] = (100, 30)
) -> Iterator[Tmux]:
    environment = project.env | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PAGER": PAGER}
    for name in ("NO_COLOR", "TMUX", "COLUMNS", "LINES"):
        environment.pop(name, None)
    tmux = Tmux(Path("/tmp") / f"ralph-tmux-{uuid.uuid4().hex[:8]}", environment)
    shell = f"{RALPH} tui {' '.join(arguments)}; echo exit code $?; exec sleep 1000"
    try:
        tmux("new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), "-c", str(project.path), shell)
        yield tmux
    finally:
        subprocess.run(["tmux", "-S", str(tmux.socket), "kill-server"], env=environment, check=False)
        tmux.socket.unlink(missing_ok=True)


def test_a_whole_visit(tmux_program: str, world: World, tmp_path: Path) -> None:
    """The list, a run, its checks, the help, and quitting with exit code 0."""
    project = Project(world.base / "ada" / "webshop", world.home, {"HOME": str(world.base / "ada")})
    with dashboard(project, tmp_path) as tmux:
        tmux.expect("3 running", "~/tracker", "Project webshop", "SHOP-3", "implementing 1")
        tmux.type("/greeter", "Enter")
        tmux.expect("~/greeter", without="~/tracker")
        tmux.type("Enter")
        tmux.expect("all checks passed", "=== Ralph iteration 2/5 ===")
        tmux.type("2")
        tmux.expect("./check.sh", "✗ failed")
        tmux.type("Down", "Down")
        tmux.expect("expected: Hello, Ada!")
        tmux.type("?")
        tmux.expect("steer: add guidance")
        tmux.type("Escape")
        time.sleep(0.3)
        tmux.type("q")
        tmux.expect("P Board")
        tmux.type("q")
        tmux.expect("exit code 0")


def test_steering_and_the_pager(tmux_program: str, project: Project, tmp_path: Path) -> None:
    """A running agent is followed and steered, and $PAGER shows its log in the same terminal."""
    project.agent(
        "echo I am at work; while [ ! -f go ]; do sleep 0.05; done; echo '<response>DONE</response>'"
    )
    process = project.start("run", "-p", "The work.")
    try:
        with dashboard(project, tmp_path) as tmux:
            tmux.expect("1 running")
            tmux.type("Enter")
            tmux.expect("I am at work")
            tmux.type("suse tabs", "Enter")
            tmux.expect("Queued for the next prompt")
            (project.path / "go").touch()
            tmux.expect("complete")
            tmux.type("o")
            tmux.expect("I am at work", "That was the log.", without="1 Events")
            tmux.type("Enter")
            tmux.expect("1 Events", without="That was the log.")
            tmux.type("q")
            tmux.expect("q Quit")
    finally:
        (project.path / "go").touch()
        process.communicate(timeout=30)


@pytest.mark.slow
def test_narrow_and_resized(tmux_program: str, world: World, tmp_path: Path) -> None:
    """The screen is redrawn when its size changes."""
    project = Project(world.base / "ada" / "webshop", world.home, {"HOME": str(world.base / "ada")})
    with dashboard(project, tmp_path, world.ids["running"], size=(80, 24)) as tmux:
        screen = tmux.expect("Todo 1/4", "Fix the parser")
        assert max(map(len, screen.splitlines())) <= 80
        tmux("resize-window", "-t", "0", "-x", "140", "-y", "40")
        tmux.expect("directory", "Explain the cause", "elapsed")


def test_a_newer_store(tmux_program: str, project: Project, tmp_path: Path) -> None:
    """The dashboard shows the error without a traceback, and can be closed."""
    import sqlite3

    project.agent("true")
    project.run("run", "-p", "The work.", "-m", "1")
    with sqlite3.connect(project.home.database) as db:
        db.execute("PRAGMA user_version = 7")
    with dashboard(project, tmp_path) as tmux:
        screen = tmux.expect("version is 7", "RALPH_STATE_DIR")
        assert "Traceback" not in screen
        tmux.type("q")
        tmux.expect("exit code 0")


def test_no_terminal_no_dashboard(project: Project) -> None:
    """With stdout in a pipe it prints an error and a hint, and nothing else."""
    result = project.run("tui")
    assert (result.code, result.out) == (2, "")
    assert "needs a terminal" in result.err
    assert not any(Home(project.home.path).path.iterdir())


def test_help_does_not_load_it(project: Project) -> None:
    """Only `tui` loads Textual."""
    code = "import sys; from ralph.cli import main; main(['--help']); main(['status']); print('textual' in sys.modules)"
    import sys

    done = subprocess.run(
        [sys.executable, "-c", code], env=project.env, cwd=project.path, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "False"


def test_it_exits_with_its_terminal(project: Project) -> None:
    """It exits even if no signal announces that the terminal is gone."""
    ours, theirs = pty.openpty()
    environment = project.env | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    dashboard = subprocess.Popen(
        [RALPH, "tui"],
        cwd=project.path,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    while b"Quit" not in shown:
        shown += os.read(ours, 65536)
    os.close(ours)
    try:
        dashboard.wait(timeout=60)
    finally:
        dashboard.kill()
    assert dashboard.returncode == 0
