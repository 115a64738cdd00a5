"""The pictures of a report as numbers: where each bar begins and how long it is, in percent of the room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ralph.views.agent import duration
from ralph.views.report.model import Doing, Iteration, RunReport, Segment
from ralph.views.report.words import DOING, money, short_number

MOST_ROWS = 40
"""Rows of a timeline; more iterations share one."""

MOST_COLUMNS = 60

LONGEST_WAIT = 0.35
"""A wait is drawn no longer than this part of the longest work in a row: else a night of waiting hides the work."""

_WAITS = (Doing.LIMIT, Doing.RESTART, Doing.PAUSED, Doing.CHILDREN, Doing.AWAY)
HEIGHT = 96.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece of a row. `is_cut`: it is longer than it is drawn."""

    kind: str
    title: str
    x: float
    width: float
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class TimeRow:
    label: str
    link: str
    note: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    rows: tuple[TimeRow, ...]
    kinds: tuple[tuple[str, str], ...]
    has_cut: bool


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    x: float
    width: float
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Line:
    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True, slots=True)
class Columns:
    """What each iteration used, and the line of the sum; `most` and `total` are the tops of the two scales."""

    name: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    most: str
    total: str
    first: str
    last: str


def timeline(run: RunReport) -> Timeline | None:
    """One row for each iteration, or for several that follow each other, all on one scale."""
    groups = _groups(run.iterations, MOST_ROWS)
    if not groups:
        return None
    drawn = [_merged(segment for each in group for segment in each.segments) for group in groups]
    longest = max(sum(s.seconds for s in row if s.doing not in _WAITS) for row in drawn) or 1.0
    widest_wait = longest * LONGEST_WAIT
    lengths = [
        [min(s.seconds, widest_wait) if s.doing in _WAITS else s.seconds for s in row] for row in drawn
    ]
    whole = max(map(sum, lengths)) or 1.0
    rows, kinds = [], {}
    for group, row, sizes in zip(groups, drawn, lengths, strict=True):
        bars, x = [], 0.0
        for segment, size in zip(row, sizes, strict=True):
            kind = "red" if segment.is_red else str(segment.doing)
            kinds[kind] = "red check" if segment.is_red else DOING[segment.doing]
            title = f"{segment.label}: {duration(segment.seconds)}"
            bars.append(Bar(kind, title, 100 * x / whole, 100 * size / whole, size < segment.seconds))
            x += size
        first, last = group[0].number, group[-1].number
        label = str(first) if first == last else f"{first}–{last}"
        note = duration(sum(each.seconds for each in group))
        rows.append(TimeRow(label, f"{run.id}-{first}", note, tuple(bars)))
    return Timeline(tuple(rows), tuple(kinds.items()), any(bar.is_cut for row in rows for bar in row.bars))


def _merged(segments: object) -> list[Segment]:
    """Neighbours of one kind are one piece: thirty checks of a second each are not thirty pieces."""
    found: list[Segment] = []
    for segment in segments:  # type: ignore[attr-defined]
        last = found[-1] if found else None
        if last and (last.doing, last.is_red) == (segment.doing, segment.is_red):
            label = last.label if last.label == segment.label else DOING[segment.doing]
            found[-1] = Segment(
                last.doing, label, last.began, last.seconds + segment.seconds, segment.is_open, last.is_red
            )
        else:
            found.append(segment)
    return found


def columns(run: RunReport) -> list[Columns]:
    """Cost and tokens, where the agent has told them."""
    found = []
    if any(each.used.cost_usd for each in run.iterations):
        found.append(_columns("Cost", run.iterations, lambda each: each.used.cost_usd, money))
    if any(each.used.tokens for each in run.iterations):
        found.append(_columns("Tokens", run.iterations, lambda each: float(each.used.tokens), short_number))
    return found


def _columns(
    name: str,
    iterations: Sequence[Iteration],
    value: Callable[[Iteration], float],
    shown: Callable[[float], str],
) -> Columns:
    groups = _groups(iterations, MOST_COLUMNS)
    amounts = [sum(map(value, group)) for group in groups]
    most, total, step = max(amounts) or 1.0, sum(amounts) or 1.0, 100 / len(groups)
    found, lines, sum_before = [], [], 0.0
    for at, (group, amount) in enumerate(zip(groups, amounts, strict=True)):
        height = HEIGHT * amount / most
        sum_now = sum_before + amount
        label = _label(group)
        title = f"iteration {label}: {shown(amount)}, {shown(sum_now)} in all"
        found.append(Column(title, at * step + step * 0.18, step * 0.64, HEIGHT - height, height))
        x1 = (at - 0.5) * step if at else 0.0
        y1, y2 = (HEIGHT * (1 - sum_ / total) for sum_ in (sum_before, sum_now))
        lines.append(Line(max(0.0, x1), y1, (at + 0.5) * step, y2))
        sum_before = sum_now
    return Columns(
        name, tuple(found), tuple(lines), shown(most), shown(total), _label(groups[0]), _label(groups[-1])
    )


def _label(group: Sequence[Iteration]) -> str:
    first, last = group[0].number, group[-1].number
    return str(first) if first == last else f"{first}–{last}"


def _groups(iterations: Sequence[Iteration], most: int) -> list[Sequence[Iteration]]:
    """The iterations in at most so many groups of neighbours."""
    size = -(-len(iterations) // most) or 1
    return [iterations[at : at + size] for at in range(0, len(iterations), size)]
