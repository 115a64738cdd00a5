"""Measures harnesses that restart an agent until it leaves DONE.

- false: reported complete without DONE, a regular file of that name in the task folder;
- missed: the agent left DONE, but it was not accepted, or the agent was started again;
- hung: still running at the time limit;
- unfinished: the agent would have left DONE in a later attempt, but was stopped before;
- orphans: processes still alive two seconds after the harness exited.
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
"""Runs in parallel; most of them mostly wait."""

PATIENCE = 40.0
"""Seconds after which a run counts as hung: four times the longest run, to allow for a busy machine."""

SETTLING = 2.0
"""Seconds that leftover processes may take to exit."""

SAID = 2
"""Our exit code when DONE is not a regular file, which a person has to check."""

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
        """Whether the run has a failure that ours must never have."""
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
    """Return whether DONE is a regular file: the oracle."""
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
    """Turn a run into a row."""
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
    """Run every agent with every harness, several in parallel."""
    versions, absent = versions_of(restarters, RESTARTERS)
    cases = product(versions, agents)
    rows = played(lambda case: run(RESTARTERS[case[0]], case[1]), cases, each, WORKERS)
    return Report(versions, rows, absent)


# ---- tables ----


def by_family(report: Report) -> str:
    """Return the number of runs by family: false/missed/hung/unfinished/orphans."""
    return by("family", FAMILIES, report.rows, KINDS, list(report.versions))


def summary(report: Report) -> str:
    """Return one line per harness."""
    lines: list[Sequence[str]] = [("harness", "runs", *KINDS, "starts")]
    for name in report.versions:
        rows = [row for row in report.rows if row.harness == name]
        starts = str(sum(row.starts for row in rows))
        lines.append((name, str(len(rows)), *counts(rows, KINDS), starts))
    return "\n".join([table(lines), *not_measured(report.absent)])


def show(row: Row) -> None:
    """Print failures of ours immediately."""
    if row.is_bad and RESTARTERS[row.harness].is_ours:
        words = [f"{kind} {int(getattr(row, kind))}" for kind in KINDS if getattr(row, kind)]
        print(f"{row.harness}: {row.family} / {row.agent}: {', '.join(words)}", file=sys.stderr)


def chosen(families: Iterable[str]) -> list[Restarted]:
    """Return the agents whose families contain one of these texts, or all if none is given."""
    return tables.chosen(AGENTS, families, lambda agent: agent.family)
