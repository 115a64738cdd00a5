"""C4, R1, P1-P7, P9 with `ralph supervise`, where leftovers are kept for a while; and kill -9 at any moment."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from conftest import Project, Result, some, wait_until
from faults.fault_support import (
    REPEATED,
    RUNS,
    WAYS,
    Traces,
    assert_clear,
    assert_sound,
    ends,
    finish,
    iterations,
    killed,
    lines,
    newest,
    seeded,
    starts_all,
    status,
    traces,
)
from faults.test_leftovers import CHAINS
from journal_support import journal_of, replayed
from ralph.core.model import Ended, Ran, RunAgent, Stop
from ralph.store.bus import project_bus, task_bus
from supervise_support import LEAVES_DONE, PATH_TO_RALPH, QUICK, Task

COMPLETED = ("FACT", "task completed (DONE marker present, no active children)")


@pytest.fixture
def task(project: Project) -> Task:
    project.settings(snapshots=False)
    made = Task(project)
    made.folder.mkdir(parents=True)
    return made


# ---- C4: an invalid DONE ----


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


LIARS: dict[str, Callable[[Path], None]] = {
    "a directory": Path.mkdir,
    "a link": lambda path: path.symlink_to("nowhere"),
    "a named pipe": os.mkfifo,
    "a socket": a_socket,
}


def assert_liar(result: Result, kind: str) -> None:
    assert result.code == 2 and "Traceback" not in result.err
    assert f"DONE is {kind}, not a regular file" in result.err + result.out


@pytest.mark.parametrize("kind", LIARS)
def test_c4_only_a_regular_file_is_done(task: Task, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything else in its place is one clear error before the first attempt; then the run can continue."""
    monkeypatch.chdir(task.folder)
    LIARS[kind](task.done)
    assert_liar(task.run(LEAVES_DONE), kind)
    assert task.attempts == []
    task.done.rmdir() if kind == "a directory" else task.done.unlink()
    assert task.project.run("resume", newest(task.project).id).code == 0


@pytest.mark.parametrize("kind", LIARS)
def test_c4_a_liar_is_found_after_the_attempt(task: Task, kind: str) -> None:
    """One attempt and a clear stop instead of a hundred attempts."""
    make = {
        "a directory": "mkdir $TASK_FOLDER/DONE",
        "a link": "ln -s nowhere $TASK_FOLDER/DONE",
        "a named pipe": "mkfifo $TASK_FOLDER/DONE",
        "a socket": f"cd $TASK_FOLDER; {sys.executable} -c 'import socket; socket.socket(1).bind(\"DONE\")'",
    }[kind]
    assert_liar(task.run(make), kind)
    assert task.attempts == ["1"]


def test_c4_an_unreadable_file_is_done(task: Task) -> None:
    """It only has to exist: it is never opened."""
    task.done.touch(mode=0o000)
    assert (task.run("exit 1").code, task.attempts) == (0, [])


def test_c4_a_link_to_a_file_is_not_done(task: Task) -> None:
    """Not even if its target exists."""
    (task.folder / "elsewhere").touch()
    task.done.symlink_to("elsewhere")
    assert_liar(task.run(LEAVES_DONE), "a link")


def test_a_task_folder_that_goes_away(task: Task) -> None:
    """The run continues without it and says so, without a traceback."""
    result = task.run('rm -r "$TASK_FOLDER"; exit 1', "--max-restarts", "2")
    assert result.code == 1 and "Traceback" not in result.err and "bug" not in result.err
    assert len(task.attempts) == 2


# ---- R1 ----


@pytest.mark.parametrize("place", ["project", "repository"])
def test_r1_an_agent_that_fails_at_once_is_not_restarted_forever(
    place: str, request: pytest.FixtureRequest
) -> None:
    """Five identical failures are a crash loop: exit code 1, the reason on the bus, which is not progress."""
    task = Task(request.getfixturevalue(place))
    result = task.run("exit 1")
    assert (result.code, len(task.attempts), newest(task.project).cause) == (1, 5, "crash_loop")
    assert task.bus()[-1] == ("ERROR", "stopped: crash loop: 5 failed attempts in a row")


def test_r1_an_agent_that_makes_progress_is_restarted(repository: Project) -> None:
    """A failure after progress in the tree does not count towards a crash loop."""
    task = Task(repository)
    result = task.run(f'echo more >> work; [ "$RALPH_ATTEMPT" -lt 8 ] && exit 1; {LEAVES_DONE}')
    assert (result.code, len(task.attempts)) == (0, 8)


