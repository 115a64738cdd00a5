"""Messages of a supervised run on the bus of its task, each posted once, and the lines of its log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ralph.core.events import AgentEnded, Event, Holding, IterationStarted, Notice, RunEnded, Text
from ralph.core.model import (
    Cause,
    Ended,
    Hold,
    HoldWhy,
    Purpose,
    Ran,
    Stop,
    TaskFolder,
    Usage,
)
from ralph.loop.bus_reporter import COMPLETED, BusReporter
from ralph.store.bus import project_bus, read, task_bus
from ralph.store.messages import BusMessage
from ralph.store.task_folder import Folder


class Reported:
    """A reporter, the events it passes on, and the messages on the buses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.reporter = self.another()

    def another(self) -> BusReporter:
        """A reporter of a later process for the same run."""
        task = TaskFolder(str(self.folder), "p", "job")
        return BusReporter(self.events.append, Folder(task, "run"))

    def messages(self, *, of_project: bool = False) -> list[tuple[str, str, str]]:
        found = read(project_bus(self.folder) if of_project else task_bus(self.folder))
        return [(m.id, m.type, m.body.strip()) for m in found if isinstance(m, BusMessage)]

    @property
    def lines(self) -> list[str]:
        """The logged lines without their times."""
        return [event.text.partition("] ")[2] for event in self.events if isinstance(event, Notice)]


@pytest.fixture
def reported(tmp_path: Path) -> Iterator[Reported]:
    (folder := tmp_path / "tasks/job").mkdir(parents=True)
    yield Reported(folder)


def test_an_attempt_is_posted_by_its_number(reported: Reported) -> None:
    """The message id contains run, attempt and kind, so posting it again has no effect."""
    started = IterationStarted(3, 9)
    reported.reporter(started)
    reported.another()(started)
    assert reported.messages() == [("run.31", "INFO", "attempt 3/9 started")]
    assert reported.events == [started, started]


FAILURES: dict[str, tuple[Ran, str]] = {
    "exit code": (Ran(0.0, Ended.FAILED, exit=3, detail="boom"), "exit code 3"),
    "timeout": (Ran(0.0, Ended.TIMEOUT, detail="by signal 15"), "timeout"),
    "killed": (Ran(0.0, Ended.KILLED, detail="by signal 9"), "killed: by signal 9"),
    "empty": (Ran(0.0, Ended.EMPTY), "empty"),
    "claimed with an exit code": (Ran(0.0, Ended.OK, exit=1), "ok"),
}


@pytest.mark.parametrize(("ran", "how"), FAILURES.values(), ids=FAILURES)
def test_a_failed_attempt_is_posted_with_its_cause(reported: Reported, ran: Ran, how: str) -> None:
    """The message gives the exit code or the cause, without the signal if Ralph stopped the agent."""
    reported.reporter(IterationStarted(1, 9))
    reported.reporter(AgentEnded(Purpose.WORK, ran))
    assert reported.messages()[1:] == [("run.12", "WARNING", f"attempt 1 failed: {how}")]


@pytest.mark.parametrize(
    "event",
    [
        AgentEnded(Purpose.WORK, Ran(0.0, Ended.OK, exit=0)),
        AgentEnded(Purpose.WORK, Ran(0.0, Ended.INTERRUPTED)),
        AgentEnded(Purpose.WORK, Ran(0.0, Ended.FAILED, exit=42)),
        AgentEnded(Purpose.MESSAGE, Ran(0.0, Ended.FAILED, exit=1)),
        Text("on"),
        Holding(Hold(HoldWhy.PAUSED)),
    ],
)
def test_events_other_than_failures_are_only_passed_on(reported: Reported, event: Event) -> None:
    """An attempt that waits or was interrupted has not failed and is not posted."""
    reported.reporter(event)
    assert (reported.messages(), reported.events) == ([], [event])


def test_a_timeout_is_logged(reported: Reported) -> None:
    """The log says how long the agent ran and that its process group was killed."""
    reported.reporter(AgentEnded(Purpose.WORK, Ran(0.0, Ended.TIMEOUT, took=75.0)))
    first, second = reported.lines
    assert first.startswith("Agent timeout after 1") and "killing process group" in first
    assert second == "Process group killed, treating as failure"


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (None, "Agent exited without DONE"),
        (Ran(0.0, Ended.OK, exit=0), "Agent exited without DONE"),
        (Ran(0.0, Ended.FAILED, exit=3), "Agent failed with exit code 3"),
    ],
)
def test_a_restart_is_logged_with_its_reason(reported: Reported, ran: Ran | None, said: str) -> None:
    """The line gives the reason and the number of the next attempt."""
    reported.reporter(IterationStarted(2, 9))
    if ran is not None:
        reported.reporter(AgentEnded(Purpose.WORK, ran))
    reported.reporter(Holding(Hold(HoldWhy.RESTART, seconds=1.0)))
    assert reported.lines == [f"{said}, restarting (attempt 3/9)"]


ENDS: dict[str, tuple[Stop, list[tuple[str, str, str]], str]] = {
    "iterations": (
        Stop(Cause.ITERATIONS, "used"),
        [("run.43", "ERROR", "max restarts exceeded (4)")],
        "Attempt 4: Max restarts exceeded, stopping",
    ),
    "wait": (
        Stop(Cause.WAIT_MARKER, "it waits"),
        [("run.44", "INFO", "stopped: it waits")],
        "Wait-without-restart signal detected",
    ),
    "complete": (Stop(Cause.PROVED, "done"), [("run.46", "FACT", COMPLETED)], COMPLETED),
    "complete with notes": (
        Stop(Cause.PROVED, "done", ("one", "two")),
        [("run.45", "WARNING", "one\ntwo"), ("run.46", "FACT", COMPLETED)],
        COMPLETED,
    ),
    "fatal": (Stop(Cause.AUTH, "not logged in"), [("run.47", "ERROR", "not logged in")], ""),
    "limit": (Stop(Cause.COST, "too dear"), [("run.48", "ERROR", "stopped: too dear")], ""),
    "interrupted": (Stop(Cause.SIGNAL, "stopped by Ctrl-C"), [], ""),
}


@pytest.mark.parametrize(("stop", "posted", "line"), ENDS.values(), ids=ENDS)
def test_each_end_is_posted_once_and_logged(
    reported: Reported, stop: Stop, posted: list[tuple[str, str, str]], line: str
) -> None:
    """An end repeated after a crash posts nothing, and its log line comes before the end event."""
    ended = RunEnded("run", stop, 4, Usage(), 1.0)
    for reporter in (reported.reporter, reported.another()):
        reporter.post_end(stop, 4)
    reported.reporter(ended)
    assert reported.messages() == posted
    assert (reported.lines, reported.events[-1]) == ([line] if line else [], ended)


def test_completion_is_a_fact_of_the_project_too(reported: Reported) -> None:
    """Completion is also posted on the project's bus, where other tasks read it."""
    project_bus(reported.folder).touch()
    for reporter in (reported.reporter, reported.another()):
        reporter.post_end(Stop(Cause.PROVED, "done"), 4)
    assert reported.messages(of_project=True) == [("run.46", "FACT", COMPLETED)]


def test_a_bus_that_cannot_be_written_is_reported_once(reported: Reported) -> None:
    """A failed write to the bus is one notice, and the events continue."""
    task_bus(reported.folder).mkdir()
    for attempt in (1, 2):
        reported.reporter(IterationStarted(attempt, 9))
    notices = [event for event in reported.events if isinstance(event, Notice)]
    assert len(notices) == 1 and len(reported.events) == 3
