"""The page is generated from kept results alone."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not installed

from bench.plot import Bar

from bench import page, plot, results


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of kept results in this test."""
    monkeypatch.setattr(results, "PLACE", tmp_path / "results")
    return tmp_path / "results"


def truth(harness: str, *, false: bool = False, missed: bool = False) -> dict[str, Any]:
    harm = {
        "false": false,
        "missed": missed,
        "unfinished": False,
        "harmed": False,
        "asks": False,
        "orphans": 0,
        "hung": False,
    }
    starts = {"starts": 2, "messages": 1, "cost": 0.2, "version": "1"}
    waste = {"wasted": 1, "cost_wasted": 0.1} | starts
    return {"harness": harness, "family": "stuck", "agent": "a", "shape": "plain"} | harm | waste


def survival(harness: str, **harm: int) -> dict[str, Any]:
    none = {"gone": 0, "again": 0, "orphans": 0, "hung": False, "unfinished": False, "together": 0}
    return {"harness": harness, "case": "held pipe", "number": 0, "version": "1"} | none | harm


def restarted(harness: str, **harm: int) -> dict[str, Any]:
    none = {"false": False, "missed": False, "hung": False, "unfinished": False, "orphans": 0}
    row = {"harness": harness, "family": "hangers", "agent": "silent", "starts": 2, "code": 0, "version": "1"}
    return row | none | harm


SPEED = {"goal": "≤ 5 ms", "value": 2.5, "unit": "ms", "met": True, "floor": 1.0, "detail": "by the agents"}


def test_kept_results_can_be_read_again(kept: Path) -> None:
    """They include machine, date, versions and command, but no path or host name."""
    path = results.keep("truth", "python -m bench truth --keep", {"ralphy": "4"}, [truth("ralph")])
    found = results.kept("truth")
    assert found is not None and found.results == [truth("ralph")]
    assert found.machine.keys() == {"cores", "processor", "memory", "system"}
    assert found.versions.keys() == {"ralph", "python", "git", "ralphy"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found.date)
    assert str(Path.home()) not in path.read_text()
    assert results.kept("survival") is None


def test_without_results_everything_is_not_measured(kept: Path, tmp_path: Path) -> None:
    """The page has no number, only the commands to measure."""
    text = page.write(tmp_path / "docs").read_text()
    for suite in ("truth", "survival", "restarts", "cheating", *page.SPEED):
        assert f"no kept results; run `python -m bench {suite} --keep`" in text
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["benchmarks.md"]


def test_the_goals_name_measured_floor_and_best_peer(kept: Path) -> None:
    """A peer is neither ours nor a shell loop; the best has the smallest share."""
    rows = [truth("ralph"), truth("tag-grep", false=True), truth("while", missed=True)]
    peers = [truth("ralphy", false=True), truth("ralph-tui", false=True), truth("ralph-tui")]
    results.keep("truth", "python -m bench truth --keep", {}, [*rows, *peers])
    results.keep("survival", "again", {}, [survival("ralph"), survival("ralphy", again=2)])
    results.keep("speed", "python -m bench speed --keep", {}, [{"name": "exit to next start", **SPEED}])
    found = {line[0]: tuple(line[1:]) for line in page.goals()}
    command = "`python -m bench truth --keep`"
    assert found["false completions"] == ("0", "0 of 1", "1 of 1", "1 of 2 (ralph-tui)", command)
    assert found["runs with lost work"] == ("0", "0 of 1", "not measured", "1 of 1 (ralphy)", "`again`")
    assert found["exit to next start"][:3] == ("≤ 5 ms", "2.50 ms", "1.00 ms")


