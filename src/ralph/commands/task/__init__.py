"""`ralph task`: tasks, what "done" means for each, and how every role proves its part."""

from __future__ import annotations

import importlib

import click

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


class _Table(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        module = importlib.import_module(f"{__name__}.{SUBCOMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in SUBCOMMANDS.items()])


@click.group(cls=_Table, no_args_is_help=False)
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
