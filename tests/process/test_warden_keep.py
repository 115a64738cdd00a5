"""Commands whose leftover processes stay alive: kept, counted, swept, and some of them spared."""

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
from process.process_support import PATH, PREAMBLE, Collected, Rig, after, bounded, rigged
from ralph.core.model import Ended
from ralph.process import warden as program
from ralph.process.client import ProcessCommand, Wakeup, Warden
from ralph.store.runs import process_start

LEFT = "for i in 1 2; do sleep 60 > /dev/null 2>&1 & echo $! >> pids; done"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with rigged(tmp_path) as found:
        yield found


def lives(pid: int) -> bool:
    return process_start(pid) is not None


def is_reaped(pid: int) -> bool:
    """Whether even its zombie is gone, which spares the processes above it."""
    return not Path(f"/proc/{pid}").exists()


def number(rig: Rig, name: str) -> int:
    return int(rig.wait_for(name))


def test_leftovers_live_until_they_are_swept(rig: Rig) -> None:
    """Other commands run meanwhile."""
    rig.warden.keep(lambda: ())
    rig.sh(LEFT)
    rig.sh("true")
    assert (rig.warden.leftovers(), len(rig.survivors())) == (2, 2)
    rig.warden.sweep()
    assert (rig.warden.leftovers(), rig.survivors()) == (0, [])


def test_a_sweep_with_nothing_to_sweep(rig: Rig) -> None:
    """It finishes, and nothing is left."""
    rig.warden.keep(lambda: ())
    rig.warden.sweep()
    assert rig.warden.leftovers() == 0


def test_kept_processes_end_with_the_warden(tmp_path: Path) -> None:
    """All of them are killed, spared processes too."""
    with rigged(tmp_path) as rig:
        rig.warden.keep(lambda: ())
        rig.sh(LEFT)
        first, _ = rig.survivors()
        rig.warden.sweep([first])
        assert rig.survivors() == [first]
    wait_until(lambda: not rig.survivors())


def test_a_spared_process_stays_with_its_descendants(rig: Rig) -> None:
    """The others are killed, and it does not count as left over."""
    rig.warden.keep(lambda: ())
    below = "sh -c 'echo $$ > above; sleep 60 & echo $! > below; wait' > /dev/null 2>&1 &"
    rig.sh(f"{LEFT}; {below} until [ -e below ]; do sleep 0.01; done")
    rig.warden.sweep([number(rig, "above")])
    assert lives(number(rig, "above")) and lives(number(rig, "below")) and not rig.survivors()
    assert rig.warden.leftovers() == 0
    rig.warden.sweep()
    assert not lives(number(rig, "above")) and not lives(number(rig, "below"))


def test_a_shell_that_waits_for_a_spared_process_is_spared_too(rig: Rig) -> None:
    """A shell above it stays as long as it does, and is left over when it is gone."""
    rig.warden.keep(lambda: ())
    script = "sh -c 'echo $$ > shell; sleep 60 & echo $! > run; wait; exec sleep 60' > /dev/null 2>&1 &"
    rig.sh(f"{LEFT}; {script} until [ -e run ]; do sleep 0.01; done")
    run, shell = number(rig, "run"), number(rig, "shell")
    rig.warden.sweep([run])
    assert lives(run) and lives(shell) and not rig.survivors()
    rig.sh(f"kill {run}")
    wait_until(lambda: is_reaped(run))
    assert lives(shell) and rig.warden.leftovers() == 1
    rig.warden.sweep([run])
    assert not lives(shell)