def test_the_page_has_every_part(kept: Path, tmp_path: Path) -> None:
    """The page has tables by family and case, figures with commands, reasons for missing results, and the machine."""
    absent = {"harness": "ralph-go", "reason": "not on PATH"}
    results.keep("truth", "command one", {"ralph": "ralph 0.1"}, [truth("ralph"), truth("ralphy"), absent])
    skipped = {"case": "disk full", "reason": "no mounts"}
    results.keep("survival", "command two", {}, [survival("ralph"), survival("ralphy", orphans=3), skipped])
    results.keep("speed", "command three", {}, [{"name": "exit | start", **SPEED}])
    text = page.write(tmp_path / "docs").read_text()
    assert "| stuck | 1 | 0/0/0/0/0 | 0/0/0/0/0 |" in text
    assert "| held pipe | 1 | 0/0/0/0/0 | 0/1/0/0/0 |" in text
    assert "| ralph 0.1 | 1 | 0 | 0 | 0 | 0 | 0 | 2 | 1 | $0.20 | 1 | $0.10 | 0 | 0 |" in text
    assert "- ralph-go: not measured: not on PATH" in text and "- disk full: not measured: no mounts" in text
    assert "exit \\| start" in text
    assert results.machine()["processor"] in text
    figures = re.findall(r"\]\((.*\.svg)\)\n\nRepeat: `(.*)`", text)
    assert {command for _, command in figures} <= {"command one", "command two", "command three"}
    for figure, _ in figures:
        ET.parse(tmp_path / "docs" / figure)
    assert len(list((tmp_path / "docs").glob("*.svg"))) == 3


def test_restarts_have_their_own_floor_and_peers(kept: Path, tmp_path: Path) -> None:
    """Ours is the supervisor, the floor the plainest loop, the peers all others; a stop with a reason is explained."""
    ours = [restarted("ralph supervise"), restarted("ralph supervise", unfinished=True, code=2)]
    loops = [
        restarted("until -e", false=True),
        restarted("until -f", orphans=3),
        restarted("until -f, timeout"),
    ]
    results.keep("restarts", "again", {}, [*ours, *loops])
    found = {line[0]: tuple(line[1:]) for line in page.goals()}
    peer = "0 of 1 (until -f, until -f, timeout)"
    assert found["complete without DONE"] == ("0", "0 of 2", "1 of 1", peer, "`again`")
    assert found["restarts with orphans"][2:4] == ("0 of 1", "0 of 1 (until -f, timeout)")
    text = page.write(tmp_path / "docs").read_text()
    assert "| hangers | 1 | 0/0/0/1/0 | 1/0/0/0/0 | 0/0/0/0/1 | 0/0/0/0/0 |" in text
    assert "(silent): it stops with exit code 2" in text
    assert "benchmarks-restarts.svg" in {path.name for path in (tmp_path / "docs").iterdir()}


def test_the_summary_lists_every_harness(kept: Path, tmp_path: Path) -> None:
    """Failures of ours, peers and shell loops side by side, then our speed ratios."""
    results.keep(
        "truth", "again", {"ralphy": "4"}, [truth("ralph"), truth("ralphy", false=True), truth("while")]
    )
    results.keep("survival", "again", {}, [survival("ralph"), survival("ralphy", gone=1)])
    results.keep("speed", "again", {}, [{"name": "start", **SPEED, "unit": "×", "met": False}])
    text = page.write(tmp_path / "docs").read_text()
    summary = text.partition("## Summary")[2].partition("## Goals")[0]
    assert "| **ralph** | 0 of 1 | 0 of 1 | 0 of 1 | 0 of 1 | 0 of 1 |" in summary
    assert "| ralphy 4 | 1 of 1 | 0 of 1 | 1 of 1 | 0 of 1 | 0 of 1 |" in summary
    assert "| 0 of 1 | 0 of 1 | – | – | – |" in summary
    assert "| start | ≤ 5 ms | 2.50× (missed) |" in summary


def test_kept_results_of_this_checkout_are_the_page() -> None:
    """The page is regenerated whenever new results are kept."""
    assert "\n\n".join(page.sections()) + "\n" == (page.DOCS / "benchmarks.md").read_text()
    for name, text in page.figures():
        assert (page.DOCS / name).read_text() == text


def test_kept_results_contain_no_local_path() -> None:
    """Results are published, so they must not contain local paths."""
    for path in results.PLACE.glob("*.json"):
        text = json.dumps(json.loads(path.read_text())["results"])
        assert not re.search(r"/(home|root|tmp|work|Users)/", text), path


def test_bars_are_to_scale() -> None:
    """The longest bar fills the width, half is half, and zero is still visible."""
    drawn = plot.bars("A & B", [Bar("one", 4, "4"), Bar("half", 2, "2", False), Bar("none", 0, "0")], limit=4)
    widths = [float(width) for width in re.findall(r'<rect [^>]* width="([\d.]+)"', drawn)]
    assert widths == [330.0, 165.0, 1.0]
    assert "A &amp; B" in drawn and drawn.count('class="limit"') == 1
