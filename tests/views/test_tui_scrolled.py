"""Views that scroll."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual.app import App, ComposeResult

from ralph.views.tui.lines import LinesView
from ralph.views.tui.rows import Column, RowList, TableRow
from ralph.views.tui.scrolled import Scrolled


class Alone(App[None]):
    """One widget that fills the screen."""

    def __init__(self, widget: Scrolled) -> None:
        super().__init__()
        self.widget = widget

    def compose(self) -> ComposeResult:
        yield self.widget


def test_the_scrollbar_of_text_added_later() -> None:
    """Text is added and followed before there is a scrollbar; the scrollbar then appears at the end too."""
    lines = LinesView(follows=True)
    _is_at_the_end(lines, lambda: lines.add("a line\n" * 100))


def test_the_scrollbar_of_rows_added_later() -> None:
    """Rows are added and the cursor moves to the last; the scrollbar appears at the end."""
    rows = RowList([Column("")])

    def fill() -> None:
        rows.set_rows([TableRow(number, ((f"row {number}", ""),)) for number in range(100)])
        rows.point_at(99)

    _is_at_the_end(rows, fill)


def _is_at_the_end(widget: Scrolled, fill: Callable[[], None]) -> None:
    async def run() -> None:
        async with Alone(widget).run_test(size=(40, 10)) as pilot:
            await pilot.pause()
            assert not widget.show_vertical_scrollbar
            fill()
            await pilot.pause()
            assert widget.show_vertical_scrollbar
            assert widget.vertical_scrollbar.position == widget.scroll_y == widget.max_scroll_y > 0

    asyncio.run(run())
