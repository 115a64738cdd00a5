"""A screen that polls the store in a thread, so that no key waits for the disk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer

from ralph.errors import RalphError
from ralph.views.lines import one_line
from ralph.views.tui.bar import StatusBar
from ralph.views.tui.lines import LinesView
from ralph.views.tui.strips import Piece, wrapped

if TYPE_CHECKING:
    from ralph.views.tui.app import RalphApp


class Polled(Screen[None]):
    """`gather` runs in a thread and may raise `RalphError`; `show` gets its result."""

    every = 1.0
    """Seconds between polls."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide"), (160, "-vast")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-low"), (45, "-high")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "app.help", "Help", key_display="?"),
        Binding("t", "app.toggle_theme", "Light/dark", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._is_looking = False
        self._is_asked_again = False
        self._is_in_trouble = False
        self.looks = 0
        """Number of polls so far."""

    def compose(self) -> ComposeResult:
        yield StatusBar(id="title")
        yield LinesView(id="trouble")
        yield from self.body()
        yield Footer(compact=True, show_command_palette=False)

    def body(self) -> ComposeResult:
        raise NotImplementedError

    def gather(self) -> Any:
        raise NotImplementedError

    def show(self, found: Any) -> None:
        raise NotImplementedError

    def in_trouble(self) -> None:
        """Called when the store cannot be read; the screen keeps its contents."""

    @property
    def ralph(self) -> RalphApp:
        return cast("RalphApp", self.app)

    def on_mount(self) -> None:
        self.query_one("#trouble").display = False
        self.set_interval(self.every, self.look)
        self.look()

    def on_screen_resume(self) -> None:
        self.look()

    def look(self) -> None:
        """Poll the store now; polls do not overlap."""
        if self._is_looking:
            self._is_asked_again = True
        elif self.is_attached and (self.is_current or self.app.screen.is_modal):
            self._is_looking = True
            self.run_worker(self._look(), group="look", exit_on_error=True)

    async def _look(self) -> None:
        try:
            found = await asyncio.to_thread(self.gather)
        except RalphError as error:
            self._tell_trouble(error.text)
        else:
            if self._is_in_trouble:
                self._tell_trouble("")
            if self.query("#trouble"):
                self.show(found)
        finally:
            self._is_looking = False
            self.looks += 1
        if self._is_asked_again:
            self._is_asked_again = False
            self.call_later(self.look)

    def _tell_trouble(self, text: str) -> None:
        self._is_in_trouble = bool(text)
        for lines in self.query("#trouble").results(LinesView):  # none if the screen was closed meanwhile
            pieces: list[Piece] = [(one_line(text), "bad")]
            lines.display = bool(text)
            lines.styles.height = min(4, len(wrapped(pieces, max(20, self.size.width - 2))))
            lines.set_pieces([pieces])
            if text:
                self.in_trouble()
