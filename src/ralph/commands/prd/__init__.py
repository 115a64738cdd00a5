"""`ralph prd`: implement, review and approve the stories of a PRD."""

from __future__ import annotations

import importlib

import click

from ralph.commands.table import Table

SUBCOMMANDS = {
    "init": ("init", "Create the folder ralph/ from templates."),
    "plan": ("plan", "Write the PRD and its stories with the agent, in the terminal."),
    "import": ("import_", "Import a prd.json or a Markdown checklist."),
    "run": ("run", "Work through the stories until all are approved."),
    "status": ("status", "Show the stories, their reviews and the next step."),
    "archive": ("archive", "Archive a finished loop with a summary."),
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
    """Work through the stories of a PRD: implement, review, approve.

    Each iteration implements one story, reviews one with a fresh context, or fixes one. A review cannot fix, and a
    fix cannot approve. The loop ends when every story is approved.

    The folder `ralph/` holds prd.md (what and why), tasks.json (the stories and their status), progress.txt (the
    loop's memory) and prompt.md. If an iteration changes them in a way it is not allowed to, Ralph undoes the change.

    \b
    ralph prd init --name login
    ralph prd plan
    ralph prd run
    ralph prd status
    ralph prd archive
    """
