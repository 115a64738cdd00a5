"""The measured numbers of docs/comparison.md are those of the kept benchmark results."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed

from bench import page, results

ROOT = Path(__file__).parents[1]

README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs" / "comparison.md").read_text()
TRUTH = {"false": "false", "missed": "missed", "unfinished": "unfinished", "asked": "asks"}
FALSE_BY_FAMILY = {
    "quoted the tag": "quoting a file with the tag",
    "echoed the prompt": "echoing the prompt",
    "checks failed": "claiming with failing guardrails",
    "weakened tests": "weakening or deleting tests",
    "changed Python tests": "changing Python tests",
    "changed how they run": "changing how Python tests run",
}
SURVIVAL = {
    "lost work": "lost",
    "orphans": "orphans",
    "hung": "hung",
    "unfinished": "unfinished",
    "two at once": "together",
}


def table(*columns: str) -> dict[str, dict[str, int]]:
    """The table of the page with these columns: harness -> column -> number."""
    head = f"| {' | '.join(('harness', 'runs', *columns))} |\n"
    assert PAGE.count(head) == 1, f"no single table with the head {head!r}"
    lines = PAGE.split(head)[1].split("\n\n")[0].splitlines()[1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: dict(zip(("runs", *columns), map(int, cells), strict=True)) for name, *cells in rows}


def kept(suite: str) -> results.Kept:
    found = results.kept(suite)
    assert found is not None
    return found


def harm(row: dict[str, Any], kind: str) -> bool:
    return bool(row["gone"] + row["again"] if kind == "lost" else row[kind])


def rows_of(suite: str, harness: str) -> list[dict[str, Any]]:
    return [row for row in page.measured(kept(suite)) if row["harness"] == harness]


def test_truth_is_what_was_kept() -> None:
    """Every harness of the results is in the table, with its totals and its false completions by family."""
    expected = {}
    for name in page.harnesses(kept("truth")):
        rows = rows_of("truth", name)
        totals = {column: sum(harm(row, kind) for row in rows) for column, kind in TRUTH.items()}
        families = {
            column: sum(row["false"] for row in rows if row["family"] == family)
            for column, family in FALSE_BY_FAMILY.items()
        }
        expected[name] = {"runs": len(rows)} | totals | families
    assert table(*TRUTH, *FALSE_BY_FAMILY) == expected


def test_survival_is_what_was_kept() -> None:
    """Every harness of the results is in the table, with the runs in which each kind of harm was done."""
    expected = {}
    for name in page.harnesses(kept("survival")):
        rows = rows_of("survival", name)
        totals = {column: sum(harm(row, kind) for row in rows) for column, kind in SURVIVAL.items()}
        expected[name] = {"runs": len(rows)} | totals
    assert table(*SURVIVAL) == expected


@pytest.mark.parametrize(
    ("words", "harness"),
    [
        ("checks for tests and test files", "ralph"),
        ("a check for the tests only", "ralph-bare"),
        ("ralph-tui", "ralph-tui"),
        ("ralphy-cli", "ralphy"),
        ("greps for a tag", "tag-grep"),
    ],
)
def test_the_readme_has_the_same_numbers(words: str, harness: str) -> None:
    """Its short table says what the page says: false completions, lost work, orphans, hangs."""
    (row,) = [line for line in README.splitlines() if line.startswith("|") and words in line]
    shown = [cell.strip(" *") for cell in row.strip("|").split("|")][1:]
    survival = {column: str(number) for column, number in table(*SURVIVAL).get(harness, {}).items()}
    expected = [str(table(*TRUTH, *FALSE_BY_FAMILY)[harness]["false"])]
    assert shown == expected + [survival.get(column, "–") for column in ("lost work", "orphans", "hung")]


@pytest.mark.parametrize("harness", ["ralph", "ralphy", "ralph-tui"])
def test_the_page_names_the_versions_measured(harness: str) -> None:
    """A new measurement with another version needs another sentence."""
    for suite in ("truth", "survival"):
        numbers = re.findall(r"\d+\.\d+\.\d+", kept(suite).versions[harness])
        assert numbers and all(number in PAGE for number in numbers)


def test_peers_called_not_measured_were_not() -> None:
    """As soon as results of one of them are kept, the page must have them."""
    for suite in ("truth", "survival"):
        absent = {row["harness"] for row in kept(suite).results if "reason" in row}
        assert absent == {"ralph-go", "ralph-orchestrator"}


def test_links_lead_to_pages_that_are_there() -> None:
    """Links to other pages of the documentation."""
    for target in set(re.findall(r"\]\(([\w-]+\.md)", PAGE)):
        assert (ROOT / "docs" / target).is_file(), target


def test_every_harness_is_in_every_table() -> None:
    """The five tables of facts read in the sources have the same harnesses in the same order, and no gap."""
    read = PAGE.split("## Read in the sources")[1].split("## When to choose another one")[0]
    tables = [
        [line.strip("|").split("|") for line in part.splitlines() if line.startswith("|")]
        for part in read.split("\n### ")[1:]
    ]
    names = [[cells[0].strip() for cells in lines[2:]] for lines in tables]
    assert len(tables) == 5 and len(names[0]) == 12
    assert all(found == names[0] for found in names)
    assert all(
        len(cells) == len(lines[0]) and all(map(str.strip, cells)) for lines in tables for cells in lines
    )