@pytest.mark.slow
def test_r1_failures_of_all_kinds_stop_after_twelve(task: Task) -> None:
    """However different they are."""
    result = task.run('exit "$RALPH_ATTEMPT"', "--restart-delay", "0.001")
    assert (result.code, len(task.attempts), newest(task.project).cause) == (1, 12, "crash_loop")


# ---- P1, P2, P4 to P7 ----


@REPEATED
@pytest.mark.slow
def test_p1_every_descendant_is_dead_before_the_next_attempt(task: Task) -> None:
    """However it escaped; after DONE they are stopped too, when their time is up."""
    left = traces(task.project)
    body = (
        f"{left.alive_command} >> survivors; {starts_all(task.project, left)}; "
        f'[ "$RALPH_ATTEMPT" = {RUNS} ] && {LEAVES_DONE}; true'
    )
    result = task.run(body, "--wait-timeout", "0.2", timeout=60 + 10 * RUNS)
    assert result.code == 0, result.err
    assert ends(task.project) == ["ok"] * RUNS
    found = left.names()
    assert {name: found[name] for name in WAYS} == dict.fromkeys(WAYS, RUNS)
    assert lines(task.project.path / "survivors") == []
    assert left.alive() == []


@pytest.mark.slow
def test_p2_a_tree_that_ignores_everything_is_killed_after_its_grace(task: Task) -> None:
    """TERM, five seconds, KILL, and no process is left for the next attempt."""
    left = traces(task.project)
    body = f"trap '' TERM INT HUP\n{starts_all(task.project, left)}\nwhile :; do sleep 0.1; done"
    result = task.run(body, "--agent-timeout", "3", "--max-restarts", "1")
    assert result.code == 1, result.err
    (only,) = iterations(task.project)
    assert only.ended == "timeout"
    assert left.alive() == []


@pytest.mark.slow
@REPEATED
def test_p4_an_agent_that_kills_its_warden_is_restarted(task: Task) -> None:
    """Its tree is swept, the attempt is `killed`, and leftovers are kept and swept as before."""
    left = traces(task.project)
    most = max(1, min(RUNS, 4))
    body = (
        f"{left.alive_command} >> survivors; {left.me()}; {starts_all(task.project, left)}\n"
        f'[ "$RALPH_ATTEMPT" -gt {most} ] && {{ {LEAVES_DONE}; exit; }}; kill -9 $PPID; sleep 60'
    )
    result = task.run(body, "--wait-timeout", "0.2")
    assert result.code == 0, result.err
    assert ends(task.project) == ["killed"] * most + ["ok"]
    assert lines(task.project.path / "survivors") == []
    assert left.alive() == []


@pytest.mark.slow
@REPEATED
def test_p5_tight_chains_of_forks_are_swept(task: Task) -> None:
    """They are found although they never stay in a process list for long."""
    (task.project.path / "chains.py").write_text(CHAINS)
    token = f"chain-{task.project.path.parent.name}-{random.randrange(1 << 60):x}"
    look = task.project.script("look", f"grep -lxzs '[{token[0]}]{token[1:]}' /proc/[0-9]*/cmdline")
    body = f"{look} >> survivors; {sys.executable} -S chains.py {token}; [ $RALPH_ATTEMPT = {RUNS} ] && {LEAVES_DONE}"
    result = task.run(body, "--wait-timeout", "0.2", timeout=60 + 20 * RUNS)
    assert result.code == 0, result.err
    assert lines(task.project.path / "survivors") == []
    assert not (task.project.path / "tired").exists()
    assert subprocess.run([look], check=False, capture_output=True).stdout == b""


def test_p6_a_process_that_holds_the_pipes_does_not_delay_the_attempt(task: Task) -> None:
    """An attempt ends with its agent; the holder is swept before the next."""
    left = traces(task.project)
    holder = f"setsid sh -c '{left.me()}; exec sleep 60' & until [ -s {left.file} ]; do sleep 0.02; done"
    body = f"[ $RALPH_ATTEMPT = 2 ] && {{ {left.alive_command} >> survivors; {LEAVES_DONE}; exit; }}; {holder}; exit 1"
    assert task.run(body).code == 0
    assert (left.count, lines(task.project.path / "survivors")) == (1, [])


def test_p7_a_silent_attempt_times_out(task: Task) -> None:
    """A command that prints nothing or stops itself is killed at the idle limit, and restarted."""
    left = traces(task.project)
    task.project.settings(snapshots=False, idleTimeoutSeconds=1)
    case = f'case "$RALPH_ATTEMPT" in 1) sleep 60;; 2) kill -STOP $$;; *) {LEAVES_DONE};; esac'
    result = task.run(f"{left.me()}; {case}")
    assert result.code == 0, result.err
    assert ends(task.project) == ["idle", "idle", "ok"]
    assert left.alive() == []
    assert [body for kind, body in task.bus() if kind == "WARNING"] == [
        f"attempt {n} failed: idle" for n in (1, 2)
    ]


