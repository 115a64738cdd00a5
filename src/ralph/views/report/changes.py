"""What each iteration did to the files, from the snapshots of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ralph.core import diff
from ralph.scm.history import Counted, History, Kept
from ralph.views.report.model import Changes, Excerpt, FileChange

MOST_DIFF = 48_000
"""Characters of one iteration's diff that are shown."""

MOST_IN_ALL = 800_000
"""Characters of all diffs of one run."""

MOST_FILES = 50
"""Files that are named for each iteration."""

MOST_SHOWN = 100
"""Iterations whose diffs are shown, the last ones; the others have their numbers."""


def changes_of(history: History, run: str, iterations: Sequence[int]) -> dict[int, Changes]:
    """By iteration; one that has no snapshot before or after it is not there."""
    kept = history.kept()
    pairs = {
        number: (kept[str(number)], kept[str(number + 1)])
        for number in iterations
        if str(number) in kept and str(number + 1) in kept
    }
    counted = history.counted([(old.tree, new.tree) for old, new in pairs.values()])
    found = {number: _summed(files) for number, files in zip(pairs, counted, strict=True)}
    return found | _with_diffs(history, run, pairs, found)


def _summed(files: Sequence[Counted]) -> Changes:
    shown = tuple(FileChange(file.path, file.added, file.removed) for file in files[:MOST_FILES])
    added, removed = sum(file.added or 0 for file in files), sum(file.removed or 0 for file in files)
    return Changes(len(files), added, removed, shown)


def _with_diffs(
    history: History, run: str, pairs: Mapping[int, tuple[Kept, Kept]], found: Mapping[int, Changes]
) -> dict[int, Changes]:
    """The last iterations with as much of their diffs as there is room for."""
    room, shown = MOST_IN_ALL, {}
    for number in [number for number, changes in found.items() if changes.count][-MOST_SHOWN:][::-1]:
        text = ""
        if room > 0:
            old, new = pairs[number]
            text = history.difference(old.tree, new.tree)
        excerpt = diff.shortened(text, min(MOST_DIFF, room)) if text else ""
        room -= len(excerpt)
        is_cut = len(excerpt) < len(text) or not text
        see = f"ralph diff {run} {number}" if is_cut else ""
        changes = found[number]
        shown[number] = Changes(
            changes.count,
            changes.added,
            changes.removed,
            changes.files,
            Excerpt(excerpt, max(0, len(text) - len(excerpt)), see),
        )
    return shown
