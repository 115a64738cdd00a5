"""`ralph steer`: give a run guidance for its next prompt."""

from __future__ import annotations

import time

import click

from ralph.commands.common import find_run, open_home, run_argument
from ralph.core.model import Outcome, PromptVia, Steer
from ralph.errors import RalphError
from ralph.store.bus import task_bus
from ralph.store.journal import load
from ralph.store.runs import Runs
from ralph.store.task_folder import Folder


@click.command(context_settings={"ignore_unknown_options": True})
@run_argument
@click.argument("text", type=click.UNPROCESSED)
@click.option("--wait", is_flag=True, help="Wait until it has been delivered.")
def command(run: str, text: str, wait: bool) -> int:
    """Add guidance to the prompt of the next iteration. The iteration in hand does not see it.

    A supervised command has no prompt: it finds the guidance on the bus of its task, at once.
    """
    home = open_home()
    runs = home.runs()
    chosen = find_run(home, runs, run)
    brief = runs.brief(chosen.id)
    if brief.stop and brief.stop.outcome is Outcome.COMPLETE:
        raise RalphError(f"Run {chosen.id} is complete: there is no next prompt.")
    if not text.strip():
        raise RalphError("The guidance is empty.", 'ralph steer RUN "what to do differently"')
    number = runs.send(chosen.id, Steer(time.time(), 0, text))
    folder = _folder(runs, chosen.id)
    if chosen.is_live and folder is not None:
        click.echo("Queued: it goes on the bus of the task.", err=True)
    elif chosen.is_live:
        iteration = brief.iteration + 1
        click.echo(
            f"Queued: it goes into the next prompt (iteration {iteration} or the one after).", err=True
        )
    else:
        click.echo(f"Queued: it is delivered when the run goes on (ralph resume {chosen.id}).", err=True)
    return _wait(runs, chosen.id, number, folder) if wait else 0


def _folder(runs: Runs, run: str) -> Folder | None:
    """The folder of a command that has no prompt."""
    plan = load(runs.db, runs.path, run).state.plan
    return Folder(plan.task, run) if plan.task and plan.agents[0].prompt_via is PromptVia.NONE else None


def _wait(runs: Runs, run: str, number: int, folder: Folder | None) -> int:
    while True:
        if folder is not None and folder.has_guidance(number):
            click.echo(f"Delivered on {task_bus(folder.path)}.", err=True)
            return 0
        _, iteration = runs.delivery(number)
        if iteration is not None and folder is None:
            click.echo(f"Delivered with the prompt of iteration {iteration}.", err=True)
            return 0
        if not runs.find(run).is_live:
            raise RalphError(
                f"Run {run} has stopped before its next prompt.",
                f"The guidance stays queued: ralph resume {run} delivers it.",
                exit_code=1,
            )
        time.sleep(0.1)
