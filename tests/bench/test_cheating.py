"""Ways to cheat in a PRD loop, with the real command: none is accepted, each is reported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from conftest import some

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not installed

from bench.agents.cheats import _ALIKE, CHEATS, Cheat

from bench import cheating, quick


@pytest.mark.parametrize("cheat", some(cheating.QUICK, 3), ids=lambda cheat: cheat.name)
def test_a_cheat_is_undone_and_reported(cheat: Cheat) -> None:
    """The list, the PRD, the prompt and the log are legal again, nothing is complete, and the reason is reported."""
    row = cheating.play(cheating.OURS, cheat)
    assert not row.is_bad, row


@pytest.mark.slow
@pytest.mark.parametrize(
    "cheat", [each for each in CHEATS if each.name in ("makes the list a link", "fix that approves another")]
)
def test_the_floor_accepts_them(cheat: Cheat) -> None:
    """A loop that only checks the final list accepts the cheat, and the oracle notices."""
    assert cheating.play(cheating.FLOOR, cheat).accepted


def test_cheats_have_unique_names() -> None:
    """There are many cheats of every mode, and the quick form names only existing ones."""
    names = [each.name for each in CHEATS]
    assert len(names) == len(set(names)) > 100
    assert set(names) >= _ALIKE and len(cheating.QUICK) >= 40
    assert {each.mode for each in cheating.QUICK} == {"implement", "review", "review-fix", "skip-review"}


def test_the_quick_form_fails_on_an_accepted_cheat() -> None:
    """It also fails on an unreported cheat and when nothing was measured."""
    good = cheating.Row(cheating.OURS, "x", "review", "", untold=False, hung=False, seconds=1.0, code=1)
    bad = cheating.Row(cheating.OURS, "x", "review", "US-001 passes", False, False, 1.0, 0)
    silent = cheating.Row(cheating.OURS, "x", "review", "", True, False, 1.0, 1)
    assert quick.has_caught([good])
    assert not quick.has_caught([good, bad]) and not quick.has_caught([silent]) and not quick.has_caught([])
