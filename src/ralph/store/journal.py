"""The durable list of a run's steps. The loop writes it, views read it, and resume starts from it.

A step that has an effect is written before it starts and completed when it has finished, each time in one
transaction with everything since the last. A look has no effect and is written along with the next step.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ralph.core.model import Command, Did, Look, Plan, Result, RunAgent, State, Step
from ralph.errors import RalphError
from ralph.store import codec
from ralph.store.codec import RunBrief
from ralph.store.database import clear_errors, transaction

_INSERT = "INSERT INTO journal (run, seq, kind, body, started) VALUES (?, ?, ?, ?, ?)"
_WHOLE = (
    "INSERT INTO journal (run, seq, kind, body, started, result_kind, result, state, ended)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_COMPLETE = "UPDATE journal SET result_kind = ?, result = ?, state = ?, ended = ? WHERE run = ? AND seq = ?"
_STEPS = (
    "SELECT seq, started, ended, kind, body, result_kind, result,"
    f" CASE WHEN kind IN ({', '.join(map(repr, sorted(codec.ENDS)))}) THEN state END"
    " FROM journal WHERE run = ? AND seq > ?"
)
"""Without the states, which are most of the bytes, except where a run ends."""
_APPLIED = "UPDATE commands SET applied = ? WHERE id = ?"
_DELIVERED = "UPDATE commands SET delivered = ? WHERE id = ?"


class JournalStep(Struct, frozen=True):
    """One journalled step, command or plan. Its result is decoded on access."""

    run: str
    seq: int
    started: float
    ended: float | None
    step: Plan | Step | Command
    _result: tuple[str, str] | None = None
    _end: tuple[str, str] | None = None

    @property
    def is_in_hand(self) -> bool:
        """Whether it has started but not finished. If other rows follow, it was cut off."""
        return self.ended is None

    @property
    def result(self) -> Result | None:
        """The result; None for an unfinished step, and for commands and plans."""
        result: Result | None = codec.decode(*self._result) if self._result else None
        return result

    @property
    def end(self) -> RunBrief | None:
        """The state of the run after this row ended it; None if it did not."""
        return codec.decode_brief(*self._end, self.run) if self._end else None


class Journal:
    """Writes the rows of one run."""

    def __init__(self, db: sqlite3.Connection, path: Path, run: str) -> None:
        self._db = db
        self._path = path
        self._run = run
        self._seq = -1
        self._inode = os.stat(path).st_ino
        self._unwritten: list[tuple[str, tuple[object, ...]]] = []
        self._urgent = False
        with clear_errors(path):
            last = db.execute("SELECT max(seq) FROM journal WHERE run = ?", (run,)).fetchone()[0]
        if last is not None:
            self._seq = int(last)

    def begin(self, step: Step, at: float) -> int:
        """Record that a step is about to start, and return its number."""
        self._seq += 1
        if not isinstance(step, Look):
            row = (self._run, self._seq, codec.kind_of(step), codec.encode(step), at)
            self._unwritten.append((_INSERT, row))
            self._urgent = True
        return self._seq

    def complete(self, step: Step, result: Result, state: State) -> None:
        """Record that a step has finished and the machine has its result."""
        kind, body, after = codec.kind_of(result), codec.encode(result), codec.encode_state(state)
        if isinstance(step, Look):
            self._seq -= 1
            self._whole("look", "{}", result.at - result.took, kind, body, after, result.at)
        else:
            self._unwritten.append((_COMPLETE, (kind, body, after, result.at, self._run, self._seq)))
            self._urgent = True

    def complete_cut_off(self, entry: JournalStep, result: Result, state: State) -> None:
        """Add the result of a step that was unfinished when ralph died."""
        kind, body, after = codec.kind_of(result), codec.encode(result), codec.encode_state(state)
        self._unwritten.append((_COMPLETE, (kind, body, after, result.at, self._run, entry.seq)))
        self._urgent = True

    def command(self, command: Command, state: State, queued: int | None = None) -> None:
        """Record an applied command. `queued` is its number in the queue, if it came from there."""
        kind, body, after = codec.kind_of(command), codec.encode(command), codec.encode_state(state)
        self._whole(kind, body, command.at, None, None, after, command.at)
        self._urgent = True
        if queued is not None:
            self._unwritten.append((_APPLIED, (command.at, queued)))

    def delivered(self, queued: tuple[int, ...], iteration: int) -> None:
        """Record guidance that is sent with this iteration's prompt."""
        self._unwritten += [(_DELIVERED, (iteration, number)) for number in queued]

    def _whole(self, kind: str, body: str, started: float, *rest: object) -> None:
        self._seq += 1
        self._unwritten.append((_WHOLE, (self._run, self._seq, kind, body, started, *rest)))

    def flush(self) -> None:
        """Write everything that must be on disk before the next step, in one transaction.

        If that fails, nothing is lost: call it again.
        """
        if not self._urgent:
            return
        self._check_there()
        with clear_errors(self._path), transaction(self._db):
            for statement, values in self._unwritten:
                self._db.execute(statement, values)
        self._unwritten.clear()
        self._urgent = False

    def _check_there(self) -> None:
        """Check that the store was not deleted: writes to a deleted file would succeed and be lost."""
        try:
            is_there = os.stat(self._path).st_ino == self._inode
        except FileNotFoundError:
            is_there = False
        except OSError as error:
            raise RalphError(f"The store {self._path} cannot be used: {error.strerror}.") from None
        if not is_there:
            raise RalphError(f"The store {self._path} was removed during the run.", "Start a new run.")


