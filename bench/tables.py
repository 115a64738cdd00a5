"""Shared by the counting suites: available harnesses, running all cases, and tables of failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from bench.harness.base import NotMeasured

NOT_RUN = "–"

C = TypeVar("C")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Absent:
    """A harness that was not measured, with the reason."""

    harness: str
    reason: str


class Measurable(Protocol):
    def find(self) -> str: ...


def versions_of(
    names: Iterable[str], harnesses: Mapping[str, Measurable]
) -> tuple[dict[str, str], list[Absent]]:
    """Return the version of each harness that can be measured here, and the absent ones."""
    versions: dict[str, str] = {}
    absent: list[Absent] = []
    for name in names:
        try:
            versions[name] = harnesses[name].find()
        except NotMeasured as reason:
            absent.append(Absent(name, str(reason)))
    return versions, absent


def played(run: Callable[[C], R], cases: Iterable[C], each: Callable[[R], None], workers: int) -> list[R]:
    """Run every case, several in parallel; `each` is called with every row, in order."""
    rows = []
    with ThreadPoolExecutor(workers) as pool:
        for row in pool.map(run, cases):
            rows.append(row)
            each(row)
    return rows


def chosen(every: Iterable[C], names: Iterable[str], name_of: Callable[[C], str]) -> list[C]:
    """Return the items whose names contain one of these texts, or all if none is given."""
    wanted = [name.casefold() for name in names]
    return [each for each in every if not wanted or any(name in name_of(each).casefold() for name in wanted)]


# ---- tables ----


def counts(rows: Iterable[object], kinds: Sequence[str]) -> list[str]:
    """Return the number of rows in which each kind is true."""
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
    """Return the number of runs of each kind: a line per value of one column, a cell per name of another."""
    lines: list[Sequence[str]] = [(f"{column} ({'/'.join(kinds)})", "runs", *names)]
    for value in values:
        found = [row for row in rows if getattr(row, column) == value]
        if found:
            parts = [[row for row in found if getattr(row, across) == name] for name in names]
            cells = ["/".join(counts(part, kinds)) if part else NOT_RUN for part in parts]
            lines.append((value, str(max(map(len, parts))), *cells))
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
