"""`ralph prune`: remove old runs with their streams and snapshots, and what nothing uses any more."""

from __future__ import annotations

import json
import re
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from ralph.commands.common import open_home
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.store.home import Home
    from ralph.store.prune import Candidate, Leftover

_UNITS = {"h": 3600.0, "d": 86400.0, "w": 604800.0}
_KINDS = {"worktree": "worktrees", "environment": "environments", "copy": "copies"}
"""What is removed besides runs, one and several."""

_SIZES = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}


@click.command()
@click.option(
    "--older-than",
    default="30d",
    metavar="AGE",
    help="Remove what was finished or last used longer ago than AGE: 12h, 30d, 8w. [30d]",
)
@click.option(
    "--keep", metavar="SIZE", help="Also remove the oldest runs until at most SIZE is left: 500MB, 2GB."
)
@click.option("--json", "as_json", is_flag=True, help="Print what would be removed as JSON; remove nothing.")
@click.option("-y", "--yes", is_flag=True, help="Remove without asking.")
def command(older_than: str, keep: str | None, as_json: bool, yes: bool) -> int:
    """Remove old runs with their agent output and git snapshots, and the worktrees of finished tasks.

    Also removes environments that copies of projects shared and no copy uses, and the copies that
    killed runs have left. Shows what would be removed and asks first. Live runs and the branches of
    tasks are never removed. A removed run can no longer be resumed, shown or rewound.

    \b
    ralph prune
    ralph prune --older-than 8w --yes
    """
    from ralph.store.prune import candidates

    home, before = open_home(), time.time() - _age(older_than)
    found = candidates(home, before, _bytes(keep) if keep else None)
    left = _leftovers(home, before, found)
    if as_json:
        click.echo(json.dumps(_as_json(found, left), indent=2))
        return 0
    if not found and not left:
        click.echo("Nothing to remove.", err=True)
        return 0
    _show(found, left)
    if not yes:
        if not sys.stdin.isatty():
            click.echo("Nothing was removed. To remove these, add --yes.", err=True)
            return 0
        if not click.confirm("Remove them?", default=False, err=True):
            return 0
    for candidate in found:
        _remove(home, candidate)
    for leftover in left:
        try:
            _remove_leftover(home, leftover)
        except RalphError as error:
            click.echo(error.text, err=True)
    click.echo("Removed.", err=True)
    return 0


def _leftovers(home: Home, before: float, found: list[Candidate]) -> list[Leftover]:
    from ralph.work.leftovers import left_worktrees
    from ralph.work.unused import left_copies, unused_environments

    removed = {candidate.run.id for candidate in found}
    return [*left_worktrees(home, before), *unused_environments(home, before), *left_copies(home, removed)]


def _as_json(found: list[Candidate], left: list[Leftover]) -> list[dict[str, object]]:
    runs: list[dict[str, object]] = [
        {"id": c.run.id, "directory": c.run.directory, "ended": c.ended, "bytes": c.bytes} for c in found
    ]
    return runs + [{each.kind: str(each.path), "why": each.why, "bytes": each.bytes} for each in left]


def _show(found: list[Candidate], left: list[Leftover]) -> None:
    from ralph.views.agent import count, duration
    from ralph.views.table import print_table, size

    now = time.time()
    if found:
        print_table(
            ("run", "finished", "size", "directory"),
            [(c.run.id, f"{duration(now - c.ended)} ago", size(c.bytes), c.run.directory) for c in found],
        )
    what = [count(len(found), "run")] if found else []
    for kind, several in _KINDS.items():
        of_kind = [each for each in left if each.kind == kind]
        if of_kind:
            print_table(
                (kind, "size", "reason"), [(str(each.path), size(each.bytes), each.why) for each in of_kind]
            )
            what.append(f"{len(of_kind)} {kind if len(of_kind) == 1 else several}")
    total = sum(c.bytes for c in found) + sum(each.bytes for each in left)
    click.echo(f"{', '.join(what)}, {size(total)}.", err=True)


def _remove(home: Home, candidate: Candidate) -> None:
    """Remove a run, refs first and rows last, so that an interrupted removal can be repeated."""
    from ralph.runs.repository import opened_repository
    from ralph.scm.history import History
    from ralph.scm.worktrees import wipe

    run = candidate.run
    try:
        with opened_repository(home, run) as opened:
            History(opened.repository, opened.run, run.id, opened.scratch).forget()
    except RalphError as error:
        click.echo(f"{run.id}: its snapshots were not removed: {error.message}", err=True)
    with suppress(RalphError):
        wipe(home.streams(run.id))
    runs = home.runs()
    runs.forget(run.id)
    runs.db.close()


def _remove_leftover(home: Home, leftover: Leftover) -> None:
    from ralph.work import leftovers, unused

    match leftover.kind:
        case "worktree":
            leftovers.remove_worktree(home, leftover.path)
        case "environment":
            unused.remove_environment(leftover.path)
        case "copy":
            unused.remove_copy(home, leftover.path)
        case kind:
            raise ValueError(kind)


def _age(text: str) -> float:
    match = re.fullmatch(r"(\d+)([hdw])", text.strip().lower())
    if not match:
        raise RalphError(f"--older-than {text!r} is not an age.", "Examples: 12h, 30d, 8w.")
    return int(match[1]) * _UNITS[match[2]]


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*(kb|mb|gb)", text.strip().lower())
    if not match:
        raise RalphError(f"--keep {text!r} is not a size.", "Examples: 500MB, 2GB.")
    return int(match[1]) * _SIZES[match[2]]
