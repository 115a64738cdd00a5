"""A supervised task in the loop: markers, children, guidance on its bus, and its end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Project, Recorded, wait_until
from loop.loop_support import Loop, end_of, opened_loop, shell_agent
from ralph.core.events import AgentEnded, AgentStarted, Event, Holding, Notice
from ralph.core.model import (
    TASK_BUS,
    Cause,
    ClaimKind,
    ClaimRule,
    Flow,
    HoldWhy,
    Limits,
    Outcome,
    Plan,
    PromptSource,
    PromptVia,
    Restart,
    Seen,
    Steer,
    TaskFolder,
)
from ralph.loop import supervised
from ralph.loop.supervised import Supervised
from ralph.process.client import ProcessCommand
from ralph.store.bus import WAIT, Bus, read, task_bus
from ralph.store.messages import BusMessage

DONE = 'touch "$TASK_FOLDER/DONE"'
PROVED = (Outcome.COMPLETE, Cause.PROVED)


@contextmanager
def supervised_loop(project: Project, body: str, **values: Any) -> Iterator[Loop]:
    folder = project.path.parent / "tasks/job"
    folder.mkdir(parents=True, exist_ok=True)
    usual: dict[str, Any] = {
        "flow": Flow.SUPERVISE,
        "task": TaskFolder(str(folder), "p", "job"),
        "claim": ClaimRule(ClaimKind.DONE),
        "restart": Restart(delay=20.0),
    }
    with opened_loop(project, shell_agent(project, body, PromptVia.NONE), **(usual | values)) as loop:
        yield loop


def folder_of(loop: Loop) -> Path:
    assert loop.plan.task is not None
    return Path(loop.plan.task.path)


def tree_of(loop: Loop) -> Supervised:
    assert loop.context.supervised is not None
    return loop.context.supervised


def bus(loop: Loop) -> list[str]:
    messages = read(task_bus(folder_of(loop)))
    return [message.body.strip() for message in messages if isinstance(message, BusMessage)]


# ---- markers ----


def test_done_completes_the_run_and_is_on_the_bus(project: Project) -> None:
    """The DONE file is the claim, and the events are posted on the bus in order."""
    with supervised_loop(project, DONE) as loop:
        state = loop.drive()
        assert loop.kinds == ["plan", "look", "run_agent", "look", "stop"]
        assert bus(loop) == [
            "attempt 1/1 started",
            "task completed (DONE marker present, no active children)",
        ]
    assert end_of(state) == PROVED


def test_done_that_is_there_already_needs_no_attempt(project: Project) -> None:
    """A DONE file that already exists completes the run without an attempt."""
    with supervised_loop(project, "echo never") as loop:
        (folder_of(loop) / "DONE").touch()
        assert (end_of(loop.drive()), loop.kinds) == (PROVED, ["plan", "look", "stop"])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('touch "$TASK_FOLDER/WAIT_WITHOUT_RESTART"', "WAIT_WITHOUT_RESTART exists"),
        ("exit 42", "the agent exited with 42"),
        ('mkdir "$TASK_FOLDER/DONE"', "is a directory, not a regular file"),
    ],
)
def test_an_attempt_can_stop_the_run(project: Project, body: str, why: str) -> None:
    """A wait marker, exit code 42, or a directory in place of DONE stops the run."""
    with supervised_loop(project, body, iterations=3) as loop:
        state = loop.drive()
    assert state.stop is not None and why in state.stop.reason and state.iteration == 1


def test_a_wait_message_from_the_last_attempt_counts(project: Project) -> None:
    """Only a wait message posted during the last attempt counts."""
    with supervised_loop(project, "true") as loop:
        tree, seen, messages = tree_of(loop), Seen(0.0), Bus(task_bus(folder_of(loop)))
        messages.post(1.0, WAIT, "before", task="job", run="x", seq=1)
        tree.folder.begin_attempt()
        assert tree.look(seen, after_attempt=1).wait == ""
        messages.post(2.0, WAIT, "for the deploy\nplease", task="job", run="x", seq=2)
        assert tree.look(seen, after_attempt=None).wait == ""
        assert tree.look(seen, after_attempt=1).wait == "for the deploy"


def test_a_problem_that_was_seen_before_is_kept(project: Project) -> None:
    """A problem with a marker does not hide an earlier one."""
    with supervised_loop(project, "true") as loop:
        (folder_of(loop) / "DONE").mkdir()
        assert tree_of(loop).look(Seen(0.0, problem="first"), after_attempt=None).problem == "first"
        assert "directory" in tree_of(loop).look(Seen(0.0), after_attempt=None).problem


def test_the_time_since_done_begins_when_it_is_first_seen(project: Project) -> None:
    """The time since DONE grows, and starts again if the file was removed."""
    with supervised_loop(project, "true") as loop:
        tree, done = tree_of(loop), folder_of(loop) / "DONE"
        assert tree.done_for() == 0.0
        done.touch()
        first = tree.done_for()
        time.sleep(0.02)
        later = tree.done_for()
        assert 0.0 < first < 0.02 <= later
        done.unlink()
        assert tree.done_for() == 0.0
        done.touch()
        assert 0.0 < tree.done_for() < later


def test_a_done_file_ends_the_wait_for_the_next_attempt(project: Project) -> None:
    """A DONE file created during the wait completes the run without another attempt."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, Holding):
            (folder_of(loop) / "DONE").touch()

    with supervised_loop(project, "echo on", heard=heard, iterations=3) as loop:
        state = loop.drive()
    assert (end_of(state), len(loop.told(AgentStarted))) == (PROVED, 1)
    assert loop.clock.passed < 20.0


