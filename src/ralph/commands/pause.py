"""`ralph pause`: let a run finish its step, then hold it."""

from __future__ import annotations

import time

import click

from ralph.commands.common import find_run, open_home, run_argument
from ralph.core.model import Pause
from ralph.errors import RalphError


@click.command()
@run_argument
def command(run: str) -> int:
    """Let a run finish the step in hand, then hold it until `ralph resume RUN`."""
    home = open_home()
    runs = home.runs()
    chosen = find_run(home, runs, run)
    if not chosen.is_live:
        raise RalphError(f"Run {chosen.id} is not running.", "`ralph status` shows what is.")
    runs.send(chosen.id, Pause(time.time()))
    click.echo(
        f"Run {chosen.id} pauses after the step in hand. Go on with: ralph resume {chosen.id}", err=True
    )
    return 0
