"""Worktrees that are no longer needed, found and removed by `ralph prune`."""

from __future__ import annotations

import os
from pathlib import Path

from ralph.core.task_model import Task, TaskStatus
from ralph.process.client import Wakeup, Warden
from ralph.runs.repository import scm_runner
from ralph.scm.baseline import Baseline
from ralph.scm.git import Git
from ralph.scm.repository import find_repository, repository_at
from ralph.scm.worktrees import Worktrees, wipe
from ralph.store import locks
from ralph.store.files import opened_directory
from ralph.store.home import Home
from ralph.store.prune import Leftover, tree_size

_OVER = (TaskStatus.DONE, TaskStatus.CANCELLED)


def left_worktrees(home: Home, before: float) -> list[Leftover]:
    """Worktrees of tasks that are finished or gone, and of tasks that failed before the given time."""
    found = []
    for path in sorted((home.path / "worktrees").glob("*/[!.]*")):
        if path.is_dir() and not _is_in_use(home, path) and (why := _why(home, path, before)):
            found.append(Leftover("worktree", path, why, tree_size(path)))
    return found


def _is_in_use(home: Home, path: Path) -> bool:
    try:
        lock = locks.acquire(path, home.path, 0.0, above=False)
    except locks.Locked:
        return True
    os.close(lock)
    return False


def _why(home: Home, path: Path, before: float) -> str:
    repository = repository_at(path)
    if repository is None:
        return "its repository is gone"
    task = _task(home, str(repository.common), path.name)
    if task is None:
        return "its task is gone"
    if task.status in _OVER:
        return f"its task is {task.status}"
    is_old = task.status is TaskStatus.FAILED and task.updated_at < before
    return "its task has failed" if is_old else ""


def _task(home: Home, project: str, name: str) -> Task | None:
    """The task of a worktree. Names of further attempts have `+` and a number after the task id."""
    tasks = home.tasks(project)
    try:
        return tasks.get(name.partition("+")[0])
    finally:
        tasks.db.close()


def remove_worktree(home: Home, path: Path) -> None:
    """Remove a worktree, or raise. Its branch stays, with all its commits."""
    linked = repository_at(path)
    main = find_repository(linked.common.parent) if linked else None
    if main is None:
        wipe(path)
        return
    with opened_directory(str(main.top)) as directory, Warden(Wakeup()) as warden:
        runner = scm_runner(warden, directory, main.top)
        baseline = Baseline(Git(main, runner), home.path / "work" / "prune")
        Worktrees(main, runner, baseline).remove(path)