@pytest.mark.parametrize("trap", ["", "trap '' TERM;"], ids=["dies", "ignores TERM"])
def test_a_stopped_command_takes_all_but_spared_processes_with_it(
    rig: Rig, trap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command itself is killed, whatever is below it, and so are its other processes."""
    monkeypatch.setattr(program, "LIVE_GRACE", 1.0)
    rig.warden.keep(lambda: [number(rig, "spared")])
    script = (
        f"{trap} {LEFT}; sh -c 'echo $$ > spared; exec sleep 60' > /dev/null 2>&1 & wait; sleep 60; sleep 60"
    )
    rig.sh(script, after(0.5))
    assert rig.exit.ended is Ended.TIMEOUT
    assert not rig.survivors() and lives(number(rig, "spared"))


@pytest.mark.slow
def test_a_command_after_a_stopped_one_has_its_own_deadline(rig: Rig) -> None:
    """The deadline of the previous command does not affect it."""
    rig.warden.keep(lambda: ())
    rig.sh("sleep 60", after(0.1))
    rig.sh("sleep 6")
    assert (rig.exit.code, rig.exit.signal) == (0, None)


def test_nothing_is_left_over_after_a_lost_warden(rig: Rig) -> None:
    """Another warden replaces it, and the processes that the lost one kept are gone."""
    rig.warden.keep(lambda: ())
    rig.sh(LEFT)
    rig.sh("kill -9 $PPID; sleep 60")
    assert rig.exit.lost
    assert (rig.warden.leftovers(), rig.survivors()) == (0, [])


# ---- a lost warden and spared processes ----

SPARED = "sh -c 'echo $$ > spared; exec sleep 60' > /dev/null 2>&1 & until [ -s spared ]; do sleep 0.01; done"
LOST = "kill -9 $PPID; sleep 60"


@pytest.fixture
def careful(rig: Rig) -> Rig:
    """A rig that spares the process whose PID is in the file `spared`."""
    rig.warden.keep(lambda: [number(rig, "spared")] if (rig.path / "spared").exists() else [])
    return rig


def test_a_spared_process_outlives_a_lost_warden(careful: Rig) -> None:
    """The others are killed. It counts as left over, and later sweeps spare or kill it like any other."""
    rig = careful
    rig.sh(f"echo $$ >> pids; {LEFT}; {SPARED}; {LOST}")
    assert rig.exit.lost and len(rig.survivors()) == 0
    spared = number(rig, "spared")
    assert lives(spared) and rig.warden.leftovers() == 1
    rig.sh("true")
    rig.warden.sweep([spared])
    assert lives(spared)
    rig.warden.sweep()
    assert not lives(spared) and rig.warden.leftovers() == 0


def test_a_spared_process_outlives_several_lost_wardens(careful: Rig) -> None:
    """It can still be swept, whichever warden is running."""
    rig = careful
    rig.sh(f"{SPARED}; {LOST}")
    for _ in range(3):
        rig.sh(f"{LEFT}; {LOST}")
        assert rig.exit.lost and lives(number(rig, "spared")) and not rig.survivors()
    rig.warden.sweep()
    assert not lives(number(rig, "spared"))


def test_a_command_dies_with_its_warden_even_if_a_descendant_is_spared(careful: Rig) -> None:
    """Processes between the two outlive the spared one by at most one sweep."""
    rig = careful
    inner = 'echo $$ > shell; sh -c "echo \\$\\$ > spared; exec sleep 60"; exec sleep 60'
    rig.sh(
        f"echo $$ >> pids; warden=$PPID; (until [ -s spared ]; do sleep 0.01; done; kill -9 $warden) &\n"
        f"sh -c '{inner}' > /dev/null 2>&1; sleep 60"
    )
    assert rig.exit.lost and not rig.survivors()
    spared, shell = number(rig, "spared"), number(rig, "shell")
    assert lives(spared) and lives(shell) and rig.warden.leftovers() == 1
    os.kill(spared, signal.SIGKILL)
    wait_until(lambda: is_reaped(spared))
    rig.warden.sweep([spared])
    assert not lives(shell)


def test_a_warden_that_is_lost_during_the_last_sweep(careful: Rig) -> None:
    """Then no process is spared."""
    rig = careful
    warden = rig.warden_pid()
    rig.sh(f"{LEFT}; {SPARED}")
    os.kill(warden, signal.SIGKILL)
    rig.warden.sweep()
    assert not lives(number(rig, "spared")) and not rig.survivors()


def test_spared_processes_end_with_the_warden(tmp_path: Path) -> None:
    """Leaving the warden kills it, like everything else."""
    with rigged(tmp_path) as rig:
        rig.warden.keep(lambda: [number(rig, "spared")])
        rig.sh(f"{SPARED}; {LOST}")
        assert lives(number(rig, "spared"))
    assert not lives(number(rig, "spared"))


def test_another_thread_leaves_spared_processes_alone(careful: Rig) -> None:
    """A process spared by one run is not an orphan for another run that loses its warden."""
    rig = careful
    rig.sh(f"{SPARED}; {LOST}")
    lost: list[bool] = []

    def work() -> None:
        with Warden(Wakeup()) as other:
            command = ProcessCommand(["/bin/sh", "-c", LOST], {"PATH": PATH}, rig.directory)
            lost.append(other.run(command, Collected(), bounded).lost)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert lost == [True] and lives(number(rig, "spared"))


NESTED = """
sh -c 'echo $$ >> pids
    sleep 60 & echo $! >> pids
    sh -c "trap : TERM; echo \\$\\$ >> pids; while :; do sleep 0.1; done" &
    sh -c "echo \\$\\$ >> pids; echo \\$\\$ > spared; exec sleep 60"
    wait' > /dev/null 2>&1 &
until [ -s spared ] && [ $(wc -l < pids) = 4 ]; do sleep 0.01; done
kill -9 $PPID; sleep 60
"""


@pytest.mark.slow
def test_spared_processes_end_when_ralph_is_killed(tmp_path: Path) -> None:
    """The new warden kills it, along with the shell that waits for it and that shell's processes, whether
    they obey TERM or not."""
    script = tmp_path / "driver.py"
    script.write_text(
        PREAMBLE
        + f"""
warden = Warden(Wakeup())
warden.keep(lambda: [int(open("spared").read())])
run(warden, ["/bin/sh", "-c", {NESTED!r}])
open("alive", "w").write(str(all(os.path.exists(f"/proc/{{pid}}") for pid in open("pids").read().split())))
os.kill(os.getpid(), 9)
"""
    )
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, timeout=30)
    assert (tmp_path / "alive").read_text() == "True"
    assert len(Recorded(tmp_path / "pids").pids()) == 4
    wait_until(lambda: not Recorded(tmp_path / "pids").alive())