# ---- P9 ----

SIGNALS = {
    "INT": (signal.SIGINT,),
    "TERM": (signal.SIGTERM,),
    "HUP": (signal.SIGHUP,),
    "INT twice": (signal.SIGINT, signal.SIGINT),
}
PHASES = {
    "attempt": f'touch ready; until [ -e go ]; do sleep 0.02; done; [ "$RALPH_ATTEMPT" -lt 2 ] || {LEAVES_DONE}',
    "delay": "[ -e go ] || { touch ready; exit 1; }; " + LEAVES_DONE,
    "children": f"{LEAVES_DONE}; [ -e go ] || {{ sleep 60 & touch ready; }}",
}


@pytest.mark.parametrize("how", some(SIGNALS, 2))
@pytest.mark.parametrize("phase", PHASES)
def test_p9_signals_stop_a_supervisor_cleanly(task: Task, phase: str, how: str) -> None:
    """In any phase: exit code 130, no process left, the folder free; and `ralph resume` completes the task."""
    left = traces(task.project)
    delay = "60" if phase == "delay" else "0.02"
    ralph = task.start(f"{left.me()}; {PHASES[phase]}", "--restart-delay", delay)
    wait_until((task.project.path / "ready").exists)
    wait_until(lambda: phase == "attempt" or newest(task.project).iteration == 1)
    for number in SIGNALS[how]:
        ralph.send_signal(number)
        time.sleep(0.2)
    if len(SIGNALS[how]) == 1:
        (task.project.path / "go").touch()
    result = finish(ralph, 20)
    assert result.code == 130, result.err
    run = newest(task.project)
    assert (run.state, run.outcome, run.cause, run.pid) == ("ended", "interrupted", "signal", None)
    assert left.alive() == []
    (task.project.path / "go").touch()
    assert task.project.run("resume", run.id).code == 0


# ---- P3: kill -9 at any moment ----

MORTAL = (
    """
{alive} >> overlap
{me}
read -r s < /proc/$PPID/stat; set -- $s; echo "$1 ${{22}} warden" >> wardens
setsid sh -c '{me}; exec sleep 60' &
sleep 0.0$((RALPH_ATTEMPT * 37 % 10))
case $RALPH_ATTEMPT in
    4) sleep 0.3 & """
    + LEAVES_DONE
    + """;;
    *) exit $RALPH_ATTEMPT;;
esac
"""
)


def acknowledged(project: Project, run: str) -> list[int]:
    """The attempts that are complete in the journal."""
    return [
        entry.step.iteration
        for entry in journal_of(project.home, run)
        if isinstance(entry.step, RunAgent)
        and isinstance(entry.result, Ran)
        and entry.result.ended is not Ended.INTERRUPTED
    ]


def survive(project: Project, chance: random.Random) -> int:
    """One task whose supervisor is killed up to three times, then completes; returns the number of kills."""
    task, left, wardens = Task(project), traces(project), Traces(project.path / "wardens")
    task.folder.mkdir(parents=True)
    project.settings(snapshots=False)
    script = task.script(MORTAL.format(alive=left.alive_command, me=left.me()))
    command = ["supervise", "tasks/job", *QUICK, "--wait-timeout", "0.2", "--", script]
    kills, most = 0, chance.randint(1, 3)
    done: dict[int, int] = {}
    while True:
        ralph = project.start(*command)
        moment = chance.uniform(0.0, 1.6)
        with suppress(subprocess.TimeoutExpired):
            ralph.wait(moment if kills < most else 60)
        if ralph.poll() is None:
            kills += 1
            print(f"kill {kills} after {moment:.4f} s")
            killed(ralph)
            wait_until(lambda: not left.alive() and not wardens.alive(), 20)
            assert_sound(project.home)
        else:
            result = finish(ralph)
            assert result.code == 0, result.err
        found = [run for run in status(project) if run.directory == str(task.folder)]
        if found:
            begun, known = Counter(task.attempts), acknowledged(project, found[0].id)
            assert known == list(range(1, len(known) + 1)), "an attempt is missing or duplicated"
            assert all(begun[str(n)] == times for n, times in done.items()), "a finished attempt was repeated"
            done = {n: begun[str(n)] for n in known}
            if found[0].outcome == "complete":
                break
            command = ["resume", found[0].id]
    assert sorted(begun) == ["1", "2", "3", "4"] and len(done) >= 3  # DONE of an interrupted attempt counts
    assert lines(project.path / "overlap") == [] and left.alive() == []
    replayed(project.home, found[0].id)
    told = [body for _, body in task.bus()]
    assert len(told) == len(set(told)), "a message is duplicated"
    assert task.bus()[-1] == COMPLETED and task.project_bus() == [COMPLETED]
    return kills


