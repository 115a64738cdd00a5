"""Measures what survives when a harness is killed, flooded, out of disk space or started twice.

The agent has four pieces of work, one per iteration, and commits each. Measured in every run:

- lost: pieces whose agent had exited but that are not committed in the end (gone), and iterations beyond those of an
  undisturbed run (done again). An iteration that the harness had not acknowledged when it was stopped may be repeated;
- orphans: processes still alive two seconds after the harness exited;
- hung: twenty seconds (five minutes after 500 MB) without progress while the harness runs;
- unfinished: the work was not finished, even after a restart as documented;
- together: how often two agents worked in the directory at the same time.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench import arena, ordeal, tables
from bench.harness.base import Harness, NotMeasured
from bench.harness.ralph import BARE
from bench.harness.registry import HARNESSES
from bench.ordeal import Ordeal, Session, Site, Usual
from bench.tables import Absent, by, counts, not_measured, played, table

WORKERS = 2
SEED = 20_250_701


@dataclass(frozen=True, slots=True)
class Case:
    """`times`: number of runs; `quick`: number of runs in the quick form."""

    name: str
    happens: Ordeal
    trouble: str | None = None
    times: int = 2
    quick: int = 1


CASES = {
    case.name: case
    for case in (
        Case("harness killed", ordeal.harness_killed, times=8, quick=4),
        Case("agent killed", ordeal.agent_killed, times=4, quick=2),
        Case("held pipe", ordeal.undisturbed, "held"),
        Case("escapees", ordeal.undisturbed, "escape"),
        Case("500 MB of output", ordeal.undisturbed, "flood", times=1),
        Case("a line of 50 MB", ordeal.undisturbed, "line"),
        Case("disk full", ordeal.disk_full, "fill"),
        Case("started twice", ordeal.started_twice, times=4, quick=2),
    )
}
UNDISTURBED = Case("undisturbed", ordeal.undisturbed)
NAMES = [name for name in HARNESSES if name != BARE.name]
"""All except our second configuration, which is the same program."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run."""

    harness: str
    case: str
    number: int
    gone: int
    again: int
    orphans: int
    hung: bool
    unfinished: bool
    together: int
    seconds: float
    left: tuple[str, ...] = ()
    """The commands of the orphans."""

    @property
    def lost(self) -> int:
        return self.gone + self.again

    @property
    def is_bad(self) -> bool:
        """Whether the run has a failure that ours must never have."""
        return bool(self.lost or self.orphans or self.hung or self.unfinished or self.together)


@dataclass(frozen=True, slots=True)
class Report:
    """`skipped`: cases that cannot run on this machine, with the reason."""

    versions: dict[str, str]
    rows: list[Row]
    absent: list[Absent]
    skipped: dict[str, str]


# ---- one run ----


def undergo(harness: Harness, case: Case, number: int, usual: Usual) -> Row:
    """Run one case; the same number gives the same random choices."""
    chance = random.Random(f"{SEED} {case.name} {number}")
    with arena.place() as base:
        place = ordeal.site(base, harness, case.trouble)
        try:
            sessions = case.happens(place, chance, usual)
        finally:
            survivors = arena.end_survivors(place.ledger)
        left = [command for session in sessions for command in session.orphans]
        return judge(place, case, number, usual, sessions, [*left, *survivors])


def judge(
    place: Site, case: Case, number: int, usual: Usual, sessions: Sequence[Session], left: Sequence[str]
) -> Row:
    entries = place.entries()
    ends = [entry for entry in entries if entry["kind"] == "end"]
    done = {entry["piece"] for entry in ends if entry["piece"] is not None}
    stops = [session.ended for session in sessions[:-1]] if case.happens is not ordeal.started_twice else []
    return Row(
        place.harness.name,
        case.name,
        number,
        gone=len(done - place.pieces()),
        again=max(0, len(ends) - usual.ends - sum(_cut_off(entries, stop) for stop in stops)),
        orphans=len(left),
        hung=any(session.hung for session in sessions),
        unfinished=not place.is_finished,
        together=_together(entries) if case.happens is ordeal.started_twice else 0,
        seconds=round(max(each.ended for each in sessions) - sessions[0].began, 3),
        left=tuple(command.split(" ")[0].rpartition("/")[2] for command in left),
    )


