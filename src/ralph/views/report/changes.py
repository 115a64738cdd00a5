"""The file changes of each iteration, from the snapshots of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ralph.scm import diff
from ralph.scm.history import Counted, History, Kept
from ralph.views.report.model import Changes, Excerpt

MAX_DIFF = 48_000
"""Characters shown of one iteration's diff."""

MAX_TOTAL = 800_000
"""Characters shown of all diffs of one run together."""

MAX_FILES = 50
"""Files listed for each iteration."""

MAX_LINES = 5_000
"""Files with more changed lines than this are listed without a diff."""

MAX_SHOWN = 100
"""Number of iterations, counted from the last, whose diffs are shown; the others only have counts."""


def changes_of(
    history: History, kept: Mapping[str, Kept], run: str, iterations: Sequence[int]
) -> dict[int, Changes]:
    """Changes by iteration; iterations without a snapshot before and after them are missing."""
    pairs = {
        number: (kept[str(number)], kept[str(number + 1)])
        for number in iterations
        if str(number) in kept and str(number + 1) in kept
    }
    counted = history.counted([(old.tree, new.tree) for old, new in pairs.values()])
    found = {number: _summed(files) for number, files in zip(pairs, counted, strict=True)}
    return found | _with_diffs(history, run, pairs, found)


def _summed(files: Sequence[Counted]) -> Changes:
    added, removed = sum(file.added or 0 for file in files), sum(file.removed or 0 for file in files)
    return Changes(len(files), added, removed, tuple(files[:MAX_FILES]))


def _with_diffs(
    history: History, run: str, pairs: Mapping[int, tuple[Kept, Kept]], found: Mapping[int, Changes]
) -> dict[int, Changes]:
    """The last iterations, with as much of their diffs as fits."""
    room = MAX_TOTAL
    shown: dict[int, Changes] = {}
    for number in [number for number, changes in found.items() if changes.count][-MAX_SHOWN:][::-1]:
        old, new = pairs[number]
        excerpt = Excerpt()
        if room > 0:
            excerpt = _diff(history, old.tree, new.tree, found[number], min(room, MAX_DIFF))
        if room <= 0 or excerpt.left_out:
            excerpt = replace(excerpt, see=f"ralph diff {run} {number}")
        room -= len(excerpt.text)
        shown[number] = replace(found[number], diff=excerpt)
    return shown


def _diff(history: History, old: str, new: str, changes: Changes, most: int) -> Excerpt:
    """The diff without long files, which git is never asked for; the other files share the space."""
    is_whole = changes.count <= MAX_FILES and not any(map(_is_long, changes.files))
    wanted = () if is_whole else tuple(file.path for file in changes.files if not _is_long(file))
    text = history.difference(old, new, *wanted) if is_whole or wanted else ""
    shown = diff.shortened(text, most)
    left_out = max(0, len(text) - len(shown))
    if not is_whole:
        missing = changes.count - len(wanted)
        shown += f"[... {missing:,} more file{'s' * (missing > 1)} not shown]\n"
        left_out += sum(_lines(file) for file in changes.files if _is_long(file)) or 1
    return Excerpt(shown, left_out)


def _lines(file: Counted) -> int:
    return (file.added or 0) + (file.removed or 0)


def _is_long(file: Counted) -> bool:
    return _lines(file) > MAX_LINES
