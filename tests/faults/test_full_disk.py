"""D7: the disk is full, under the store or under the project; a run waits for space and loses nothing."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import RALPH, Project, some
from faults.fault_support import DONE, Watched, assert_clear, assert_sound, injected, newest
from journal_support import replayed
from ralph.store.home import Home

NO_ROOM = "No space left on the disk. Waiting for free space."

ON_A_SMALL_DISK = """
disk=$1 keep=$2 size=$3; shift 3
mkdir -p "$keep" && cp -a "$disk/." "$keep" && mount -t tmpfs -o size="$size" tmpfs "$disk" &&
    cp -a "$keep/." "$disk" && cd "$PWD" || exit 99
"$@"; code=$?
rm -f "$disk/filler"; cp -a "$disk/." "$keep"; exit $code
"""
"""Runs a command with a small disk mounted on a directory, and keeps a copy of its final content."""


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command line that runs a command with a separate disk, if this machine allows it."""
    words = ["unshare", "-rm", "sh", "-c", ON_A_SMALL_DISK, "sh"]
    disk = tmp_path_factory.mktemp("disk")
    if shutil.which("unshare"):
        tried = subprocess.run([*words, disk, f"{disk}-keep", "1m", "true"], check=False, capture_output=True)
        if tried.returncode == 0:
            return words
    pytest.skip("this machine does not let us mount anything")


def fill(disk: Path) -> str:
    """A shell command that leaves no byte free."""
    return f"head -c 4000000 /dev/zero > {disk}/filler 2>/dev/null"


def fills_once(disk: Path) -> str:
    """An agent that fills a disk in its first iteration and is done in its second."""
    return f"[ $RALPH_ITERATION = 1 ] && {{ {fill(disk)}; echo hm; }} || {DONE}"


def free(run: Watched, disk: Path) -> None:
    Path(f"/proc/{run.process.pid}/root{disk}/filler").unlink()


# ---- a real small disk ----


def test_d7_a_full_disk_under_the_store(project: Project, mounts: list[str], tmp_path: Path) -> None:
    """Without space for the journal the run waits, with one message; after that it continues, and nothing is lost."""
    disk, keep = project.home.path, tmp_path / "kept"
    project.agent(fills_once(disk))
    run = Watched(project, [*mounts, str(disk), str(keep), "2m", RALPH, "run", "-p", "x"], tmp_path / "log")
    run.wait_for(NO_ROOM)
    free(run, disk)
    result = run.result()
    assert (result.code, result.err.count(NO_ROOM)) == (0, 1), result.err
    home = Home(keep)
    assert_sound(home)
    found = newest(Project(project.path, home))
    assert (found.outcome, found.iteration) == ("complete", 2)
    assert replayed(home, found.id).iteration == 2


@pytest.mark.slow
def test_d7_a_full_disk_under_the_project(project: Project, mounts: list[str], tmp_path: Path) -> None:
    """Without space for a prompt the run waits, with a message; after that it runs to its end."""
    disk, keep = project.path, tmp_path / "kept"
    project.agent(fills_once(disk))
    words = [*mounts, str(disk), str(keep), "1m", RALPH, "run", "-p", "x" * 20_000]
    run = Watched(project, words, tmp_path / "log")
    run.wait_for(NO_ROOM)
    assert newest(project).state == "running"
    free(run, disk)
    result = run.result()
    assert result.code == 0, result.err
    assert replayed(project.home, newest(project).id).iteration == 2
    assert len((keep / ".ralph/prompt_002.txt").read_text()) > 20_000
    assert [name for name in os.listdir(keep / ".ralph") if name.startswith(".tmp-")] == []


def test_d7_a_truncated_log_is_reported(project: Project, mounts: list[str], tmp_path: Path) -> None:
    """A guardrail log truncated by a full disk is reported; the verdict does not change."""
    disk = project.path
    project.agent(f"{fill(disk)}; {DONE}", guardrails=[{"command": "head -c 100000 /dev/zero"}])
    words = [*mounts, str(disk), str(tmp_path / "kept"), "1m", RALPH, "run", "-p", "x"]
    result = Watched(project, words, tmp_path / "log").result()
    assert result.code == 0, result.err
    assert "guardrail_001_head_c_100000_dev_zero.log is incomplete: No space left on" in result.err


@pytest.mark.slow
def test_d7_a_truncated_stream_is_reported(project: Project, mounts: list[str], tmp_path: Path) -> None:
    """An agent's claim counts even if there was no space for its raw output."""
    disk = project.home.path
    project.agent(f"{fill(disk)}; head -c 300000 /dev/zero | tr '\\0' x; echo; {DONE}")
    words = [*mounts, str(disk), str(tmp_path / "kept"), "2m", RALPH, "run", "-p", "x"]
    run = Watched(project, words, tmp_path / "log")
    run.wait_for(NO_ROOM)
    free(run, disk)
    result = run.result()
    assert result.code == 0, result.err
    assert "Raw output of this iteration is incomplete: No space left on" in result.err


