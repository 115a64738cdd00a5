"""The inbox of a running loop: which commands and signals wake a hold or stop a process."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from conftest import Project
from loop.loop_support import InstantWakeup, StillClock
from ralph.core.events import Event, Notice
from ralph.core.model import Cancel, Command, Flow, Pause, Plan, PromptSource, Resume, Steer
from ralph.errors import RalphError
from ralph.loop.inbox import COMMAND_SECONDS, DISK_SECONDS, SHUTTING_DOWN, Inbox, InterruptedWait
from ralph.store.database import Busy, DiskFull


@dataclass
class Listener:
    """An inbox, and a sender with another connection."""

    project: Project
    run: str
    inbox: Inbox
    clock: StillClock
    wakeup: InstantWakeup
    events: list[Event] = field(default_factory=list)
    guidance: list[tuple[str, ...]] = field(default_factory=list)

    def send(self, *commands: Command) -> None:
        runs = self.project.home.runs()
        with closing(runs.db):
            for command in commands:
                runs.send(self.run, command)
        self.clock.passed += COMMAND_SECONDS

    @property
    def heard(self) -> list[Command]:
        return [command for _, command in self.inbox.new_commands()]


@pytest.fixture
def listener(project: Project) -> Iterator[Listener]:
    clock, runs = StillClock(), project.home.runs()
    with closing(runs.db), closing(InstantWakeup(clock)) as wakeup:
        plan = Plan("r", Flow.RUN, str(project.path), (), PromptSource())
        run = runs.create(plan, str(project.path), str(project.path)).id
        events: list[Event] = []
        found = Listener(project, run, Inbox(runs, run, wakeup, clock, events.append), clock, wakeup, events)
        found.inbox.on_guidance = lambda steers: found.guidance.append(tuple(each.text for each in steers))
        yield found


COMMANDS: dict[str, tuple[Command, bool, bool]] = {
    "cancel": (Cancel(1.0), True, True),
    "cancel that lets the step finish": (Cancel(1.0, now=False), True, False),
    "pause": (Pause(1.0), True, False),
    "resume": (Resume(1.0, iterations=9), True, False),
    "guidance": (Steer(1.0, 0, "left"), False, False),
}
"""Each command, whether it wakes a hold, and whether it stops the current process."""


@pytest.mark.parametrize(("command", "wakes", "ends"), COMMANDS.values(), ids=COMMANDS)
def test_the_effect_of_a_command_on_the_current_step(
    listener: Listener, command: Command, wakes: bool, ends: bool
) -> None:
    """Only an immediate cancel stops a process, and guidance does not even wake a hold."""
    listener.send(command)
    assert (listener.inbox.is_woken(0), listener.inbox.is_interrupted()) == (wakes, ends)


def test_commands_are_delivered_once_and_in_order(listener: Listener) -> None:
    """Each command has its number, and checking for one does not consume it."""
    listener.send(Pause(1.0), Steer(2.0, 0, "left"), Resume(3.0))
    assert listener.inbox.is_woken(0)
    assert listener.inbox.new_commands() == [(1, Pause(1.0)), (2, Steer(2.0, 2, "left")), (3, Resume(3.0))]
    assert listener.inbox.new_commands() == []


def test_commands_for_other_runs_are_not_delivered(listener: Listener) -> None:
    """Commands for other runs in the same store are ignored."""
    runs = listener.project.home.runs()
    with closing(runs.db):
        runs.send("another", Cancel(1.0))
    listener.clock.passed += COMMAND_SECONDS
    assert (listener.heard, listener.inbox.is_interrupted()) == ([], False)


def test_the_store_is_polled_at_intervals(listener: Listener) -> None:
    """A step that polls all the time does not read the store every time."""
    assert not listener.inbox.is_interrupted()
    listener.send(Cancel(1.0))
    listener.clock.passed -= COMMAND_SECONDS / 2
    assert not listener.inbox.is_interrupted()
    listener.clock.passed += COMMAND_SECONDS / 2
    assert listener.inbox.is_interrupted()


def test_guidance_is_passed_on_as_soon_as_it_is_seen(listener: Listener) -> None:
    """Guidance is passed on during the step and again when it is applied."""
    listener.send(Steer(1.0, 0, "left"), Pause(2.0))
    listener.inbox.is_woken(0)
    assert listener.guidance == [("left",)]
    assert len(listener.heard) == 2 and listener.guidance == [("left",), ("left",)]


def test_signals_are_answered_once_each(listener: Listener) -> None:
    """The first signal announces the shutdown, the second the stop, and polling again prints nothing."""
    for count in (1, 2):
        listener.wakeup.interrupt()
        assert [listener.inbox.signals() for _ in range(2)] == [count, count]
    texts = [event.text for event in listener.events if isinstance(event, Notice)]
    assert texts == [*SHUTTING_DOWN, "Stopping now."]


def test_two_signals_at_once_have_one_answer(listener: Listener) -> None:
    """Two signals at once are not answered with the promise to finish the step."""
    listener.wakeup.interrupt()
    listener.wakeup.interrupt()
    assert listener.inbox.is_interrupted() and listener.events == [Notice("Stopping now.")]


def test_a_signal_that_is_known_does_not_wake(listener: Listener) -> None:
    """A hold after the first signal is woken only by the second."""
    listener.wakeup.interrupt()
    assert listener.inbox.is_woken(0) and not listener.inbox.is_woken(1)
    assert not listener.inbox.is_interrupted()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "full"), "No space left on the disk. Waiting for free space."),
        (DiskFull("full"), "No space left on the disk. Waiting for free space."),
        (Busy("held"), "The store is locked by another process. Waiting for it."),
    ],
)
def test_temporary_errors_are_retried(listener: Listener, error: Exception, told: str) -> None:
    """A temporary error is reported once and retried every second until it succeeds."""
    tries = iter([error, error, None])

    def write() -> str:
        if problem := next(tries):
            raise problem
        return "written"

    assert listener.inbox.retry_when_full(write) == "written"
    assert (listener.events, listener.clock.passed) == ([Notice(told)], 2 * DISK_SECONDS)


@pytest.mark.parametrize("error", [OSError(errno.EACCES, os.strerror(errno.EACCES)), RalphError("no")])
def test_permanent_errors_are_raised_at_once(listener: Listener, error: Exception) -> None:
    """Missing permissions or a broken store are not retried."""

    def write() -> None:
        raise error

    with pytest.raises(type(error)):
        listener.inbox.retry_when_full(write)
    assert listener.clock.passed == 0.0


def test_a_signal_ends_the_wait_for_the_disk(listener: Listener) -> None:
    """Even an earlier signal ends the wait, because there is no step to finish."""
    listener.wakeup.interrupt()

    def write() -> None:
        raise DiskFull("full")

    with pytest.raises(InterruptedWait):
        listener.inbox.retry_when_full(write)
