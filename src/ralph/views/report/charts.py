"""The charts of a report as numbers: the position and length of each bar, in percent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ralph.views.agent import duration
from ralph.views.report.model import Doing, Iteration, Report, Segment
from ralph.views.report.words import DOING, money, short_number

MAX_ROWS = 40
"""Rows of a timeline; with more iterations than this, several share a row."""

MAX_COLUMNS = 60

LONGEST_WAIT = 0.35
"""A wait is drawn no longer than this fraction of the longest row of work, so that a night of waiting does not
hide the work.
"""

_WAITS = (Doing.LIMIT, Doing.RESTART, Doing.PAUSED, Doing.CHILDREN, Doing.AWAY)
HEIGHT = 96.0
WIDEST = 9.0
"""Maximum width of a column, in percent."""


class ChartBar(Struct, frozen=True):
    """A bar in a row. `is_cut`: it is drawn shorter than it is."""

    kind: str
    title: str
    x: float
    width: float
    is_cut: bool = False


class TimeRow(Struct, frozen=True):
    label: str
    link: str
    note: str
    bars: tuple[ChartBar, ...]


class Timeline(Struct, frozen=True):
    rows: tuple[TimeRow, ...]
    kinds: tuple[tuple[str, str], ...]
    has_cut: bool


class ChartColumn(Struct, frozen=True):
    title: str
    x: float
    width: float
    y: float
    height: float


class Line(Struct, frozen=True):
    x1: float
    y1: float
    x2: float
    y2: float


class Columns(Struct, frozen=True):
    """Usage per iteration, and the line of the running total; `most` and `total` are the tops of the two scales."""

    name: str
    columns: tuple[ChartColumn, ...]
    lines: tuple[Line, ...]
    most: str
    total: str
    first: str
    last: str


class _Group(Struct, frozen=True):
    """Iterations that share a row or a column."""

    label: str
    link: str
    iterations: Sequence[Iteration]

    @property
    def segments(self) -> list[Segment]:
        return _merged(segment for each in self.iterations for segment in each.segments)


def timeline(report: Report) -> Timeline | None:
    """One row per iteration or group of iterations, or per run of a task, all on one scale."""
    groups = _groups(report, MAX_ROWS)
    if not groups:
        return None
    drawn = [group.segments for group in groups]
    longest = max(sum(s.seconds for s in row if s.doing not in _WAITS) for row in drawn) or 1.0
    lengths = [[_drawn(segment, longest * LONGEST_WAIT) for segment in row] for row in drawn]
    whole = max(map(sum, lengths)) or 1.0
    rows: list[TimeRow] = []
    kinds: dict[str, str] = {}
    for group, row, sizes in zip(groups, drawn, lengths, strict=True):
        bars, x = [], 0.0
        for segment, size in zip(row, sizes, strict=True):
            kind = "red" if segment.is_red else str(segment.doing)
            kinds[kind] = "failed check" if segment.is_red else DOING[segment.doing]
            title = f"{segment.label}: {duration(segment.seconds)}"
            bars.append(ChartBar(kind, title, 100 * x / whole, 100 * size / whole, size < segment.seconds))
            x += size
        note = duration(sum(each.seconds for each in group.iterations))
        rows.append(TimeRow(group.label, group.link, note, tuple(bars)))
    return Timeline(tuple(rows), tuple(kinds.items()), any(bar.is_cut for row in rows for bar in row.bars))


def _drawn(segment: Segment, longest_wait: float) -> float:
    return min(segment.seconds, longest_wait) if segment.doing in _WAITS else segment.seconds


def _merged(segments: Iterable[Segment]) -> list[Segment]:
    """Merge adjacent segments of the same kind: thirty one-second checks become one bar."""
    found: list[Segment] = []
    for segment in segments:
        last = found[-1] if found else None
        if last and (last.doing, last.is_red) == (segment.doing, segment.is_red):
            label = last.label if last.label == segment.label else DOING[segment.doing]
            seconds = last.seconds + segment.seconds
            found[-1] = replace(last, label=label, seconds=seconds, is_open=segment.is_open)
        else:
            found.append(segment)
    return found


def columns(report: Report) -> list[Columns]:
    """Charts of cost and tokens, if the agent reported them."""
    found = []
    if report.used.cost_usd:
        found.append(_columns("Cost", report, lambda each: each.used.cost_usd, money))
    if report.used.tokens:
        found.append(_columns("Tokens", report, lambda each: float(each.used.tokens), short_number))
    return found


def _columns(
    name: str, report: Report, value: Callable[[Iteration], float], shown: Callable[[float], str]
) -> Columns:
    groups = _groups(report, MAX_COLUMNS)
    amounts = [sum(map(value, group.iterations)) for group in groups]
    most, total, step = max(amounts) or 1.0, sum(amounts) or 1.0, 100 / len(groups)
    found: list[ChartColumn] = []
    lines: list[Line] = []
    before = 0.0
    width = min(step * 0.64, WIDEST)
    for at, (group, amount) in enumerate(zip(groups, amounts, strict=True)):
        height, now = HEIGHT * amount / most, before + amount
        title = f"{group.label}: {shown(amount)}, total {shown(now)}"
        found.append(ChartColumn(title, (at + 0.5) * step - width / 2, width, HEIGHT - height, height))
        y1, y2 = (HEIGHT * (1 - sum_ / total) for sum_ in (before, now))
        lines.append(Line(max(0.0, (at - 0.5) * step), y1, (at + 0.5) * step, y2))
        before = now
    ends = groups[0].label, groups[-1].label
    return Columns(name, tuple(found), tuple(lines), shown(most), shown(total), *ends)


def _groups(report: Report, most: int) -> list[_Group]:
    """Up to `most` groups of consecutive iterations."""
    if report.subject == "task":
        by_run = [_Group(run.role, run.id, run.iterations) for run in report.runs if run.iterations]
        return by_run[-most:]
    run = report.runs[0]
    size = -(-len(run.iterations) // most) or 1
    pieces = [run.iterations[at : at + size] for at in range(0, len(run.iterations), size)]
    return [_Group(_label(piece), f"{run.id}-{piece[0].number}", piece) for piece in pieces]


def _label(iterations: Sequence[Iteration]) -> str:
    first, last = iterations[0].number, iterations[-1].number
    return str(first) if first == last else f"{first}–{last}"
