"""`ralph prd`: a PRD becomes stories, each implemented, reviewed by a fresh context, and approved."""

from __future__ import annotations

import importlib

import click

from ralph.commands.table import Table

SUBCOMMANDS = {
    "init": ("init", "Make the folder ralph/ from the templates."),
    "plan": ("plan", "Write PRD and stories with the agent, in the terminal."),
    "import": ("import_", "Take the list of another loop, or a Markdown checklist."),
    "run": ("run", "Work through the stories until every one is approved."),
    "status": ("status", "Show the stories, their reviews, and what is next."),
    "archive": ("archive", "Put a loop's files away with a summary, and begin anew."),
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