def steps(
    db: sqlite3.Connection, path: Path, run: str, after: int = -1, *, looks: bool = True
) -> Iterator[JournalStep]:
    """The rows of a run in the order they were applied. Looks are half of them, and few readers need those."""
    query = f"{_STEPS} ORDER BY seq" if looks else f"{_STEPS} AND kind <> 'look' ORDER BY seq"
    with clear_errors(path):
        for seq, started, ended, kind, body, result_kind, result, state in db.execute(query, (run, after)):
            came = (result_kind, result) if result is not None else None
            end = (kind, state) if state is not None else None
            yield JournalStep(run, seq, started, ended, codec.decode(kind, body), came, end)


def commits(db: sqlite3.Connection, path: Path, run: str) -> tuple[str, ...]:
    """The commits made by a run."""
    query = "SELECT result FROM journal WHERE run = ? AND kind = 'commit' AND result IS NOT NULL ORDER BY seq"
    with clear_errors(path):
        rows = db.execute(query, (run,)).fetchall()
    found: list[Did] = [codec.decode("did", result) for (result,) in rows]
    return tuple(did.made for did in found if did.made)


def plan_of(db: sqlite3.Connection, path: Path, run: str) -> Plan | None:
    with clear_errors(path):
        row = db.execute("SELECT body FROM journal WHERE run = ? AND seq = 0", (run,)).fetchone()
    plan: Plan | None = codec.decode("plan", row[0]) if row else None
    return plan


class LoadedRun(Struct, frozen=True):
    """The starting point of a resume: the last state, and the step that was unfinished when ralph died.

    `is_over` means that the run has stopped and its final work is done.
    """

    state: State
    half_done: JournalStep | None
    is_over: bool = False

    @property
    def has_cut_off_agent(self) -> bool:
        return self.half_done is not None and isinstance(self.half_done.step, RunAgent)


LAST_STATE = (
    "SELECT kind, state, seq FROM journal WHERE run = ? AND state IS NOT NULL ORDER BY seq DESC LIMIT 1"
)


def load(db: sqlite3.Connection, path: Path, run: str) -> LoadedRun:
    plan = plan_of(db, path, run)
    if plan is None:
        raise RalphError(f"Run {run} is not in the store {path}.")
    with clear_errors(path):
        kind, state, seq = db.execute(LAST_STATE, (run,)).fetchone()
    since = list(steps(db, path, run, after=seq))
    half_done = since[-1] if since else None
    return LoadedRun(codec.decode_state(state, plan), half_done, is_over=kind in codec.ENDS)
