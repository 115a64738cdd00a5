"""The worktrees and branches of tasks, for `ralph task reset` and `ralph task delete`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ralph.core.task_model import TaskProgress, TaskStatus
from ralph.errors import RalphError
from ralph.process.client import Wakeup
from ralph.runs import control
from ralph.scm.repository import Repository
from ralph.scm.worktrees import branch_of
from ralph.store import locks
from ralph.store.home import Home
from ralph.store.runs import Run, Runs
from ralph.store.tasks import Tasks
from ralph.work.project_repo import OpenProjectRepo, locked_project_repo

PATIENCE = 2.0
"""How long to wait for the processes of a killed run to leave a worktree."""


class Branch(Struct, frozen=True):
    """A branch of a task. `unmerged`: its commits that no other branch has. `checkout`: where the user has it."""

    name: str
    commit: str
    unmerged: int = 0
    checkout: str = ""


class Cleared(Struct, frozen=True):
    """What was removed of a task and what was kept.

    `committed`: branches that got the uncommitted changes of their worktrees. `cancelled`: runs that were still open.
    `problems`: why something could not be removed.
    """

    worktrees: tuple[str, ...] = ()
    committed: tuple[str, ...] = ()
    deleted: tuple[Branch, ...] = ()
    kept: tuple[Branch, ...] = ()
    cancelled: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class TaskTrees(Struct, frozen=True):
    """The worktrees and branches of the tasks of a project, while no `ralph work` runs there."""

    home: Home
    repo: OpenProjectRepo
    tasks: Tasks
    runs: Runs

    # ---- reading ----

    def branches(self, task: str) -> list[Branch]:
        trees, own = self.repo.worktrees, self._attempts(task)
        found = []
        for name, commit in trees.branches_of(task).items():
            where = trees.checkout_of(name)
            checkout = "" if where is None or where in own.values() else str(where)
            found.append(Branch(name, commit, trees.unmerged(commit, task), checkout))
        return found

    def changed(self, task: str) -> list[str]:
        """The worktrees with uncommitted changes."""
        attempts = self._attempts(task)
        return [str(path) for path in attempts.values() if self._has_changes(path)]

    def _has_changes(self, path: Path) -> bool:
        repository = self.repo.worktrees.found(path)
        return repository is not None and self.repo.has_changes(repository, self._scratch(path))

    def _attempts(self, task: str) -> dict[int, Path]:
        """The worktrees of the attempts at a task, by their number."""
        first = self.repo.repo.worktree(task, 1)
        numbers = (path.name.removeprefix(f"{task}+") for path in first.parent.glob(f"{task}+*"))
        later = {
            int(number): self.repo.repo.worktree(task, int(number)) for number in numbers if number.isdigit()
        }
        return ({1: first} if os.path.lexists(first) else {}) | later

    def _scratch(self, path: Path) -> Path:
        """The state at the start of the last run in a worktree. If there is none, all changes count."""
        run = next(iter(self.runs.in_directory(str(path))), None)
        return self.home.streams(run.id if run else "none") / "scm"

    # ---- changing ----

    def check_unused(self, task: str) -> None:
        """Refuse if a process still works in a worktree of a task."""
        for path in self._attempts(task).values():
            try:
                os.close(locks.acquire(path, self.home.path, PATIENCE, above=False))
            except locks.Locked:
                raise RalphError(
                    f"A run of {task} is working in {path}.", f"Wait for it, or stop it: ralph cancel {task}"
                ) from None
            except (FileNotFoundError, NotADirectoryError):
                continue

    def save(self, task: str) -> list[str]:
        """Commit the uncommitted changes of its worktrees to their branches, and return those branches."""
        saved = []
        for number, path in self._attempts(task).items():
            repository, branch = self.repo.worktrees.found(path), branch_of(task, number)
            if repository is None:
                continue
            with self.repo.tree(repository) as tree:
                tree.attach(branch)
            if self.repo.keep(repository, f"{task}: unfinished", self._scratch(path)):
                saved.append(branch)
        return saved

    def remove_worktrees(self, task: str) -> Cleared:
        merge = self.repo.repo.merge_worktree(task)
        found = [*self._attempts(task).values(), *([merge] if os.path.lexists(merge) else [])]
        problems = self.repo.remove(*found)
        removed = tuple(str(path) for path in found if not os.path.lexists(path))
        return Cleared(removed, problems=tuple(problems))

    def delete_branches(self, task: str, branches: Sequence[Branch]) -> None:
        self.repo.delete_branches(task, [each.name for each in branches])

    def cancel_open_runs(self, task: str) -> list[str]:
        """Close the runs that a killed Ralph has left open: their worktrees will be gone."""
        opened = [run for run in self._runs(task) if self.runs.brief(run.id).stop is None]
        for run in opened:
            control.cancel(self.home, self.runs, run)
        return [run.id for run in opened]

    def _runs(self, task: str) -> list[Run]:
        return self.runs.of_task(self.tasks.project, task)

    def renew(self, task: str, *, hard: bool) -> None:
        """Let the task start again with its first role; with `hard`, from the base branch."""
        runs = self._runs(task)
        progress = TaskProgress() if hard else self.tasks.progress(task).reopened()
        progress = replace(progress, reset=runs[0].id if runs else "")
        self.tasks.move(task, TaskStatus.TODO, progress, 0 if hard else None)


@contextmanager
def opened_trees(home: Home, repository: Repository, tasks: Tasks, wakeup: Wakeup) -> Iterator[TaskTrees]:
    """Raises `ProjectLocked` while `ralph work` runs in the project."""
    runs = home.runs()
    try:
        with (
            locked_project_repo(home, repository, tasks.project, wakeup, runs_hooks=False) as locked,
            locked.opened(wakeup) as repo,
        ):
            yield TaskTrees(locked.home, repo, tasks, runs)
    finally:
        runs.db.close()


def reset(trees: TaskTrees, task: str, *, hard: bool) -> Cleared:
    """Remove the worktrees of a task, and with `hard` its branches and uncommitted changes too."""
    saved = [] if hard else trees.save(task)
    cancelled = trees.cancel_open_runs(task)
    branches = trees.branches(task)
    trees.renew(task, hard=hard)
    removed = trees.remove_worktrees(task)
    if hard:
        trees.delete_branches(task, branches)
    return replace(
        removed,
        committed=tuple(saved),
        deleted=tuple(branches) if hard else (),
        kept=() if hard else tuple(branches),
        cancelled=tuple(cancelled),
    )


def clear(trees: TaskTrees, task: str, *, hard: bool) -> Cleared:
    """Remove the worktrees of a deleted task, and its branches if nothing is lost, or with `hard` in any case."""
    saved = [] if hard else trees.save(task)
    removed = trees.remove_worktrees(task)
    branches = trees.branches(task)
    kept = [each for each in branches if each.checkout or (each.unmerged and not hard)]
    deleted = [each for each in branches if each not in kept]
    trees.delete_branches(task, deleted)
    return replace(removed, committed=tuple(saved), deleted=tuple(deleted), kept=tuple(kept))


def has_traces(home: Home, repository: Repository, project: str, task: str) -> bool:
    """Whether a task may have a worktree or a branch, without starting git."""
    place, common = home.worktree(project, task), repository.common
    if os.path.lexists(place) or any(place.parent.glob(f"{task}+*")) or (common / "reftable").is_dir():
        return True
    if any((common / "refs/heads/ralph").glob(f"{task}*")):
        return True
    try:
        return f" refs/heads/{branch_of(task)}".encode() in (common / "packed-refs").read_bytes()
    except OSError:
        return False
