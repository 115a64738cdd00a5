"""The driver when the store, the disk or a file fails."""

from __future__ import annotations

import errno
import os

import pytest

from conftest import Project
from loop.loop_support import (
    PROVED,
    STOPPED,
    UNVERIFIED,
    Loop,
    command_check,
    end_of,
    opened_loop,
    shell_agent,
)
from ralph.core.events import AgentEnded, AgentStarted, Event, IterationStarted, Notice
from ralph.core.model import Cause, Outcome, PromptSource, PromptVia, RunAgent, Stop
from ralph.store.journal import load

FAILED = (Outcome.FATAL, Cause.CONFIG)
FULL = "No space left on the disk. Waiting for free space."


def fill(loop: Loop) -> None:
    """From now on the store cannot grow."""
    (pages,) = loop.context.runs.db.execute("PRAGMA page_count").fetchone()
    loop.context.runs.db.execute(f"PRAGMA max_page_count = {pages}")


def free(loop: Loop) -> None:
    loop.context.runs.db.execute("PRAGMA max_page_count = 1000000")


LONG = PromptSource("long " * 20_000)
LONG_ANSWER = "head -c 9000 /dev/zero | tr '\\0' x; echo; echo '<response>DONE</response>'"


def test_a_full_disk_is_waited_for(project: Project) -> None:
    """The run reports a full disk once, tries again every second, and loses nothing."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, AgentEnded):
            fill(loop)
            loop.clock.passed = 0.0
        elif event == Notice(FULL):
            loop.context.wakeup.wait(3.0)
            free(loop)

    with opened_loop(project, LONG_ANSWER, heard=heard) as loop:
        assert end_of(loop.drive()) == UNVERIFIED
        assert loop.kinds == ["plan", "look", "run_agent", "look", "stop"]
    assert loop.notices == [FULL] and loop.clock.passed >= 4.0


def test_a_signal_while_the_disk_is_full_leaves_a_run_to_resume(project: Project) -> None:
    """The run ends as interrupted without a last row and can be resumed from the last one written."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, AgentEnded):
            fill(loop)
        elif event == Notice(FULL):
            loop.interrupt()

    with opened_loop(project, LONG_ANSWER, heard=heard) as loop:
        assert end_of(loop.drive()) == STOPPED
        assert loop.kinds == ["plan", "look", "run_agent"]
        loaded = load(loop.context.runs.db, loop.context.runs.path, loop.plan.run)
        assert loaded.half_done is not None and isinstance(loaded.half_done.step, RunAgent)


def test_a_prompt_that_does_not_fit_on_the_disk_is_waited_for(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing a prompt file to a full disk is tried again too."""
    with opened_loop(project) as loop:
        write, tries = loop.context.runtime.write_prompt, iter((True, True, False))

        def full(name: str, text: str) -> str:
            if next(tries):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(name, text)

        monkeypatch.setattr(loop.context.runtime, "write_prompt", full)
        assert end_of(loop.drive()) == UNVERIFIED
    assert loop.notices == [FULL] and loop.clock.passed == pytest.approx(2.0)


def test_an_error_in_the_driver_is_a_row_and_an_outcome(project: Project) -> None:
    """A prompt too long for an argument stops the run as fatal, with a hint."""
    ended: list[Stop] = []
    with opened_loop(project, prompt=PromptSource("x" * 200_000)) as loop:
        loop.use(ended=ended.append)
        state = loop.drive()
        assert loop.kinds == ["plan", "look", "run_agent", "fail"]
        loaded = load(loop.context.runs.db, loop.context.runs.path, loop.plan.run)
    assert end_of(state) == FAILED and state.stop is not None
    assert "128 KiB" in state.stop.reason and 'Set "promptVia"' in state.stop.reason
    assert (loaded.state.stop, loaded.is_over, ended) == (state.stop, True, [state.stop])


def test_a_file_that_vanishes_is_named_in_the_outcome(project: Project) -> None:
    """The outcome has the system's error and the name of the file."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, IterationStarted):
            (project.path / ".ralph/prompt_001.txt").unlink()

    spec = shell_agent(project, "cat", PromptVia.STDIN)
    with opened_loop(project, spec, heard=heard) as loop:
        state = loop.drive()
        assert loop.kinds[-1] == "fail"
    assert end_of(state) == FAILED and state.stop is not None
    assert state.stop.reason == "prompt_001.txt: No such file or directory"


def test_an_error_without_a_file_is_reported(project: Project) -> None:
    """A system error without a file name is reported by its message."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, AgentStarted):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with opened_loop(project, heard=heard) as loop:
        state = loop.drive()
    assert state.stop is not None and state.stop.reason == "Input/output error"


def test_a_missing_store_is_an_outcome(project: Project) -> None:
    """If the store is gone, the outcome is reported although it cannot be written."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, AgentStarted):
            loop.context.runs.path.unlink()

    with opened_loop(project, heard=heard) as loop:
        state = loop.drive()
    assert end_of(state) == FAILED and state.stop is not None
    assert "was removed during the run" in state.stop.reason


def test_a_stop_that_was_decided_stays_when_its_end_fails(project: Project) -> None:
    """An error after the decision to stop does not turn a proved run into a failed one."""

    def fails(stop: Stop) -> None:
        if not told:
            told.append(stop)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    told: list[Stop] = []
    with opened_loop(project, checks=(command_check("true"),)) as loop:
        loop.use(ended=fails)
        state = loop.drive()
        assert loop.kinds[-2:] == ["stop", "fail"]
    assert end_of(state) == PROVED
