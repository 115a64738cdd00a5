"""The agent panel: role, iteration, time, cost, current tool, todo list and check results."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from rich.cells import cell_len
from textual import events

from ralph.core.model import Cause, Ended, TodoStatus
from ralph.core.text import clean
from ralph.views.agent import duration, short
from ralph.views.lines import one_line
from ralph.views.status import CRASHED, Summary, guidance_words
from ralph.views.tui.colours import MARKS, STATES
from ralph.views.tui.lines import LinesView
from ralph.views.tui.strips import Piece, fitted, wrapped
from ralph.views.tui.watch import Panel

_TODO = {TodoStatus.DONE: ("✓", "done"), TodoStatus.ACTIVE: ("▸", "busy"), TodoStatus.PENDING: ("·", "dim")}
_MAX_TODO = 12
_NAMES = 10
"""Columns for the labels at the left."""

_MAX_LINES = 7


def short_path(path: str) -> str:
    """The path with ~ for the home directory."""
    home = os.path.expanduser("~")
    is_home = home not in ("", "/") and (path == home or path.startswith(home + "/"))
    return clean("~" + path[len(home) :] if is_home else path)


def where_of(s: Summary) -> str:
    """Where a run works: its directory, or its task, which says more than the task's worktree."""
    if s.task is None:
        return short_path(s.directory)
    return one_line(f"{s.task} {s.role} in {Path(s.project).parent.name}")


def state_of(s: Summary) -> str:
    """The outcome if there is one, otherwise the state."""
    return s.outcome or s.state


def state_words(s: Summary) -> Piece:
    """The state of a run with its mark."""
    word = state_of(s)
    tone = "wait" if s.cause == Cause.UNVERIFIED else STATES.get(word, "")
    return f"{MARKS.get(word, ' ')} {s.words}", tone


class AgentPanel(LinesView):
    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._panel: Panel | None = None
        self._now = 0.0

    def set_panel(self, panel: Panel, now: float) -> None:
        self._panel, self._now = panel, now
        self._show()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self._show()

    def _show(self) -> None:
        if self._panel is None or not self.size.width:
            return
        is_column = not self.screen.has_class("-narrow")
        lines = list(_column(self._panel, self._now, self.size.width - 2)) if is_column else []
        if not is_column:
            lines = list(_rows(self._panel, self._now, self.size.width - 2))[:_MAX_LINES]
        self.styles.height = "1fr" if is_column else len(lines)
        self.set_pieces(lines)


# ---- wide screens: a column at the left ----


def _column(panel: Panel, now: float, width: int) -> Iterator[list[Piece]]:
    s = panel.detail.summary
    yield [state_words(s)]
    for text in filter(None, [s.reason]):
        yield [(one_line(text), "dim")]
    yield []
    for name, pieces in _facts(panel, now):
        yield from _named(name, pieces, width)
    if panel.todo:
        yield []
        yield [_heading(*_todo_words(panel))]
        yield from _todo(panel)
    if found := list(_results(panel)):
        last = panel.detail.iterations[-1].iteration
        yield []
        yield [_heading("Checks", f"(iteration {last})" if last else "")]
        yield from found
    yield from _remarks(panel, width)


def _heading(title: str, more: str = "") -> Piece:
    return f"{title} {more}".rstrip(), "head"


def _facts(panel: Panel, now: float) -> Iterator[tuple[str, list[Piece]]]:
    detail, s = panel.detail, panel.detail.summary
    yield "run", [(s.id, "")]
    who = f"{s.task} " if s.task else ""
    yield "flow", [(f"{s.flow} {who}".strip(), "")]
    yield "agent", [(one_line(os.path.basename(detail.agent)), "")]
    if panel.role or panel.story:
        yield "role", [(one_line(f"{panel.role} {panel.story}".strip()), "accent")]
    yield "iteration", [_iteration(s), ("  ", ""), *_gauge(s)]
    yield "elapsed", [(duration(panel.elapsed), "")]
    yield from ((name, [(text, "")]) for name, text in _used(panel))
    yield from _now(panel, now)
    yield "directory", [(one_line(short_path(s.directory)), "")]
    yield "started", [(time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(s.created)), "")]


def _used(panel: Panel) -> Iterator[tuple[str, str]]:
    usage = panel.usage
    if usage.cost_usd:
        yield "cost", f"${usage.cost_usd:.2f}"
    if usage.tokens:
        read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        yield "tokens", f"{short(read)} in / {short(usage.output_tokens)} out"
    if usage.cache_read_tokens:
        yield "cached", short(usage.cache_read_tokens)


def _iteration(s: Summary) -> Piece:
    return f"{s.iteration}/{s.max_iterations}", "bold"


def _gauge(s: Summary, width: int = 10) -> list[Piece]:
    full = round(width * min(1.0, s.iteration / max(1, s.max_iterations)))
    return [("━" * full, "accent"), ("━" * (width - full), "line")]


