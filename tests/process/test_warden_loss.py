"""Loss of the warden, and loss of the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Recorded, wait_until
from process.process_support import PATH, PREAMBLE, Collected, Rig, bounded, rigged
from ralph.core.model import Exit
from ralph.process import step
from ralph.process import warden as program
from ralph.process.client import ProcessCommand, Wakeup, Warden
from ralph.process.warden import children_by_parent
from ralph.store.runs import process_start


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with rigged(tmp_path) as found:
        yield found


@pytest.mark.parametrize("last", ["exit 0", "sleep 60", "exec setsid sleep 60"])
def test_a_command_that_kills_its_warden_is_swept_by_us(rig: Rig, last: str) -> None:
    """The loss is reported, the whole tree is gone, and another warden runs the next command."""
    first = rig.warden_pid()
    others = set(children_by_parent()[os.getpid()]) - {first}
    rig.sh(
        "echo $$ >> pids; sleep 60 & echo $! >> pids\n"
        "setsid sh -c 'trap \"\" TERM; echo $$ >> pids; exec sleep 60' &\n"
        f"until [ $(wc -l < pids) -ge 3 ]; do sleep 0.02; done; kill -9 $PPID; {last}"
    )
    assert (rig.exit.lost, rig.exit.code, rig.exit.ended) == (True, None, None)
    assert len((rig.path / "pids").read_text().split()) == 3
    assert rig.survivors() == []
    second = rig.warden_pid()
    assert second != first
    assert set(children_by_parent()[os.getpid()]) - others == {second}, "an orphan was not reaped"


def test_output_from_before_the_warden_died_is_not_lost(rig: Rig) -> None:
    """Output that is still in the pipe is read."""
    collected = rig.sh("echo before; kill -9 $PPID; sleep 60")
    assert rig.exit.lost
    assert collected.out == b"before\n"


def test_a_command_that_stops_its_warden_is_swept_by_us(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warden that does not answer is killed and replaced, and its tree is swept."""
    monkeypatch.setattr(step, "ANSWER_SECONDS", 1.0)
    first = rig.warden_pid()
    rig.sh("echo $$ >> pids; sleep 60 & echo $! >> pids; kill -STOP $PPID; sleep 60")
    assert (rig.exit.lost, rig.exit.code) == (True, None)
    assert rig.survivors() == []
    assert process_start(first) is None
    assert rig.warden_pid() != first


def test_the_warden_ignores_every_signal_that_can_be_ignored(rig: Rig) -> None:
    """TERM, INT, HUP and PIPE do not stop it, whoever sends them."""
    rig.sh("kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; kill -PIPE $PPID; exit 5")
    assert rig.exit == Exit(code=5, seconds=rig.exit.seconds)


@pytest.mark.slow
def test_another_thread_is_not_affected_by_a_lost_warden(rig: Rig, tmp_path: Path) -> None:
    """The orphans of one warden are swept, and processes of another one keep running."""
    other = Wakeup()
    done: list[Exit] = []

    def work() -> None:
        with Warden(other) as warden:
            command = ProcessCommand(
                ["/bin/sh", "-c", "echo > ready; sleep 2; exit 9"], {"PATH": PATH}, rig.directory
            )
            done.append(warden.run(command, Collected(), bounded))

    thread = threading.Thread(target=work)
    thread.start()
    rig.wait_for("ready")
    for _ in range(3):
        rig.sh("setsid sleep 60 & kill -9 $PPID; sleep 60")
        assert rig.exit.lost
    thread.join(30)
    assert [exit.code for exit in done] == [9]


def test_an_unkillable_process_does_not_delay_the_sweep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up after a while, and not waited for again."""
    kill = program._kill

    def kill_others(pid: int, signum: int) -> None:
        if (rig.path / "stuck").read_text() != f"{pid}\n":
            kill(pid, signum)

    monkeypatch.setattr(program, "GIVE_UP", 0.3)
    monkeypatch.setattr(program, "_kill", kill_others)
    monkeypatch.setattr(program, "_kill_group_of", lambda child: None)
    rig.sh(
        "(setsid sh -c 'echo $$ > stuck; exec sleep 60' &); until [ -s stuck ]; do sleep 0.01; done\n"
        "kill -9 $PPID; sleep 60"
    )
    stuck = int(rig.wait_for("stuck"))
    assert rig.exit.lost and process_start(stuck) is not None
    rig.sh("kill -9 $PPID; sleep 60")
    assert rig.exit.passes < 10 and process_start(stuck) is not None
    os.kill(stuck, signal.SIGKILL)


def test_a_child_older_than_ralph_is_spared(tmp_path: Path) -> None:
    """`server & exec ralph run …` makes the server our child: losing a warden must not kill it."""
    script = tmp_path / "driver.py"
    script.write_text(
        PREAMBLE
        + """
