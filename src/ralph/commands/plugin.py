"""`ralph plugin`: install the Claude Code plugin that comes with Ralph."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.group(no_args_is_help=False)
def command() -> None:
    """Install the Claude Code plugin: skills, hooks and templates.

    The hooks stop a PRD iteration from ending with uncommitted work or an invalid task list, block destructive
    commands in a run, and warn the agent when its context fills up. The skills plan, set up and archive a PRD loop.

    \b
    claude --plugin-dir "$(ralph plugin path)"   # for one session
    ralph plugin install                         # for all sessions
    """


@command.command(short_help="Print the path of the plugin.")
def path() -> int:
    """Print the path of the plugin, for `claude --plugin-dir "$(ralph plugin path)"`."""
    from ralph.setup import plugin

    click.echo(plugin.folder())
    return 0


@command.command(short_help="Copy the plugin to a directory for Claude Code.")
@click.option("--dir", "directory", metavar="DIR", help="Target directory. [in your data directory]")
@click.option("--force", is_flag=True, help="Install even if DIR holds something else; keeps a backup of it.")
def install(directory: str | None, force: bool) -> int:
    """Copy the plugin to DIR, and print the commands that make Claude Code load it in every session.

    Replaces an older copy. After upgrading Ralph, run this command again; nothing else is needed. Claude Code
    loads ~/.claude/skills/ralph without any further command.

    \b
    ralph plugin install
    ralph plugin install --dir ~/plugins/ralph
    """
    from ralph.setup import plugin

    target = Path(directory) if directory else plugin.usual_copy()
    kept = plugin.install(target, force=force)
    place = shlex.quote(str(target.absolute()))
    click.echo(f"Plugin installed in {target.absolute()}")
    if kept:
        click.echo(f"The old contents were moved to {kept}")
    click.echo("To load it in every Claude Code session, run once:")
    click.echo(f"  claude plugin marketplace add {place}")
    click.echo("  claude plugin install ralph@ralph")
    return 0
