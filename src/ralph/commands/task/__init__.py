"""`ralph task`: tasks, what "done" means for each, and how every role proves its part."""

from __future__ import annotations

import importlib

import click

from ralph.commands.table import Table

SUBCOMMANDS = {
    "create": ("change", "Create a task: what done means, and how that is verified."),
    "followup": ("change", "Create a task that was found while working on another one."),
    "edit": ("change", "Change a task: only what is given."),
    "delete": ("change", "Delete a task."),
    "list": ("look", "List the tasks of this project, or of all."),
    "show": ("look", "Show a task, and what each role has to prove."),
    "import": ("files", "Read tasks from a YAML or JSON file."),
    "export": ("files", "Write tasks as YAML."),
    "templates": ("ready", "Show ready verifications: pytest, npm test, cargo test…"),
}
"""Each with its module, which is loaded when the command is called."""


def _load(name: str) -> click.Command:
    command: click.Command = getattr(
        importlib.import_module(f"{__name__}.{SUBCOMMANDS[name][0]}"), f"{name}_"
    )
    return command


@click.command(
    cls=Table, sections={"Commands": {name: what for name, (_, what) in SUBCOMMANDS.items()}}, load=_load
)
def command() -> None:
    """Tasks with completion specs: each says what "done" means, and how that is verified.

    A task has an outcome, acceptance criteria and, for the roles coder, reviewer, tester and qa, a promise
    and the way it is verified. A role that a task says nothing about is verified by its acceptance criteria.

    \b
    ralph task create TASK-001 auth "Implement JWT auth" \\
        --outcome "All API endpoints require valid JWT tokens" \\
        --acceptance "Login returns a valid JWT" \\
        --acceptance "Invalid tokens return 401" \\
        --tester-verify-cmd "pytest tests/test_auth.py"
    ralph task import plan.yaml --check
    ralph task show TASK-001
    """
