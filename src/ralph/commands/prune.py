"""`ralph prune`: remove old runs, their streams and their snapshots."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from typing import TYPE_CHECKING

import click

from ralph.commands.common import open_home
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.store.home import Home
    from ralph.store.prune import Candidate
    from ralph.work.leftovers import Leftover

_UNITS = {"h": 3600.0, "d": 86400.0, "w": 604800.0}
_SIZES = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}


@click.command()
@click.option(
    "--older-than", default="30d", metavar="AGE", help="Runs that ended so long ago: 12h, 30d, 8w. [30d]"
)
@click.option(
    "--keep", metavar="SIZE", help="Also the oldest ones, until at most so much is left: 500MB, 2GB."
)
@click.option("--json", "as_json", is_flag=True, help="What would be removed, as JSON; removes nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(older_than: str, keep: str | None, as_json: bool, yes: bool) -> int:
    """Remove old runs, what their agents printed, their snapshots in git, and worktrees of tasks that are over.

    Shows them first, and asks. The branches of tasks stay.

    Live runs are never removed. A run that is removed cannot be resumed, shown or gone back to.
    """
    from ralph.store.prune import candidates
    from ralph.work.leftovers import leftovers, remove

    home, before = open_home(), time.time() - _age(older_than)
    found = candidates(home, before, _bytes(keep) if keep else None)
    worktrees = leftovers(home, before)
    if as_json:
        click.echo(json.dumps(_as_json(found, worktrees), indent=2))
        return 0
    if not found and not worktrees:
        click.echo("There is nothing to remove.", err=True)
        return 0
    _show(found, worktrees)
    if not yes:
        if not sys.stdin.isatty():
            click.echo("Nothing was removed: this is what --yes would remove.", err=True)
            return 0
        if not click.confirm("Remove them?", default=False, err=True):
            return 0
    for candidate in found:
        _remove(home, candidate)
    for worktree in worktrees:
        remove(home, worktree)
    click.echo("Removed.", err=True)
    return 0


def _as_json(found: list[Candidate], worktrees: list[Leftover]) -> list[dict[str, object]]:
    runs: list[dict[str, object]] = [
        {"id": c.run.id, "directory": c.run.directory, "ended": c.ended, "bytes": c.bytes} for c in found
    ]
    return runs + [{"worktree": str(w.path), "why": w.why, "bytes": w.bytes} for w in worktrees]


def _show(found: list[Candidate], worktrees: list[Leftover]) -> None:
    from ralph.views.agent import count, duration
    from ralph.views.table import print_table, size

    now = time.time()
    if found:
        print_table(
            ("run", "ended", "size", "directory"),
            [(c.run.id, f"{duration(now - c.ended)} ago", size(c.bytes), c.run.directory) for c in found],
        )
    if worktrees:
        print_table(("worktree", "size", "why"), [(str(w.path), size(w.bytes), w.why) for w in worktrees])
    what = [count(len(each), name) for each, name in ((found, "run"), (worktrees, "worktree")) if each]
    total = sum(c.bytes for c in found) + sum(w.bytes for w in worktrees)
    click.echo(f"{', '.join(what)}, {size(total)}.", err=True)


def _remove(home: Home, candidate: Candidate) -> None:
    """Refs first, rows last: a removal that is cut off can be done again."""
    from ralph.runs.repository import opened_repository
    from ralph.scm.history import History

    run = candidate.run
    try:
        with opened_repository(home, run) as opened:
            History(opened.repository, opened.run, run.id, opened.scratch).forget()
    except RalphError as error:
        click.echo(f"{run.id}: its snapshots were not removed: {error.message}", err=True)
    shutil.rmtree(home.streams(run.id), ignore_errors=True)
    runs = home.runs()
    runs.forget(run.id)
    runs.db.close()


def _age(text: str) -> float:
    match = re.fullmatch(r"(\d+)([hdw])", text.strip().lower())
    if not match:
        raise RalphError(f"--older-than {text!r} is no age.", "Say 12h, 30d or 8w.")
    return int(match[1]) * _UNITS[match[2]]


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*(kb|mb|gb)", text.strip().lower())
    if not match:
        raise RalphError(f"--keep {text!r} is no size.", "Say 500MB or 2GB.")
    return int(match[1]) * _SIZES[match[2]]