with Warden(Wakeup()) as warden:
    run(warden, ["/bin/sh", "-c", "sleep 60 & kill -9 $PPID; sleep 60"])
"""
    )
    subprocess.run(
        ["/bin/sh", "-c", f"sleep 30 & echo $! > server; exec {sys.executable} {script}"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        timeout=60,
    )
    server = int((tmp_path / "server").read_text())
    start = process_start(server)
    if start is not None:
        os.kill(server, signal.SIGKILL)
    assert start is not None


def test_a_suspended_warden_cannot_hold_a_large_command_forever(tmp_path: Path) -> None:
    """A warden that stops reading counts as lost, even while a long command line is sent to it."""
    script = tmp_path / "driver.py"
    script.write_text(
        PREAMBLE
        + """
import signal
client.ANSWER_SECONDS = 0.5
with Warden(Wakeup()) as warden:
    run(warden, ["/bin/sh", "-c", "echo $PPID > warden"])
    os.kill(int(open("warden").read()), signal.SIGSTOP)
    print(run(warden, ["/bin/sh", "-c", "exit 0", *("x" * 100_000 for _ in range(10))]).lost)
"""
    )
    driver = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        out, _ = driver.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        driver.kill()
        os.kill(int((tmp_path / "warden").read_text()), signal.SIGCONT)
        out, _ = driver.communicate()
    assert out == b"True\n"


TREE = (
    "echo $$ >> pids; sleep 60 & echo $! >> pids\n"
    "setsid sh -c 'echo $$ >> pids; exec sleep 60' &\n"
    "( ( sh -c 'echo $$ >> pids; echo $PPID > /dev/null; exec sleep 60' & ) & )\n"
    "echo $PPID >> pids; until [ $(wc -l < pids) -ge 5 ]; do sleep 0.02; done; echo ready > ready; sleep 60"
)
LEAVE = {
    "killed": "os.kill(os.getpid(), 9)",
    "exit without goodbye": "os._exit(0)",
    "exception": "raise RuntimeError",
    "stopped, then killed": "os.kill(os.getpid(), 19)",
}


@pytest.mark.parametrize("way", LEAVE)
def test_the_tree_dies_with_whoever_started_the_warden(tmp_path: Path, way: str) -> None:
    """However the process with the other end of the socket dies, the warden and its tree are gone too."""
    script = tmp_path / "driver.py"
    script.write_text(
        PREAMBLE
        + f"""
def watch(seconds, idle):
    if os.path.exists("ready"):
        {LEAVE[way]}

with Warden(Wakeup()) as warden:
    run(warden, ["/bin/sh", "-c", {TREE!r}], watch=watch)
"""
    )
    driver = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, stderr=subprocess.DEVNULL)
    wait_until(lambda: (tmp_path / "ready").exists())
    if way == "stopped, then killed":
        wait_until(lambda: state_of(driver.pid) == "T")
        driver.kill()
    driver.wait(30)
    wait_until(lambda: not Recorded(tmp_path / "pids").alive(), 15)
    assert len((tmp_path / "pids").read_text().split()) == 5


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_leaving_does_not_leave_the_tree_of_a_stopped_warden(tmp_path: Path) -> None:
    """If the warden has to be killed when leaving, its tree is still swept."""
    script = tmp_path / "driver.py"
    script.write_text(
        PREAMBLE
        + """
def watch(seconds, idle):
    if os.path.exists("ready"):
        client.warden.LIVE_GRACE = -1.0
        raise RuntimeError

with Warden(Wakeup()) as warden:
    run(warden, ["/bin/sh", "-c", "echo $$ >> pids; kill -STOP $PPID; echo > ready; exec sleep 40"], watch=watch)
"""
    )
    driver = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, stderr=subprocess.DEVNULL)
    driver.wait(30)
    left = Recorded(tmp_path / "pids").alive()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []
