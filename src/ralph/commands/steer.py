"""`ralph steer`: add guidance to the next prompt of a run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ralph.commands.common import find_run, open_home, run_argument
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.store.runs import Runs
    from ralph.store.task_folder import Folder


@click.command(context_settings={"ignore_unknown_options": True})
@run_argument
@click.argument("text", type=click.UNPROCESSED)
@click.option("--wait", is_flag=True, help="Wait until the guidance is delivered.")
def command(run: str, text: str, wait: bool) -> int:
    """Add guidance to the prompt of the next iteration. The current iteration does not see it.

    A supervised command has no prompt; its guidance is posted to the task's bus at once.

    \b
    ralph steer 7f3a "Use tabs, not spaces."
    """
    from ralph.runs import control

    home = open_home()
    runs = home.runs()
    chosen = find_run(home, runs, run)
    number, words = control.steer(runs, chosen, text)
    click.echo(words, err=True)
    return _wait(runs, chosen.id, number, control.guidance_folder(runs, chosen.id)) if wait else 0


def _wait(runs: Runs, run: str, number: int, folder: Folder | None) -> int:
    from ralph.store.bus import task_bus

    while True:
        if folder is not None and folder.has_guidance(number):
            click.echo(f"Delivered to {task_bus(folder.path)}.", err=True)
            return 0
        _, iteration = runs.delivery(number)
        if iteration is not None and folder is None:
            click.echo(f"Delivered with the prompt of iteration {iteration}.", err=True)
            return 0
        if not runs.find(run).is_live:
            raise RalphError(
                f"Run {run} stopped before its next prompt.",
                f"The guidance is still queued. To deliver it: ralph resume {run}",
                exit_code=1,
            )
        time.sleep(0.1)
