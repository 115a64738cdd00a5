"""Started again until it leaves DONE: who believes too much, misses it, hangs, or leaves a process behind?

- false: said complete, and there is no DONE: no regular file of that name in the folder of the task;
- missed: the agent left DONE, and it was not believed, or the agent was started once more;
- hung: still at it when the time was over, whatever it was doing;
- unfinished: the agent would have left DONE in a later attempt, and never got that far;
- orphans: processes that are alive two seconds after the harness is gone.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from bench import arena, tables
from bench.agents import restarted
from bench.agents.attempts import AGENTS, FAMILIES, Restarted
from bench.arena import Attended, Place
from bench.harness.restarters import FOLDER, RESTARTERS, Restarter
from bench.tables import Absent, by, counts, not_measured, played, table, versions_of
from ralph.process.client import Wakeup, Warden

WORKERS = 4
"""Most of them wait most of the time."""

PATIENCE = 40.0
"""Seconds after which a run is a hang. Four times what the longest takes, so that a busy machine is none."""

SETTLING = 2.0
"""Seconds that what a harness has left may take to end."""

SAID = 2
"""The exit code of ours that says what lies in the place of DONE: then somebody has to look."""

KINDS = ("false", "missed", "hung", "unfinished", "orphans")


@dataclass(frozen=True, slots=True)
class Row:
    """One agent with one harness."""

    harness: str
    family: str
    agent: str
    complete: bool
    done: bool
    false: bool
    missed: bool
    hung: bool
    unfinished: bool
    orphans: int
    starts: int
    seconds: float
    code: int | None

    @property
    def is_bad(self) -> bool:
        """What must never happen to ours."""
        is_left = self.unfinished and self.code != SAID
        return self.false or self.missed or self.hung or is_left or self.orphans > 0


@dataclass(frozen=True, slots=True)
class Report:
    versions: dict[str, str]
    rows: list[Row]
    absent: list[Absent]


# ---- one run ----


def run(restarter: Restarter, agent: Restarted) -> Row:
    with arena.place() as where, Warden(Wakeup()) as warden:
        prepare(where, agent)
        try:
            seen = arena.attend(warden, where, restarter.launch(where.private), PATIENCE, SETTLING)
        finally:
            survivors = arena.end_survivors(where.private)
        noted = arena.recorded(where.private)
        return judge(restarter, agent, seen, noted, is_done(where), len(seen.orphans) + len(survivors))


def prepare(where: Place, agent: Restarted) -> None:
    (where.project / FOLDER).mkdir()
    script = where.private / "script.json"
    script.write_text(json.dumps({"ledger": str(where.private / "starts"), "attempts": agent.attempts}))
    arena.install(where, "agent", restarted.__file__, str(script))


def is_done(where: Place) -> bool:
    """The oracle."""
    try:
        return stat.S_ISREG(os.lstat(where.project / FOLDER / "DONE").st_mode)
    except FileNotFoundError:
        return False


def judge(
    restarter: Restarter,
    agent: Restarted,
    seen: Attended,
    noted: Sequence[dict[str, Any]],
    done: bool,
    orphans: int,
) -> Row:
    """What a run means."""
    complete = not seen.hung and seen.finished.code == 0
    kinds = [entry["kind"] for entry in noted]
    again = kinds[kinds.index("done") :].count("start") if "done" in kinds else 0
    return Row(
        restarter.name,
        agent.family,
        agent.name,
        complete,
        done,
        false=complete and not done,
        missed=done and (not complete or again > 0),
        hung=seen.hung,
        unfinished=agent.finishes and not done and not complete,
        orphans=orphans,
        starts=kinds.count("start"),
        seconds=round(seen.seconds, 3),
        code=seen.finished.code,
    )


# ---- all ----


def measure(
    restarters: Iterable[str] = tuple(RESTARTERS),
    agents: Sequence[Restarted] = AGENTS,
    each: Callable[[Row], None] = lambda row: None,
) -> Report:
    """Every agent with every harness, several at once."""
    versions, absent = versions_of(restarters, RESTARTERS)
    cases = product(versions, agents)
    rows = played(lambda case: run(RESTARTERS[case[0]], case[1]), cases, each, WORKERS)
    return Report(versions, rows, absent)


# ---- tables ----


def by_family(report: Report) -> str:
    """In how many runs: false/missed/hung/unfinished/orphans."""
    return by("family", FAMILIES, report.rows, KINDS, list(report.versions))


def summary(report: Report) -> str:
    """One line per harness."""
    lines: list[Sequence[str]] = [("harness", "runs", *KINDS, "starts")]
    for name in report.versions:
        rows = [row for row in report.rows if row.harness == name]
        starts = str(sum(row.starts for row in rows))
        lines.append((name, str(len(rows)), *counts(rows, KINDS), starts))
    return "\n".join([table(lines), *not_measured(report.absent)])


def show(row: Row) -> None:
    """Say at once what went wrong with ours."""
    if row.is_bad and RESTARTERS[row.harness].is_ours:
        words = [f"{kind} {int(getattr(row, kind))}" for kind in KINDS if getattr(row, kind)]
        print(f"{row.harness}: {row.family} / {row.agent}: {', '.join(words)}", file=sys.stderr)


def chosen(families: Iterable[str]) -> list[Restarted]:
    """The agents of these families, all of them if none is named; part of a name will do."""
    return tables.chosen(AGENTS, families, lambda agent: agent.family)
