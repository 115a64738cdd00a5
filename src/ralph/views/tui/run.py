"""One run: its agent, its events, its checks with their logs, and its diffs."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any, ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical

from ralph.core.text import clean
from ralph.errors import RalphError
from ralph.views.lines import one_line
from ralph.views.status import Detail, Summary
from ralph.views.tui.actions import RunKeys
from ralph.views.tui.bar import StatusBar, Tabs
from ralph.views.tui.lines import LinesView
from ralph.views.tui.panel import AgentPanel, where_of
from ralph.views.tui.rows import Column, RowList, TableRow
from ralph.views.tui.strips import fitted
from ralph.views.tui.watch import Panel, RunNews, Watch

EVENTS, CHECKS, DIFF = range(3)
TABS = ("Events", "Checks", "Diff")
VERDICTS = (Column("iter", 4, right=True), Column("", 8), Column("check"), Column("result"))
MAX_LOG = 1 << 18
"""Bytes shown of a check's log, counted from its end."""

_COLOURS = {"+": "32", "-": "31", "@": "36", "d": "1"}


class RunScreen(RunKeys):
    every = 0.5
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "tab(0)", "Events", show=False),
        Binding("2", "tab(1)", "Checks", show=False),
        Binding("3", "tab(2)", "Diff", show=False),
        Binding("left_square_bracket", "iteration(-1)", "Previous iteration", show=False),
        Binding("right_square_bracket", "iteration(1)", "Next iteration", show=False),
        Binding("0", "iteration(0)", "All iterations", show=False),
        Binding("escape,q", "app.pop_screen", "Back"),
    ]

    def __init__(self, run: str, watch: Watch) -> None:
        super().__init__()
        self._run, self._watch = run, watch
        self._panel: Panel | None = None
        self._on = EVENTS
        self._diffed: int | None = None
        self._shown_diff: tuple[Any, ...] = ()

    def body(self) -> ComposeResult:
        with Container(id="run"):
            yield AgentPanel(id="panel")
            with Vertical(id="views"):
                yield Tabs(TABS, id="tabs")
                yield LinesView(follows=True, id="events")
                with Vertical(id="checks"):
                    yield RowList(VERDICTS, id="verdicts", empty="No checks have run yet.")
                    yield StatusBar(id="log-title")
                    yield LinesView(id="log")
                yield LinesView(id="diff")

    def on_mount(self) -> None:
        self.query_one("#title", StatusBar).set([("Run ", "dim"), (self._run, "bold")])
        self._turn_on()
        super().on_mount()

    # ---- refreshing ----

    def gather(self) -> RunNews:
        return self._watch.news()

    def show(self, found: RunNews) -> None:
        self._panel = found.panel
        s = found.panel.detail.summary
        asked, where = one_line(found.panel.detail.prompt), where_of(s)
        room = max(24, self.size.width - cell_len(f" Run {self._run}    {where}  "))
        about = fitted(asked, room) if cell_len(asked) > room else asked
        title = [("Run ", "dim"), (self._run, "bold"), (f"  {about}", "")]
        self.query_one("#title", StatusBar).set(title, [(f"{where} ", "dim")])
        self.query_one(AgentPanel).set_panel(found.panel, self.ralph.now())
        self.query_one("#events", LinesView).add(found.text)
        self.query_one("#verdicts", RowList).set_rows(_verdict_rows(found.panel.detail))
        if self._on == DIFF:
            self._look_at_diff()

    def chosen(self) -> Summary | None:
        return self._panel.detail.summary if self._panel else None

    # ---- the views ----

    def action_tab(self, number: int) -> None:
        self._on = number
        self._turn_on()

    def _turn_on(self) -> None:
        for number, name in enumerate(("events", "checks", "diff")):
            self.query_one(f"#{name}").display = number == self._on
        self.set_focus(self.query_one(("#events", "#verdicts", "#diff")[self._on]))
        if self._on == DIFF:
            self._look_at_diff()
        self._show_tabs()

    def _show_tabs(self) -> None:
        which = f"iteration {self._diffed}" if self._diffed else "all iterations"
        self.query_one(Tabs).show(
            self._on, f"{which}   [ ] previous/next   0 all " if self._on == DIFF else ""
        )

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        self._show_log(event.key)

    def _show_log(self, key: tuple[int, str, str, str] | None) -> None:
        run = self.chosen()
        if key is None or run is None:
            return
        _, check, log, reason = key
        self.query_one("#log-title", StatusBar).set([(check, "bold"), (f"  {log or reason}", "dim")])
        text = (
            (tail_of(_log_path(run, log)) or "No output.")
            if log
            else f"This check has no log. Result: {clean(reason)}"
        )
        self.query_one("#log", LinesView).set_text(text)

    # ---- diff ----

    def action_iteration(self, by: int) -> None:
        last = self._panel.detail.summary.iteration if self._panel else 0
        if self._on != DIFF or not last:
            return
        self._diffed = max(1, min(last, (self._diffed or last + 1) + by)) if by else None
        self._show_tabs()
        self._look_at_diff()

    def _look_at_diff(self) -> None:
        """Load the diff again only if there is something new."""
        s = self.chosen()
        if s is None:
            return
        wanted = (self._diffed, s.iteration, s.outcome)
        if wanted != self._shown_diff:
            self._shown_diff = wanted
            self.run_worker(self._diff(self._diffed), group="diff", exclusive=True)

    async def _diff(self, iteration: int | None) -> None:
        lines = self.query_one("#diff", LinesView)
        lines.set_text("\x1b[2mLoading …\x1b[0m")
        try:
            text = await asyncio.to_thread(self.ralph.actions.diff, self._run, iteration)
        except RalphError as error:
            lines.set_text(clean(f"{error.message}\n{error.hint}"))
        else:
            lines.set_text("\n".join(map(_coloured, text.splitlines())) or "No changes.")


def _verdict_rows(detail: Detail) -> list[TableRow]:
    """One row per verdict, newest iteration first."""
    rows = []
    for iteration in reversed(detail.iterations):
        for verdict in iteration.verdicts:
            mark = ("✓ passed", "done") if verdict.green else ("✗ failed", "bad")
            key = (iteration.iteration, verdict.check, verdict.log, verdict.reason)
            cells = ((str(iteration.iteration), ""), mark, (verdict.check, ""), (verdict.reason, "dim"))
            rows.append(TableRow(key, cells))
    return rows


def _log_path(run: Summary, log: str) -> Path:
    """The current path of a check's log: logs of earlier runs have been moved to `old/`."""
    path = Path(run.directory, log)
    old = path.parent / "old" / run.id / path.name
    return old if old.exists() else path


def _coloured(line: str) -> str:
    code, text = _COLOURS.get(line[:1]), clean(line)
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def tail_of(path: Path, most: int = MAX_LOG) -> str:
    """Return the end of a text file; the path may turn out to be anything, such as a link or a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return f"{path}: {error.strerror}"
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return f"{path}: not a regular file"
        skipped = max(0, status.st_size - most)
        text = os.pread(descriptor, most, skipped).decode(errors="replace")
    finally:
        os.close(descriptor)
    return (f"[... {skipped:,} bytes not shown ...]\n" if skipped else "") + clean(text)
