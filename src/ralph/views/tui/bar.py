"""A one-line bar with text at its left and right ends."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.strip import Strip
from textual.widget import Widget

from ralph.views.tui.strips import Piece, cut, strip_of


class StatusBar(Widget):
    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._left: Sequence[Piece] = ()
        self._right: Sequence[Piece] = ()

    def set(self, left: Sequence[Piece], right: Sequence[Piece] = ()) -> None:
        if (left, right) != (self._left, self._right):
            self._left, self._right = left, right
            self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        left = cut([(" ", ""), *self._left], width - 1)
        used = sum(cell_len(text) for text, _ in left)
        right = list(self._right)
        length = sum(cell_len(text) for text, _ in right) + 1
        if length + used + 2 > width:
            right, length = [], 0
        gap = (" " * (width - used - length), "")
        return strip_of(self, [*left, gap, *right], width, self.rich_style)


class Tabs(StatusBar):
    """View names in a row, one of them selected; a click selects a view, as its number key does."""

    def __init__(self, names: Sequence[str], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._names = names

    def show(self, on: int, more: str = "") -> None:
        words: list[Piece] = []
        for number, name in enumerate(self._names):
            words += [(f"{number + 1} ", "dim"), (name, "busy" if number == on else ""), ("   ", "")]
        self.set(words, [(more, "dim")])

    async def on_click(self, event: object) -> None:
        left = 1
        x = getattr(event, "x", 0)
        for number, name in enumerate(self._names):
            if left <= x < left + len(name) + 2:
                await self.run_action(f"screen.tab({number})")
            left += len(name) + 5
