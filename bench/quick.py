"""The quick form of the truth suite, for CI: some agents of every family, ours only.

It fails on a false or missed completion, an orphan or a hang of ours; never on a time.
"""

from __future__ import annotations

from bench import truth
from bench.agents.families import AGENTS, QUICK
from bench.harness.ralph import OURS
from bench.truth import Report


def measure() -> Report:
    agents = [agent for agent in AGENTS if agent.name in QUICK]
    return truth.measure([OURS.name], agents, each=truth.show)


def is_good(report: Report) -> bool:
    return not report.absent and bool(report.rows) and not any(row.is_bad for row in report.rows)
