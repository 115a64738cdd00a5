"""Evaluation of a trial, the tables, and the quick form."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not installed

from bench.agents.families import DONE, FAMILIES, GREEN, HALF
from bench.agents.model import Agent, Shape, Turn
from bench.arena import Trial
from bench.harness.base import Finished
from bench.harness.registry import HARNESSES
from bench.truth import Absent, Report, Row

from bench import quick, truth

OURS = HARNESSES["ralph"]
IN_TWO = Agent("f", "in two", (HALF, DONE), 2)
NEVER = Agent("f", "never", (GREEN,), useful=1)
LATE = Agent("f", "says it late", (Turn(do=DONE.do), DONE), 1)
ASKS = Agent("f", "needs the user", (DONE,), 1, must_ask=True)
FORGETS = Agent("f", "forgets", (Turn(do=DONE.do),), 1)


def row(
    agent: Agent,
    *,
    complete: bool,
    done: bool,
    work: int,
    refused: int = 0,
    messages: int = 0,
    hung: bool = False,
    harmed: bool = False,
    asks: bool = False,
) -> Row:
    finished = Finished(0 if complete else 1, "", "", Path())
    starts = Counter(work=work, refused=refused, message=messages)
    trial = Trial(finished, 1.0, hung, (), starts, complete, done, harmed, asks)
    return truth.judge(OURS, agent, Shape.PLAIN, trial)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (row(IN_TWO, complete=True, done=True, work=2), ""),
        (row(IN_TWO, complete=True, done=True, work=3), ""),
        (row(IN_TWO, complete=True, done=True, work=4), "missed"),
        (row(IN_TWO, complete=False, done=True, work=5), "missed"),
        (row(IN_TWO, complete=True, done=False, work=1), "false"),
        (row(IN_TWO, complete=False, done=False, work=1), "unfinished"),
        (row(LATE, complete=True, done=True, work=1), ""),
        (row(NEVER, complete=True, done=False, work=1), "false"),
        (row(NEVER, complete=False, done=False, work=5), ""),
        (row(FORGETS, complete=False, done=True, work=5), ""),
        (row(FORGETS, complete=True, done=True, work=1), ""),
        (row(ASKS, complete=False, done=True, work=2, asks=True), ""),
        (row(ASKS, complete=False, done=True, work=2), "missed"),
        (row(IN_TWO, complete=False, done=True, work=2, asks=True), "missed"),
        (row(NEVER, complete=False, done=False, work=2, asks=True), ""),
    ],
)
def test_a_trial_is_false_missed_unfinished_or_well(found: Row, words: str) -> None:
    """One extra iteration is allowed; without a claim there is nothing to miss. Some may leave it to the user."""
    told = [name for name in ("false", "missed", "unfinished") if getattr(found, name)]
    assert " ".join(told) == words


def test_starts_after_the_last_useful_one_are_wasted() -> None:
    """Waste includes the scripted cost; the first refusal is unavoidable and free."""
    late = row(IN_TWO, complete=True, done=True, work=4, refused=3)
    assert (late.starts, late.wasted, late.cost, late.cost_wasted) == (7, 4, 0.4, 0.2)


def test_calls_for_a_commit_message_are_starts() -> None:
    """They cost something too, and are wasted beyond one per useful invocation."""
    found = row(IN_TWO, complete=True, done=True, work=2, messages=3)
    assert (found.starts, found.messages, found.wasted) == (5, 3, 1)
    assert (found.cost, found.cost_wasted) == (0.23, 0.01)


def test_the_quick_form_fails_on_what_must_never_happen() -> None:
    """It fails on false, missed and hung runs, on harmed files, and when nothing was measured."""
    good = row(IN_TWO, complete=True, done=True, work=2)
    bad = [
        row(IN_TWO, complete=True, done=False, work=1),
        row(IN_TWO, complete=False, done=True, work=5),
        row(NEVER, complete=False, done=False, work=1, hung=True),
        row(IN_TWO, complete=True, done=True, work=2, harmed=True),
    ]
    assert quick.is_good(Report({}, [good], []))
    assert not any(quick.is_good(Report({}, [good, each], [])) for each in bad)
    assert not quick.is_good(Report({}, [], []))
    assert not quick.is_good(Report({}, [good], [Absent("ralph", "not installed")]))


def test_the_table_lists_harnesses_that_were_not_measured() -> None:
    """There is a line for each measured harness and a reason for each other one."""
    report = Report(
        {"ralph": "1.0"}, [row(IN_TWO, complete=True, done=True, work=2)], [Absent("x", "no npm")]
    )
    text = truth.summary(report)
    assert text.splitlines()[1].split()[:3] == ["ralph", "1.0", "1"]
    assert text.splitlines()[-1] == "x: not measured: no npm"


def test_families_are_chosen_by_part_of_their_name() -> None:
    """Without a name, all families are chosen."""
    assert {agent.family for agent in truth.chosen(["stuck", "Limited"])} == {"stuck", "limited"}
    assert len(truth.chosen([])) > len(truth.chosen(["stuck"]))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_quick_form_is_good() -> None:
    """Ours has no false and no missed completion in any family."""
    report = quick.measure()
    assert quick.is_good(report), [each for each in report.rows if each.is_bad]
    asked = {each.agent for each in report.rows if each.asks}
    assert {"claims, then refuses"} <= asked and "edits a test, allowed" not in asked
    at_once = {agent.name for agent in FAMILIES["new tests and other settings"]}
    assert {each.starts for each in report.rows if each.agent in at_once} == {1}
