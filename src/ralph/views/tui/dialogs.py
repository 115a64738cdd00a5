"""Dialogs: confirm an action, enter a line, pick a row, read a text."""

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
    """Asks before an action that is hard to undo. Enter alone does nothing."""

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
            [("y", "busy"), (" yes    ", ""), ("n", "busy"), (" no", "")]
        )

    def action_agree(self) -> None:
        self.dismiss(True)

    def action_leave(self) -> None:
        self.dismiss(False)


class _Answers(StatusBar):
    """Clickable: yes at the left, no everywhere else."""

    async def on_click(self, event: object) -> None:
        x = getattr(event, "x", 99)
        await self.run_action("screen.agree" if x < 8 else "screen.leave")


class Ask(ModalScreen[str | None]):
    """Asks for a line of text; returns None if cancelled."""

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
            [(self._hint, "dim")],
            [("enter", "busy"), (" submit  ", "dim"), ("esc", "busy"), (" cancel ", "dim")],
        )
        self.set_focus(self.query_one(Input))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def action_leave(self) -> None:
        self.dismiss(None)


class Pick(ModalScreen[Any]):
    """Picks one of several rows; returns None if cancelled."""

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
            [("enter", "busy"), (" select  ", "dim"), ("esc", "busy"), (" cancel ", "dim")],
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
    """Shows a text."""

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
  ↑ ↓  j k          move            pgup pgdn  ^u ^d   by page
  home end  g G     first, last     tab  shift+tab     switch panel
  enter, click      open            esc                back
  t                 light or dark   ?                  this help
  q                 back; on the first screen: quit (runs continue)

\x1b[1mAll runs\x1b[0m
  /    filter runs                  P    choose project
  b    tasks or stories             ← →  h l   previous, next lane

\x1b[1mA run\x1b[0m
  1    events, as on the console
  2    checks and their logs
  3    diff                         [ ]  previous, next iteration
                                    0    all iterations

\x1b[1mActions on a run, in the list and on its screen\x1b[0m
  p    pause after the current step
  r    resume; a stopped run continues in the background
  s    steer: add guidance to the next prompt
  x    cancel: stop the agent \x1b[2m(asks first)\x1b[0m
  w    rewind: restore the files from before an iteration \x1b[2m(asks first)\x1b[0m
  o    open the full log in $PAGER

The dashboard only reads the store and writes commands to it, as
`ralph pause` does. You can open any number of dashboards; opening
or closing one does not affect any run.
"""
