"""Tasks of a project: adding, replacing, changing and deleting them, so that what is there always fits together."""

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
"""The key of a task's metadata that says while working on which task it was found."""

EXISTS = TaskProblem(("id",), "is there already")
AT_WORK = TaskProblem(("id",), "is being worked on")
MAX_HINTS = 20
"""Looking for a similar id among thousands takes a while."""


class EntryProblem(NamedTuple):
    """A problem, and which of the entries has it."""

    entry: int
    problem: TaskProblem


class AddedTasks(NamedTuple):
    """What came of adding: either problems, and nothing was written, or how many are new and replaced."""

    problems: list[EntryProblem]
    new: int = 0
    replaced: int = 0


def add(tasks: Tasks, entries: Sequence[Entry], *, update: bool = False, check: bool = False) -> AddedTasks:
    """All of the entries, or none of them. `update`: also replace; `check`: only look whether it would do."""
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
    """Change a task in its written form; the task as it is now, and what is wrong with the change."""
    with tasks.writing():
        old = tasks.find(id)
        if is_live(tasks, old.id):
            raise _at_work(old.id)
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
    """Remove a task. `force`: also one that others depend on; they do not any more."""
    with tasks.writing():
        id = tasks.resolve(id)
        if is_live(tasks, id):
            raise _at_work(id)
        dependents = tasks.dependents(id)
        if dependents and not force:
            raise RalphError(
                f"{id} cannot be deleted: {listed(dependents)} {_depend(dependents)} on it.",
                "--force deletes it all the same, and takes it out of their dependencies.",
            )
        for other in dependents:
            task = tasks.find(other)
            tasks.put(replace(task, dependencies=tuple(each for each in task.dependencies if each != id)))
        tasks.delete(id)
        return Deleted(id, dependents)


def is_live(tasks: Tasks, id: str) -> bool:
    """Does a process work on this task right now? Between two roles it has no run, but `ralph work` has its lock."""
    if any(run.is_live for run in Runs(tasks.db, tasks.path).of_task(tasks.project, id)):
        return True
    begun = tasks.statuses().get(id) in BY_WORK
    return begun and locks.is_held(Path(tasks.project), tasks.path.parent)


def listed(ids: Sequence[str], most: int = 5) -> str:
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more


def _depend(ids: Sequence[str]) -> str:
    return "depends" if len(ids) == 1 else "depend"


def _at_work(id: str) -> RalphError:
    return RalphError(f"{id} is being worked on.", f"Wait for it, or stop it with `ralph cancel {id}`.")


def _with_its_progress(task: Task, old: Task) -> Task:
    return replace(task, status=old.status, iteration=old.iteration, created_at=old.created_at)


# ---- what does not fit together ----


def _clashes(tasks: Tasks, entries: Sequence[Entry], *, update: bool) -> Iterator[EntryProblem]:
    """Ids that are taken, in the file or in the store."""
    known = tasks.statuses()
    first: dict[str, int] = {}
    for number, entry in enumerate(entries):
        if not entry.id:
            continue
        if entry.id in first:
            yield EntryProblem(number, TaskProblem(("id",), f"stands there twice: {entry.id}"))
        elif entry.id in known and not update:
            yield EntryProblem(number, EXISTS)
        elif entry.id in known and is_live(tasks, entry.id):
            yield EntryProblem(number, AT_WORK)
        first.setdefault(entry.id, number)


def _unfit(graph: dict[str, tuple[str, ...]], entries: Sequence[Entry]) -> Iterator[EntryProblem]:
    """Dependencies on tasks that are not there, and tasks that wait for each other."""
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
        text = f"names no task of this project: {id!r}{hint}"
        yield EntryProblem(number, TaskProblem(("dependencies", place), text))
    if cycle := find_cycle(graph):
        ids = {entry.id: number for number, entry in reversed(list(enumerate(entries)))}
        start = next((place for place, id in enumerate(cycle) if id in ids), 0)
        turned = (*cycle[start:-1], *cycle[:start], cycle[start])
        text = f": tasks that wait for each other: {' → '.join(turned)}"
        yield EntryProblem(ids.get(turned[0], 0), TaskProblem(("dependencies",), text))
