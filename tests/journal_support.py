"""The journal of a run as another process sees it, and the state after replaying it."""

from __future__ import annotations

from contextlib import closing

from ralph.core import machine
from ralph.core.model import Command, Plan, State
from ralph.store import codec
from ralph.store.home import Home
from ralph.store.journal import JournalStep, steps

_STATES = "SELECT seq, state FROM journal WHERE run = ? AND state IS NOT NULL"


def journal_of(home: Home, run: str) -> list[JournalStep]:
    with closing(home.runs().db) as db:
        return list(steps(db, home.database, run))


def kinds_of(journal: list[JournalStep]) -> list[str]:
    return [codec.kind_of(entry.step) for entry in journal]


def replayed(home: Home, run: str) -> State:
    """The state after every fact of a run, each compared with the stored state."""
    found = journal_of(home, run)
    with closing(home.runs().db) as db:
        stored = dict(db.execute(_STATES, (run,)).fetchall())
    plan = found[0].step
    assert isinstance(plan, Plan)
    state = machine.start(plan, found[0].started)
    for entry in found:
        if isinstance(entry.step, Command):
            state = machine.apply(state, entry.step)
        elif entry.result is not None:
            state = machine.apply(state, entry.result)
        assert entry.is_in_hand == (entry.seq not in stored)
        if entry.seq in stored:
            assert state == codec.decode_state(stored[entry.seq], plan), f"row {entry.seq}: {entry.step}"
    assert state == codec.decode_state(stored[max(stored)], plan)
    return state