def _cut_off(entries: Iterable[dict[str, Any]], stop: float) -> bool:
    """Return whether an agent's exit was the last entry before the stop."""
    before = [entry["kind"] for entry in entries if entry["at"] < stop and entry["kind"] in ("start", "end")]
    return before[-1:] == ["end"]


def _together(entries: Iterable[dict[str, Any]]) -> int:
    """Return how many agents started while another was working."""
    working: set[int] = set()
    found = 0
    for entry in entries:
        if entry["kind"] == "start":
            found += bool(working)
            working.add(entry["pid"])
        elif entry["kind"] in ("end", "failed"):
            working.discard(entry["pid"])
    return found


def usual_run(harness: Harness) -> Usual:
    """Return the duration and iterations of an undisturbed run."""
    with arena.place() as base:
        place = ordeal.site(base, harness, None)
        session = ordeal.run(place, place.launch())
        arena.end_survivors(place.ledger)
        if not place.is_finished:
            raise NotMeasured("does not finish the work of this suite even undisturbed")
        ends = sum(entry["kind"] == "end" for entry in place.entries())
        return Usual(session.ended - session.began, ends)


# ---- all ----


def measure(
    harnesses: Iterable[str],
    cases: Sequence[Case] = tuple(CASES.values()),
    *,
    quick: bool = False,
    each: Callable[[Row], None] = lambda row: None,
) -> Report:
    """Run every case with every harness, two in parallel."""
    versions: dict[str, str] = {}
    usual: dict[str, Usual] = {}
    absent: list[Absent] = []
    for name in harnesses:
        try:
            versions[name] = HARNESSES[name].find()
            usual[name] = usual_run(HARNESSES[name])
        except NotMeasured as reason:
            versions.pop(name, None)
            absent.append(Absent(name, str(reason)))
    skipped = {} if ordeal.can_mount() else {"disk full": "cannot mount a small disk on this machine"}
    trials = [
        (name, case, number)
        for name in versions
        for case in cases
        for number in range(case.quick if quick else case.times)
        if case.name not in skipped
    ]

    def play(trial: tuple[str, Case, int]) -> Row:
        name, case, number = trial
        return undergo(HARNESSES[name], case, number, usual[name])

    rows = played(play, trials, each, WORKERS)
    return Report(versions, rows, absent, skipped)


# ---- tables ----

KINDS = ("lost", "orphans", "hung", "unfinished", "together")


def summary(report: Report) -> str:
    """Return one line per harness: the number of runs with each kind of failure."""
    lines: list[Sequence[str]] = [("harness", "runs", *KINDS)]
    for name, version in report.versions.items():
        rows = [row for row in report.rows if row.harness == name]
        lines.append((f"{name} {version}", str(len(rows)), *counts(rows, KINDS)))
    skipped = [f"{case}: not measured: {reason}" for case, reason in report.skipped.items()]
    return "\n".join([table(lines), *not_measured(report.absent), *skipped])


def by_case(report: Report) -> str:
    """Return the number of runs by case: lost/orphans/hung/unfinished/together."""
    cases = dict.fromkeys(row.case for row in report.rows)
    return by("case", cases, report.rows, KINDS, list(report.versions))


def show(row: Row) -> None:
    """Print failures of ours immediately."""
    if row.is_bad and HARNESSES[row.harness].is_ours:
        words = [f"{kind} {int(getattr(row, kind))}" for kind in KINDS if getattr(row, kind)]
        print(f"{row.harness}: {row.case} {row.number}: {', '.join(words)} {row.left}", file=sys.stderr)


def chosen(names: Iterable[str]) -> list[Case]:
    """Return the cases whose names contain one of these texts, or all if none is given."""
    return tables.chosen(CASES.values(), names, lambda case: case.name)
