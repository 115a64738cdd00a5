"""P9: signals stop a run cleanly in any phase: interrupted, no process left, nothing locked."""

from __future__ import annotations

import os
import pty
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from conftest import RALPH, Project, wait_until
from faults.fault_support import (
    DONE,
    IS_FULL,
    REPEATED,
    RUNS,
    Traces,
    Watched,
    finish,
    is_free,
    killed,
    newest,
    seeded,
    status,
    traces,
)
from ralph.core.model import Cancel

TOLD = "Received signal, shutting down..."
NOW = "Stopping now."

SIGNALS = {
    "INT": (signal.SIGINT,),
    "INT twice": (signal.SIGINT, signal.SIGINT),
    "TERM": (signal.SIGTERM,),
    "HUP": (signal.SIGHUP,),
    "TERM, then INT": (signal.SIGTERM, signal.SIGINT),
}
PHASES = ("agent", "guardrail", "message", "commit", "pause")
CHOSEN = {
    "agent": tuple(SIGNALS),
    "guardrail": ("INT", "INT twice"),
    "message": ("INT twice",),
    "commit": ("INT", "INT twice"),
    "pause": ("INT",),
}
MOMENTS = [(phase, how) for phase in PHASES for how in SIGNALS if IS_FULL or how in CHOSEN[phase]]


def started(project: Project, *arguments: str, log: str = "said") -> Watched:
    return Watched(project, [RALPH, *(arguments or ("run", "-p", "x"))], project.home.path / log)


def slow(left: Traces) -> str:
    """A snippet that reports when it starts and, if it is not stopped, when it has finished."""
    return (
        f"{left.me()}; setsid sh -c 'trap \"\" TERM; {left.me()}; exec sleep 60' & echo > ready\n"
        "i=0; until [ -e go ] || [ $i -gt 300 ]; do sleep 0.05; i=$((i + 1)); done; echo > finished"
    )


def arrange(project: Project, phase: str) -> Traces:
    """A project whose run takes its time in one phase, and completes quickly when resumed."""
    left = traces(project)
    steps = dict.fromkeys(PHASES, "true") | {"agent" if phase == "pause" else phase: slow(left)}
    for key, value in (("user.name", "Test"), ("user.email", "test@localhost")):
        project.git("config", key, value)
    hook = project.path / ".git/hooks/pre-commit"
    hook.write_text(f"#!/bin/sh\ncd {project.path}\n{steps['commit']}\n")
    hook.chmod(0o755)
    scm = {"scm": {"command": "git", "tasks": ["commit"]}} if phase in ("message", "commit") else {}
    project.agent(
        f'case "$1" in *"commit message"*) cd {project.path}; {steps["message"]}; echo Write a file; exit;; esac\n'
        f"echo new > work; [ -e again ] && {DONE} && exit\n{steps['agent']}",
        guardrails=[{"command": project.script("check.sh", steps["guardrail"])}],
        snapshots=True,
        **scm,
    )
    return left


def interrupt(ralph: Watched, how: str) -> None:
    """Send signals one after the other, each after the previous one was handled."""
    for number, told in zip(SIGNALS[how], (TOLD, NOW), strict=False):
        ralph.process.send_signal(number)
        ralph.wait_for(told)


def log_of(project: Project) -> list[str]:
    return project.git("log", "--format=%s").splitlines()


@pytest.mark.parametrize(("phase", "how"), MOMENTS)
def test_p9_signals_stop_a_run_cleanly(repository: Project, phase: str, how: str) -> None:
    """One signal lets the current step finish, two do not; then the run can be resumed, and completes."""
    project, left = repository, arrange(repository, phase)
    ralph = started(project)
    wait_until((project.path / "ready").exists)
    is_over = len(SIGNALS[how]) == 1
    if phase == "pause":
        assert project.run("pause", newest(project).id).code == 0
        (project.path / "go").touch()
        wait_until(lambda: newest(project).state == "paused")
        ralph.process.send_signal(SIGNALS[how][0])
        is_over = True
    else:
        interrupt(ralph, how)
    if is_over:
        (project.path / "go").touch()
    assert ralph.result().code == 130, ralph.said
    assert ": interrupted" not in ralph.said
    run = newest(project)
    assert (run.state, run.outcome, run.cause, run.pid) == ("ended", "interrupted", "signal", None)
    assert (project.path / "finished").exists() == is_over
    assert left.alive() == []
    assert is_free(project)
    assert not (project.path / ".git/index.lock").exists()
    for name in ("go", "again"):
        (project.path / name).touch()
    resumed = project.run("resume")
    assert resumed.code == 0, resumed.err
    assert newest(project).outcome == "complete"
    if phase in ("message", "commit"):
        assert log_of(project)[-2:] == ["Write a file", "First"], "interrupted work is committed on resume"


def test_p9_two_interrupts_in_the_commit_of_proved_work(repository: Project) -> None:
    """An interrupted commit is not a success: exit 130, and resume makes the commit."""
    project, left = repository, arrange(repository, "commit")
    (project.path / "again").touch()
    ralph = started(project)
    wait_until((project.path / "ready").exists)
    interrupt(ralph, "INT twice")
    code = ralph.result().code
    assert left.alive() == []
    (project.path / "go").touch()
    resumed = project.run("resume")
    assert (code, resumed.code, log_of(project)) == (130, 0, ["Write a file", "First"]), ralph.said


