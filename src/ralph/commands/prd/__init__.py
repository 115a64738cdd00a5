"""`ralph prd`: a PRD becomes stories, each implemented, reviewed by a fresh context, and approved."""

from __future__ import annotations

import importlib

import click

SUBCOMMANDS = {
    "init": ("init", "Make the folder ralph/ from the templates."),
    "plan": ("plan", "Write PRD and stories with the agent, in the terminal."),
    "import": ("import_", "Take the list of another loop, or a Markdown checklist."),
    "run": ("run", "Work through the stories until every one is approved."),
    "status": ("status", "Show the stories, their reviews, and what is next."),
    "archive": ("archive", "Put a loop's files away with a summary, and begin anew."),
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
    """Stories from a PRD: implemented one per iteration, reviewed by a fresh context that may not fix, fixed by
    another that may not approve, until every story is approved.

    The folder `ralph/` holds prd.md (what and why), tasks.json (the stories and where they stand), progress.txt (the
    loop's memory) and prompt.md. What an iteration may not do to them is undone by the harness, for every agent.

    \b
    ralph prd init --name login
    ralph prd plan
    ralph prd run
    ralph prd status
    ralph prd archive
    """
