"""A run that was cut off: what it goes on from, or how it ends without going on."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ralph.agents.base import Reading
from ralph.agents.registry import AGENTS
from ralph.core import machine
from ralph.core.model import Cancel, Did, Ended, Ran, Resume, RunAgent, State, Stop, Usage
from ralph.flows.herald import Herald
from ralph.loop import Place
from ralph.store import codec
from ralph.store.home import Home
from ralph.store.journal import Journal, Loaded, Row, load
from ralph.store.runs import Run
from ralph.store.task_folder import Folder


def recovered(place: Place, loaded: Loaded, streams: Path, resume: Resume | None) -> State:
    """The last state, with what an iteration had cost that was cut off, and what people have said since.

    An end that was decided and perhaps not posted is posted first: a run that goes on forgets it.
    """
    state = _with_half_done(place.journal, loaded, streams)
    if state.stop is not None and not loaded.is_over and place.supervised is not None:
        place.supervised.post_end(state.stop, state.iteration)
    for number, command in place.runs.waiting(state.plan.run):
        state = machine.apply(state, command)
        place.journal.command(command, state, number)
    if resume is not None:
        state = machine.apply(state, resume)
        place.journal.command(resume, state)
    place.journal.flush()
    return state


def _with_half_done(journal: Journal, loaded: Loaded, streams: Path) -> State:
    row = loaded.half_done
    if row is None or row.kind != "run_agent":
        return loaded.state
    half = _half_done(row, loaded.state, streams)
    state = machine.apply(loaded.state, half)
    journal.complete_cut_off(row, half, state)
    return state


def _half_done(row: Row, state: State, streams: Path) -> Ran:
    """What can be known of an iteration that was cut off: its cost and its time, from its raw stream."""
    step: RunAgent = codec.decode("run_agent", row.body)
    spec = next(agent for agent in state.plan.agents if agent.name == step.agent)
    name = f"{step.iteration:03d}-{row.seq}.{step.purpose}"
    usage, took = Usage(), 0.0
    try:
        parser = AGENTS[spec.type].parser(Reading(spec=spec, purpose=step.purpose))
        with open(streams / f"{name}.stdout", "rb") as file:
            took = max(0.0, os.fstat(file.fileno()).st_mtime - row.started)
            while data := file.read(1 << 20):
                parser.stdout(data)
        usage = parser.usage
    except OSError:
        pass
    at = max(time.time(), state.now)
    return Ran(at, Ended.INTERRUPTED, step.agent, took, usage=usage, detail="ralph was killed", stream=name)


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
            Herald(lambda event: None, Folder(state.plan.task, run.id)).post_end(stop, state.iteration)
        journal.begin(stop, now)
        did = Did(now)
        journal.complete(stop, did, machine.apply(state, did))
        journal.flush()
        return stop
    finally:
        runs.db.close()