def test_attempts_are_restarted_after_a_delay(project: Project) -> None:
    """The bus shows each failed attempt and that the limit was reached."""
    with supervised_loop(project, "exit 3", iterations=2) as loop:
        state = loop.drive()
        assert bus(loop) == [
            "attempt 1/2 started",
            "attempt 1 failed: exit code 3",
            "attempt 2/2 started",
            "attempt 2 failed: exit code 3",
            "max restarts exceeded (2)",
        ]
    assert end_of(state) == (Outcome.LIMIT, Cause.ITERATIONS) and loop.clock.passed >= 20.0


# ---- children ----


def leave(loop: Loop, tmp_path: Path, count: int = 1) -> Recorded:
    """Start processes that outlive their command."""
    pids = tmp_path / "pids"
    words = f"for n in $(seq {count}); do sleep 60 & echo $! >> {pids}; done"
    command = ProcessCommand(["/bin/sh", "-c", words], {"PATH": os.defpath}, loop.context.runtime.project)

    class Silent:
        def stdout(self, data: bytes) -> None: ...

        stderr = stdout

    loop.context.warden.run(command, Silent(), lambda seconds, idle: None)
    found = Recorded(pids)
    assert len(found.alive()) == count
    return found


def test_children_are_waited_for_after_done_and_then_killed(project: Project, tmp_path: Path) -> None:
    """After the wait the remaining children are killed, and the outcome has their number."""
    body = f"sleep 60 & echo $! > {tmp_path}/pids; {DONE}"
    with supervised_loop(project, body, limits=Limits(1, children_seconds=1.0)) as loop:
        state = loop.drive()
        assert loop.kinds[-2:] == ["hold", "stop"]
    assert [event.hold.why for event in loop.told(Holding)] == [HoldWhy.CHILDREN]
    assert end_of(state) == PROVED and state.stop is not None
    assert state.stop.notes == ("1 child process had to be killed",)
    assert not Recorded(tmp_path / "pids").alive()


def test_children_that_exit_on_time_leave_no_note(project: Project, tmp_path: Path) -> None:
    """The wait is over as soon as no child is left."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, Holding):
            (tmp_path / "go").touch()
            wait_until(lambda: not tree_of(loop).children())

    body = f"(until test -e {tmp_path}/go; do sleep 0.01; done) >/dev/null 2>&1 & {DONE}"
    with supervised_loop(project, body, heard=heard) as loop:
        state = loop.drive()
    assert state.stop is not None and (end_of(state), state.stop.notes) == (PROVED, ())
    assert loop.clock.passed == 0.0


def test_leftover_processes_are_killed_before_the_next_attempt(project: Project, tmp_path: Path) -> None:
    """Leftover processes are killed without DONE, but only counted with it."""
    with supervised_loop(project, "true") as loop:
        left = leave(loop, tmp_path, 2)
        (folder_of(loop) / "DONE").touch()
        assert tree_of(loop).look(Seen(0.0), after_attempt=1).children == 2 == len(left.alive())
        (folder_of(loop) / "DONE").unlink()
        assert tree_of(loop).look(Seen(0.0), after_attempt=1).children == 0
        assert left.alive() == []


def test_all_leftover_processes_are_killed(project: Project, tmp_path: Path) -> None:
    """All leftover processes are killed and counted."""
    with supervised_loop(project, "true") as loop:
        left = leave(loop, tmp_path, 2)
        assert (tree_of(loop).end_children(), left.alive()) == (2, [])
        assert tree_of(loop).end_children() == 0


@contextmanager
def child_run(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A run that the agent has started, as recorded in the store; this process drives it."""
    monkeypatch.setenv("RALPH_PARENT_RUN_ID", loop.plan.run)
    runs = loop.project.home.runs()
    with closing(runs.db):
        plan = Plan("c", Flow.RUN, "/", (), PromptSource())
        child = runs.create(plan, "/", "/")
        yield child.id


