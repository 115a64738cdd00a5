"""The quick form for CI: some agents of every family, every kind of trouble, some cheats of every kind, only with Ralph.

It fails on a false or missed completion, lost work, an orphan, a hang or an accepted cheat, never on a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench import cheating, restarts, survival, truth
from bench.agents import attempts
from bench.agents.families import AGENTS, QUICK
from bench.harness.ralph import OURS
from bench.harness.restarters import SUPERVISE
from bench.truth import Report


def measure() -> Report:
    agents = [agent for agent in AGENTS if agent.name in QUICK]
    return truth.measure([OURS.name], agents, each=truth.show)


def is_good(report: Report | restarts.Report) -> bool:
    return not report.absent and bool(report.rows) and not any(row.is_bad for row in report.rows)


def survive() -> survival.Report:
    return survival.measure([OURS.name], quick=True, each=survival.show)


def has_survived(report: survival.Report) -> bool:
    return not report.absent and bool(report.rows) and not any(row.is_bad for row in report.rows)


def restart() -> restarts.Report:
    agents = [agent for agent in attempts.AGENTS if agent.name in attempts.QUICK]
    return restarts.measure([SUPERVISE.name], agents, each=restarts.show)


def catch() -> list[cheating.Row]:
    return cheating.measure([cheating.OURS], cheating.QUICK, each=cheating.show)


def has_caught(rows: Sequence[cheating.Row]) -> bool:
    return bool(rows) and not any(row.is_bad for row in rows)
