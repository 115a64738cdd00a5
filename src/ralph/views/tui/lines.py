"""A view of long text: wrapped to the width, drawn only where visible, following the end as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.strip import Strip

from ralph.views.tui.scrolled import Scrolled
from ralph.views.tui.strips import Piece, parsed, strip_of, wrapped

MAX_LINES = 5_000
"""Lines kept; older ones are dropped."""


class LinesView(Scrolled):
    """`follows`: stay at the end until the user scrolls up."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "Up", show=False),
        Binding("down,j", "scroll_down", "Down", show=False),
        Binding("pageup,ctrl+u", "page_up", "Page up", show=False),
        Binding("pagedown,ctrl+d,space", "page_down", "Page down", show=False),
        Binding("home,g", "scroll_home", "First", show=False),
        Binding("end,G", "scroll_end", "Last", show=False),
    ]

    def __init__(self, *, follows: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self._follows = follows
        self._lines: list[list[Piece]] = []
        self._open = self._tone = ""
        self._drawn: list[list[Piece]] = []
        self._width = 0
        self._is_pinned = follows

    def set_text(self, text: str) -> None:
        """Replace the text and show it from the start."""
        self._lines, self._open, self._tone = [], "", ""
        self._put(text)
        self._redraw()
        if not self._follows:
            self.scroll_home(animate=False)

    def set_pieces(self, lines: Sequence[Sequence[Piece]]) -> None:
        """Replace the text with painted lines and keep the scroll position."""
        new = [list(line) for line in lines]
        if new != self._lines:
            self._lines, self._open = new, ""
            self._redraw()

    def add(self, text: str) -> None:
        """Append text, in chunks that may end anywhere."""
        if not text:
            return
        known, was_open = len(self._lines), bool(self._open)
        if was_open:
            self._lines.pop()
            known -= 1
        self._put(text)
        if was_open or not self._width or len(self._lines) > MAX_LINES:
            self._lines = self._lines[-MAX_LINES:]
            self._redraw()
        else:
            for line in self._lines[known:]:
                self._drawn += wrapped(line, self._width)
            self._resized()
        self._follow()

    def _follow(self) -> None:
        """Stay at the end unless the user has scrolled up."""
        if self._is_pinned:
            self.scroll_end(animate=False, immediate=True, force=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._is_pinned = self._follows and new_value >= self.max_scroll_y

    def _put(self, text: str) -> None:
        *whole, self._open = (self._open + text).split("\n")
        for line in whole:
            pieces, self._tone = parsed(line, self._tone)
            self._lines.append(pieces)
        if self._open:
            self._lines.append(parsed(self._open, self._tone)[0])

    def on_resize(self, event: events.Resize) -> None:
        if self.size.width != self._width:
            self._redraw()
        self._follow()

    def _redraw(self) -> None:
        self._width = max(0, self.size.width - 2)
        self._drawn = (
            [part for line in self._lines for part in wrapped(line, self._width)] if self._width else []
        )
        self._resized()

    def _resized(self) -> None:
        self.virtual_size = Size(0, len(self._drawn))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width, number = self.size.width, y + self.scroll_offset.y
        if number >= len(self._drawn):
            return Strip.blank(width, self.rich_style)
        return strip_of(self, [(" ", ""), *self._drawn[number]], width, self.rich_style)
