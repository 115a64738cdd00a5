"""The table in docs/environments.md names tests that exist, for every kind of project."""

from __future__ import annotations

import re
from pathlib import Path

from environments import ecosystems, test_ecosystems_real

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def test_every_kind_of_project_has_a_row() -> None:
    """Its cells are the parameter of the tests in the columns."""
    rows = re.findall(
        r"^\| .* \| `\[(.+)\]` \| `\[\1\]` \| `\[\1\]` \| `\[\1\]` \|$", PAGE.read_text(), re.MULTILINE
    )
    assert tuple(rows) == ecosystems.NAMES


def test_every_column_is_a_test() -> None:
    """And every test is a column."""
    tests = [name for name in vars(test_ecosystems_real) if name.startswith("test_")]
    assert re.findall(r"^- .*`(test_\w+)`$", PAGE.read_text(), re.MULTILINE) == tests
