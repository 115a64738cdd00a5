"""The first screen: all runs, and a project's swimlanes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from ralph.views import stories
from ralph.views.agent import duration
from ralph.views.status import CRASHED, PAUSED, RUNNING, WAITING, Summary
from ralph.views.tui.actions import RunKeys
from ralph.views.tui.bar import StatusBar
from ralph.views.tui.board import BoardView
from ralph.views.tui.colours import STATES
from ralph.views.tui.dialogs import Pick, Read
from ralph.views.tui.feed import TASK_LANES, Boards, Overview, Project
from ralph.views.tui.panel import short_path, state_words, where_of
from ralph.views.tui.rows import Cells, Column, RowList, TableRow
from ralph.views.tui.strips import Piece
from ralph.views.tui.task import story_words

NO_RUNS = 'No runs yet. Start one with: ralph run -p "…", or try: ralph demo'

COLUMNS = (
    Column("run", 24),
    Column("state", 23),
    Column("iter", 6, right=True),
    Column("time", 6, right=True),
    Column("cost", 8, right=True, since=84),
    Column("tokens", 11, right=True, since=140),
    Column("started", 10, right=True, since=100),
    Column("flow", 9, since=120),
    Column("location"),
    Column("prompt", since=150),
)
FOLLOW = "follow"
"""Chosen instead of a project: follow the run under the cursor."""


class HomeScreen(RunKeys):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("P", "project", "Board"),
        Binding("b", "board", "Tasks/stories", show=False),
        Binding("q", "app.quit", "Quit"),
        Binding("escape", "unfilter", "Back", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._overview = Overview()
        self._boards = Boards()
        self._wanted = ""
        self._prefers_stories = False
        self._by_id: dict[str, Summary] = {}
        self._pointed = ""
        """The run under the cursor, for the worker thread, which must not query widgets."""

    def body(self) -> ComposeResult:
        words = Input(placeholder="filter runs by words", id="filter", compact=True)
        words.cursor_blink = False
        yield words
        yield RowList(COLUMNS, id="runs", empty="Loading …")
        with Vertical(id="boards"):
            yield StatusBar(id="board-title")
            yield BoardView(TASK_LANES, id="tasks")
            yield BoardView(tuple(stories.STATES), id="stories")

    def on_mount(self) -> None:
        self.query_one("#filter").display = False
        self.set_focus(self.query_one("#runs"))
        self._show_boards()
        super().on_mount()

    # ---- refreshing ----

    def gather(self) -> tuple[Overview, Boards]:
        overview = self.ralph.feed.overview()
        project = self._project(overview)
        return overview, self.ralph.feed.boards(project) if project else Boards()

    def in_trouble(self) -> None:
        self.query_one("#runs", RowList).set_empty("")

    def show(self, found: tuple[Overview, Boards]) -> None:
        overview, boards = found
        runs = self.query_one("#runs", RowList)
        runs.set_empty(NO_RUNS)
        if overview is not self._overview:
            self._overview = overview
            self._by_id = {s.id: s for _, s in overview.runs}
            self._show_runs()
        runs.freshen()  # running times have changed
        self._boards = boards
        self._show_boards()

    def _show_runs(self) -> None:
        words = self.query_one("#filter", Input).value.casefold().split()
        rows = [
            TableRow(s.id, partial(self._cells, depth, s))
            for depth, s in self._overview.runs
            if not words or all(word in self._searched(s) for word in words)
        ]
        self.query_one("#runs", RowList).set_rows(rows)
        states = Counter(s.state for _, s in self._overview.runs)
        self.query_one("#title", StatusBar).set(
            list(_counted(states)), [(short_path(str(self.ralph.feed.home.path)), "dim")]
        )

    def _cells(self, depth: int, s: Summary) -> Cells:
        now = self.ralph.now()
        in_hand = max(0.0, now - self._overview.since.get(s.id, now))
        return cells(depth, s, now, in_hand, self._overview.asked.get(s.id, ""))

    def _searched(self, s: Summary) -> str:
        asked = self._overview.asked.get(s.id)
        parts = (s.id, s.state, s.outcome, s.cause, s.flow, s.directory, s.task, s.role, asked)
        return " ".join(part for part in parts if part).casefold()

    def _project(self, overview: Overview) -> Project | None:
        """The project of the board: the chosen one, otherwise that of the run under the cursor, otherwise the first."""
        id = self._wanted
        if not id:  # nothing chosen yet: the current directory's project, if it has tasks
            known = overview.project_of(self.ralph.project)
            id = known.id if known and known.tasks else FOLLOW
        if id == FOLLOW:
            run = self._by_id.get(self._pointed)
            id = run.project if run else self.ralph.project
        return overview.project_of(id) or next(iter(overview.projects), None)

    def _show_boards(self) -> None:
        boards, project = self._boards, self._project(self._overview)
        tasks, listed = self.query_one("#tasks", BoardView), self.query_one("#stories", BoardView)
        tasks.set_cards(boards.tasks)
        listed.set_cards(boards.stories)
        has = bool(boards.tasks), bool(boards.stories)
        is_roomy = self.has_class("-high")
        listed.display = has[1] and (is_roomy or not has[0] or self._prefers_stories)
        tasks.display = has[0] and (is_roomy or not listed.display)
        title: list[Piece] = [("Project ", "head"), (project.name if project else "–", "bold")]
        for what, number, shown in (
            ("tasks", len(boards.tasks), tasks),
            ("stories", len(boards.stories), listed),
        ):
            if number:
                title += [("   ", ""), (f"{number} {what}", "busy" if shown.display else "dim")]
        if boards.problem:
            title += [("   ", ""), (boards.problem, "bad")]
        elif not any(has):
            title.append(("   no tasks or stories", "dim"))
        more = [("b", "busy"), (" switch ", "dim")] if all(has) and not is_roomy else []
        self.query_one("#board-title", StatusBar).set(title, more)
        wanted = 1 + sum(board.lines_needed + is_roomy for board in (tasks, listed) if board.display)
        self.query_one("#boards").styles.height = min(wanted, max(6, self.size.height * 5 // 9))

    # ---- selection ----

    def chosen(self) -> Summary | None:
        return self._by_id.get(self.query_one("#runs", RowList).key)

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        self._pointed = event.key or ""
        if self._wanted in ("", FOLLOW):
            self.look()

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        self.ralph.open_run(event.key)

    def on_board_view_chosen(self, event: BoardView.Chosen) -> None:
        project = self._project(self._overview)
        if project is None:
            return
        if event.board.id == "tasks":
            self.ralph.open_task(project.id, event.id)
        elif story := self.ralph.feed.story(event.id):
            self.app.push_screen(Read(f"Story {event.id}", story_words(story)))

    # ---- keys ----

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.display = True
        self.set_focus(box)

    def action_unfilter(self) -> None:
        box = self.query_one("#filter", Input)
        box.value, box.display = "", False
        self.set_focus(self.query_one("#runs"))

    def on_input_changed(self, event: Input.Changed) -> None:
        self._show_runs()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.query_one("#filter").display = bool(event.value)
        self.set_focus(self.query_one("#runs"))

    def action_board(self) -> None:
        self._prefers_stories = not self._prefers_stories
        self._show_boards()

    async def action_project(self) -> None:
        columns = (
            Column("project", 24),
            Column("runs", 5, right=True),
            Column("tasks", 5, right=True),
            Column("directory"),
        )
        follow = ("follow the cursor", "accent"), ("", ""), ("", ""), ("project of the selected run", "dim")
        rows = [TableRow(FOLLOW, follow)]
        for project in self._overview.projects:
            counts = [(str(number or ""), "") for number in (project.runs, project.tasks)]
            rows.append(
                TableRow(
                    project.id, ((project.name, "bold"), *counts, (short_path(project.directory), "dim"))
                )
            )
        pick = Pick("Choose project", columns, rows, self._wanted)
        await self.app.push_screen(pick, self._take_project)

    def _take_project(self, id: str | None) -> None:
        if id is not None:
            self._wanted = id
            self.look()


def cells(depth: int, s: Summary, now: float, in_hand: float, asked: str) -> Cells:
    is_live = s.pid is not None
    return (
        ("  " * depth + s.id, "" if is_live else "dim"),
        _state(s),
        (f"{s.iteration}/{s.max_iterations}", ""),
        (duration(s.elapsed + in_hand), "" if is_live else "dim"),
        (f"${s.cost:.2f}" if s.cost else "-", "dim"),
        (f"{s.tokens:,}" if s.tokens else "-", "dim"),
        (_ago(now - s.created), "dim"),
        (s.flow, "dim"),
        (where_of(s), "" if is_live else "dim"),
        (asked, "" if is_live else "dim"),
    )


def _ago(seconds: float) -> str:
    """To the minute: a list where every line ticks is hard to read and slow to draw."""
    minutes = int(seconds) // 60
    if minutes < 1:
        return "just now"
    hours, days = minutes // 60, minutes // (24 * 60)
    return f"{days}d ago" if days > 1 else f"{hours}h{minutes % 60}m ago" if hours else f"{minutes}m ago"


def _state(s: Summary) -> Piece:
    """The state of a run, with the end of its wait if it is waiting."""
    words, name = state_words(s)
    if s.state == WAITING and s.waiting_until is not None:
        words += time.strftime(" till %H:%M", time.localtime(s.waiting_until))
    return words, name


def _counted(states: Counter[str]) -> Iterator[Piece]:
    yield ("ralph", "busy")
    for state in (RUNNING, WAITING, PAUSED, CRASHED):
        if states[state]:
            yield (f"   {states[state]} {state}", STATES[state])
    yield (f"   {sum(states.values())} run{'' if sum(states.values()) == 1 else 's'}", "dim")
