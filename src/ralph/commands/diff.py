"""`ralph diff`: show what an iteration changed, from the snapshots."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ralph.commands.common import COUNT, find_run, newest_run, open_home, optional_run_argument
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.scm.history import History

COLOURS = {"+": "32", "-": "31", "@": "36", "d": "1"}


@click.command()
@optional_run_argument
@click.argument("iteration", type=COUNT, required=False)
@click.option("--stat", is_flag=True, help="Show only the changed files and line counts.")
def command(run: str | None, iteration: int | None, stat: bool) -> int:
    """Show what an iteration changed. Without ITERATION, show all changes of the run.

    \b
    ralph diff             # the newest run in this directory
    ralph diff 7f3a 2      # iteration 2 of a run
    """
    from ralph.core.text import clean
    from ralph.runs.repository import opened_repository
    from ralph.scm.history import History
    from ralph.views.console import wants_colour

    home = open_home()
    runs = home.runs()
    chosen = find_run(home, runs, run) if run else newest_run(runs)
    with opened_repository(home, chosen) as opened:
        history = History(opened.repository, opened.run, chosen.id, opened.scratch)
        old, new = _between(history, chosen.id, iteration)
        text = history.diff(old, new, *(["--stat"] if stat else []))
    if not text:
        click.echo("No changes.", err=True)
    colour = wants_colour(sys.stdout)
    for line in text.splitlines():
        code = COLOURS.get(line[:1]) if colour and not stat else None
        print(f"\x1b[{code}m{clean(line)}\x1b[0m" if code else clean(line))
    return 0


def _between(history: History, run: str, iteration: int | None) -> tuple[str, str]:
    """Return the snapshots before and after an iteration, or the first and the last one."""
    names = history.numbered()
    if iteration is not None:
        if str(iteration + 1) not in names and str(iteration) in names:
            raise RalphError(
                f"Iteration {iteration} of run {run} has not finished yet.",
                f"To watch it: ralph logs -f {run}",
            )
        return str(iteration), str(iteration + 1)
    if len(names) < 2:
        raise RalphError(
            f"Run {run} has no snapshots to compare.",
            "Snapshots are off (setting `snapshots`), or iteration 1 is still running.",
        )
    return names[0], names[-1]
