"""`ralph task`: manage tasks, what "done" means for each, and how each role proves its part."""

from __future__ import annotations

import importlib

import click

from ralph.commands.table import Table

SUBCOMMANDS = {
    "create": ("change", "Create a task with its completion spec."),
    "followup": ("change", "Create a task discovered while working on another one."),
    "edit": ("change", "Edit a task."),
    "reset": ("remove", "Remove the worktree of a task and start it again."),
    "delete": ("remove", "Delete a task."),
    "list": ("look", "List the tasks of this project, or of all projects."),
    "show": ("look", "Show a task and what each role has to prove."),
    "import": ("files", "Import tasks from a YAML or JSON file."),
    "export": ("files", "Export tasks as YAML."),
    "templates": ("ready", "Show verification templates: pytest, npm test, cargo test…"),
}
"""Each subcommand with its module, loaded when the command is used, and its description."""


def _load(name: str) -> click.Command:
    command: click.Command = getattr(
        importlib.import_module(f"{__name__}.{SUBCOMMANDS[name][0]}"), f"{name}_"
    )
    return command


@click.command(
    cls=Table, sections={"Commands": {name: what for name, (_, what) in SUBCOMMANDS.items()}}, load=_load
)
def command() -> None:
    """Manage tasks with completion specs: what "done" means, and how it is verified.

    A task has an outcome and acceptance criteria. For each of the roles coder, reviewer, tester and qa it can have
    a promise and a verification; without them, a judge checks the acceptance criteria.

    \b
    ralph task create TASK-001 auth "Implement JWT auth" \\
        --outcome "All API endpoints require valid JWT tokens" \\
        --acceptance "Login returns a valid JWT" \\
        --acceptance "Invalid tokens return 401" \\
        --tester-verify-cmd "pytest tests/test_auth.py"
    ralph task import plan.yaml --check
    ralph task show TASK-001
    """
