"""Signals, commands and guidance that arrive while a run is driven, at every kind of step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from conftest import Project
from loop.loop_support import (
    CLAIM,
    PROVED,
    STOPPED,
    UNVERIFIED,
    Heard,
    Loop,
    command_check,
    end_of,
    once_there,
    opened_loop,
    waiting,
)
from ralph.core import machine
from ralph.core.events import (
    AgentEnded,
    AgentStarted,
    CheckEnded,
    CheckStarted,
    Event,
    Holding,
    IterationStarted,
)
from ralph.core.model import (
    Cancel,
    Cause,
    Command,
    Ended,
    Hold,
    HoldWhy,
    Outcome,
    Pause,
    Phase,
    Resume,
    Scm,
    State,
    Steer,
)
from ralph.scm.version_control import VersionControl
from ralph.store import codec

CANCELLED = (Outcome.INTERRUPTED, Cause.CANCELLED)


def on(kind: type[Event], *commands: Command, signals: int = 0) -> Heard:
    """Send commands and signals the first time that an event of this kind happens."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, kind) and len(loop.told(kind)) == 1:
            for command in commands:
                loop.send(command)
            loop.interrupt(signals)

    return heard


def resumed(state: State) -> State:
    return machine.apply(state, Resume(state.now))


# ---- signals ----


def test_one_signal_lets_the_agent_finish(project: Project) -> None:
    """The current iteration counts, and no further step starts."""
    with opened_loop(project, heard=on(AgentStarted, signals=1)) as loop:
        state = loop.drive()
        assert loop.kinds == ["plan", "look", "run_agent", "cancel", "stop"]
    assert (end_of(state), state.iteration) == (STOPPED, 1)
    assert loop.notices[0].startswith("Received signal")


def test_a_second_signal_stops_the_agent(project: Project) -> None:
    """The process is stopped at once, and its iteration does not count."""
    with opened_loop(project, "exec sleep 60", heard=on(AgentStarted, signals=2)) as loop:
        state = loop.drive()
        (ran,) = loop.results("run_agent")
    assert (end_of(state), ran.ended, state.iteration) == (STOPPED, Ended.INTERRUPTED, 0)
    assert state.cancelled is not None and state.cancelled.now


@pytest.mark.parametrize("signals", [0, 2])
def test_an_interrupted_check_has_no_verdict_and_is_due_again(project: Project, signals: int) -> None:
    """The check's command is stopped without a verdict, and the resumed run starts with that check."""
    command = () if signals else (Cancel(0.0),)
    checks = command_check("test -e ok || exec sleep 60", "slow"), command_check("true")
    with opened_loop(project, heard=on(CheckStarted, *command, signals=signals), checks=checks) as loop:
        state = loop.drive()
        (checked,) = loop.results("run_checks")
        assert (checked.verdicts, loop.told(CheckEnded), state.verdicts) == ((), [], ())
        assert state.phase is Phase.CHECK and end_of(state) == (STOPPED if signals else CANCELLED)
        (project.path / "ok").touch()
        loop.wakeup.count = 0
        assert end_of(loop.drive(resumed(state))) == PROVED
        assert loop.kinds[-3:] == ["run_checks", "run_checks", "stop"]
    assert len(loop.told(AgentStarted)) == 1


@pytest.fixture
def hooked(repository: Project, tmp_path: Path) -> Project:
    """A repository whose commits wait in a hook until the file `go` exists."""
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@localhost")
    hook = repository.path / ".git/hooks/pre-commit"
    hook.write_text(f"#!/bin/sh\ntest -e {tmp_path}/go || {{ {waiting(tmp_path / 'waits')}; }}\n")
    hook.chmod(0o755)
    return repository


def test_an_interrupted_commit_is_repeated(hooked: Project, tmp_path: Path) -> None:
    """The row is not complete, no problem is reported, and the resumed run commits."""
    scm = Scm("git", ("commit -a",), message="Fixed")
    with opened_loop(hooked, f"touch made; {CLAIM}", scm=scm) as loop:
        with once_there(tmp_path / "waits", lambda: loop.send(Cancel(0.0))):
            state = loop.drive()
        (did,) = loop.results("commit")
        assert (did.over, did.detail, state.phase) == (False, "", Phase.COMMIT)
        assert (end_of(state), loop.notices) == (CANCELLED, [])
        (tmp_path / "go").touch()
        assert end_of(loop.drive(resumed(state))) == UNVERIFIED
        assert loop.kinds[-2:] == ["commit", "stop"]
    assert hooked.git("log", "--format=%s").split() == ["Fixed", "First"]


# ---- commands ----


def test_a_cancel_stops_the_agent(project: Project) -> None:
    """`ralph cancel` takes effect while the agent runs, and is journalled."""
    with opened_loop(project, "exec sleep 60", heard=on(AgentStarted, Cancel(0.0))) as loop:
        state = loop.drive()
        assert loop.kinds == ["plan", "look", "run_agent", "cancel", "stop"]
        assert loop.context.runs.waiting(loop.plan.run) == []
    assert end_of(state) == CANCELLED


