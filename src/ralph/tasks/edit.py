"""Adds, replaces, edits and deletes the tasks of a project, and keeps them consistent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from ralph.core.board import find_cycle
from ralph.core.task_model import Task, TaskStatus
from ralph.errors import RalphError
from ralph.settings import WorkSettings
from ralph.store import locks
from ralph.store.runs import Runs
from ralph.store.tasks import Tasks
from ralph.tasks.form import BY_WORK, Entry, read, written
from ralph.tasks.verification import TaskProblem, did_you_mean

FOLLOWUP_OF = "followup_of"
"""The metadata key for the task during which this task was found."""

EXISTS = TaskProblem(("id",), "already exists")
AT_WORK = TaskProblem(("id",), "is being worked on")
MAX_HINTS = 20
"""How many unknown ids get a suggestion: searching thousands of ids takes a while."""


class EntryProblem(NamedTuple):
    """A problem, and the index of its entry."""

    entry: int
    problem: TaskProblem


class AddedTasks(NamedTuple):
    """The result of adding: problems, with nothing written, or the number of new and replaced tasks."""

    problems: list[EntryProblem]
    new: int = 0
    replaced: int = 0


def add(tasks: Tasks, entries: Sequence[Entry], *, update: bool = False, check: bool = False) -> AddedTasks:
    """Add all entries or none. `update` also replaces existing tasks; `check` only validates."""
    with tasks.writing():
        problems = [EntryProblem(n, each) for n, entry in enumerate(entries) for each in entry.problems]
        problems += _clashes(tasks, entries, update=update)
        problems += _unfit(tasks.graph(), entries)
        if problems:
            return AddedTasks(sorted(problems, key=lambda found: found.entry))
        ready = [entry.task for entry in entries if entry.task]
        known = tasks.statuses()
        new = [task for task in ready if task.id not in known]
        if not check:
            for task in ready:
                if task.id in known:
                    tasks.put(_with_its_progress(task, tasks.find(task.id)))
            tasks.add(new)
        return AddedTasks([], len(new), len(ready) - len(new))


def edit(
    tasks: Tasks,
    id: str,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    settings: WorkSettings,
    status: TaskStatus | None = None,
) -> tuple[Task, list[TaskProblem]]:
    """Change a task in its written form; returns the task as stored now, and the problems with the change."""
    with tasks.writing():
        old = tasks.find(id)
        check_idle(tasks, old.id)
        entry = read(change(written(old)), settings)
        problems = [*entry.problems, *(found.problem for found in _unfit(tasks.graph(), [entry]))]
        if problems or entry.task is None:
            return old, problems
        kept = _with_its_progress(entry.task, old)
        tasks.put(replace(kept, status=status or old.status))
        if status is TaskStatus.TODO:
            tasks.move(old.id, status, tasks.progress(old.id).reopened())
        return tasks.find(old.id), []


class Deleted(NamedTuple):
    id: str
    dependents: list[str]


def delete(tasks: Tasks, id: str, *, force: bool) -> Deleted:
    """Delete a task. With `force`, also one that others depend on, removing it from their dependencies."""
    with tasks.writing():
        id = tasks.resolve(id)
        check_idle(tasks, id)
        dependents = tasks.dependents(id)
        if dependents and not force:
            raise RalphError(
                f"{id} cannot be deleted: {listed(dependents)} {_depend(dependents)} on it.",
                "Use --force to delete it anyway and remove it from their dependencies.",
            )
        for other in dependents:
            task = tasks.find(other)
            tasks.put(replace(task, dependencies=tuple(each for each in task.dependencies if each != id)))
        tasks.delete(id)
        return Deleted(id, dependents)


def is_live(tasks: Tasks, id: str) -> bool:
    """Whether a process is working on this task. Between two roles it has no run, but `ralph work` holds its lock."""
    if any(run.is_live for run in Runs(tasks.db, tasks.path).of_task(tasks.project, id)):
        return True
    begun = tasks.statuses().get(id) in BY_WORK
    return begun and locks.is_held(Path(tasks.project), tasks.path.parent)


def check_idle(tasks: Tasks, id: str) -> None:
    """Refuse to change a task while a process is working on it."""
    if is_live(tasks, id):
        raise RalphError(f"{id} is being worked on.", f"Wait for it, or stop it with `ralph cancel {id}`.")


def listed(ids: Sequence[str], most: int = 5) -> str:
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more


def _depend(ids: Sequence[str]) -> str:
    return "depends" if len(ids) == 1 else "depend"


def _with_its_progress(task: Task, old: Task) -> Task:
    return replace(task, status=old.status, iteration=old.iteration, created_at=old.created_at)


# ---- inconsistencies ----


def _clashes(tasks: Tasks, entries: Sequence[Entry], *, update: bool) -> Iterator[EntryProblem]:
    """Ids that are already used, in the file or in the store."""
    known = tasks.statuses()
    first: dict[str, int] = {}
    for number, entry in enumerate(entries):
        if not entry.id:
            continue
        if entry.id in first:
            yield EntryProblem(number, TaskProblem(("id",), f"is used twice: {entry.id}"))
        elif entry.id in known and not update:
            yield EntryProblem(number, EXISTS)
        elif entry.id in known and is_live(tasks, entry.id):
            yield EntryProblem(number, AT_WORK)
        first.setdefault(entry.id, number)


def _unfit(graph: dict[str, tuple[str, ...]], entries: Sequence[Entry]) -> Iterator[EntryProblem]:
    """Dependencies on unknown tasks, and dependency cycles."""
    graph = graph | {entry.id: entry.dependencies for entry in entries if entry.id}
    unknown = [
        (number, str(place), id)
        for number, entry in enumerate(entries)
        for place, id in enumerate(entry.dependencies)
        if id not in graph
    ]
    for count, (number, place, id) in enumerate(unknown):
        others = [known for known in graph if known != entries[number].id]
        hint = did_you_mean(id, others) if count < MAX_HINTS else ""
        text = f"names an unknown task: {id!r}{hint}"
        yield EntryProblem(number, TaskProblem(("dependencies", place), text))
    if cycle := find_cycle(graph):
        ids = {entry.id: number for number, entry in reversed(list(enumerate(entries)))}
        start = next((place for place, id in enumerate(cycle) if id in ids), 0)
        turned = (*cycle[start:-1], *cycle[:start], cycle[start])
        text = f": dependency cycle: {' → '.join(turned)}"
        yield EntryProblem(ids.get(turned[0], 0), TaskProblem(("dependencies",), text))
