"""Shared environments and copies of projects that nothing uses any more, found and removed by `ralph prune`."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from ralph.environments.python import layers_in
from ralph.environments.python_layer import base_of
from ralph.environments.shared import last_use, remove_shared
from ralph.errors import RalphError
from ralph.scm.worktrees import own_directory, wipe
from ralph.store.home import Home
from ralph.store.prune import Leftover, tree_size

IN_USE = 3600.0
"""Seconds in which a copy has taken what it needs from a shared environment."""


def unused_environments(home: Home, before: float) -> list[Leftover]:
    """The shared environments that no copy has used since `before`, and that no copy still lies on."""
    limit = min(before, time.time() - IN_USE)
    old = [path for path in _directories(home.environments) if last_use(path) < limit]
    kept = set(_bases(home)) if old else set()
    why = "no copy uses it any more"
    return [Leftover("environment", path, why, tree_size(path)) for path in old if path not in kept]


def _bases(home: Home) -> Iterator[Path]:
    """What the Python layers of worktrees, and of the copies of live runs, lie on."""
    copies = [(path, own_directory(path)) for path in (home.path / "worktrees").glob("*/[!.]*")]
    for run in _live(home):
        for whole in _directories(home.copies(run)):
            copies += [(top, whole / "environment") for top in _directories(whole)]
    for top, own in copies:
        yield from (base for layer in layers_in(top, own) if (base := base_of(layer)) is not None)


def remove_environment(path: Path) -> None:
    """Remove a shared environment, or raise."""
    if not remove_shared(path, time.time() - IN_USE):
        raise RalphError(f"{path} is in use and was not removed.")


def left_copies(home: Home, removed: Collection[str]) -> list[Leftover]:
    """The copies that killed runs have left, except those of runs that are removed themselves."""
    skipped = _live(home) | set(removed)
    runs = [path.name for path in _directories(home.path / "runs") if path.name not in skipped]
    return [
        Leftover("copy", path, f"left by run {run}, which has ended", tree_size(path))
        for run in runs
        for path in _directories(home.copies(run))
    ]


def remove_copy(home: Home, path: Path) -> None:
    """Remove a copy of the project unless its run lives again, or raise."""
    if path.parents[1].name in _live(home):
        raise RalphError(f"{path} is in use and was not removed.")
    wipe(path)
    with suppress(OSError):
        path.parent.rmdir()


def _live(home: Home) -> set[str]:
    runs = home.runs()
    try:
        return {run.id for run in runs.all() if run.is_live}
    finally:
        runs.db.close()


def _directories(path: Path) -> list[Path]:
    return sorted(each for each in path.glob("*") if each.is_dir() and not each.is_symlink())
