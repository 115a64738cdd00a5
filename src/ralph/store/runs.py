"""The runs of all projects: creating, finding and summarising them, and commands for live ones."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ralph.core import machine
from ralph.core.model import Command, Flow, Plan, Steer
from ralph.errors import RalphError
from ralph.store import codec
from ralph.store.codec import RunBrief
from ralph.store.database import Taken, clear_errors, transaction
from ralph.store.journal import LAST_STATE, plan_of

_COLUMNS = "id, project, directory, flow, parent, created, pid, pid_start, task, role"


class Run(Struct, frozen=True):
    """One row of the list of runs."""

    id: str
    project: str
    directory: str
    flow: Flow
    parent: str | None
    created: float
    pid: int | None
    pid_start: str | None
    task: str | None = None
    role: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether the process that drives the run is still alive."""
        if self.pid is None or self.pid_start is None:
            return False
        return process_start(self.pid) == self.pid_start


class Guidance(Struct, frozen=True):
    """Guidance from `ralph steer`. `iteration` is the one whose prompt had it; None if not sent yet."""

    at: float
    text: str
    iteration: int | None


def parent_run() -> str | None:
    """The run whose agent started this process, if any."""
    return os.environ.get("RALPH_PARENT_RUN_ID") or None


def process_start(pid: int) -> str | None:
    """A process's start time, as text that no other process with the same pid shares; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        ticks = stat.rpartition(b")")[2].split()
        if ticks[0] in (b"Z", b"X"):
            return None
        return f"{_boot_id()}/{ticks[19].decode()}"
    except OSError:
        if os.path.isdir("/proc/self"):
            return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "unknown"


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]


def new_id(at: float) -> str:
    """A new run id, sortable by time: date, time (UTC) and four hexadecimal digits."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(at)) + "-" + os.urandom(2).hex()


