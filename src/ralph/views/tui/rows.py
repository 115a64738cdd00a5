"""A list of rows in columns, with a cursor. Only visible rows are drawn, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip

from ralph.views.lines import one_line
from ralph.views.tui.colours import ground
from ralph.views.tui.scrolled import Scrolled
from ralph.views.tui.strips import Piece, cut, fitted, strip_of


@dataclass(frozen=True, slots=True)
class Column:
    """`width` 0 takes the remaining space. `since`: list width from which the column is shown."""

    title: str
    width: int = 0
    right: bool = False
    since: int = 0


Cells = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class TableRow:
    """`key` identifies the row; a cell is a text and its tone. `cells` may be computed when the row is drawn."""

    key: Any
    cells: Cells | Callable[[], Cells]


@dataclass
class _OfRow(Message):
    list: RowList
    key: Any

    @property
    def control(self) -> RowList:
        return self.list


class RowList(Scrolled):
    """Rows with a cursor. There is no header if no column has a title."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup,ctrl+u", "page(-1)", "Page up", show=False),
        Binding("pagedown,ctrl+d", "page(1)", "Page down", show=False),
        Binding("home,g", "jump(0)", "First", show=False),
        Binding("end,G", "jump(-1)", "Last", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]

    class Moved(_OfRow):
        """The cursor moved to another row."""

    class Chosen(_OfRow):
        """A row was opened."""

    def __init__(self, columns: Sequence[Column], *, id: str | None = None, empty: str = "") -> None:
        super().__init__(id=id)
        self._columns = columns
        self._head = int(any(column.title for column in columns))
        self._rows: Sequence[TableRow] = ()
        self._cursor = 0
        self._empty = empty
        self._drawn: dict[int, tuple[Cells, bool] | None] = {}

    # ---- rows ----

    def set_rows(self, rows: Sequence[TableRow]) -> None:
        """Replace the rows; the cursor stays on the row with the same key."""
        key, was = self.key, self._cursor
        if not (rows and self._rows):
            self.refresh()
        self._rows = rows
        known = next((number for number, row in enumerate(rows) if row.key == key), None)
        self._cursor = known if known is not None and key is not None else min(was, max(0, len(rows) - 1))
        self.virtual_size = Size(0, len(rows) + self._head)
        if self._cursor != was:
            self._show_cursor()
        self.freshen()
        if self.key != key:
            self.post_message(self.Moved(self, self.key))

    def freshen(self) -> None:
        """Redraw only the lines whose text has changed, such as running times."""
        for y in range(self._head, self.size.height):
            if y not in self._drawn or self._line(y) != self._drawn[y]:
                self.refresh(Region(0, y, self.size.width, 1))

    def set_empty(self, text: str) -> None:
        if text != self._empty:
            self._empty = text
            self.refresh()

    @property
    def key(self) -> Any:
        """The key of the row under the cursor."""
        return self._rows[self._cursor].key if self._cursor < len(self._rows) else None

    def point_at(self, key: Any) -> None:
        for number, row in enumerate(self._rows):
            if row.key == key:
                self._go(number)

    # ---- moving ----

    def action_move(self, by: int) -> None:
        self._go(self._cursor + by)

    def action_page(self, by: int) -> None:
        self._go(self._cursor + by * max(1, self.size.height - self._head - 1))

    def action_jump(self, to: int) -> None:
        self._go(to if to >= 0 else len(self._rows) - 1)

    def action_choose(self) -> None:
        if self.key is not None:
            self.post_message(self.Chosen(self, self.key))

    def _go(self, to: int) -> None:
        to = max(0, min(to, len(self._rows) - 1))
        if to != self._cursor:
            self._cursor = to
            self._show_cursor()
            self.refresh()
            self.post_message(self.Moved(self, self.key))

    def _show_cursor(self) -> None:
        at = Region(0, self._cursor, 1, 1 + self._head)  # include the line above, which the header covers
        self.scroll_to_region(at, animate=False, force=True)

    def on_click(self, event: events.Click) -> None:
        line = event.get_content_offset(self)
        if line is None or line.y < self._head:
            return
        number = line.y + self.scroll_offset.y - self._head
        if number < len(self._rows):
            is_again = number == self._cursor
            self._go(number)
            if is_again or event.chain > 1:
                self.action_choose()

    # ---- drawing ----

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if not self._rows:
            if y == min(1, self.size.height - 1):
                return strip_of(self, cut([("  " + self._empty, "dim")], width), width, self.rich_style)
            return Strip.blank(width, self.rich_style)
        if y < self._head:
            titles = [(column.title, "head") for column in self._columns]
            return strip_of(self, self._laid_out(titles, width), width, self.rich_style)
        line = self._drawn[y] = self._line(y)
        if line is None:
            return Strip.blank(width, self.rich_style)
        (cells, is_cursor), base = line, self.rich_style
        if is_cursor:
            base = base + ground(self, "cursor" if self.has_focus else "cursor-idle")
        return strip_of(self, self._laid_out(cells, width), width, base)

    def _line(self, y: int) -> tuple[Cells, bool] | None:
        """The cells at a line of the screen, and whether the cursor is on it."""
        number = y + self.scroll_offset.y - self._head
        if number >= len(self._rows):
            return None
        cells = self._rows[number].cells
        return cells() if callable(cells) else cells, number == self._cursor

    def _laid_out(self, cells: Sequence[Piece], width: int) -> Iterator[Piece]:
        shown = [
            (column, cell) for column, cell in zip(self._columns, cells, strict=True) if column.since <= width
        ]
        used = sum(column.width for column, _ in shown) + 2 * len(shown)
        growing = max(1, sum(column.width == 0 for column, _ in shown))
        yield (" ", "")
        for column, (text, name) in shown:
            columns = column.width or max(4, (width - used) // growing)
            yield (fitted(one_line_kept(text), columns, right=column.right), name)
            yield ("  ", "")


def one_line_kept(text: str) -> str:
    """The text on one line, with its leading blanks: they show the depth in a tree."""
    bare = text.lstrip(" ")
    return text[: len(text) - len(bare)] + one_line(bare)