@pytest.mark.parametrize("way", ["signal", "cancel"])
def test_p9_a_running_commit_reacts_at_once(repository: Project, way: str) -> None:
    """While a hook hangs, a signal is acknowledged, and `ralph cancel` stops the hook."""
    project, left = repository, arrange(repository, "commit")
    ralph = started(project)
    wait_until((project.path / "ready").exists)
    try:
        if way == "signal":
            ralph.process.send_signal(signal.SIGINT)
            wait_until(lambda: TOLD in ralph.said)
        else:
            runs = project.home.runs()
            with closing(runs.db):
                runs.send(newest(project).id, Cancel(time.time()))
            wait_until(lambda: ralph.process.poll() is not None)
    finally:
        (project.path / "go").touch()
        assert ralph.result().code == 130, ralph.said
        assert left.alive() == []


ENDLESS_GRACE = """
import sys
from ralph.process import warden
warden.LIVE_GRACE = 600.0
from ralph.cli import main
sys.exit(main(["run", "-p", "x"]))
"""
"""ralph, with a grace period that no test can wait for."""


def test_p9_a_second_ctrl_c_kills_an_agent_that_does_not_obey(project: Project) -> None:
    """Two interrupts kill a stubborn agent at once, not after its grace period."""
    left = traces(project)
    project.agent(f"trap '' TERM INT HUP; {left.me()}; while :; do sleep 0.1; done")
    ralph = Watched(project, [sys.executable, "-c", ENDLESS_GRACE], project.home.path / "said")
    wait_until(lambda: left.count == 1)
    interrupt(ralph, "INT")
    ralph.process.send_signal(signal.SIGINT)
    assert ralph.result().code == 130
    assert left.alive() == []
    assert is_free(project)


# ---- the beginning and the end ----


IN_A_CALLBACK = """
import signal, sys
class Dying:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
class Finder:
    def find_spec(self, name, *more):
        if name == "{module}":
            Dying()
sys.meta_path.insert(0, Finder())
from ralph.cli import main
sys.exit(main(["run", "-p", "x", "-m", "1"]))
"""
"""ralph, with an interrupt at a moment of its start when Python drops exceptions."""


@pytest.mark.parametrize("module", ["ralph.commands.run", "ralph.runs.session"])
def test_p9_an_interrupt_during_the_start_is_never_lost(project: Project, module: str) -> None:
    """An interrupt while ralph is still loading stops it, and the agent is never started."""
    project.agent("echo > ready; echo working")
    code = IN_A_CALLBACK.format(module=module)
    ralph = Watched(project, [sys.executable, "-c", code], project.home.path / "said")
    assert ralph.result().code == -signal.SIGINT, (module, ralph.said)
    assert not (project.path / "ready").exists()
    assert "Traceback" not in ralph.said


CODES: dict[str | None, int] = {"interrupted": 130, "limit": 1}


@REPEATED
def test_p9_a_signal_at_the_very_beginning_leaves_nothing(project: Project) -> None:
    """Whenever it comes, the directory is free and no process is left.

    The moment is random: before, during or after the run. The exit code matches what happened.
    """
    chance = seeded()
    left = traces(project)
    project.agent(f"{left.me()}; sleep 0.2; echo working", maximumIterations=1)
    for _ in range(RUNS):
        number = chance.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
        moment = chance.uniform(0.0, 0.3)
        print(f"{number.name} after {moment:.4f} s")
        known = {run.id for run in status(project)}
        ralph = project.start("run", "-p", "x", real_process=True)
        time.sleep(moment)
        ralph.send_signal(number)
        result = finish(ralph)
        begun = [run.outcome for run in status(project) if run.id not in known]
        assert result.code != 0 and [result.code] * len(begun) == [CODES[outcome] for outcome in begun]
        wait_until(lambda: not left.alive(), 10)
        assert [run for run in status(project) if run.pid is not None] == []
        assert is_free(project)


def test_p9_a_stored_run_is_interrupted_not_crashed(project: Project) -> None:
    """As soon as a run is visible, a signal makes it an interrupted one that can be resumed."""
    project.agent("sleep 0.1; echo working", maximumIterations=9)
    project.home.runs().db.close()
    with closing(sqlite3.connect(project.home.database)) as db:
        for count, number in enumerate((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), 1):
            ralph = project.start("run", "-p", "x")
            query = f"SELECT count(*) = {count} FROM runs"
            wait_until(lambda query=query: db.execute(query).fetchone()[0], every=0.0)  # type: ignore[misc]
            ralph.send_signal(number)
            assert finish(ralph).code == 130
    assert [run.outcome for run in status(project)] == ["interrupted"] * 3


