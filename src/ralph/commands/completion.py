"""`ralph completion`: print the script for shell completion of commands, options and run ids."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the completion script for a shell.

    \b
    bash: add to ~/.bashrc   eval "$(ralph completion bash)"
    zsh:  add to ~/.zshrc    eval "$(ralph completion zsh)"
    fish: ralph completion fish > ~/.config/fish/completions/ralph.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "ralph", "_RALPH_COMPLETE").source())
    return 0
