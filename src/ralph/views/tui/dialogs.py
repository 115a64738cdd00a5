"""Small screens over another one: a question, a line to type, something to choose, something to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from ralph.views.tui.bar import StatusBar
from ralph.views.tui.lines import LinesView
from ralph.views.tui.rows import Column, RowList, TableRow

_BACK = Binding("escape", "leave", "Back")


class Confirm(ModalScreen[bool]):
    """Whether something is to be done that cannot simply be undone. Enter alone does nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "agree", "Yes"),
        Binding("n", "leave", "No"),
        _BACK,
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield StatusBar(id="question")
            yield LinesView(id="text")
            yield _Answers(id="answers")

    def on_mount(self) -> None:
        self.query_one("#question", StatusBar).set([(self._title, "bad")])
        self.query_one("#text", LinesView).set_text(self._text)
        self.query_one("#answers", StatusBar).set(
            [("y", "busy"), (" yes    ", ""), ("n", "busy"), (" no, leave it", "")]
        )

    def action_agree(self) -> None:
        self.dismiss(True)

    def action_leave(self) -> None:
        self.dismiss(False)


class _Answers(StatusBar):
    """Clickable: the left half of the words is yes."""

    async def on_click(self, event: object) -> None:
        x = getattr(event, "x", 99)
        await self.run_action("screen.agree" if x < 8 else "screen.leave")


class Ask(ModalScreen[str | None]):
    """A line of text; None if it was left."""

    BINDINGS: ClassVar[list[BindingType]] = [_BACK]

    def __init__(self, title: str, hint: str, value: str = "") -> None:
        super().__init__()
        self._title, self._hint, self._value = title, hint, value

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield StatusBar(id="question")
            line = Input(self._value, id="line")
            line.cursor_blink = False
            yield line
            yield StatusBar(id="answers")

    def on_mount(self) -> None:
        self.query_one("#question", StatusBar).set([(self._title, "bold")])
        self.query_one("#answers", StatusBar).set(
            [(self._hint, "dim")], [("enter", "busy"), (" send ", "dim")]
        )
        self.set_focus(self.query_one(Input))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def action_leave(self) -> None:
        self.dismiss(None)


class Pick(ModalScreen[Any]):
    """One of several; None if it was left."""

    BINDINGS: ClassVar[list[BindingType]] = [_BACK]

    def __init__(
        self, title: str, columns: Sequence[Column], rows: Sequence[TableRow], on: Any = None
    ) -> None:
        super().__init__()
        self._title, self._columns, self._rows, self._on = title, columns, rows, on

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog large"):
            yield StatusBar(id="question")
            yield RowList(self._columns, id="choices")

    def on_mount(self) -> None:
        self.query_one("#question", StatusBar).set(
            [(self._title, "bold")],
            [("enter", "busy"), (" take it  ", "dim"), ("esc", "busy"), (" leave ", "dim")],
        )
        choices = self.query_one(RowList)
        choices.set_rows(self._rows)
        choices.point_at(self._on)
        self.set_focus(choices)

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        self.dismiss(event.key)

    def action_leave(self) -> None:
        self.dismiss(None)


class Read(ModalScreen[None]):
    """A text to read."""

    BINDINGS: ClassVar[list[BindingType]] = [_BACK, Binding("q,enter", "leave", "Back", show=False)]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog large"):
            yield StatusBar(id="question")
            yield LinesView(id="text")

    def on_mount(self) -> None:
        self.query_one("#question", StatusBar).set(
            [(self._title, "bold")], [("esc", "busy"), (" back ", "dim")]
        )
        lines = self.query_one(LinesView)
        lines.set_text(self._text)
        self.set_focus(lines)

    def action_leave(self) -> None:
        self.dismiss(None)


HELP = """\x1b[1mEverywhere\x1b[0m
  ↑ ↓  j k          move            pgup pgdn  ^u ^d   by pages
  home end  g G     first, last     tab  shift+tab     next panel
  enter, click      open            esc                back
  t                 light or dark   ?                  this page
  q                 back; from the first screen: quit (runs go on)

\x1b[1mAll runs\x1b[0m
  /    filter the runs              P    whose tasks and stories
  b    tasks or stories             ← →  h l   from lane to lane

\x1b[1mA run\x1b[0m
  1    events, as the console shows them
  2    checks and their logs
  3    what was changed             [ ]  by the one before, after
                                    0    by all of them

\x1b[1mWhat can be done to a run, in the list and on its screen\x1b[0m
  p    pause it after the step in hand
  r    resume it; one that has stopped goes on in the background
  s    steer it: guidance for its next prompt
  x    cancel it: its agent is ended \x1b[2m(asks first)\x1b[0m
  w    rewind: the files as they were before an iteration \x1b[2m(asks first)\x1b[0m
  o    open its whole log in $PAGER

The dashboard only reads the store and writes such commands to it, as `ralph pause` and the others do. Any number
of them can be open; opening and closing one changes nothing.
"""
