"""The tasks of all projects: one row each, the completion spec as a JSON column."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from ralph.core.tasks import Progress, Task, TaskCompletionSpec, TaskStatus
from ralph.errors import RalphError
from ralph.store.database import Taken, clear_errors, transaction

_COLUMNS = (
    "id, spec_id, title, description, status, priority, dependencies, assignee, created_at, updated_at,"
    " metadata, iteration, completion_spec, protect"
)
_ORDER = "ORDER BY priority, rowid"

_encode = msgspec.json.encode


class Tasks:
    """The tasks of one project in the store."""

    def __init__(self, db: sqlite3.Connection, path: Path, project: str) -> None:
        self.db = db
        self.path = path
        self.project = project

    # ---- reading ----

    def all(self, spec: str | None = None, status: TaskStatus | None = None) -> list[Task]:
        """By priority, then as they were added."""
        where, values = self._where(spec, status)
        return [
            task for _, task in self._select(f"WHERE project = ?{where} {_ORDER}", (self.project, *values))
        ]

    def everywhere(self, spec: str | None = None, status: TaskStatus | None = None) -> list[tuple[str, Task]]:
        """The tasks of all projects, each with its project."""
        where, values = self._where(spec, status)
        return list(self._select(f"WHERE 1{where} ORDER BY project, priority, rowid", values))

    def get(self, id: str) -> Task | None:
        found = self._select("WHERE project = ? AND id = ?", (self.project, id))
        return next((task for _, task in found), None)

    def find(self, id: str) -> Task:
        """A task by its id; case does not matter where no other task differs by it alone."""
        if task := self.get(id):
            return task
        query = "WHERE project = ? AND id = ? COLLATE NOCASE"
        found = [task for _, task in self._select(query, (self.project, id))]
        if len(found) == 1:
            return found[0]
        raise RalphError(f"There is no task {id!r} in this project.", "`ralph task list` lists the tasks.")

    def counts(self) -> dict[str, int]:
        """How many tasks there are of each status."""
        query = "SELECT status, count(*) FROM tasks WHERE project = ? GROUP BY status"
        with clear_errors(self.path):
            return dict(self.db.execute(query, (self.project,)).fetchall())

    def progress(self, id: str) -> Progress:
        with clear_errors(self.path):
            row = self.db.execute(
                "SELECT progress FROM tasks WHERE project = ? AND id = ?", (self.project, id)
            ).fetchone()
        return self._decode(row[0], Progress, id) if row and row[0] else Progress()

    @staticmethod
    def _where(spec: str | None, status: TaskStatus | None) -> tuple[str, tuple[str, ...]]:
        given = [("spec_id", spec), ("status", status)]
        chosen = [(name, value) for name, value in given if value is not None]
        return "".join(f" AND {name} = ?" for name, _ in chosen), tuple(value for _, value in chosen)

    def _select(self, where: str, values: Iterable[object]) -> Iterator[tuple[str, Task]]:
        with clear_errors(self.path):
            rows = self.db.execute(f"SELECT project, {_COLUMNS} FROM tasks {where}", tuple(values)).fetchall()
        for project, id, *fields in rows:
            yield project, self._task(id, fields)

    def _task(self, id: str, fields: list[Any]) -> Task:
        spec_id, title, description, status, priority, dependencies, assignee, *rest = fields
        created_at, updated_at, metadata, iteration, spec, protect = rest
        return Task(
            id,
            spec_id,
            title,
            description,
            TaskStatus(status),
            priority,
            self._decode(dependencies, tuple[str, ...], id),
            assignee,
            created_at,
            updated_at,
            self._decode(metadata, dict[str, Any], id),
            iteration,
            self._decode(spec, TaskCompletionSpec, id) if spec else None,
            self._decode(protect, tuple[str, ...], id) if protect else None,
        )

    def _decode(self, text: str, type: Any, id: str) -> Any:
        try:
            return msgspec.json.decode(text, type=type)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RalphError(
                f"The store {self.path} is damaged: task {id} cannot be read ({error}).",
                f"Remove it with `ralph task delete {id}` and import it again.",
            ) from None

    # ---- writing ----

    def add(self, tasks: Iterable[Task]) -> None:
        """All of them or none."""
        now = time.time()
        try:
            with clear_errors(self.path), transaction(self.db):
                for task in tasks:
                    self._insert(replace(task, created_at=task.created_at or now, updated_at=now))
        except Taken:
            raise RalphError(
                "One of these tasks is there already.", "`ralph task list` lists the tasks."
            ) from None

    def put(self, task: Task) -> None:
        """Write a task that is there already; how far the work has come stays as it is."""
        values = self._values(replace(task, updated_at=time.time()))
        names = _COLUMNS.split(", ")
        assignments = ", ".join(f"{name.strip()} = ?" for name in names)
        with clear_errors(self.path), transaction(self.db):
            self.db.execute(
                f"UPDATE tasks SET {assignments} WHERE project = ? AND id = ?",
                (*values, self.project, task.id),
            )

    def keep_progress(self, id: str, progress: Progress) -> None:
        with clear_errors(self.path), transaction(self.db):
            self.db.execute(
                "UPDATE tasks SET progress = ? WHERE project = ? AND id = ?",
                (_encode(progress).decode(), self.project, id),
            )

    def move(self, id: str, status: TaskStatus, progress: Progress, iteration: int | None = None) -> None:
        """The work on a task has come so far."""
        with clear_errors(self.path), transaction(self.db):
            self.db.execute(
                "UPDATE tasks SET status = ?, progress = ?, iteration = ifnull(?, iteration), updated_at = ?"
                " WHERE project = ? AND id = ?",
                (status, _encode(progress).decode(), iteration, time.time(), self.project, id),
            )

    def delete(self, id: str) -> None:
        with clear_errors(self.path), transaction(self.db):
            self.db.execute("DELETE FROM tasks WHERE project = ? AND id = ?", (self.project, id))

    def _insert(self, task: Task) -> None:
        values = self._values(task)
        places = ", ".join("?" * (len(values) + 1))
        self.db.execute(f"INSERT INTO tasks (project, {_COLUMNS}) VALUES ({places})", (self.project, *values))

    @staticmethod
    def _values(task: Task) -> tuple[object, ...]:
        spec = _encode(task.completion_spec).decode() if task.completion_spec else None
        protect = _encode(task.protect).decode() if task.protect is not None else None
        return (
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
            spec,
            protect,
        )
