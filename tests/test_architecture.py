"""docs/architecture.md and CONTRIBUTING.md match the code: rooms, files and functions."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ralph"
PAGES = [ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"]


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return every function, method and class of a module."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds))


def named() -> list[tuple[str, str, str]]:
    """Return each `file:function` of the walks with the page that names it."""
    found = re.compile(r"`([\w/]+\.py):(\w+)`")
    return sorted({(page.name, *match) for page in PAGES for match in found.findall(page.read_text())})


@pytest.mark.parametrize(("page", "path", "name"), named())
def test_the_walks_name_existing_functions(page: str, path: str, name: str) -> None:
    """Every function named in a walk exists."""
    assert name in names_in(SOURCE / path)


def test_there_are_walks() -> None:
    """The pattern above still finds the walks."""
    assert len(named()) > 40


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    """A path with a directory exists below the root or the package."""
    paths = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.\w+)`", page.read_text()))
    missing = [p for p in paths if not (ROOT / p).exists() and not (SOURCE / p).exists()]
    assert missing == []


def test_every_room_is_in_the_table() -> None:
    """`make map` was run after the newest room was added."""
    page = PAGES[0].read_text()
    rooms = [path.parent.name for path in SOURCE.glob("*/__init__.py")]
    assert [room for room in rooms if f"| `{room}/` |" not in page] == []
