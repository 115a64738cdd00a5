"""The tasks of all projects: one row each, the completion spec as a JSON column."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from ralph.core.task_model import Task, TaskCompletionSpec, TaskProgress, TaskStatus
from ralph.errors import RalphError
from ralph.store.database import Taken, clear_errors, transaction

_encode = msgspec.json.encode
_TEXTS = msgspec.json.Decoder(tuple[str, ...])
_OBJECT = msgspec.json.Decoder(dict[str, Any])
_SPEC = msgspec.json.Decoder(TaskCompletionSpec)
_PROGRESS = msgspec.json.Decoder(TaskProgress)

T = TypeVar("T")


class Stored(NamedTuple):
    """A row of the store. Structured values are JSON text."""

    project: str
    id: str
    spec_id: str
    title: str
    description: str
    status: str
    priority: int
    dependencies: str
    assignee: str
    created_at: float
    updated_at: float
    metadata: str
    iteration: int
    completion_spec: str | None
    protect: str | None
    attempts: int


class TaskBriefRow(NamedTuple):
    """The part of a task that a list shows."""

    project: str
    id: str
    status: str
    priority: int
    spec_id: str
    title: str
    iteration: int
    dependencies: tuple[str, ...]


class Tasks:
    """The tasks of one project in the store."""

    def __init__(self, db: sqlite3.Connection, path: Path, project: str) -> None:
        self.db = db
        self.path = path
        self.project = project

    # ---- reading ----

    def all(self, spec: str | None = None, status: TaskStatus | None = None) -> list[Task]:
        """The tasks by priority, then in the order they were added."""
        return [self.read(row) for row in self.stored(spec, status)]

    def stored(
        self, spec: str | None = None, status: TaskStatus | None = None, *, everywhere: bool = False
    ) -> list[Stored]:
        """The rows themselves, optionally of all projects. Their JSON can be printed as it is."""
        return list(map(Stored._make, self._select(Stored._fields, spec, status, everywhere=everywhere)))

    def briefs(
        self, spec: str | None = None, status: TaskStatus | None = None, *, everywhere: bool = False
    ) -> list[TaskBriefRow]:
        """The same with only what a list shows, which is fast for thousands of tasks."""
        rows = self._select(TaskBriefRow._fields, spec, status, everywhere=everywhere)
        return [TaskBriefRow._make((*row[:-1], self._texts(row[-1], row[1]))) for row in rows]

    def get(self, id: str) -> Task | None:
        rows = self._rows(", ".join(Stored._fields), "AND id = ?", id)
        return self.read(Stored._make(rows[0])) if rows else None

    def find(self, id: str) -> Task:
        """A task by its id, ignoring case unless two ids differ by case alone."""
        if task := self.get(self.resolve(id)):
            return task
        raise self._missing(id)

    def resolve(self, id: str) -> str:
        """The exact id of a task. The task itself is not read, as it may be damaged."""
        for collation in ("", " COLLATE NOCASE"):
            rows = self._rows("id", "AND id = ?" + collation, id)
            if len(rows) == 1:
                return str(rows[0][0])
        raise self._missing(id)

    @staticmethod
    def _missing(id: str) -> RalphError:
        return RalphError(f"There is no task {id!r} in this project.", "To list the tasks: ralph task list")

    def graph(self) -> dict[str, tuple[str, ...]]:
        """The dependencies of each task."""
        return {id: self._texts(text, id) for id, text in self._rows("id, dependencies")}

    def dependents(self, id: str) -> list[str]:
        """The tasks that depend on a task, which is not read itself."""
        rows = self._rows("id, dependencies", "AND id <> ? ORDER BY rowid", id)
        return [other for other, text in rows if id in self._texts(text, other)]

    def statuses(self) -> dict[str, str]:
        """The status of each task, as stored."""
        return dict(self._rows("id, status"))

    def counts(self) -> dict[str, int]:
        """The number of tasks in each status."""
        return dict(self._rows("status, count(*)", "GROUP BY status"))

    def totals(self) -> dict[str, int]:
        """The number of tasks in each project."""
        with clear_errors(self.path):
            return dict(self.db.execute("SELECT project, count(*) FROM tasks GROUP BY project").fetchall())

    def progress(self, id: str) -> TaskProgress:
        rows = self._rows("progress", "AND id = ?", id)
        return self._decode(rows[0][0], _PROGRESS, id) if rows and rows[0][0] else TaskProgress()

    def progresses(self) -> dict[str, TaskProgress]:
        """The progress of each task that was started."""
        rows = self._rows("id, progress", "AND progress IS NOT NULL")
        return {id: self._decode(text, _PROGRESS, id) for id, text in rows}

    def ids(self, status: TaskStatus, spec: str | None = None) -> list[str]:
        """The ids of the tasks in one status, by priority."""
        of_spec, values = (" AND spec_id = ?", (spec,)) if spec is not None else ("", ())
        rows = self._rows("id", f"AND status = ?{of_spec} ORDER BY priority, rowid", status, *values)
        return [id for (id,) in rows]

    def _rows(self, columns: str, more: str = "", *values: Any) -> list[tuple[Any, ...]]:
        """Columns of the tasks of this project. `more` adds SQL conditions and order, with these values."""
        query = f"SELECT {columns} FROM tasks WHERE project = ? {more}"
        with clear_errors(self.path):
            return self.db.execute(query, (self.project, *values)).fetchall()

    def _select(
        self, names: Sequence[str], spec: str | None, status: TaskStatus | None, *, everywhere: bool
    ) -> list[tuple[Any, ...]]:
        """Select rows and sort them here: SQLite would sort whole rows, which takes twice as long."""
        given = [("project", None if everywhere else self.project), ("spec_id", spec), ("status", status)]
        chosen = {name: value for name, value in given if value is not None}
        where = " AND ".join(f"{name} = ?" for name in chosen) or "1"
        order = ("project", "priority", "rowid")
        query = f"SELECT {', '.join((*order, *names))} FROM tasks WHERE {where}"
        with clear_errors(self.path):
            rows = self.db.execute(query, tuple(chosen.values())).fetchall()
        return [row[len(order) :] for row in sorted(rows)]

    def read(self, row: Stored) -> Task:
        """The task of a row. A damaged one is an error that names it."""
        id = row.id
        return Task(
            id,
            row.spec_id,
            row.title,
            row.description,
            self._status(row.status, id),
            row.priority,
            self.depends_on(row),
            row.assignee,
            row.created_at,
            row.updated_at,
            {} if row.metadata == "{}" else self._decode(row.metadata, _OBJECT, id),
            row.iteration,
            self._decode(row.completion_spec, _SPEC, id) if row.completion_spec else None,
            self._texts(row.protect, id) if row.protect else None,
            row.attempts,
        )

    def depends_on(self, row: Stored) -> tuple[str, ...]:
        """The dependencies of the task of a row, without reading the rest of it."""
        return self._texts(row.dependencies, row.id)

    def _status(self, word: str, id: str) -> TaskStatus:
        try:
            return TaskStatus(word)
        except ValueError as error:
            raise self._damage(id, error) from None

    def _texts(self, text: str, id: str) -> tuple[str, ...]:
        return () if text == "[]" else self._decode(text, _TEXTS, id)

    def _decode(self, text: str, decoder: msgspec.json.Decoder[T], id: str) -> T:
        try:
            return decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._damage(id, error) from None

    def _damage(self, id: str, error: Exception) -> RalphError:
        return RalphError(
            f"The store {self.path} is damaged: task {id} cannot be read ({error}).",
            f"Remove it with `ralph task delete {id}` and import it again.",
        )

    # ---- writing ----

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction for everything read and written inside it."""
        with clear_errors(self.path), nullcontext() if self.db.in_transaction else transaction(self.db):
            yield

    def add(self, tasks: Iterable[Task]) -> None:
        """Add all of them or none."""
        now = time.time()
        try:
            with self.writing():
                for task in tasks:
                    self._insert(replace(task, created_at=task.created_at or now, updated_at=now))
        except Taken:
            raise RalphError(
                "One of these tasks already exists.", "To list the tasks: ralph task list"
            ) from None

    def put(self, task: Task) -> None:
        """Update an existing task, but not its progress."""
        values = self.as_stored(replace(task, updated_at=time.time()))
        self._update(task.id, ", ".join(f"{name} = ?" for name in Stored._fields), *values)

    def keep_progress(self, id: str, **changes: Any) -> TaskProgress:
        """Change some fields of a task's progress and return it. The other fields stay as they are."""
        with self.writing():
            progress = replace(self.progress(id), **changes)
            self._update(id, "progress = ?", _encode(progress).decode())
        return progress

    def move(self, id: str, status: TaskStatus, progress: TaskProgress, iteration: int | None = None) -> None:
        """Record the status and progress of a task."""
        assignments = "status = ?, progress = ?, iteration = ifnull(?, iteration), updated_at = ?"
        self._update(id, assignments, status, _encode(progress).decode(), iteration, time.time())

    def _update(self, id: str, assignments: str, *values: Any) -> None:
        with self.writing():
            self.db.execute(
                f"UPDATE tasks SET {assignments} WHERE project = ? AND id = ?", (*values, self.project, id)
            )

    def delete(self, id: str) -> None:
        with self.writing():
            self.db.execute("DELETE FROM tasks WHERE project = ? AND id = ?", (self.project, id))

    def _insert(self, task: Task) -> None:
        places = ", ".join("?" * len(Stored._fields))
        self.db.execute(
            f"INSERT INTO tasks ({', '.join(Stored._fields)}) VALUES ({places})", self.as_stored(task)
        )

    def as_stored(self, task: Task) -> Stored:
        """The row of a task of this project."""
        return Stored(
            self.project,
            task.id,
            task.spec_id,
            task.title,
            task.description,
            task.status,
            task.priority,
            _encode(task.dependencies).decode(),
            task.assignee,
            task.created_at,
            task.updated_at,
            _encode(task.metadata).decode(),
            task.iteration,
            _encode(_spec(task.completion_spec)).decode() if task.completion_spec else None,
            _encode(task.protect).decode() if task.protect is not None else None,
            task.attempts,
        )


def _spec(spec: TaskCompletionSpec) -> dict[str, Any]:
    """The spec without the roles for which the task has no criteria."""
    values = {"outcome": spec.outcome, "acceptance_criteria": spec.acceptance_criteria}
    return values | dict(spec.criteria)