class Runs:
    """The list of runs in one store."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self.db = db
        self.path = path
        self._version = -1

    def create(self, plan: Plan, directory: str, project: str) -> Run:
        """Create a run, with its plan as row 0 of its journal, in one transaction."""
        at, pid, flow = time.time(), os.getpid(), plan.flow
        for _ in range(10):
            id, mine = new_id(at), process_start(pid)
            plan = replace(plan, run=id)
            whose = plan.task_id or None, plan.role or None
            run = Run(id, project, directory, flow, parent_run(), at, pid, mine, *whose)
            first = codec.encode(plan), codec.encode_state(machine.start(plan, at))
            try:
                with clear_errors(self.path), transaction(self.db):
                    self.db.execute(
                        f"INSERT INTO runs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        (run.id, project, directory, flow, run.parent, at, pid, mine, *whose),
                    )
                    self.db.execute(
                        "INSERT INTO journal (run, seq, kind, body, started, state, ended)"
                        " VALUES (?, 0, 'plan', ?, ?, ?, ?)",
                        (run.id, first[0], at, first[1], at),
                    )
                return run
            except Taken:
                continue
        raise RalphError("No free run id could be found.", "Try again.")

    def take_over(self, id: str) -> None:
        """Make this process the driver of the run."""
        with clear_errors(self.path), transaction(self.db):
            self.db.execute(
                "UPDATE runs SET pid = ?, pid_start = ? WHERE id = ?",
                (os.getpid(), process_start(os.getpid()), id),
            )

    def let_go(self, id: str) -> None:
        """Record that no process drives the run any more."""
        with clear_errors(self.path), transaction(self.db):
            self.db.execute("UPDATE runs SET pid = NULL WHERE id = ? AND pid = ?", (id, os.getpid()))

    def all(self) -> list[Run]:
        """All runs, newest first by order of creation, whatever the clock said."""
        return list(self._select("ORDER BY rowid DESC", ()))

    def children(self, parent: str) -> list[Run]:
        """Runs started by the agent of this one, newest first."""
        return list(self._select("WHERE parent = ? ORDER BY rowid DESC", (parent,)))

    def in_directory(self, directory: str) -> list[Run]:
        return list(self._select("WHERE directory = ? ORDER BY rowid DESC", (directory,)))

    def around(self, directory: str, project: str) -> list[Run]:
        """The runs in a directory and the supervise runs of its project, newest first."""
        where = "WHERE directory = ? OR (project = ? AND flow = ?) ORDER BY rowid DESC"
        return list(self._select(where, (directory, project, Flow.SUPERVISE)))

    def of_task(self, project: str, task: str) -> list[Run]:
        """The runs of a task, newest first."""
        return list(self._select("WHERE project = ? AND task = ? ORDER BY rowid DESC", (project, task)))

    def find(self, name: str) -> Run:
        """A run by its id, or by any unique prefix or suffix of it."""
        runs = list(
            self._select("WHERE id = ? OR id LIKE ? || '%' OR id LIKE '%' || ?", (name, name, name))
            if name and not set(name) & set("%_")
            else ()
        )
        exact = [run for run in runs if run.id == name]
        if len(exact or runs) == 1:
            return (exact or runs)[0]
        if not runs:
            raise RalphError(f"There is no run {name!r}.", "To list the runs: ralph status")
        ids = ", ".join(run.id for run in runs[:5])
        raise RalphError(f"{name!r} matches several runs: {ids}.", "Give more of the id.")

    def brief(self, id: str) -> RunBrief:
        with clear_errors(self.path):
            kind, state, _ = self.db.execute(LAST_STATE, (id,)).fetchone() or ("", "", -1)
        return codec.decode_brief(kind, state, id)

    def last_agent(self, id: str) -> int:
        """The row of the last agent started; -1 if none was."""
        return self._last(id, "kind = 'run_agent'")

    def last_served(self, id: str) -> int:
        """The row of the last agent that its provider served; -1 if none was."""
        return self._last(
            id, "kind = 'run_agent' AND json_extract(result, '$.ended') NOT IN ('limit', 'interrupted')"
        )

    def _last(self, id: str, which: str) -> int:
        with clear_errors(self.path):
            found = self.db.execute(
                f"SELECT max(seq) FROM journal WHERE run = ? AND {which}", (id,)
            ).fetchone()[0]
        return -1 if found is None else int(found)

    def plan(self, id: str) -> Plan | None:
        return plan_of(self.db, self.path, id)

    def last_rows(self) -> dict[str, int]:
        """The number of the last row of each run, which grows with every event of the run."""
        with clear_errors(self.path):
            query = "SELECT id, (SELECT max(seq) FROM journal WHERE run = id) FROM runs"
            return dict(self.db.execute(query).fetchall())

    def projects(self) -> list[str]:
        """The projects that have a run or a task."""
        with clear_errors(self.path):
            rows = self.db.execute(
                "SELECT project FROM runs UNION SELECT project FROM tasks ORDER BY project"
            )
            return [project for (project,) in rows.fetchall()]

    def size(self, id: str) -> int:
        """The approximate size of a run in the database, in bytes."""
        query = (
            "SELECT total(length(body) + ifnull(length(result), 0) + ifnull(length(state), 0)) FROM journal"
        )
        with clear_errors(self.path):
            return int(self.db.execute(f"{query} WHERE run = ?", (id,)).fetchone()[0])

    def forget(self, id: str) -> None:
        """Remove a run and all its rows."""
        with clear_errors(self.path), transaction(self.db):
            self.db.execute("DELETE FROM journal WHERE run = ?", (id,))
            self.db.execute("DELETE FROM commands WHERE run = ?", (id,))
            self.db.execute("DELETE FROM runs WHERE id = ?", (id,))

    def _select(self, where: str, values: tuple[object, ...]) -> Iterator[Run]:
        query = f"SELECT {_COLUMNS} FROM runs {where}"
        with clear_errors(self.path):
            rows = self.db.execute(query, values).fetchall()
        for id, project, directory, flow, *rest in rows:
            yield Run(id, project, directory, Flow(flow), *rest)

    # ---- commands ----

    def send(self, run: str, command: Command) -> int:
        """Queue a command for the process that drives the run, and return its number."""
        with clear_errors(self.path), transaction(self.db):
            cursor = self.db.execute(
                "INSERT INTO commands (run, kind, body, created) VALUES (?, ?, ?, ?)",
                (run, codec.kind_of(command), codec.encode(command), command.at),
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def has_news(self) -> bool:
        """Whether another process has written to the store since the last call. Cheap enough for every step."""
        with clear_errors(self.path):
            version = int(self.db.execute("PRAGMA data_version").fetchone()[0])
        news, self._version = version != self._version, version
        return news

    def waiting(self, run: str) -> list[tuple[int, Command]]:
        """Commands that have not been applied yet, in order."""
        with clear_errors(self.path):
            rows = self.db.execute(
                "SELECT id, kind, body FROM commands WHERE run = ? AND applied IS NULL ORDER BY id", (run,)
            ).fetchall()
        return [(id, _numbered(id, codec.decode(kind, body))) for id, kind, body in rows]

    def guidance(self, run: str) -> list[Guidance]:
        """The guidance sent to the run, in order."""
        with clear_errors(self.path):
            rows = self.db.execute(
                "SELECT body, delivered FROM commands WHERE run = ? AND kind = 'steer' ORDER BY id", (run,)
            ).fetchall()
        steers: Iterator[tuple[Steer, int | None]] = ((codec.decode("steer", body), at) for body, at in rows)
        return [Guidance(steer.at, steer.text, iteration) for steer, iteration in steers]

    def delivery(self, number: int) -> tuple[bool, int | None]:
        """Whether a queued command has been applied, and the iteration it was delivered with."""
        with clear_errors(self.path):
            row = self.db.execute(
                "SELECT applied, delivered FROM commands WHERE id = ?", (number,)
            ).fetchone()
        return (row[0] is not None, row[1]) if row else (False, None)


def _numbered(id: int, command: Command) -> Command:
    return Steer(command.at, id, command.text) if isinstance(command, Steer) else command
