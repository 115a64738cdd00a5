"""Commands whose leftovers live on: kept, counted, swept, and some of them spared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import wait_until
from process.process_support import Rig, after, rigged
from ralph.core.model import Ended
from ralph.store.runs import process_start

LEFT = "for i in 1 2; do sleep 60 > /dev/null 2>&1 & echo $! >> pids; done"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with rigged(tmp_path) as found:
        yield found


def lives(pid: int) -> bool:
    return process_start(pid) is not None


def number(rig: Rig, name: str) -> int:
    return int(rig.wait_for(name))


def test_leftovers_live_until_they_are_swept(rig: Rig) -> None:
    """Other commands come and go meanwhile."""
    rig.warden.keep(lambda: ())
    rig.sh(LEFT)
    rig.sh("true")
    assert (rig.warden.leftovers(), len(rig.survivors())) == (2, 2)
    rig.warden.sweep()
    assert (rig.warden.leftovers(), rig.survivors()) == (0, [])


def test_a_sweep_with_nothing_to_sweep(rig: Rig) -> None:
    """It is over at once."""
    rig.warden.keep(lambda: ())
    began = time.monotonic()
    rig.warden.sweep()
    assert time.monotonic() - began < 1


def test_the_end_of_the_warden_is_the_end_of_what_it_kept(tmp_path: Path) -> None:
    """Spared or not."""
    with rigged(tmp_path) as rig:
        rig.warden.keep(lambda: ())
        rig.sh(LEFT)
        first, _ = rig.survivors()
        rig.warden.sweep([first])
        assert rig.survivors() == [first]
    wait_until(lambda: not rig.survivors())


def test_one_that_is_spared_stays_with_what_is_below_it(rig: Rig) -> None:
    """The others go, and it does not count as left behind."""
    rig.warden.keep(lambda: ())
    below = "sh -c 'echo $$ > above; sleep 60 & echo $! > below; wait' > /dev/null 2>&1 &"
    rig.sh(f"{LEFT}; {below} until [ -e below ]; do sleep 0.01; done")
    rig.warden.sweep([number(rig, "above")])
    assert lives(number(rig, "above")) and lives(number(rig, "below")) and not rig.survivors()
    assert rig.warden.leftovers() == 0
    rig.warden.sweep()
    assert not lives(number(rig, "above")) and not lives(number(rig, "below"))


def test_what_waits_for_one_that_is_spared_is_spared_too(rig: Rig) -> None:
    """A shell above it stays as long as it does, and is left behind when it has gone."""
    rig.warden.keep(lambda: ())
    script = "sh -c 'echo $$ > shell; sleep 60 & echo $! > run; wait; exec sleep 60' > /dev/null 2>&1 &"
    rig.sh(f"{LEFT}; {script} until [ -e run ]; do sleep 0.01; done")
    run, shell = number(rig, "run"), number(rig, "shell")
    rig.warden.sweep([run])
    assert lives(run) and lives(shell) and not rig.survivors()
    rig.sh(f"kill {run}")
    wait_until(lambda: not lives(run))
    assert lives(shell) and rig.warden.leftovers() == 1
    rig.warden.sweep([run])
    assert not lives(shell)


@pytest.mark.parametrize("trap", ["", "trap '' TERM;"], ids=["dies", "ignores TERM"])
def test_a_command_that_is_ended_takes_all_but_the_spared_with_it(rig: Rig, trap: str) -> None:
    """The command itself is ended, whatever is below it; so is what else it has started."""
    rig.warden.keep(lambda: [number(rig, "spared")])
    script = (
        f"{trap} {LEFT}; sh -c 'echo $$ > spared; exec sleep 60' > /dev/null 2>&1 & wait; sleep 60; sleep 60"
    )
    rig.sh(script, after(0.5))
    assert rig.exit.ended is Ended.TIMEOUT and rig.exit.seconds < 9
    assert not rig.survivors() and lives(number(rig, "spared"))


def test_a_command_after_one_that_was_ended_has_its_own_time(rig: Rig) -> None:
    """The deadline of the one before does not reach it."""
    rig.warden.keep(lambda: ())
    rig.sh("sleep 60", after(0.1))
    rig.sh("sleep 6")
    assert (rig.exit.code, rig.exit.signal) == (0, None)


def test_how_many_there_are_when_the_warden_is_lost(rig: Rig) -> None:
    """Another takes its place; what the lost one kept is gone."""
    rig.warden.keep(lambda: ())
    rig.sh(LEFT)
    rig.sh("kill -9 $PPID; sleep 60")
    assert rig.exit.lost
    assert (rig.warden.leftovers(), rig.survivors()) == (0, [])