@REPEATED
@pytest.mark.slow
def test_p3_a_supervisor_survives_being_killed_at_any_moment(project: Project) -> None:
    """After kill -9: no process left, an intact store, no attempt lost or repeated, each message once, finally DONE."""
    chance = seeded()
    kills, trial = 0, 0
    while kills < RUNS:
        trial += 1
        path = project.path / f"trial-{trial}"
        path.mkdir()
        kills += survive(Project(path, project.home), chance)
    assert [run.outcome for run in status(project)] == ["complete"] * trial


def test_p3_a_resumed_supervisor_continues_where_it_stopped(task: Task) -> None:
    """Attempts in the journal are not repeated; the interrupted one is."""
    ralph = task.start(f'[ "$RALPH_ATTEMPT" -lt 3 ] && exit 1; [ -e go ] || exec sleep 60; {LEAVES_DONE}')
    wait_until(lambda: task.attempts == ["1", "2", "3"])
    killed(ralph)
    (task.project.path / "go").touch()
    resumed = task.project.run("resume", newest(task.project).id)
    assert (resumed.code, task.attempts) == (0, ["1", "2", "3", "3"])
    assert "Repeating the interrupted iteration." in resumed.err


# ---- the end is posted once, whenever ralph is killed on the way ----

WAITS = "until [ -e go ]; do sleep 0.02; done"


@contextmanager
def held(bus: Path) -> Iterator[None]:
    """Hold the lock of this bus, so that posts have to wait."""
    with bus.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def at_its_end(task: Task, body: str, *options: str) -> subprocess.Popen[str]:
    """A supervisor that has decided to stop and is about to post to the bus, which is held."""
    ralph = task.start(f"{WAITS}; {body}", *options)
    wait_until(lambda: task.attempts == ["1"])
    return ralph


def go_to_the_end(task: Task) -> None:
    (task.project.path / "go").touch()
    run = newest(task.project).id
    wait_until(lambda: isinstance(journal_of(task.project.home, run)[-1].step, Stop))


def resumed(task: Task, *options: str) -> Result:
    return task.project.run("resume", newest(task.project).id, *options)


def test_p3_an_end_that_was_not_posted_is_posted_by_resume(task: Task) -> None:
    """Killed before the post, the run is not complete; resume completes it without starting anything."""
    ralph = at_its_end(task, LEAVES_DONE)
    with held(task_bus(task.folder)):
        go_to_the_end(task)
        killed(ralph)
    assert (newest(task.project).state, newest(task.project).outcome) == ("crashed", None)
    assert COMPLETED not in task.bus() and task.project_bus() == []
    assert (resumed(task).code, task.attempts) == (0, ["1"])
    assert (task.bus()[-1], task.project_bus()) == (COMPLETED, [COMPLETED])
    assert newest(task.project).outcome == "complete" and resumed(task).code == 2


def test_p3_an_end_posted_to_one_bus_is_posted_to_the_other(task: Task) -> None:
    """Killed between the two posts: the first is not repeated, the second is made."""
    ralph = at_its_end(task, LEAVES_DONE)
    with held(project_bus(task.folder)):
        go_to_the_end(task)
        wait_until(lambda: COMPLETED in task.bus())
        killed(ralph)
    assert newest(task.project).state == "crashed" and task.project_bus() == []
    assert resumed(task).code == 0
    assert (task.bus().count(COMPLETED), task.project_bus()) == (1, [COMPLETED])


def test_p3_an_end_posted_but_not_journalled_is_posted_once(task: Task) -> None:
    """Killed after both posts, while the store could not be written: nothing is posted twice."""
    ralph = at_its_end(task, LEAVES_DONE)
    with closing(sqlite3.connect(task.project.home.database)) as db:
        with held(project_bus(task.folder)):
            go_to_the_end(task)
            db.execute("BEGIN IMMEDIATE")
        wait_until(task.project_bus)
        killed(ralph)
    assert newest(task.project).state == "crashed"
    assert resumed(task).code == 0
    assert (task.bus().count(COMPLETED), task.project_bus()) == (1, [COMPLETED])


