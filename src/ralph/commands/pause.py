"""`ralph pause`: pause a run after its current step."""

from __future__ import annotations

import click

from ralph.commands.common import find_run, open_home, run_argument


@click.command()
@run_argument
def command(run: str) -> int:
    """Pause a run after its current step, until `ralph resume RUN`.

    \b
    ralph pause 7f3a
    """
    from ralph.runs import control

    home = open_home()
    runs = home.runs()
    chosen = find_run(home, runs, run)
    click.echo(control.pause(runs, chosen), err=True)
    return 0
