"""`ralph task list` and `ralph task show`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ralph.commands.common import open_tasks, task_argument, work_settings

if TYPE_CHECKING:
    from ralph.core.task_model import Task
    from ralph.settings import WorkSettings
    from ralph.store.tasks import Stored, Tasks
    from ralph.views.tasks import RoleView

STATUSES = (
    *("todo", "implementing", "reviewing", "testing", "qa"),
    *("done", "failed", "blocked", "cancelled"),
)

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command("list")
@click.option("--spec", metavar="SPEC", help="List only the tasks of this spec.")
@click.option(
    "--status",
    type=click.Choice(STATUSES),
    metavar="STATUS",
    help="List only tasks with this status: todo, implementing, reviewing, testing, qa, done, failed, blocked,"
    " cancelled.",
)
@click.option("--all", "everywhere", is_flag=True, help="List the tasks of all projects.")
@_json_option
def list_(spec: str | None, status: str | None, everywhere: bool, as_json: bool) -> int:
    """List the tasks of this project by priority, then in the order they were added.

    \b
    ralph task list --status failed
    ralph task list --spec auth --json
    """
    from ralph.core.task_model import TaskStatus
    from ralph.views import tasks as view

    chosen = TaskStatus(status) if status else None
    with open_tasks() as tasks:
        if as_json:
            _write_all(tasks, tasks.stored(spec, chosen, everywhere=everywhere))
            return 0
        briefs = tasks.briefs(spec, chosen, everywhere=everywhere)
    if briefs:
        view.print_list(briefs, with_project=everywhere)
    else:
        matching = "matching " if spec or status else ""
        click.echo(f"No {matching}tasks. To create one, see: ralph task create --help", err=True)
    return 0


@click.command("show")
@task_argument
@_json_option
def show_(id: str, as_json: bool) -> int:
    """Show the task ID in full, with the criteria that apply to each role.

    Criteria come from the task itself, then from the settings (`ralph`), then from the role's defaults.

    \b
    ralph task show TASK-001
    """
    from ralph.views import tasks as view

    with open_tasks() as tasks:
        task = tasks.find(id)
        progress = tasks.progress(task.id)
    if as_json:
        _write(view.encoded(view.to_json(tasks.as_stored(task))))
        return 0
    roles = role_views(task, work_settings())
    click.echo(view.detail(task, tasks.project, progress, roles))
    return 0


def role_views(task: Task, settings: WorkSettings) -> list[RoleView]:
    """Return the criteria of each role, with all defaults filled in."""
    from ralph.core.task_model import ROLES
    from ralph.files import yamlfile
    from ralph.tasks.criteria import in_force
    from ralph.views.tasks import RoleView

    roles = []
    for role in ROLES:
        force = in_force(task, role, settings)
        remark = "from the task" if force.is_own else "by default"
        roles.append(
            RoleView(
                role,
                force.promise,
                force.description,
                force.method,
                yamlfile.dump(force.config) if force.config else "",
                force.max_iterations,
                remark if force.is_enabled else "skipped: disabled in the settings",
            )
        )
    return roles


def _write_all(tasks: Tasks, rows: list[Stored]) -> None:
    import msgspec

    from ralph.views import tasks as view

    try:
        data = view.encoded([view.to_json(row) for row in rows])
    except msgspec.DecodeError:
        for row in rows:
            tasks.read(row)  # its error names the damaged one
        raise
    _write(data)


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
