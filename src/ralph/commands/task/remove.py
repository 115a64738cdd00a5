"""`ralph task reset` and `ralph task delete`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralph.commands.common import complete_task, open_tasks, task_argument
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.scm.repository import Repository
    from ralph.store.tasks import Tasks
    from ralph.work.task_trees import Branch, Cleared, TaskTrees

_YES = "Use --yes to do it without a question."


# ---- reset ----


@click.command("reset")
@click.argument("ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_task)
@click.option(
    "--hard", is_flag=True, help="Also discard the branch, its commits and uncommitted changes: start over."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was removed and what was kept as JSON.")
@click.option("-y", "--yes", is_flag=True, help="Discard work without asking.")
def reset_(ids: tuple[str, ...], hard: bool, as_json: bool, yes: bool) -> int:
    """Remove the worktrees of the tasks ID and start them again.

    The next `ralph work` makes a new worktree, runs ralph.setup in it, and continues with the first role. The
    branch ralph/ID stays with all its commits; uncommitted changes are committed to it first. With --hard, the
    branch is deleted too, and the task starts from the base branch as if no one had worked on it.

    Refused while `ralph work` runs in this project.

    \b
    ralph task reset TASK-001
    ralph task reset TASK-001 TASK-002 --hard
    """
    from ralph.work import task_trees
    from ralph.work.project_lock import ProjectLocked

    repository = _repository()
    if repository is None:
        raise RalphError("This directory is not in a git repository: its tasks have no worktrees.")
    with open_tasks() as tasks:
        found = [_resettable(tasks, id) for id in dict.fromkeys(map(tasks.resolve, ids))]
        try:
            with _opened_trees(tasks, repository) as trees:
                for id in found:
                    trees.check_unused(id)
                if hard and not _may_discard(trees, found, yes=yes):
                    return 0
                done = {id: task_trees.reset(trees, id, hard=hard) for id in found}
        except ProjectLocked:
            raise RalphError(
                f"`ralph work` is running in this project: {', '.join(found)} cannot be reset now.",
                "Wait until it has finished, or stop it with Ctrl-C.",
            ) from None
    if as_json:
        click.echo(json.dumps([_to_json(id, each) for id, each in done.items()], indent=2))
    else:
        for id, each in done.items():
            click.echo(f"Reset {id}: its status is todo.")
            _print(each)
    return _problems(list(done.values()))


def _resettable(tasks: Tasks, id: str) -> str:
    """The id of a task that no one is working on and that is not done."""
    from ralph.core.task_model import TaskStatus
    from ralph.tasks import edit

    edit.check_idle(tasks, id)
    if tasks.statuses()[id] == TaskStatus.DONE:
        raise RalphError(
            f"{id} is done: there is nothing to reset.",
            f"To work on it again: ralph task edit {id} --status todo",
        )
    return id


def _may_discard(trees: TaskTrees, ids: Sequence[str], *, yes: bool) -> bool:
    """Ask if commits or changes would be lost. A branch that the user has checked out cannot be deleted."""
    lost = []
    for id in ids:
        for branch in trees.branches(id):
            if branch.checkout:
                raise RalphError(
                    f"The branch {branch.name} is checked out in {branch.checkout}.",
                    f"Check out another branch there: git -C {branch.checkout} switch BRANCH",
                )
            if branch.unmerged:
                lost.append(f"{_commits(branch)} on {branch.name}")
        lost += [f"uncommitted changes in {path}" for path in trees.changed(id)]
    return not lost or yes or _agreed(f"Discard {', '.join(lost)}?")


# ---- delete ----


@click.command("delete")
@task_argument
@click.option(
    "--force", is_flag=True, help="Delete even if other tasks depend on it; removes those dependencies."
)
@click.option("--hard", is_flag=True, help="Also discard commits and changes that are not merged.")
@click.option("-y", "--yes", is_flag=True, help="Delete without asking.")
def delete_(id: str, force: bool, hard: bool, yes: bool) -> int:
    """Delete the task ID with its worktrees, and its branch if that is merged. Its runs are kept.

    A branch with commits that are not merged stays, and uncommitted changes are committed to it first; the
    command that deletes it is printed. With --hard it is deleted at once.

    A task that is being worked on cannot be deleted. A task that others depend on needs --force.

    \b
    ralph task delete TASK-001
    """
    from ralph.commands.ask import ask, is_yes
    from ralph.tasks import edit

    with open_tasks() as tasks:
        id = tasks.resolve(id)
        question = f"Delete {id} and all its work? (y/N)" if hard else f"Delete {id}? (y/N)"
        if not yes and sys.stdin.isatty() and not ask(question, is_yes):
            click.echo("Nothing was deleted.", err=True)
            return 0
        deleted = edit.delete(tasks, id, force=force)
        freed = deleted.dependents
        note = (
            f" {edit.listed(freed)} no longer {'depends' if len(freed) == 1 else 'depend'} on it."
            if freed
            else ""
        )
        click.echo(f"Deleted {deleted.id}.{note}")
        cleared = _cleared(tasks, deleted.id, hard=hard)
    if cleared is None:
        return 0
    _print(cleared)
    if cleared.kept:
        click.echo(f"  To delete what was kept: git branch -D {' '.join(each.name for each in cleared.kept)}")
    return _problems([cleared])


def _cleared(tasks: Tasks, id: str, *, hard: bool) -> Cleared | None:
    """Remove the worktrees and branches of a deleted task; None if there are none or they have to stay."""
    from ralph.store.home import Home
    from ralph.work import task_trees
    from ralph.work.project_lock import ProjectLocked

    repository, home = _repository(), Home(tasks.path.parent)
    if repository is None or not task_trees.has_traces(home, repository, tasks.project, id):
        return None
    try:
        with _opened_trees(tasks, repository) as trees:
            trees.check_unused(id)
            return task_trees.clear(trees, id, hard=hard)
    except ProjectLocked:
        why = "`ralph work` is running here."
    except RalphError as error:
        why = error.message
    click.echo(
        f"{why} The worktrees and the branch of {id} stay. To remove them later: ralph prune;"
        f" git branch -D ralph/{id}",
        err=True,
    )
    return None


# ---- both ----


def _repository() -> Repository | None:
    """The main checkout of the repository, also if this directory is in a worktree, which may be removed."""
    from ralph.scm.repository import find_repository, repository_at

    repository = find_repository(Path.cwd())
    return repository and (repository_at(repository.common.parent) or repository)


@contextmanager
def _opened_trees(tasks: Tasks, repository: Repository) -> Iterator[TaskTrees]:
    from ralph.runs.background import signals
    from ralph.store.home import Home
    from ralph.work.task_trees import opened_trees

    home = Home(tasks.path.parent)
    with signals() as wakeup, opened_trees(home, repository, tasks, wakeup) as trees:
        yield trees


def _agreed(question: str) -> bool:
    from ralph.commands.ask import ask, is_yes

    if not sys.stdin.isatty():
        raise RalphError(question.replace("Discard", "This would discard").rstrip("?") + ".", _YES)
    if ask(f"{question} (y/N)", is_yes):
        return True
    click.echo("Nothing was changed.", err=True)
    return False


def _commits(branch: Branch) -> str:
    return f"{branch.unmerged} unmerged {'commit' if branch.unmerged == 1 else 'commits'}"


def _print(cleared: Cleared) -> None:
    for path in cleared.worktrees:
        click.echo(f"  removed: worktree {path}")
    for branch in cleared.committed:
        click.echo(f"  committed: uncommitted changes, to {branch}")
    for each in cleared.deleted:
        click.echo(f"  deleted: branch {each.name} (was {each.commit[:10]})")
    for each in cleared.kept:
        why = f", checked out in {each.checkout}" if each.checkout else ""
        click.echo(f"  kept: branch {each.name} ({_commits(each)}{why})")
    for run in cleared.cancelled:
        click.echo(f"  cancelled: run {run}")


def _problems(cleared: Sequence[Cleared]) -> int:
    problems = [problem for each in cleared for problem in each.problems]
    for problem in problems:
        click.echo(f"ralph: warning: {problem}", err=True)
    return 1 if problems else 0


def _to_json(id: str, cleared: Cleared) -> dict[str, object]:
    from msgspec import to_builtins

    values: dict[str, object] = to_builtins(cleared)
    return {"id": id, "status": "todo", **values}
