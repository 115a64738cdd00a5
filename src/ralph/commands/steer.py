"""`ralph steer`: give a run guidance for its next prompt."""

from __future__ import annotations

import time

import click

from ralph.commands.common import open_home, run_argument
from ralph.core.model import Outcome, Steer
from ralph.errors import RalphError
from ralph.store.runs import Runs


@click.command(context_settings={"ignore_unknown_options": True})
@run_argument
@click.argument("text", type=click.UNPROCESSED)
@click.option("--wait", is_flag=True, help="Wait until it has been delivered.")
def command(run: str, text: str, wait: bool) -> int:
    """Add guidance to the prompt of the next iteration. The iteration in hand does not see it."""
    runs = open_home().runs()
    chosen = runs.find(run)
    brief = runs.brief(chosen.id)
    if brief.stop and brief.stop.outcome is Outcome.COMPLETE:
        raise RalphError(f"Run {chosen.id} is complete: there is no next prompt.")
    if not text.strip():
        raise RalphError("The guidance is empty.", 'ralph steer RUN "what to do differently"')
    number = runs.send(chosen.id, Steer(time.time(), 0, text))
    if chosen.is_live:
        iteration = brief.iteration + 1
        click.echo(
            f"Queued: it goes into the next prompt (iteration {iteration} or the one after).", err=True
        )
    else:
        click.echo(f"Queued: it is delivered when the run goes on (ralph resume {chosen.id}).", err=True)
    return _wait(runs, chosen.id, number) if wait else 0


def _wait(runs: Runs, run: str, number: int) -> int:
    while True:
        _, iteration = runs.delivery(number)
        if iteration is not None:
            click.echo(f"Delivered with the prompt of iteration {iteration}.", err=True)
            return 0
        if not runs.find(run).is_live:
            raise RalphError(
                f"Run {run} has stopped before its next prompt.",
                f"The guidance stays queued: ralph resume {run} delivers it.",
                exit_code=1,
            )
        time.sleep(0.1)
