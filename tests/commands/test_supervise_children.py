"""Runs that a supervised agent starts: they know their parent, survive restarts, and are cancelled with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import Project, Recorded, some, wait_until
from journal_support import journal_of
from ralph.core.model import Hold, HoldWhy
from supervise_support import LEAVES_DONE, PATH_TO_RALPH, Task

CHILD = f"{PATH_TO_RALPH}; ralph run -p x --settings child.json --detach"
"""What an agent says to start a run in the background."""


@pytest.fixture
def task(project: Project) -> Iterator[Task]:
    """A task whose agent may start runs; these end when a file `go` exists, and do not outlive the test."""
    project.settings(snapshots=False)
    (project.path / "child.json").write_text('{"agent": {"command": "./child.sh"}, "snapshots": false}')
    wait = "until [ -e go ]; do sleep 0.02; done"
    project.script(
        "child.sh", f"echo $$ >> child-pids; {wait}; touch child-done; echo '<response>DONE</response>'"
    )
    made = Task(project)
    made.folder.mkdir(parents=True)
    yield made
    (project.path / "go").touch()


def pids(task: Task) -> Recorded:
    return Recorded(task.project.path / "child-pids")


def family(task: Task) -> tuple[dict[str, Any], dict[str, Any]]:
    """The supervised run and the run that it started."""
    wait_until(lambda: len(task.project.status()) == 2)
    runs = {run["flow"]: run for run in task.project.status()}
    return runs["supervise"], runs["run"]


def test_a_child_run_is_waited_for_after_done(task: Task) -> None:
    """It knows its parent, and is listed below it; the task is complete when the child is."""
    ralph = task.start(f"{CHILD}; {LEAVES_DONE}")
    wait_until(task.done.exists)
    parent, child = family(task)
    assert (parent["parent"], child["parent"]) == (None, parent["id"])
    wait_until(lambda: family(task)[0]["state"] == "waiting")
    table = task.project.run("status").out.splitlines()
    assert [line.split("  running")[0].split("  waiting")[0].rstrip() for line in table[1:]] == [
        parent["id"],
        f"  {child['id']}",
    ]
    assert ralph.poll() is None and pids(task).alive()
    (task.project.path / "go").touch()
    assert ralph.wait(timeout=20) == 0
    ralph.communicate()
    assert {run["outcome"] for run in family(task)} == {"complete"}


def test_a_child_run_survives_a_restart(task: Task) -> None:
    """Everything else that the first attempt left is stopped; the run continues under the next attempt."""
    body = f"""
        if [ "$RALPH_ATTEMPT" = 1 ]; then {CHILD}; sleep 60 & echo $! >> others; exit 1; fi
        until [ -e go ]; do sleep 0.02; done; {LEAVES_DONE}
    """
    ralph = task.start(body)
    wait_until(lambda: task.attempts == ["1", "2"] and pids(task).pids())
    assert pids(task).alive() and not Recorded(task.project.path / "others").alive()
    (task.project.path / "go").touch()
    assert ralph.wait(timeout=20) == 0
    ralph.communicate()
    assert (task.project.path / "child-done").exists() and len(pids(task).pids()) == 1


@pytest.mark.slow
def test_a_child_run_survives_with_the_shell_that_waits_for_it(task: Task) -> None:
    """Processes between the agent and its child run live as long as the run."""
    foreground = CHILD.removesuffix(" --detach")
    body = f"""
        if [ "$RALPH_ATTEMPT" = 1 ]; then
            sh -c '{foreground}; echo $? > code' > /dev/null 2>&1 &
            until [ -e child-pids ]; do sleep 0.02; done
            exit 1
        fi
        until [ -e code ]; do sleep 0.02; done; {LEAVES_DONE}
    """
    ralph = task.start(body)
    wait_until(lambda: task.attempts == ["1", "2"])
    assert pids(task).alive()
    (task.project.path / "go").touch()
    assert ralph.wait(timeout=20) == 0
    ralph.communicate()
    assert (task.project.path / "code").read_text() == "0\n"


@pytest.mark.slow
def test_a_child_run_outlives_an_attempt_that_takes_too_long(task: Task) -> None:
    """The agent is stopped with everything else it started; its run is not."""
    body = f"""
        if [ "$RALPH_ATTEMPT" = 1 ]; then {CHILD}; sleep 60 & echo $! >> others; wait; fi
        touch go; {LEAVES_DONE}
    """
    result = task.run(body, "--agent-timeout", "2")
    assert (result.code, task.attempts) == (0, ["1", "2"])
    assert family(task)[1]["outcome"] == "complete"
    assert len(pids(task).pids()) == 1 and not Recorded(task.project.path / "others").alive()


LOSES_WARDEN = "until [ -e child-pids ]; do sleep 0.02; done; kill -9 $PPID; sleep 60"
"""What an agent says to kill the process that watches over it, once its run is at work."""


@pytest.mark.slow
def test_a_child_run_outlives_a_warden_that_is_killed(task: Task) -> None:
    """The attempt is lost with everything else it started; its run continues, and is waited for after DONE."""
    body = f"""
        if [ "$RALPH_ATTEMPT" = 1 ]; then {CHILD}; sleep 60 & echo $! >> others; {LOSES_WARDEN}; fi
        {LEAVES_DONE}
    """
    ralph = task.start(body)
    wait_until(lambda: family(task)[0]["state"] == "waiting")
    assert (
        task.attempts == ["1", "2"]
        and ("WARNING", "attempt 1 failed: killed: its warden was killed") in task.bus()
    )
    assert pids(task).alive() and not Recorded(task.project.path / "others").alive()
    (task.project.path / "go").touch()
    assert ralph.wait(timeout=20) == 0
    ralph.communicate()
    assert family(task)[1]["outcome"] == "complete" and len(pids(task).pids()) == 1


@pytest.mark.slow
def test_a_child_run_outlives_a_warden_with_the_shell_that_waits_for_it(task: Task) -> None:
    """As if the agent had exited normally."""
    foreground = CHILD.removesuffix(" --detach")
    body = f"""
        if [ "$RALPH_ATTEMPT" = 1 ]; then
            sh -c '{foreground}; echo $? > code' > /dev/null 2>&1 &
            {LOSES_WARDEN}
        fi
        touch go; until [ -e code ]; do sleep 0.02; done; {LEAVES_DONE}
    """
    assert (task.run(body).code, task.attempts) == (0, ["1", "2"])
    assert (task.project.path / "code").read_text() == "0\n"


@pytest.mark.parametrize("how", some(["cancelled", "killed", "stays"], 1))
def test_a_child_run_without_its_warden_stops_with_its_parent(task: Task, how: str) -> None:
    """However the parent ends, and also after the wait: no process is left."""
    body = f'if [ "$RALPH_ATTEMPT" = 1 ]; then {CHILD}; {LOSES_WARDEN}; fi; [ {how} = stays ] || exec sleep 60; {LEAVES_DONE}'
    ralph = task.start(body, "--wait-timeout", "0.5")
    wait_until(lambda: task.attempts == ["1", "2"])
    parent, child = family(task)
    assert child["state"] == "running" or how == "stays"
    if how == "cancelled":
        assert task.project.run("cancel", parent["id"]).code == 0
    elif how == "killed":
        ralph.kill()
    assert ralph.wait(timeout=20) == {"cancelled": 130, "killed": -9, "stays": 0}[how]
    ralph.communicate()
    wait_until(lambda: not pids(task).alive())
    wait_until(lambda: [run["pid"] for run in family(task)] == [None, None])


def test_a_child_run_in_the_foreground(task: Task) -> None:
    """The agent waits for it, and it may work in its parent's directory and in the task's folder."""
    settings = task.project.path / "child.json"
    body = f"""
        touch go; {PATH_TO_RALPH}
        ralph run -p x --settings {settings} || exit 1
        cd "$TASK_FOLDER" && cp ../../child.sh . && touch go && ralph run -p y --settings {settings} || exit 1
        {LEAVES_DONE}
    """
    assert (task.run(body).code, task.attempts) == (0, ["1"])
    runs = task.project.status()
    parent = next(run["id"] for run in runs if run["parent"] is None)
    assert [(run["parent"], run["outcome"]) for run in runs if run["parent"]] == [(parent, "complete")] * 2


@pytest.mark.slow
def test_a_child_run_that_stays_is_stopped_after_the_wait(task: Task) -> None:
    """It is cancelled, so that it can be resumed; the task is complete, with a WARNING on the bus."""
    result = task.run(f"{CHILD}; {LEAVES_DONE}", "--wait-timeout", "1")
    assert result.code == 0 and not pids(task).alive()
    assert ("WARNING", "1 child process had to be killed") in task.bus()
    child = family(task)[1]
    assert (child["outcome"], child["cause"]) == ("interrupted", "cancelled")


def waits(task: Task) -> list[float]:
    """The wait for children that the supervised run planned, each time."""
    found = [entry.step for entry in journal_of(task.project.home, family(task)[0]["id"])]
    return [step.seconds or 0.0 for step in found if isinstance(step, Hold) and step.why is HoldWhy.CHILDREN]


@pytest.mark.slow
def test_an_agent_that_stays_after_done_shares_the_wait_with_its_children(task: Task) -> None:
    """Both share one wait, instead of one after the other."""
    body = f"{CHILD}; {LEAVES_DONE}; echo $$ >> child-pids; exec sleep 60"
    result = task.run(body, "--wait-timeout", "2")
    assert result.code == 0 and not pids(task).alive()
    assert waits(task) == [0.0]
    assert ("WARNING", "1 child process had to be killed") in task.bus()


@pytest.mark.slow
def test_an_agent_that_exits_some_time_after_done_leaves_the_rest_to_its_children(task: Task) -> None:
    """The time it used is not given again."""
    ralph = task.start(f"{CHILD}; {LEAVES_DONE}; sleep 1.5")
    (wait,) = wait_until(lambda: waits(task))
    (task.project.path / "go").touch()
    assert ralph.wait(timeout=20) == 0
    ralph.communicate()
    assert 200 < wait < 299.5


@pytest.mark.parametrize("phase", some(["agent", "delay", "children"], 1))
def test_cancel_reaches_the_children(task: Task, phase: str) -> None:
    """Whatever the parent is doing, its children are cancelled with it."""
    rest = {"agent": "exec sleep 60", "delay": "exit 1", "children": LEAVES_DONE}[phase]
    ralph = task.start(f"{CHILD}; {rest}", "--restart-delay", "60")
    parent, _ = family(task)
    wait_until(lambda: pids(task).pids())
    cancelled = task.project.run("cancel", parent["id"])
    assert cancelled.code == 0, cancelled.err
    assert ralph.wait(timeout=10) == 130
    ralph.communicate()
    assert not pids(task).alive()
    assert [run["cause"] for run in family(task)] == ["cancelled", "cancelled"]


def test_cancel_of_the_child_alone(task: Task) -> None:
    """The parent continues without it."""
    ralph = task.start(f"{CHILD}; {LEAVES_DONE}")
    _, child = family(task)
    wait_until(lambda: pids(task).pids())
    assert task.project.run("cancel", child["id"]).code == 0
    assert ralph.wait(timeout=20) == 0
    ralph.communicate()
    assert [run["outcome"] for run in family(task)] == ["complete", "interrupted"]


@pytest.mark.slow
def test_a_supervised_task_may_supervise_another(task: Task) -> None:
    """Grandchildren stop with the run at the top, and `ralph status` shows all three levels."""
    inner = task.project.path / "tasks/inner"
    inner.mkdir()
    script = task.project.script("inner.sh", f"{CHILD}; exec sleep 60")
    ralph = task.start(f"{PATH_TO_RALPH}; exec ralph supervise tasks/inner -- {script}")
    wait_until(lambda: pids(task).pids())
    indents = [len(line) - len(line.lstrip()) for line in task.project.run("status").out.splitlines()[1:]]
    assert indents == [0, 2, 4]
    top = next(run for run in task.project.status() if run["parent"] is None)
    assert task.project.run("cancel", top["id"]).code == 0
    assert ralph.wait(timeout=15) == 130
    ralph.communicate()
    assert not pids(task).alive()
    assert {run["outcome"] for run in task.project.status()} == {"interrupted"}


def test_two_signals_stop_the_children_now(task: Task) -> None:
    """There is no wait."""
    ralph = task.start(f"{CHILD}; exec sleep 60")
    wait_until(lambda: pids(task).pids())
    ralph.terminate()
    time.sleep(0.1)
    ralph.terminate()
    assert ralph.wait(timeout=10) == 130
    ralph.communicate()
    assert not pids(task).alive()


def test_the_children_of_a_killed_ralph_are_gone(task: Task) -> None:
    """When its lifeline is cut, nothing below it survives, including runs; both can be resumed."""
    ralph = task.start(f'[ "$RALPH_ATTEMPT" = 1 ] && [ ! -e go ] || {LEAVES_DONE}; {CHILD}; exec sleep 60')
    wait_until(lambda: pids(task).pids())
    ralph.kill()
    ralph.communicate()
    wait_until(lambda: not pids(task).alive())
    wait_until(lambda: [run["pid"] for run in family(task)] == [None, None])
    assert family(task)[0]["state"] == "crashed"
    (task.project.path / "go").touch()
    assert task.project.run("resume", family(task)[1]["id"]).code == 0
