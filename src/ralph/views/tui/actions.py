"""Actions on the selected run, shared by all screens that show one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from textual.app import SuspendNotSupported
from textual.binding import Binding, BindingType

from ralph.core.model import Cause
from ralph.core.text import clean
from ralph.errors import RalphError
from ralph.views.agent import count
from ralph.views.status import CRASHED, Summary
from ralph.views.tui.dialogs import Ask, Confirm, Pick, Read
from ralph.views.tui.rows import Column, TableRow
from ralph.views.tui.screen import Polled


class Actions(Protocol):
    """Each method returns a message about its result, or raises `RalphError`. All except `show_log` may be slow."""

    def pause(self, run: str) -> str: ...

    def resume(self, run: str, iterations: int | None) -> str: ...

    def steer(self, run: str, text: str) -> str: ...

    def cancel(self, run: str) -> str: ...

    def rewind(self, run: str, iteration: int) -> str: ...

    def diff(self, run: str, iteration: int | None) -> str:
        """Return the diff of one iteration, or of the whole run."""

    def show_log(self, run: str) -> None:
        """Show the full log in the user's pager while the dashboard is suspended."""


class RunKeys(Polled):
    """A screen with a selected run."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "pause", "Pause"),
        Binding("r", "resume", "Resume"),
        Binding("s", "steer", "Steer"),
        Binding("x", "cancel", "Cancel"),
        Binding("w", "rewind", "Rewind"),
        Binding("o", "open_log", "Log"),
    ]

    def chosen(self) -> Summary | None:
        """Return the selected run."""
        raise NotImplementedError

    def action_pause(self) -> None:
        if run := self._needed():
            self._do(lambda: self.ralph.actions.pause(run.id))

    async def action_steer(self) -> None:
        if run := self._needed():
            ask = Ask(f"Steer run {run.id}", "Added to the next prompt.")
            await self.app.push_screen(ask, lambda text: self._steer(run.id, text))

    def _steer(self, run: str, text: str | None) -> None:
        if text is not None:
            self._do(lambda: self.ralph.actions.steer(run, text))

    async def action_resume(self) -> None:
        run = self._needed()
        if run is None:
            return
        if run.cause == Cause.ITERATIONS:
            title = f"Run {run.id} has used all {count(run.max_iterations, 'iteration')}"
            ask = Ask(title, "New total iteration limit.", str(2 * run.max_iterations))
            await self.app.push_screen(ask, lambda text: self._resume(run.id, text))
        else:
            self._do(lambda: self.ralph.actions.resume(run.id, None))

    def _resume(self, run: str, text: str | None) -> None:
        if text is None:
            return
        if not text.strip().isdigit() or not int(text):
            self.tell_error(f"The iteration limit must be 1 or more, not {clean(text)!r}.")
        else:
            self._do(lambda: self.ralph.actions.resume(run, int(text)))

    async def action_cancel(self) -> None:
        run = self._needed()
        if run is None:
            return
        now = "Its process is gone; this only records the run as cancelled."
        if run.state != CRASHED:
            now = "The agent gets SIGTERM now and SIGKILL after 5 seconds. Unsaved work is lost."
        text = f"{now}\nTo continue later: ralph resume {run.id}"
        await self.app.push_screen(
            Confirm(f"Cancel run {run.id}?", text), lambda yes: self._cancel(run.id, yes)
        )

    def _cancel(self, run: str, yes: bool | None) -> None:
        if yes:
            self._do(lambda: self.ralph.actions.cancel(run))

    async def action_rewind(self) -> None:
        run = self._needed()
        if run is None:
            return
        if not run.iteration:
            self.tell_error("Nothing to rewind: the run has no iterations yet.")
            return
        rows = [
            TableRow(number, ((f"before iteration {number}", ""),)) for number in range(run.iteration, 0, -1)
        ]
        pick = Pick(f"Rewind run {run.id}", [Column("")], rows)
        await self.app.push_screen(pick, lambda number: self._confirm_rewind(run, number))

    def _confirm_rewind(self, run: Summary, number: int | None) -> None:
        if number is None:
            return
        text = (
            f"Restores all files in {clean(run.directory)} to their state before iteration {number}. HEAD and"
            " branches do not change. The current files are saved first, so you can undo this."
        )
        title = f"Rewind run {run.id} to before iteration {number}?"
        self.app.push_screen(Confirm(title, text), lambda yes: self._rewind(run.id, number, yes))

    def _rewind(self, run: str, number: int, yes: bool | None) -> None:
        if yes:
            said = self._shown_in_dialog(f"Rewind of run {run}")
            self._do(lambda: self.ralph.actions.rewind(run, number), said)

    def _shown_in_dialog(self, title: str) -> Callable[[str], Any]:
        return lambda words: self.app.push_screen(Read(title, clean(words)))

    def action_open_log(self) -> None:
        run = self._needed()
        if run is None:
            return
        try:
            with self.app.suspend():
                self.ralph.actions.show_log(run.id)
        except SuspendNotSupported:
            self.tell_error(f"No terminal for a pager here. Run: ralph logs {run.id}")
        except RalphError as error:
            self.tell_error(error.text)
        self.app.refresh()

    def _needed(self) -> Summary | None:
        run = self.chosen()
        if run is None:
            self.tell_error("No run selected.")
        return run

    def _do(self, action: Callable[[], str], said: Callable[[str], Any] | None = None) -> None:
        self.run_worker(self._done(action, said or self._tell), group="actions")

    async def _done(self, action: Callable[[], str], said: Callable[[str], Any]) -> None:
        try:
            words = await asyncio.to_thread(action)
        except RalphError as error:
            self.tell_error(error.text)
        else:
            said(words)
        self.look()

    def _tell(self, words: str) -> None:
        self.notify(clean(words), markup=False)

    def tell_error(self, words: str) -> None:
        self.notify(clean(words), severity="error", timeout=8, markup=False)
