"""`ralph pause`: let a run finish its step, then hold it."""

from __future__ import annotations

import click

from ralph.commands.common import find_run, open_home, run_argument


@click.command()
@run_argument
def command(run: str) -> int:
    """Let a run finish the step in hand, then hold it until `ralph resume RUN`."""
    from ralph.runs import control

    home = open_home()
    runs = home.runs()
    chosen = find_run(home, runs, run)
    click.echo(control.pause(runs, chosen), err=True)
    return 0