def test_p9_a_signal_during_exit_does_not_change_the_exit_code(project: Project) -> None:
    """A run that has reported its end exits with the code of that end."""
    project.agent(DONE)
    codes = []
    for delay, number in enumerate([signal.SIGINT, signal.SIGTERM] * max(2, RUNS // 2)):
        ralph = project.start("run", "-p", "x")
        assert ralph.stdout is not None
        assert ralph.stdout.readline().startswith("Unverified")
        time.sleep(delay % 10 * 0.004)
        ralph.send_signal(number)
        codes.append(finish(ralph).code)
    assert codes == [0] * len(codes)


def test_p9_waiting_for_a_killed_run_can_be_interrupted(project: Project) -> None:
    """A resume that waits for the processes of a killed run stops at the first signal, and changes nothing."""
    left = traces(project)
    project.agent(
        f"trap 'until [ -e go ]; do sleep 0.02; done; exit' TERM; trap '' PIPE; {left.me()}\n"
        "while :; do sleep 0.1; done"
    )
    first = project.start("run", "-p", "x")
    wait_until(lambda: left.count == 1)
    killed(first)
    ralph = started(project, "resume")
    ralph.wait_for("Waiting for the processes of a killed run to exit")
    ralph.process.send_signal(signal.SIGINT)
    assert ralph.result().code == 130, ralph.said
    assert "Traceback" not in ralph.said
    assert newest(project).state == "crashed"
    (project.path / "go").touch()
    wait_until(lambda: not left.alive())


# ---- terminals ----


def test_p9_nohup_is_respected(project: Project) -> None:
    """`nohup ralph run …` keeps running when its terminal closes, and still reacts to an interrupt."""
    project.agent("echo > ready; until [ -e go ]; do sleep 0.02; done; echo working")
    ralph = Watched(project, ["nohup", RALPH, "run", "-p", "x"], project.home.path / "said")
    wait_until((project.path / "ready").exists)
    ignored = Path(f"/proc/{ralph.process.pid}/status").read_text().partition("SigIgn:")[2].split()[0]
    assert int(ignored, 16) >> (signal.SIGHUP - 1) & 1, "SIGHUP stays ignored"
    ralph.process.send_signal(signal.SIGHUP)
    ralph.process.send_signal(signal.SIGTERM)
    ralph.wait_for(TOLD)
    (project.path / "go").touch()
    assert ralph.result().code == 130
    assert NOW not in ralph.said, "the first of them was ignored"


class Terminal:
    """A ralph in its own terminal."""

    def __init__(self, project: Project) -> None:
        self.master, slave = pty.openpty()
        self.ralph = subprocess.Popen(
            ["setsid", "-c", RALPH, "run", "-p", "x"],
            cwd=project.path,
            env=project.env | {"TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)

    def wait_for(self, words: str) -> None:
        os.set_blocking(self.master, False)
        seen = bytearray()

        def has_come() -> bool:
            try:
                seen.extend(os.read(self.master, 65536))
            except BlockingIOError:
                pass
            return words.encode() in seen

        wait_until(has_come)


def test_p9_a_terminal_that_is_closed_interrupts_the_run(project: Project) -> None:
    """Closing the window is a signal and a dead stream at once: interrupted, no process left, nothing locked."""
    left = traces(project)
    project.agent(f"{left.me()}; echo > ready; for i in 1 2 3; do echo talking; sleep 0.2; done")
    terminal = Terminal(project)
    wait_until((project.path / "ready").exists)
    os.close(terminal.master)
    assert terminal.ralph.wait(30) == 130
    run = newest(project)
    assert (run.outcome, run.cause, run.iteration) == ("interrupted", "signal", 1)
    assert left.alive() == []
    assert is_free(project)


def test_p9_ctrl_c_on_the_keyboard_reaches_only_ralph(project: Project) -> None:
    """The key interrupts ralph; the agent is not attached to that terminal and finishes its work."""
    project.agent(
        "trap 'echo > hit' INT TERM HUP; echo > ready; until [ -e go ]; do sleep 0.02; done; echo > finished"
    )
    terminal = Terminal(project)
    wait_until((project.path / "ready").exists)
    os.write(terminal.master, b"\x03")
    terminal.wait_for(TOLD)
    (project.path / "go").touch()
    assert terminal.ralph.wait(30) == 130
    os.close(terminal.master)
    assert (project.path / "finished").exists() and not (project.path / "hit").exists()
    assert newest(project).iteration == 1


@pytest.mark.parametrize("way", ["timeout", "two interrupts"])
def test_p9_a_terminal_that_does_not_read_blocks_nothing(project: Project, way: str) -> None:
    """With output halted (Ctrl-S, a pager), time limits and a second Ctrl-C still work."""
    left = traces(project)
    project.agent(
        f"{left.me()}; yes | head -c 2000000; echo > ready; sleep 50",
        iterationTimeoutSeconds=1 if way == "timeout" else 0,
        maximumIterations=1,
    )
    ralph = project.start("run", "-p", "x")
    try:
        wait_until((project.path / "ready").exists)
        for number in SIGNALS["INT twice"] if way == "two interrupts" else ():
            ralph.send_signal(number)
            time.sleep(0.1)
        wait_until(lambda: not left.alive(), 10)
        if IS_FULL:
            assert ralph.wait(20) == (1 if way == "timeout" else 130)
    finally:
        killed(ralph)
