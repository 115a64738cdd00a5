"""Finds runs that can be removed from the store, and their sizes."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from ralph.errors import RalphError
from ralph.store.home import Home
from ralph.store.runs import Run, Runs

LARGE = 2 << 30
"""Above this size Ralph suggests pruning the store."""


class Leftover(Struct, frozen=True):
    """Something else to remove: "worktree", "environment" or "copy", and why it can go."""

    kind: str
    path: Path
    why: str
    bytes: int


class Candidate(Struct, frozen=True):
    run: Run
    ended: float
    bytes: int


def candidates(home: Home, before: float, keep: int | None) -> list[Candidate]:
    """Inactive runs that ended before `before` or exceed `keep` bytes in total, oldest first."""
    runs = home.runs()
    try:
        ended = []
        for run in reversed(runs.all()):
            if not run.is_live:
                size = tree_size(home.streams(run.id)) + runs.size(run.id)
                ended.append(Candidate(run, _ended(runs, run), size))
    finally:
        runs.db.close()
    old = [candidate for candidate in ended if candidate.ended < before]
    if keep is None:
        return old
    rest = [candidate for candidate in ended if candidate.ended >= before]
    left = sum(candidate.bytes for candidate in rest)
    while rest and left > keep:
        old.append(rest.pop(0))
        left -= old[-1].bytes
    return old


def _ended(runs: Runs, run: Run) -> float:
    """The time of a run's last state, or of its start if it is damaged."""
    try:
        return runs.brief(run.id).now
    except RalphError:
        return run.created


def tree_size(directory: Path) -> int:
    total = 0
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except OSError:
                continue
    return total
