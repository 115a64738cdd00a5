"""A run that was cut off: what it goes on from, or how it ends without going on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
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
from ralph.store import codec
from ralph.store.home import Home
from ralph.store.journal import Journal, JournalRow, LoadedRun, load
from ralph.store.runs import Run
from ralph.store.task_folder import Folder


def recovered(context: RunContext, loaded: LoadedRun, streams: Path, resume: Resume | None) -> State:
    """The last state, with what an iteration had cost that was cut off, and what people have said since.

    An end that was decided and perhaps not posted is posted first: a run that goes on forgets it.
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
    """`board`: what the iteration that was cut off did to the list of a PRD loop."""
    row = loaded.half_done
    if row is None or row.kind not in _CUT_OFF:
        return loaded.state
    half = _CUT_OFF[row.kind](row, loaded.state, streams)
    if isinstance(half, Ran):
        half = replace(half, board=board)
    elif board is not None:
        half = replace(half, undone=board.illegal)
    state = machine.apply(loaded.state, half)
    journal.complete_cut_off(row, half, state)
    return state


def _half_done(row: JournalRow, state: State, streams: Path) -> Ran:
    """What can be known of an iteration that was cut off: its cost and its time, from its raw stream."""
    step: RunAgent = codec.decode("run_agent", row.body)
    spec = next(agent for agent in state.plan.agents if agent.name == step.agent)
    name = f"{step.iteration:03d}-{row.seq}.{step.purpose}"
    usage, took = _read(streams / f"{name}.stdout", spec, step.purpose, row.started)
    at = max(time.time(), state.now)
    return Ran(at, Ended.INTERRUPTED, step.agent, took, usage=usage, detail="ralph was killed", stream=name)


def _asked(row: JournalRow, state: State, streams: Path) -> Checked:
    """A check that was cut off has no verdict, but its judge may have been asked."""
    spec, usage, took = state.plan.judge or state.plan.agents[0], Usage(), 0.0
    step: RunChecks = codec.decode("run_checks", row.body)
    for path in streams.glob(f"{step.iteration:03d}-{row.seq}.{Purpose.JUDGE}.*.stdout"):
        used, took = _read(path, spec, Purpose.JUDGE, row.started)
        usage = usage + used
    return Checked(max(time.time(), state.now), took, usage=usage)


_CUT_OFF: dict[str, Callable[[JournalRow, State, Path], Ran | Checked]] = {
    "run_agent": _half_done,
    "run_checks": _asked,
}


def _read(path: Path, spec: AgentSpec, purpose: Purpose, started: float) -> tuple[Usage, float]:
    """What a raw stream tells of an agent that was cut off: what it had used, and how long it took."""
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
    """Cancel a run that no process drives any more: only its journal is left to be told.

    One that was killed at its very end has ended as it was about to. Returns how it has ended.
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
