"""What the suites that count have in common: who can be measured, all the runs, and tables of what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from bench.harness.base import NotMeasured

C = TypeVar("C")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Absent:
    """A harness that was not measured, and why."""

    harness: str
    reason: str


class Measurable(Protocol):
    def find(self) -> str: ...


def versions_of(
    names: Iterable[str], harnesses: Mapping[str, Measurable]
) -> tuple[dict[str, str], list[Absent]]:
    """The version of each that can be measured here, and who cannot."""
    versions: dict[str, str] = {}
    absent: list[Absent] = []
    for name in names:
        try:
            versions[name] = harnesses[name].find()
        except NotMeasured as reason:
            absent.append(Absent(name, str(reason)))
    return versions, absent


def played(run: Callable[[C], R], cases: Iterable[C], each: Callable[[R], None], workers: int) -> list[R]:
    """Every case, several at once; `each` hears of a row as soon as it is its turn."""
    rows = []
    with ThreadPoolExecutor(workers) as pool:
        for row in pool.map(run, cases):
            rows.append(row)
            each(row)
    return rows


def chosen(every: Iterable[C], names: Iterable[str], name_of: Callable[[C], str]) -> list[C]:
    """Those of these names, all of them if none is named; part of a name will do."""
    wanted = [name.casefold() for name in names]
    return [each for each in every if not wanted or any(name in name_of(each).casefold() for name in wanted)]


# ---- tables ----


def counts(rows: Iterable[object], kinds: Sequence[str]) -> list[str]:
    """In how many of the runs each of these was so."""
    found = list(rows)
    return [str(sum(bool(getattr(row, kind)) for row in found)) for kind in kinds]


def by(
    column: str,
    values: Iterable[str],
    rows: Sequence[object],
    kinds: Sequence[str],
    names: Sequence[str],
    across: str = "harness",
) -> str:
    """In how many runs each kind was so: a line for each value of one column, a cell for each name of another."""
    lines: list[Sequence[str]] = [(f"{column} ({'/'.join(kinds)})", "runs", *names)]
    for value in values:
        found = [row for row in rows if getattr(row, column) == value]
        if found:
            cells = [counts((row for row in found if getattr(row, across) == name), kinds) for name in names]
            lines.append((value, str(len(found) // len(names)), *map("/".join, cells)))
    return table(lines)


def not_measured(absent: Iterable[Absent]) -> list[str]:
    return [f"{each.harness}: not measured: {each.reason}" for each in absent]


def table(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = ["  ".join(_cells(line, widths)) for line in lines]
    return "\n".join(text.rstrip() for text in texts)


def _cells(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *rest = zip(line, widths, strict=True)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
