"""Every way to cheat in a PRD loop, through the real command: none is accepted, each is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from conftest import some

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are no part of what is installed

from bench.agents.cheats import _ALIKE, CHEATS, Cheat

from bench import cheating, quick


@pytest.mark.parametrize("cheat", some(cheating.QUICK, 3), ids=lambda cheat: cheat.name)
def test_a_cheat_is_undone_and_told(cheat: Cheat) -> None:
    """The list, the PRD, the prompt and the log are legal again, nothing is complete, and the reason is told."""
    row = cheating.play(cheating.OURS, cheat)
    assert not row.is_bad, row


@pytest.mark.slow
@pytest.mark.parametrize(
    "cheat", [each for each in CHEATS if each.name in ("makes the list a link", "fix that approves another")]
)
def test_the_floor_accepts_them(cheat: Cheat) -> None:
    """A loop that only looks at the list in the end believes it: the oracle can tell."""
    assert cheating.play(cheating.FLOOR, cheat).accepted


def test_cheats_are_told_apart_by_name() -> None:
    """There are many, of every mode, and the quick form names none that is not there."""
    names = [each.name for each in CHEATS]
    assert len(names) == len(set(names)) > 100
    assert set(names) >= _ALIKE and len(cheating.QUICK) >= 40
    assert {each.mode for each in cheating.QUICK} == {"implement", "review", "review-fix", "skip-review"}


def test_the_quick_form_fails_on_an_accepted_cheat() -> None:
    """And on one that nobody was told of, and when nothing was measured."""
    good = cheating.Row(cheating.OURS, "x", "review", "", untold=False, hung=False, seconds=1.0, code=1)
    bad = cheating.Row(cheating.OURS, "x", "review", "US-001 passes", False, False, 1.0, 0)
    silent = cheating.Row(cheating.OURS, "x", "review", "", True, False, 1.0, 1)
    assert quick.has_caught([good])
    assert not quick.has_caught([good, bad]) and not quick.has_caught([silent]) and not quick.has_caught([])