def _now(panel: Panel, now: float) -> Iterator[tuple[str, list[Piece]]]:
    """The current activity, or the end of the current wait."""
    s = panel.detail.summary
    if s.waiting_until is not None and s.pid is not None:
        until = time.strftime("%H:%M:%S", time.localtime(s.waiting_until))
        yield "waiting", [(f"until {until} ({duration(max(0.0, s.waiting_until - now))} left)", "wait")]
    elif panel.tool:
        yield "tool", [(one_line(panel.tool), "busy")]
    elif panel.detail.doing:
        yield "now", [(panel.detail.doing, "")]


def _todo_words(panel: Panel) -> tuple[str, str]:
    done = sum(item.status is TodoStatus.DONE for item in panel.todo)
    return "Todo", f"{done}/{len(panel.todo)}"


def _todo(panel: Panel) -> Iterator[list[Piece]]:
    for item in panel.todo[:_MAX_TODO]:
        mark, name = _TODO[item.status]
        yield [(f" {mark} ", name), (one_line(item.text[:500]), "bold" if name == "busy" else "")]
    if len(panel.todo) > _MAX_TODO:
        yield [(f"   … {len(panel.todo) - _MAX_TODO} more", "dim")]


def _results(panel: Panel) -> Iterator[list[Piece]]:
    """Results of the last finished iteration: why the run stopped there, or why it started another."""
    last = panel.detail.iterations[-1] if panel.detail.iterations else None
    if last is None:
        return
    if last.ended in (Ended.OK, Ended.EMPTY):
        if panel.claim and not last.claim:
            yield [(" · ", "dim"), (one_line(panel.claim), ""), ("  not found", "dim")]
    elif last.ended not in (Ended.LIMIT, Ended.INTERRUPTED):
        yield [(" ✗ ", "bad"), ("agent", ""), (f"  {last.ended}", "dim")]
    for verdict in last.verdicts:
        mark, name = ("✓", "done") if verdict.green else ("✗", "bad")
        check, reason = one_line(verdict.check), one_line(verdict.reason)
        yield [(f" {mark} ", name), (check, ""), (f"  {reason}", "dim")]


def _remarks(panel: Panel, width: int) -> Iterator[list[Piece]]:
    detail, s = panel.detail, panel.detail.summary
    remarks = [("note", note) for note in s.notes]
    remarks += [("guidance", guidance_words(each, s)) for each in detail.steered]
    if s.state == CRASHED:
        remarks.append(("next", "press r to resume"))
    if remarks:
        yield []
    for name, text in remarks:
        yield from _named(name, [(one_line(text), "")], width)


def _named(name: str, pieces: list[Piece], width: int) -> Iterator[list[Piece]]:
    """A label at the left and its value at the right, wrapped over as many lines as needed."""
    for number, line in enumerate(wrapped(pieces, max(10, width - _NAMES))):
        yield [(fitted("" if number else name, _NAMES), "dim"), *line]


# ---- narrow screens: a few lines at the top ----


def _rows(panel: Panel, now: float, width: int) -> Iterator[list[Piece]]:
    """The same facts in as few lines as possible."""
    detail, s = panel.detail, panel.detail.summary
    about = [
        s.flow,
        one_line(os.path.basename(detail.agent)),
        f"{panel.role} {panel.story}".strip(),
        s.task or "",
    ]
    yield _one([state_words(s), (f"  {' · '.join(filter(None, about))}", "dim")], width)
    facts = [
        duration(panel.elapsed),
        *(text if name != "cached" else f"{text} cached" for name, text in _used(panel)),
    ]
    yield _one([_iteration(s), (" ", ""), *_gauge(s), ("  " + " · ".join(facts), "")], width)
    for name, pieces in _now(panel, now):
        yield _one([(f"{name}  ", "dim"), *pieces], width)
    if s.reason:
        yield _one([(one_line(s.reason), "dim")], width)
    if panel.todo:
        active = next((item.text for item in panel.todo if item.status is TodoStatus.ACTIVE), "")
        yield _one([(" ".join(_todo_words(panel)) + "  ", "dim"), (one_line(active[:500]), "bold")], width)
    if found := list(_results(panel)):
        last = detail.iterations[-1].iteration
        of = f"iteration {last} " if 0 < last < s.iteration else ""
        yield _one([(of, "dim"), *(piece for line in found for piece in line)], width)
    if s.state == CRASHED:
        yield [("The process is gone. Press r to resume.", "bad")]


def _one(pieces: list[Piece], width: int) -> list[Piece]:
    """The pieces cut to one line."""
    line: list[Piece] = []
    for text, name in pieces:
        room = width - sum(cell_len(each) for each, _ in line)
        if room > 0:
            line.append((fitted(text, room) if cell_len(text) > room else text, name))
    return line
