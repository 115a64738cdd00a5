"""`ralph task create`, `followup` and `edit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ralph.commands.common import complete_task, open_tasks, task_argument, work_settings
from ralph.commands.task.options import (
    EDITED,
    TaskCommand,
    TaskEditCommand,
    changed,
    explained,
    is_given,
    task_options,
)
from ralph.core.task_model import TaskStatus
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.store.tasks import Tasks

STATUSES = ("todo", "done", "failed", "blocked", "cancelled")
"""Statuses that users can set; the others are set by `ralph work`."""


@click.command("create", cls=TaskCommand)
@click.argument("id", metavar="ID")
@click.argument("spec", metavar="SPEC")
@click.argument("title", metavar="TITLE")
@task_options
def create_(id: str, spec: str, title: str, **options: Any) -> int:
    """Create the task ID as part of SPEC. It needs an outcome and acceptance criteria.

    Values not given for a role come from the settings or the role's defaults; by default, a judge checks the
    acceptance criteria.

    \b
    ralph task create TASK-001 auth "Implement JWT auth" \\
        --outcome "All API endpoints require valid JWT tokens" \\
        --acceptance "Login returns a valid JWT" \\
        --acceptance "Invalid tokens return 401" \\
        --coder-verify-cmd "test -f src/auth/jwt.py" \\
        --tester-promise AUTH_TESTS_PASS --tester-template pytest-coverage
    """
    with open_tasks() as tasks:
        _create(tasks, {"id": id, "spec_id": spec, "title": title}, options)
    return 0


@click.command("followup", cls=TaskCommand)
@task_argument
@click.argument("new_id", metavar="NEW_ID")
@click.argument("title", metavar="TITLE")
@task_options
def followup_(id: str, new_id: str, title: str, **options: Any) -> int:
    """Create the task NEW_ID, discovered while working on ID, in the same spec.

    It needs an outcome and acceptance criteria, like every task. It has no dependencies unless you add them.

    \b
    ralph task followup TASK-001 TASK-017 "Rotate the signing key" \\
        --outcome "A new key signs all tokens within a day of its rotation" \\
        --acceptance "Tokens signed with the last key are valid until they expire"
    """
    from ralph.tasks.edit import FOLLOWUP_OF

    with open_tasks() as tasks:
        origin = tasks.find(id)
        values = {"id": new_id, "spec_id": origin.spec_id, "title": title}
        _create(tasks, values | {"metadata": {FOLLOWUP_OF: origin.id}}, options)
    return 0


def _create(tasks: Tasks, values: dict[str, Any], options: dict[str, Any]) -> None:
    from ralph.tasks import edit
    from ralph.tasks.form import read

    entry = read(changed(values, options), work_settings())
    added = edit.add(tasks, [entry])
    if added.problems:
        raise explained(f"{entry.id} was not created", [found.problem for found in added.problems])
    click.echo(f"Created {entry.id}.")


@click.command("edit", cls=TaskEditCommand)
@task_argument
@click.option("--title", metavar="TEXT", help="New title.")
@click.option(
    "--status",
    type=click.Choice(STATUSES),
    metavar="STATUS",
    help="New status: todo (`ralph work` starts it again), done, failed, blocked or cancelled.",
)
@click.option(
    "--remove-dependency",
    multiple=True,
    metavar="ID",
    shell_complete=complete_task,
    help="Task to remove from the dependencies; repeatable.",
)
@task_options
def edit_(
    id: str, title: str | None, status: str | None, remove_dependency: tuple[str, ...], **options: Any
) -> int:
    """Edit the task ID. Values that are not given stay as they are.

    --acceptance, --protect, --ROLE-check-for and --ROLE-negative-pattern replace the whole list;
    --depends-on adds to it. A task that is being worked on cannot be edited.

    \b
    ralph task edit TASK-001 --priority 1 --tester-verify-cmd "pytest tests"
    ralph task edit TASK-001 --status todo
    """
    from ralph.tasks import edit

    if not is_given(options | {"title": title, "status": status, "removed": remove_dependency}):
        raise RalphError(
            "Nothing to change: no options given.", "To list the options: ralph task edit --help"
        )

    def change(values: dict[str, Any]) -> dict[str, Any]:
        for other in remove_dependency:
            if other not in values["dependencies"]:
                raise RalphError(f"{values['id']} does not depend on {other!r}.")
            values["dependencies"].remove(other)
        return changed(values | ({"title": title} if title is not None else {}), options)

    with open_tasks() as tasks:
        task, problems = edit.edit(tasks, id, change, work_settings(), TaskStatus(status) if status else None)
    if problems:
        raise explained(f"{task.id} was not changed", problems, EDITED)
    click.echo(f"Changed {task.id}.")
    return 0