@pytest.mark.slow
def test_p9_an_end_that_could_not_be_journalled_is_interrupted(task: Task) -> None:
    """A signal while the store cannot be written: exit code 130, not complete; resume completes it, posted once."""
    ralph = at_its_end(task, LEAVES_DONE)
    with closing(sqlite3.connect(task.project.home.database)) as db:
        with held(project_bus(task.folder)):
            go_to_the_end(task)
            db.execute("BEGIN IMMEDIATE")
        wait_until(task.project_bus)
        ralph.terminate()
        result = finish(ralph, 20)
    assert result.code == 130 and "Stopped by " in result.out, result.err
    assert newest(task.project).outcome is None
    assert resumed(task).code == 0 and newest(task.project).outcome == "complete"
    assert (task.bus().count(COMPLETED), task.project_bus()) == (1, [COMPLETED])


@pytest.mark.parametrize(("more", "code", "attempts"), [((), 1, 1), (("-m", "2"), 0, 2)])
def test_p3_an_error_that_was_not_posted_is_posted_by_resume(
    task: Task, more: tuple[str, ...], code: int, attempts: int
) -> None:
    """Even if the run then continues: the used-up restarts are on the bus, once."""
    body = f'[ "$RALPH_ATTEMPT" = 1 ] || {LEAVES_DONE}'
    ralph = at_its_end(task, body, "--max-restarts", "1")
    with held(task_bus(task.folder)):
        go_to_the_end(task)
        killed(ralph)
    assert [kind for kind, _ in task.bus()] == ["INFO"]
    assert (resumed(task, *more).code, len(task.attempts)) == (code, attempts)
    errors = [message for message in task.bus() if message[0] == "ERROR"]
    assert errors == [("ERROR", "max restarts exceeded (1)")]
    assert (COMPLETED in task.bus()) == (code == 0)


def test_p3_a_warning_at_the_end_is_posted_once(task: Task) -> None:
    """The journal knows that children had to be stopped, and whoever posts the end reports it."""
    ralph = at_its_end(task, f"sleep 60 & {LEAVES_DONE}", "--wait-timeout", "0.1")
    with held(project_bus(task.folder)):
        go_to_the_end(task)
        wait_until(lambda: COMPLETED in task.bus())
        killed(ralph)
    assert resumed(task).code == 0
    assert task.bus()[1:] == [("WARNING", "1 child process had to be killed"), COMPLETED]


def test_p3_cancel_does_not_undo_a_decided_end(task: Task) -> None:
    """A run killed at its very end is complete; cancelling it says so and posts to the bus."""
    ralph = at_its_end(task, LEAVES_DONE)
    with held(task_bus(task.folder)):
        go_to_the_end(task)
        killed(ralph)
    run = newest(task.project).id
    cancelled = task.project.run("cancel", run)
    assert (cancelled.code, cancelled.err) == (0, f"Run {run} had already stopped: complete.\n")
    assert (task.bus()[-1], task.project_bus()) == (COMPLETED, [COMPLETED])
    assert newest(task.project).outcome == "complete"


def test_a_bus_that_cannot_be_written_stops_nothing(task: Task) -> None:
    """One message, and the task continues."""
    (task.folder / "TASK-MESSAGE-BUS.md").mkdir()
    result = task.run(f'[ "$RALPH_ATTEMPT" = 2 ] && {LEAVES_DONE} || exit 1')
    assert (result.code, task.attempts) == (0, ["1", "2"])
    assert result.err.count("the message bus") == 1


def test_refusals_are_clear(task: Task) -> None:
    """A file in place of the folder, and no folder."""
    (task.project.path / "tasks/file").touch()
    assert_clear(task.project.run("supervise", "tasks/file", "--", "true"), "tasks/file is not a directory")
    assert_clear(task.project.run("supervise", "tasks/none", "--", "true"), "mkdir -p tasks/none")


def test_a_child_run_and_its_agents_die_with_a_killed_parent(task: Task) -> None:
    """No orphans, even with a run inside the run; it may finish by itself before it is killed."""
    left = traces(task.project)
    (task.project.path / "child.json").write_text('{"agent": {"command": "./child.sh"}, "snapshots": false}')
    task.project.script("child.sh", f"{left.me('child')}; {starts_all(task.project, left)}; exec sleep 60")
    ralph = task.start(
        f"{PATH_TO_RALPH}; ralph run -p x --settings child.json --detach; {left.me()}; exec sleep 60"
    )
    wait_until(lambda: left.names().keys() >= {"agent", "child", *WAYS})
    assert {"agent", "child"} <= set(left.alive())
    killed(ralph)
    wait_until(lambda: not left.alive() and not any(run.pid for run in status(task.project)), 20)
    assert [run.state for run in status(task.project) if run.flow == "supervise"] == ["crashed"]
