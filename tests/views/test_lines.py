"""Tables as plain lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.views.lines import _padded, _width, print_lines


def show(rows: list[tuple[str, ...]]) -> None:
    print_lines(("name", "state", "what"), rows, wide=2, accent=1, styles={"good": "32"})


def test_columns_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    """Wide characters take two columns, combining ones none; lines have no trailing spaces."""
    show([("a", "good", "x"), ("日本", "é", ""), ("e\u0301", "bad", "much longer than the others")])
    assert capsys.readouterr().out.splitlines() == [
        "name  state  what",
        "a     good   x",
        "日本  é",
        "e\u0301     bad    much longer than the others",
    ]


def test_a_cell_is_one_line_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the title of a task contains."""
    show([("a\nb", "\x1b[31mred", "c\t d\x07")])
    assert capsys.readouterr().out.splitlines()[1] == "a b   red    c d\ufffd"


def test_without_rows_only_the_titles_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty table is one line."""
    show([])
    assert capsys.readouterr().out == "name  state  what\n"


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs", "Mn"]), max_size=30), st.integers(2, 20))
def test_a_cell_fills_its_column_exactly(cell: str, width: int) -> None:
    """A cell is padded or cut to the exact width."""
    assert _width(_padded(cell, width)) == width
