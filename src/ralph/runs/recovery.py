"""Recovers an interrupted run: the state it resumes from, or its end if it is cancelled instead."""

from __future__ import annotations

import os
import time
from pathlib import Path

from msgspec.structs import replace

from ralph.agents.base import Reading
from ralph.agents.registry import AGENTS
from ralph.core import machine
from ralph.core.events import Notice
from ralph.core.model import (
    AgentSpec,
    BoardSeen,
    Cancel,
    Checked,
    Did,
    Ended,
    Purpose,
    Ran,
    Resume,
    RunAgent,
    RunChecks,
    State,
    Stop,
    Usage,
)
from ralph.loop.bus_reporter import BusReporter
from ralph.loop.run_context import RunContext
from ralph.store.home import Home
from ralph.store.journal import Journal, JournalStep, LoadedRun, load
from ralph.store.runs import Run
from ralph.store.streams import STDOUT, judge_streams, stream_name
from ralph.store.task_folder import Folder


def recovered(context: RunContext, loaded: LoadedRun, streams: Path, resume: Resume | None) -> State:
    """The last state, updated with the usage of an interrupted iteration and the commands received since.

    An end that was decided but perhaps not posted is posted first, because a resumed run forgets it.
    """
    board = context.stories.settle() if context.stories is not None else None
    for text in board.illegal if board is not None else ():
        context.tell(Notice(f"Undone: {text}."))
    state = _with_half_done(context.journal, loaded, streams, board)
    if state.stop is not None and not loaded.is_over:
        if context.supervised is not None:
            context.supervised.post_end(state.stop, state.iteration)
        context.ended(state.stop)
    for number, command in context.runs.waiting(state.plan.run):
        state = machine.apply(state, command)
        context.journal.command(command, state, number)
    if resume is not None:
        state = machine.apply(state, resume)
        context.journal.command(resume, state)
    context.journal.flush()
    return state


def _with_half_done(
    journal: Journal, loaded: LoadedRun, streams: Path, board: BoardSeen | None = None
) -> State:
    """The state after an interrupted step. `board` has that iteration's changes to a PRD loop's story list."""
    entry = loaded.half_done
    half = _cut_off(entry, loaded.state, streams) if entry is not None else None
    if entry is None or half is None:
        return loaded.state
    if isinstance(half, Ran):
        half = replace(half, board=board)
    elif board is not None:
        half = replace(half, undone=board.illegal)
    state = machine.apply(loaded.state, half)
    journal.complete_cut_off(entry, half, state)
    return state


def _cut_off(entry: JournalStep, state: State, streams: Path) -> Ran | Checked | None:
    """What is known of an interrupted step: the usage of its agents, and how long they ran.

    An interrupted check has no verdict, but its judge may have been called.
    """
    at = max(time.time(), state.now)
    match entry.step:
        case RunAgent() as step:
            spec = next(agent for agent in state.plan.agents if agent.name == step.agent)
            name = stream_name(step.iteration, entry.seq, step.purpose)
            usage, took = _read(streams / f"{name}{STDOUT}", spec, step.purpose, entry.started)
            why = "ralph was killed"
            return Ran(at, Ended.INTERRUPTED, step.agent, took, usage=usage, detail=why, stream=name)
        case RunChecks() as step:
            spec, usage, took = state.plan.judge or state.plan.agents[0], Usage(), 0.0
            for path in judge_streams(streams, step.iteration, entry.seq):
                used, took = _read(path, spec, Purpose.JUDGE, entry.started)
                usage = usage + used
            return Checked(at, took, usage=usage)
    return None


def _read(path: Path, spec: AgentSpec, purpose: Purpose, started: float) -> tuple[Usage, float]:
    """The usage and the duration of an interrupted agent, read from its raw stream."""
    parser = AGENTS[spec.type].parser(Reading(spec=spec, purpose=purpose))
    try:
        with path.open("rb") as file:
            took = max(0.0, os.fstat(file.fileno()).st_mtime - started)
            while data := file.read(1 << 20):
                parser.stdout(data)
    except OSError:
        return Usage(), 0.0
    return parser.usage, took


def cancel_dead(home: Home, run: Run) -> Stop:
    """Cancel a run that no process drives any more, by completing its journal. Returns how it stopped.

    A run killed while it was stopping keeps the outcome it had already reached.
    """
    runs = home.runs()
    try:
        loaded = load(runs.db, runs.path, run.id)
        journal = Journal(runs.db, runs.path, run.id)
        now = time.time()
        cancel = Cancel(now)
        state = machine.apply(_with_half_done(journal, loaded, home.streams(run.id)), cancel)
        journal.command(cancel, state)
        stop = machine.next_step(state)
        assert isinstance(stop, Stop)
        if state.plan.task:
            BusReporter(lambda event: None, Folder(state.plan.task, run.id)).post_end(stop, state.iteration)
        journal.begin(stop, now)
        did = Did(now)
        journal.complete(stop, did, machine.apply(state, did))
        journal.flush()
        return stop
    finally:
        runs.db.close()
