"""The dashboard: screens that share one feed. Closing it does not affect any run."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import LineFilter, NoColor
from textual.widgets import Input

from ralph.views.agent import ViewOptions
from ralph.views.tui.actions import Actions
from ralph.views.tui.colours import DARK, LIGHT, THEMES
from ralph.views.tui.dialogs import HELP, Read
from ralph.views.tui.feed import Feed
from ralph.views.tui.home import HomeScreen
from ralph.views.tui.run import RunScreen
from ralph.views.tui.task import TaskScreen
from ralph.views.tui.watch import Watch

TERMINAL = 0


class RalphApp(App[None]):
    """`first` is the run, or the project and task, to open first; `project` is the current directory's project."""

    CSS_PATH = Path(__file__).parent / "style.tcss"
    TITLE = "ralph"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q,ctrl+c", "quit", show=False, priority=True)]

    def __init__(
        self,
        feed: Feed,
        actions: Actions,
        look: ViewOptions,
        now: Callable[[], float],
        *,
        theme: str = "dark",
        project: str = "",
        first: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.feed = feed
        self.actions = actions
        self.now = now
        self.project = project
        self._look = look
        self._first = first
        for each in (DARK, LIGHT):
            self.register_theme(each)
        self.theme = THEMES[theme].name

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Drop all colours with NO_COLOR, including grey."""
        return [NoColor()] if self.no_color else super().get_line_filters()

    def on_mount(self) -> None:
        if os.isatty(TERMINAL):
            self.set_interval(1.0, self._end_with_terminal)
        self.push_screen(HomeScreen())
        if len(self._first) == 1:
            self.open_run(*self._first)
        elif self._first:
            self.open_task(*self._first)

    def _end_with_terminal(self) -> None:
        """Exit when the terminal is gone: SIGHUP may be ignored or go to a pager, and Textual keeps reading."""
        terminal = select.poll()
        terminal.register(TERMINAL, 0)
        if terminal.poll(0):
            self.exit()

    async def on_event(self, event: events.Event) -> None:
        """Finish the action of a key before handling the next one, so that text typed or pasted right after the
        key that opens a field goes into the field.
        """
        if isinstance(event, events.Key) and not (event.is_forwarded or isinstance(self.focused, Input)):
            bound = self.screen.active_bindings.get(event.key)
            if bound is not None and await self.run_action(bound.binding.action, bound.node):
                return
        await super().on_event(event)

    def on_unmount(self) -> None:
        self.feed.close()

    def open_run(self, run: str) -> None:
        self.push_screen(RunScreen(run, Watch(self.feed, run, self._look, self.now)))

    def open_task(self, project: str, task: str) -> None:
        self.push_screen(TaskScreen(project, task))

    async def action_help(self) -> None:
        await self.push_screen(Read("Keys", HELP))

    def action_toggle_theme(self) -> None:
        self.theme = DARK.name if self.theme == LIGHT.name else LIGHT.name
