"""The durable list of a run's steps. Views read it, resume starts from it, the loop writes it.

A step that has an effect is written before it starts and completed after it has ended, each time with
all that has happened since in one transaction. A look has no effect and rides along with the next.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ralph.core.model import Command, Look, Plan, Result, State, Step
from ralph.errors import RalphError
from ralph.store import codec
from ralph.store.database import clear_errors, transaction

_INSERT = "INSERT INTO journal (run, seq, kind, body, started) VALUES (?, ?, ?, ?, ?)"
_WHOLE = (
    "INSERT INTO journal (run, seq, kind, body, started, result_kind, result, state, ended)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_COMPLETE = "UPDATE journal SET result_kind = ?, result = ?, state = ?, ended = ? WHERE run = ? AND seq = ?"
_APPLIED = "UPDATE commands SET applied = ? WHERE id = ?"
_DELIVERED = "UPDATE commands SET delivered = ? WHERE id = ?"


class JournalRow(Struct, frozen=True):
    """One journalled step, command or plan."""

    seq: int
    kind: str
    body: str
    started: float
    result_kind: str | None
    result: str | None
    state: str | None
    ended: float | None


class Journal:
    """The writer of one run's rows."""

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
        """The step is about to be done; returns its number."""
        self._seq += 1
        if not isinstance(step, Look):
            row = (self._run, self._seq, codec.kind_of(step), codec.encode(step), at)
            self._unwritten.append((_INSERT, row))
            self._urgent = True
        return self._seq

    def complete(self, step: Step, result: Result, state: State) -> None:
        """The step has been done and the machine has heard of it."""
        kind, body, after = codec.kind_of(result), codec.encode(result), codec.encode_state(state)
        if isinstance(step, Look):
            self._seq -= 1
            self._whole("look", "{}", result.at - result.took, kind, body, after, result.at)
        else:
            self._unwritten.append((_COMPLETE, (kind, body, after, result.at, self._run, self._seq)))
            self._urgent = True

    def complete_cut_off(self, row: JournalRow, result: Result, state: State) -> None:
        """A step that was in hand when ralph died gets its result afterwards."""
        kind, body, after = codec.kind_of(result), codec.encode(result), codec.encode_state(state)
        self._unwritten.append((_COMPLETE, (kind, body, after, result.at, self._run, row.seq)))
        self._urgent = True

    def command(self, command: Command, state: State, queued: int | None = None) -> None:
        """A command was applied; `queued` is its number in the queue, if it came from there."""
        kind, body, after = codec.kind_of(command), codec.encode(command), codec.encode_state(state)
        self._whole(kind, body, command.at, None, None, after, command.at)
        self._urgent = True
        if queued is not None:
            self._unwritten.append((_APPLIED, (command.at, queued)))

    def delivered(self, queued: tuple[int, ...], iteration: int) -> None:
        """Guidance that goes out with this iteration's prompt."""
        self._unwritten += [(_DELIVERED, (iteration, number)) for number in queued]

    def _whole(self, kind: str, body: str, started: float, *rest: object) -> None:
        self._seq += 1
        self._unwritten.append((_WHOLE, (self._run, self._seq, kind, body, started, *rest)))

    def flush(self) -> None:
        """Write what must be on disk before anything else happens, in one transaction.

        Nothing is forgotten when that fails: call it again.
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
        """A store that was deleted under us would take everything and keep nothing."""
        try:
            is_there = os.stat(self._path).st_ino == self._inode
        except FileNotFoundError:
            is_there = False
        except OSError as error:
            raise RalphError(f"The store {self._path} cannot be used: {error.strerror}.") from None
        if not is_there:
            raise RalphError(
                f"The store {self._path} was removed while the run was going on.", "Start it again."
            )


def rows(db: sqlite3.Connection, path: Path, run: str, after: int = -1) -> Iterator[JournalRow]:
    """The rows of a run in the order in which they were applied."""
    query = (
        "SELECT seq, kind, body, started, result_kind, result, state, ended FROM journal"
        " WHERE run = ? AND seq > ? ORDER BY seq"
    )
    with clear_errors(path):
        for values in db.execute(query, (run, after)):
            yield JournalRow(*values)


def facts(db: sqlite3.Connection, path: Path, run: str, after: int = -1) -> list[JournalRow]:
    """The same rows without most of their bytes: a state is there only where a run has ended, else it is ""."""
    query = (
        "SELECT seq, kind, body, started, result_kind, result,"
        " CASE WHEN state IS NULL OR kind IN ('stop', 'fail') THEN state ELSE '' END, ended FROM journal"
        " WHERE run = ? AND seq > ? ORDER BY seq"
    )
    with clear_errors(path):
        return [JournalRow(*values) for values in db.execute(query, (run, after)).fetchall()]


def commits(db: sqlite3.Connection, path: Path, run: str) -> tuple[str, ...]:
    """The commits that a run has made."""
    made = (row.result for row in facts(db, path, run) if row.kind == "commit" and row.result)
    done = (codec.decode("did", result) for result in made)
    return tuple(did.made for did in done if did.made)


class LoadedRun(Struct, frozen=True):
    """What resume starts from: the last state, and the step that was in hand when ralph died.

    `is_over`: it has stopped, and all that its end has to do was done.
    """

    state: State
    half_done: JournalRow | None
    is_over: bool = False


LAST_STATE = "SELECT kind, state FROM journal WHERE run = ? AND state IS NOT NULL ORDER BY seq DESC LIMIT 1"
_NEWEST = "SELECT max(seq) FROM journal WHERE run = ?"


def load(db: sqlite3.Connection, path: Path, run: str) -> LoadedRun:
    with clear_errors(path):
        first = next(rows(db, path, run), None)
        if first is None:
            raise RalphError(f"Run {run} is not in the store {path}.")
        plan: Plan = codec.decode("plan", first.body)
        kind, state = db.execute(LAST_STATE, (run,)).fetchone()
        newest = next(rows(db, path, run, after=db.execute(_NEWEST, (run,)).fetchone()[0] - 1))
    half_done = newest if newest.state is None else None
    return LoadedRun(codec.decode_state(state, plan), half_done, is_over=kind in codec.ENDS)