def test_runs_of_the_agent_are_children_too(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Child runs are cancelled first and waited for."""
    with supervised_loop(project, "true") as loop, child_run(loop, monkeypatch) as child:
        tree, runs = tree_of(loop), loop.context.runs
        assert tree.children() == 1 and tree.is_hold_over(HoldWhy.CHILDREN) is False
        monkeypatch.setattr(supervised, "CHILD_SECONDS", 0.2)
        started = time.monotonic()
        assert tree.end_children() == 1
        assert time.monotonic() - started >= 0.2, "the child run keeps running, so the whole time was waited"
        assert [type(command).__name__ for _, command in runs.waiting(child)] == ["Cancel"]
        runs.let_go(child)
        assert (tree.children(), tree.is_hold_over(HoldWhy.CHILDREN)) == (0, True)


def test_a_second_signal_does_not_wait_for_children(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pressing Ctrl-C twice ends the wait for children."""
    with supervised_loop(project, "true") as loop, child_run(loop, monkeypatch):
        loop.interrupt(2)
        started = time.monotonic()
        assert tree_of(loop).end_children() == 1
        assert time.monotonic() - started < supervised.CHILD_SECONDS / 2


@pytest.mark.parametrize("why", list(HoldWhy))
def test_which_holds_end_early(project: Project, why: HoldWhy) -> None:
    """A new marker ends the wait for the next attempt or for a reset, but not a pause."""
    with supervised_loop(project, "true") as loop:
        before = tree_of(loop).is_hold_over(why)
        (folder_of(loop) / "WAIT_WITHOUT_RESTART").touch()
        after = tree_of(loop).is_hold_over(why)
    children = why is HoldWhy.CHILDREN
    assert (before, after) == (children, children or why in (HoldWhy.RESTART, HoldWhy.LIMIT))


# ---- guidance ----


def test_a_command_without_a_prompt_gets_guidance_on_its_bus_once(project: Project) -> None:
    """Guidance is posted while the command runs, marked as delivered, and never posted again."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, AgentStarted):
            loop.send(Steer(5.0, 0, "Turn left."))

    listens = f'until grep -q "Turn left." "$TASK_FOLDER/{TASK_BUS}"; do sleep 0.01; done'
    with supervised_loop(project, f"{listens}; exit 1", heard=heard) as loop:
        state = loop.drive()
        number = loop.context.runs.db.execute("SELECT id FROM commands").fetchone()[0]
        assert bus(loop).count("Turn left.") == 1
        assert loop.context.runs.delivery(number) == (True, 1)
        assert loop.notices.count("Guidance posted to the task's bus: Turn left.") == 1
        loop.drive(loop.start(steer=(Steer(5.0, number, "Turn left."),), stop=state.stop))
        assert bus(loop).count("Turn left.") == 1, "the message has its id"


def test_a_failed_post_of_guidance_is_reported(project: Project) -> None:
    """Guidance that could not be posted is not reported as delivered."""
    with supervised_loop(project, "true") as loop:
        task_bus(folder_of(loop)).mkdir()
        loop.drive(loop.start(steer=(Steer(5.0, 1, "Turn left."),)))
    assert loop.notices and not any("Turn left." in text for text in loop.notices)


def test_an_agent_with_a_prompt_gets_guidance_there(project: Project) -> None:
    """Guidance in the prompt is not posted on the bus too."""
    with supervised_loop(project, DONE, agents=(shell_agent(project, DONE, PromptVia.ARGUMENT),)) as loop:
        loop.drive(loop.start(steer=(Steer(5.0, 1, "Turn left."),)))
        assert "Turn left." not in bus(loop)
    assert "Turn left." in (project.path / ".ralph/prompt_001.txt").read_text()


def test_an_error_in_the_driver_is_posted_on_the_bus(project: Project) -> None:
    """A fatal error is posted for everyone who follows the task's bus."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, AgentEnded):
            raise OSError(5, os.strerror(5))

    with supervised_loop(project, DONE, heard=heard) as loop:
        state = loop.drive()
        assert bus(loop)[-1] == "Input/output error"
    assert end_of(state) == (Outcome.FATAL, Cause.CONFIG)
    assert Notice not in [type(event) for event in loop.events]
