"""Stopping a command: grace periods, interrupts, and stops that come too late."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import wait_until
from process.process_support import FOREVER, Collected, Rig, after, lines_in, rigged
from ralph.core.model import Ended, Exit
from ralph.process import warden as program
from ralph.store.runs import process_start


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with rigged(tmp_path) as found:
        yield found


@pytest.fixture
def endless_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the grace period longer than any test can take, so that waiting for it times out."""
    monkeypatch.setattr(program, "LIVE_GRACE", FOREVER)


@pytest.mark.usefixtures("endless_grace")
def test_a_command_that_obeys_stops_at_once(rig: Rig) -> None:
    """TERM reaches the command and its children, and the grace period is not waited for."""
    rig.sh(
        "sh -c 'trap \"echo child >> ended; exit\" TERM; echo >> ready; sleep 60 & wait' &\n"
        "trap 'echo parent >> ended; wait; exit 7' TERM; echo >> ready; wait",
        lambda seconds, idle: Ended.TIMEOUT if lines_in(rig.path / "ready") == 2 else None,
    )
    assert rig.exit == Exit(code=7, ended=Ended.TIMEOUT, seconds=rig.exit.seconds, passes=rig.exit.passes)
    assert sorted((rig.path / "ended").read_text().split()) == ["child", "parent"]


def test_a_command_that_does_not_obey_is_killed_after_its_grace(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TERM, a grace period in which it keeps running, then KILL, also for its children."""
    monkeypatch.setattr(program, "LIVE_GRACE", 1.0)
    rig.sh(
        "trap '' INT HUP; trap 'echo TERM > heard' TERM; echo $$ >> pids; sleep 60 & echo $! >> pids\n"
        "while :; do sleep 0.05; [ -e heard ] && echo on > went; done",
        lambda seconds, idle: Ended.TIMEOUT if lines_in(rig.path / "pids") == 2 else None,
    )
    assert (rig.exit.signal, rig.exit.ended) == (signal.SIGKILL, Ended.TIMEOUT)
    assert (rig.path / "heard").exists() and (rig.path / "went").exists()
    assert rig.survivors() == []


def test_a_suspended_command_is_killed(rig: Rig) -> None:
    """A command that suspended itself is continued so that it receives TERM."""
    rig.sh("echo $$ >> pids; kill -STOP $$; sleep 60", after(0.5, Ended.IDLE))
    assert (rig.exit.signal, rig.exit.ended) == (signal.SIGTERM, Ended.IDLE)
    assert rig.survivors() == []


STUBBORN = "trap '' TERM INT HUP; echo $$ >> pids; while :; do sleep 0.1; done"


@pytest.mark.usefixtures("endless_grace")
def test_a_second_interrupt_kills_at_once(rig: Rig) -> None:
    """After a second interrupt, the grace period is not waited for."""

    def watch(seconds: float, idle: float) -> Ended | None:
        if lines_in(rig.path / "pids") == 1 and not rig.wakeup.count:
            rig.wakeup.interrupt()
            rig.wakeup.interrupt()
        return Ended.INTERRUPTED if rig.wakeup.count > 1 else None

    rig.sh(STUBBORN, watch)
    assert (rig.exit.signal, rig.exit.ended) == (signal.SIGKILL, Ended.INTERRUPTED)
    assert rig.survivors() == []


@pytest.mark.usefixtures("endless_grace")
def test_an_interrupt_cuts_the_grace_short(rig: Rig) -> None:
    """An interrupt kills a command that ignored TERM."""
    ended: list[Ended] = []

    def watch(seconds: float, idle: float) -> Ended | None:
        if lines_in(rig.path / "pids") != 1:
            return None
        ended.append(Ended.TIMEOUT)
        threading.Timer(0.5, rig.wakeup.interrupt).start()
        return Ended.TIMEOUT

    rig.sh(STUBBORN, watch)
    assert (rig.exit.signal, rig.exit.ended) == (signal.SIGKILL, Ended.TIMEOUT)
    assert len(ended) == 1


def test_an_end_that_comes_too_late_does_not_hit_the_next_command(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that exits just as it times out does not affect the next one."""
    monkeypatch.setattr(program, "LIVE_GRACE", 0.3)

    class Late(Collected):
        """Reads the output only after the command that printed it has been swept."""

        def stdout(self, data: bytes) -> None:
            wait_until(lambda: process_start(int(data)) is None)
            time.sleep(0.3)
            self.out += data

    late = Late()
    rig.sh("sleep 0.3; echo $$", lambda seconds, idle: Ended.TIMEOUT if late.out else None, late)
    assert rig.exit.code == 0
    rig.sh("sleep 1")
    assert rig.exit == Exit(code=0, seconds=rig.exit.seconds)
