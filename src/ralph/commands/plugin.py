"""`ralph plugin`: the Claude Code plugin that comes with Ralph."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.group(no_args_is_help=False)
def command() -> None:
    """Skills, hooks and templates for Claude Code.

    The hooks keep an iteration of a loop from ending before its work is in order, and tell the agent
    when its context fills up. The skills plan a loop, set it up and put it away.

    \b
    claude --plugin-dir "$(ralph plugin path)"   # for one session
    ralph plugin install                         # for all sessions
    """


@command.command(short_help="Print where the plugin is.")
def path() -> int:
    """Print the folder of the plugin, for `claude --plugin-dir "$(ralph plugin path)"`."""
    from ralph.setup import plugin

    click.echo(plugin.folder())
    return 0


@command.command(short_help="Copy the plugin to a place of its own.")
@click.option("--dir", "directory", metavar="DIR", help="Where to. [in the user's data directory]")
@click.option("--force", is_flag=True, help="Also where something else is; that is kept under another name.")
def install(directory: str | None, force: bool) -> int:
    """Copy the plugin to DIR, and print what to type so that Claude Code loads it in every session.

    An earlier copy is replaced. Claude Code reads the plugin from there, so after an upgrade of Ralph this
    command is all that it takes. A DIR of ~/.claude/skills/ralph is loaded without typing anything.

    \b
    ralph plugin install
    ralph plugin install --dir ~/plugins/ralph
    """
    from ralph.setup import plugin

    target = Path(directory) if directory else plugin.usual_copy()
    kept = plugin.install(target, force=force)
    place = shlex.quote(str(target.absolute()))
    click.echo(f"The plugin is in {target.absolute()}")
    if kept:
        click.echo(f"What was there before is in {kept}")
    click.echo("Once, so that Claude Code loads it in every session:")
    click.echo(f"  claude plugin marketplace add {place}")
    click.echo("  claude plugin install ralph@ralph")
    return 0
