"""Measures how often a harness accepts false claims or rejects true ones.

- false: reported complete, but the committed work is not done;
- missed: the work was done and claimed, but not accepted within one more iteration;
- unfinished: the agent would have finished within the iteration limit, but was stopped before;
- harmed: a file of the user that git ignores is gone, changed or committed;
- asks: stopped, and left it to the user whether changed tests are right; neither false nor missed if only the user
  can know that;
- starts: of the agent, with calls for a commit message, and their scripted cost;
- wasted: starts after the last useful one, with messages beyond one per useful invocation, and their scripted cost.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import product

from bench import arena, tables
from bench.agents.families import AGENTS, FAMILIES
from bench.agents.model import Agent, Shape
from bench.arena import Trial
from bench.harness.base import Harness
from bench.harness.registry import HARNESSES
from bench.tables import Absent as Absent
from bench.tables import by, counts, not_measured, played, table, versions_of
from ralph.process.client import Wakeup, Warden

WORKERS = 2
KINDS = ("false", "missed", "unfinished")


@dataclass(frozen=True, slots=True)
class Row:
    """One agent in one shape with one harness."""

    harness: str
    family: str
    agent: str
    shape: str
    complete: bool
    done: bool
    false: bool
    missed: bool
    unfinished: bool
    harmed: bool
    asks: bool
    starts: int
    messages: int
    cost: float
    wasted: int
    cost_wasted: float
    orphans: int
    hung: bool
    seconds: float
    code: int | None

    @property
    def is_bad(self) -> bool:
        """Whether the run has a failure that ours must never have."""
        return self.false or self.missed or self.harmed or self.hung or self.orphans > 0


@dataclass(frozen=True, slots=True)
class Report:
    versions: dict[str, str]
    rows: list[Row]
    absent: list[Absent]


def judge(harness: Harness, agent: Agent, shape: Shape, trial: Trial) -> Row:
    """Turn a trial into a row."""
    work, refused, messages = (trial.starts[kind] for kind in ("work", "refused", "message"))
    claimed_at, useful = agent.first_true_claim, agent.useful_invocations
    was_claimed = claimed_at is not None and work >= claimed_at
    late = was_claimed and claimed_at is not None and work > claimed_at + 1
    false = trial.complete and not trial.done
    is_asked = agent.must_ask and trial.asks and not trial.complete
    return Row(
        harness.name,
        agent.family,
        agent.name,
        shape,
        trial.complete,
        trial.done,
        false=false,
        missed=was_claimed and not false and (late or not trial.complete) and not is_asked,
        unfinished=claimed_at is not None and not was_claimed and not trial.complete,
        harmed=trial.harmed,
        asks=trial.asks,
        starts=work + refused + messages,
        messages=messages,
        cost=round(agent.cost(work, messages), 4),
        wasted=max(0, work - useful) + max(0, messages - useful) + max(0, refused - 1),
        cost_wasted=round(agent.cost(work, messages, useful), 4),
        orphans=len(trial.orphans),
        hung=trial.hung,
        seconds=round(trial.seconds, 3),
        code=trial.finished.code,
    )


def measure(
    harnesses: Iterable[str],
    agents: Sequence[Agent],
    shapes: Sequence[Shape] = tuple(Shape),
    each: Callable[[Row], None] = lambda row: None,
) -> Report:
    """Run every agent in every shape with every harness, several in parallel."""
    versions, absent = versions_of(harnesses, HARNESSES)
    wardens = Wardens()

    cases = [case for case in product(versions, agents, shapes) if case[2] in case[1].shapes]

    def play(case: tuple[str, Agent, Shape]) -> Row:
        name, agent, shape = case
        trial = arena.run(wardens.mine(), HARNESSES[name], agent, shape)
        return judge(HARNESSES[name], agent, shape, trial)

    with closing(wardens):
        rows = played(play, cases, each, WORKERS)
    return Report(versions, rows, absent)


class Wardens:
    """One warden per thread, which kills whatever a harness leaves behind."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._all: list[Warden] = []
        self._starting = threading.Lock()

    def mine(self) -> Warden:
        found: Warden | None = getattr(self._local, "warden", None)
        if found is None:
            with self._starting:
                found = self._local.warden = Warden(Wakeup())
                self._all.append(found)
        return found

    def close(self) -> None:
        for warden in self._all:
            warden.close()


# ---- tables ----


def summary(report: Report) -> str:
    """Return one line per harness."""
    head = (
        "harness",
        "runs",
        *KINDS,
        "harmed",
        "asks",
        "starts",
        "cost",
        "wasted",
        "cost wasted",
        "orphans",
        "hangs",
    )
    lines: list[Sequence[str]] = [head]
    for name, version in report.versions.items():
        rows = [row for row in report.rows if row.harness == name]
        lines.append(
            (
                f"{name} {version}" if name != version else name,
                str(len(rows)),
                *counts(rows, (*KINDS, "harmed", "asks")),
                str(sum(row.starts for row in rows)),
                f"${sum(row.cost for row in rows):.2f}",
                str(sum(row.wasted for row in rows)),
                f"${sum(row.cost_wasted for row in rows):.2f}",
                str(sum(row.orphans for row in rows)),
                str(sum(row.hung for row in rows)),
            )
        )
    return "\n".join([table(lines), *not_measured(report.absent)])


def by_family(report: Report) -> str:
    """Return false / missed / unfinished of each family, by harness."""
    return by("family", FAMILIES, report.rows, KINDS, list(report.versions))


def show(row: Row) -> None:
    """Print failures of ours immediately."""
    if row.is_bad and HARNESSES[row.harness].is_ours:
        words = [word for word in ("false", "missed", "harmed", "hung") if getattr(row, word)]
        words += ["orphans"] if row.orphans else []
        print(f"{row.harness}: {row.family} / {row.agent} / {row.shape}: {', '.join(words)}", file=sys.stderr)


def chosen(families: Iterable[str]) -> list[Agent]:
    """Return the agents whose families contain one of these texts, or all if none is given."""
    return tables.chosen(AGENTS, families, lambda agent: agent.family)