def test_a_pause_lasts_until_resume(project: Project) -> None:
    """Only a resume ends the pause, and the pause does not count as time of the run."""
    with opened_loop(project, "echo on", heard=on(AgentStarted, Pause(0.0)), iterations=2) as loop:

        def meanwhile() -> None:
            loop.clock.passed += 3_600.0
            if loop.clock.passed > 90_000.0:
                loop.send(Resume(0.0))

        loop.wakeup.meanwhile = meanwhile
        state = loop.drive()
        assert loop.kinds[2:7] == ["run_agent", "pause", "hold", "resume", "look"]
    assert [event.hold.why for event in loop.told(Holding)] == [HoldWhy.PAUSED]
    assert state.iteration == 2 and state.elapsed < 60.0


def test_a_hold_that_is_woken_keeps_what_is_left_of_it(project: Project) -> None:
    """After a pause during a wait, the rest of the wait follows."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, Holding) and len(loop.told(Holding)) < 3:
            loop.send(Resume(0.0) if event.hold.why is HoldWhy.PAUSED else Pause(0.0))

    with opened_loop(project, heard=heard) as loop:
        state = loop.drive(loop.start(hold=Hold(HoldWhy.RESTART, seconds=100.0)))
    holds = [event.hold for event in loop.told(Holding)]
    assert [hold.why for hold in holds] == [HoldWhy.RESTART, HoldWhy.PAUSED, HoldWhy.RESTART]
    assert end_of(state) == UNVERIFIED and (holds[2].seconds or 0.0) < 100.0


def test_a_signal_ends_a_hold(project: Project) -> None:
    """Ctrl-C ends the wait for a usage limit."""
    with opened_loop(project, heard=on(Holding, signals=1)) as loop:
        state = loop.drive(loop.start(hold=Hold(HoldWhy.LIMIT, until=loop.clock.wall() + 3_600.0)))
        assert (end_of(state), loop.kinds) == (STOPPED, ["plan", "hold", "cancel", "stop"])
    assert loop.clock.passed < 1.0


def test_guidance_goes_into_the_next_prompt_and_no_other(project: Project) -> None:
    """Guidance is delivered with the next iteration, whose start event says so."""
    steer = Steer(0.0, 0, "Use the old parser.")
    with opened_loop(project, "echo on", heard=on(AgentEnded, steer), iterations=3) as loop:
        loop.drive()
        assert loop.context.runs.delivery(1) == (True, 2)
    prompts = [(project.path / f".ralph/prompt_00{n}.txt").read_text() for n in (1, 2, 3)]
    assert ["Use the old parser." in text for text in prompts] == [False, True, False]
    assert [event.steered for event in loop.told(IterationStarted)] == [0, 1, 0]


def test_guidance_for_a_finished_run_gets_one_more_iteration(project: Project) -> None:
    """Guidance sent while the agent gives its last answer is delivered before the run is complete."""
    steer = Steer(0.0, 0, "Use the old parser.")
    with opened_loop(
        project, heard=on(AgentEnded, steer), checks=(command_check("true"),), iterations=3
    ) as loop:
        assert end_of(loop.drive()) == PROVED
        assert [event.steered for event in loop.told(IterationStarted)] == [0, 1]
    assert "Use the old parser." in (project.path / ".ralph/prompt_002.txt").read_text()


def test_guidance_without_an_iteration_left_is_named(project: Project) -> None:
    """If the limits allow no iteration for it, the ending names it; even if it arrives during the last step."""
    steer = Steer(0.0, 0, "Use the old parser.")
    with opened_loop(project, heard=on(AgentEnded, steer)) as loop:
        state = loop.drive()
    assert state.stop is not None and state.stop.notes == ("guidance not delivered: Use the old parser.",)
    with opened_loop(project) as loop:
        loop.use(ended=lambda stop: loop.send(steer))
        loop.drive()
        assert loop.notices == ["guidance not delivered: Use the old parser."]


def test_guidance_during_the_final_work_is_delivered(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is decided again: another iteration if there is one left, else the outcome names the guidance."""
    steer, prompt = Steer(0.0, 0, "Use the old parser."), project.path / ".ralph/prompt_002.txt"
    for iterations, notes in ((1, ("guidance not delivered: Use the old parser.",)), (3, ())):
        with opened_loop(project, checks=(command_check("true"),), iterations=iterations) as loop:
            sending = iter((lambda: loop.send(steer),))

            def send_once(_: object, sends: Iterator[Callable[[], int]] = sending) -> None:
                next(sends, int)()

            monkeypatch.setattr(VersionControl, "changes_of_run", send_once)
            state = loop.drive()
            assert state.stop is not None
            assert (end_of(state), state.stop.notes) == (PROVED, notes)
            assert len(loop.told(IterationStarted)) == min(iterations, 2)
    assert "Use the old parser." in prompt.read_text()


def test_commands_are_journalled_with_the_state_that_they_made(project: Project) -> None:
    """A run loaded after a command has the state that the command led to."""
    with opened_loop(project, heard=on(AgentEnded, Pause(7.0), Cancel(8.0, now=False))) as loop:
        loop.drive()
        query = "SELECT state FROM journal WHERE kind IN ('pause', 'cancel') ORDER BY seq"
        states = [codec.decode_state(state, loop.plan) for (state,) in loop.context.runs.db.execute(query)]
    assert [(state.paused, state.cancelled is not None) for state in states] == [(True, False), (True, True)]
    assert replace(states[0], paused=False, now=states[1].now).iteration == states[1].iteration
