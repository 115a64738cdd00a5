"""`ralph rewind`: restore the files as they were before an iteration."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ralph.commands.common import make_view, open_home, run_argument
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.scm.rewind import Rewind

WORDS = {"A": "restore", "M": "change", "D": "remove", "T": "change"}
MAX_SHOWN = 40


@click.command()
@run_argument
@click.argument("iteration")
@click.option("-y", "--yes", is_flag=True, help="Rewind without asking.")
def command(run: str, iteration: str, yes: bool) -> int:
    """Restore the files as they were before ITERATION of a run.

    Takes a snapshot of the current files first, so a rewind can be undone. Restores the files and the index;
    HEAD, the branches and git-ignored files are not touched.

    \b
    ralph rewind 7f3a 2    # the state before iteration 2
    """
    from ralph.core.text import clean
    from ralph.process.client import Wakeup
    from ralph.runs import location, locking
    from ralph.runs.repository import opened_repository
    from ralph.scm.overwrites import named
    from ralph.scm.rewind import Rewinder
    from ralph.views.agent import ViewOptions

    home = open_home()
    runs = home.runs()
    chosen = runs.find(run)
    if chosen.is_live:
        raise RalphError(f"Run {chosen.id} is still running.", f"Stop it first: ralph cancel {chosen.id}")
    view = make_view(ViewOptions(), as_json=False)
    lock = locking.lock(home, location.location_of(chosen), Wakeup(), view)
    assert lock >= 0
    with opened_repository(home, chosen) as opened:
        rewinder = Rewinder(opened.repository, opened.run, chosen.id, opened.scratch)
        plan = rewinder.prepare(iteration)
        undo = f"ralph rewind {chosen.id} {plan.now.ref.rpartition('/')[2]}"
        if not plan.changes:
            click.echo("Nothing to do: the files are already in that state.", err=True)
            return 0
        if lost := rewinder.in_the_way(plan):
            raise RalphError(
                f"Nothing was changed: git does not save these files, and the rewind would replace them: {named(lost)}.",
                f"Move them away, then run it again: ralph rewind {chosen.id} {iteration}",
            )
        _show(plan)
        if not yes and not _agreed():
            click.echo("Nothing was changed.", err=True)
            return 0
        for problem in rewinder.apply(plan):
            click.echo(f"  {clean(problem)}", err=True)
    click.echo(f"Done. To undo: {undo}", err=True)
    if plan.moved_head:
        click.echo(
            f"HEAD has moved since. To drop the commits too: git reset --soft {plan.moved_head[:12]}",
            err=True,
        )
    return 0


def _show(plan: Rewind) -> None:
    from ralph.core.text import clean

    for change in plan.changes[:MAX_SHOWN]:
        click.echo(f"  {WORDS[change.kind]:<8} {clean(change.path)}")
    if len(plan.changes) > MAX_SHOWN:
        click.echo(f"  … and {len(plan.changes) - MAX_SHOWN} more")


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise RalphError(
            "`ralph rewind` asks first, but stdin is not a terminal.", "To rewind without asking, add --yes."
        )
    return click.confirm("Apply these changes?", default=False, err=True)
