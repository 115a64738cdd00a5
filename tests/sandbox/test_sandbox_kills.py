"""ralph or its warden is killed with -9 at any moment while agents run inside bubblewrap: no process is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import Project, wait_until
from faults.fault_support import REPEATED, RUNS, finish, seeded, status
from sandbox_support import BUBBLEWRAP

pytestmark = BUBBLEWRAP

AGENT = """
setsid sh -c 'trap "" TERM; exec sleep 61' &
( ( setsid sleep 62 & ) & )
nohup sleep 63 >/dev/null 2>&1 &
echo "$RALPH_ITERATION" >>started
sleep 0.0$((RALPH_ITERATION * 37 % 10))
[ "$RALPH_ITERATION" -ge 4 ] && echo '<response>DONE</response>' || echo working
"""


def living(project: Project) -> dict[int, bytes]:
    """Return every process of this project, inside or outside, by its home or its directory."""
    home = f"HOME={project.home.path}\0".encode()
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_there = os.readlink(place / "cwd").startswith(str(project.path))
            if is_there or home in (place / "environ").read_bytes():
                state = (place / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    found[int(place.name)] = (place / "cmdline").read_bytes()
    return found


def is_anybody_left(project: Project) -> bool:
    return bool(living(project))


def wardens(ralph: int) -> list[int]:
    """Return the children of ralph."""
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/{ralph}/task/{ralph}/children").read_text().split()]
    return []


def kill_once(project: Project, chance: random.Random, *, warden: bool) -> bool:
    """Kill one run at a random moment, then finish it. Returns whether the kill hit a live process."""
    project.agent(
        AGENT, guardrails=[{"command": "sleep 0.04; sleep 64 & true"}], sandbox={"rung": "bubblewrap"}
    )
    command = ["run", "-p", "x", "-m", "9"]
    ralph = project.start(*command)
    with suppress(subprocess.TimeoutExpired):
        ralph.wait(chance.uniform(0.2, 1.8))
    is_met = ralph.poll() is None
    victims = wardens(ralph.pid) if warden else [ralph.pid]
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if not warden:
        ralph.communicate(timeout=30)
        wait_until(lambda: not is_anybody_left(project), 20)
    else:
        finish(ralph)
    while (found := status(project)) and found[0].outcome != "complete":
        finish(project.start("resume", found[0].id, "-m", "20"))
    assert living(project) == {}
    return is_met and bool(victims)


@REPEATED
@pytest.mark.slow
@pytest.mark.parametrize("warden", [False, True], ids=["ralph", "warden"])
def test_p3_a_kill_leaves_no_process_behind(tmp_path: Path, warden: bool) -> None:
    """RALPH_FAULT_RUNS sets the number of random moments; only kills that hit a live process count."""
    chance, met, tries = seeded(), 0, 0
    while met < RUNS:
        tries += 1
        assert tries < 10 * RUNS + 10
        project = fresh(tmp_path / str(tries))
        met += kill_once(project, chance, warden=warden)
    print(f"{met} kills of {tries} runs: nobody left")


def fresh(place: Path) -> Project:
    from ralph.store.home import Home

    (place / "project").mkdir(parents=True)
    (place / "state").mkdir()
    return Project(place / "project", Home(place / "state"))