@pytest.mark.parametrize("where", ["store", "project"])
def test_d7_a_disk_that_is_full_from_the_start(
    project: Project, mounts: list[str], tmp_path: Path, where: str
) -> None:
    """A run that cannot even start reports that there is no space, and stops without offering to wait."""
    project.agent(DONE)
    disk = project.home.path if where == "store" else project.path
    command = ["sh", "-c", f'{fill(disk)}; exec "$@"', "sh", RALPH, "run", "-p", "x"]
    words = [*mounts, str(disk), str(tmp_path / "kept"), "64k", *command]
    result = Watched(project, words, tmp_path / "log").result()
    assert_clear(result, "o space left")
    assert NO_ROOM not in result.err


# ---- every place that writes ----


@pytest.mark.parametrize("site", some(["write", "mkdir", "open", "rename", "unlink"], 2))
def test_d7_no_room_at_any_place_that_writes(project: Project, tmp_path: Path, site: str) -> None:
    """Wherever the disk is full during a run, the run waits and then continues."""
    project.agent(
        f"[ $RALPH_ITERATION = 1 ] && touch broken; {DONE}",
        agent={"promptVia": "stdin"},
        guardrails=[{"command": "echo x; [ $RALPH_ITERATION = 2 ]"}],
    )
    run = Watched(project, injected(f"store.files.{site}", errno.ENOSPC, "run", "-p", "x"), tmp_path / "log")
    run.wait_for(NO_ROOM)
    (project.path / "broken").unlink()
    result = run.result()
    assert result.code == 0, result.err
    assert replayed(project.home, newest(project).id).iteration == 2


# ---- a store that cannot grow ----

SMALL_STORE = """
import os, sys, threading, time
from ralph.store import home
connections, connect = [], home.open_database

def counted(path, patience):
    connections.append(connect(path, patience))
    return connections[-1]

def watch():
    full = False
    while True:
        if os.path.exists("broken") != full:
            full = not full
            for db in connections:
                try:
                    pages = db.execute("PRAGMA page_count").fetchone()[0] if full else 1_000_000
                    db.execute(f"PRAGMA max_page_count = {pages}")
                except Exception:
                    pass
            os.rename("asked", "answered")
        time.sleep(0.005)

home.open_database = counted
threading.Thread(target=watch, daemon=True).start()
from ralph.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""ralph, with a store that cannot grow while the file `broken` exists."""

SMALL_STORE_AGENT = """
if [ "$RALPH_ITERATION" = 1 ]; then
    touch asked broken
    while [ ! -e answered ]; do sleep 0.01; done
fi
head -c 30000 /dev/zero | tr '\\0' x
echo
echo '<response>DONE</response>'
"""


def on_a_small_store(project: Project, log: Path) -> Watched:
    """A run that finds its store full after the first iteration; returns when it waits."""
    project.agent(SMALL_STORE_AGENT, guardrails=[{"command": "[ $RALPH_ITERATION = 2 ]"}])
    run = Watched(project, [sys.executable, "-c", SMALL_STORE, "run", "-p", "x"], log)
    run.wait_for(NO_ROOM)
    return run


def test_d7_a_store_that_cannot_grow(project: Project, tmp_path: Path) -> None:
    """When SQLite finds no space the run waits, views still work, and with space it continues."""
    run = on_a_small_store(project, tmp_path / "log")
    assert [each["state"] for each in project.status()] == ["running"]
    assert_sound(project.home)
    (project.path / "asked").touch()
    (project.path / "broken").unlink()
    result = run.result()
    assert result.code == 0, result.err
    assert replayed(project.home, newest(project).id).iteration == 2


def test_d7_a_run_that_waits_for_space_can_be_interrupted(project: Project, tmp_path: Path) -> None:
    """Ctrl-C while it waits is like any other: exit 130, an intact store, and the run can be resumed."""
    run = on_a_small_store(project, tmp_path / "log")
    run.process.send_signal(signal.SIGINT)
    result = run.result()
    assert result.code == 130, result.err
    assert "Traceback" not in result.err and "This is a bug" not in result.err, result.err
    (project.path / "broken").unlink()
    assert_sound(project.home)
    resumed = project.run("resume")
    assert resumed.code == 0, resumed.err
    assert replayed(project.home, newest(project).id).iteration == 2
