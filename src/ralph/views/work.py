"""Console output of `ralph work`: one task with all its output, or a line for each of several."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

from msgspec import Struct

from ralph.core.events import (
    CheckEnded,
    Event,
    Holding,
    IterationStarted,
    Notice,
    RunEnded,
    RunStarted,
    TaskMoved,
    UsageReported,
)
from ralph.core.model import HoldWhy, Usage
from ralph.core.text import clean
from ralph.views.agent import ViewOptions, count, duration
from ralph.views.console import Console, end_colour, is_able, usage_words
from ralph.views.jsonl import JsonLines
from ralph.views.writer import Sink, ThreadedWriter

_COLOURS = {"done": "green", "failed": "red", "blocked": "red", "cancelled": "yellow"}


class OneTask(Console):
    """One task at a time, with the output of its agents as they work."""

    check_word = "Verification"

    def __init__(
        self, out: TextIO, err: TextIO, look: ViewOptions, sink: Callable[[TextIO], Sink] = ThreadedWriter
    ) -> None:
        super().__init__(out, err, look, sink)
        self._is_merging = False
        self._handlers |= {TaskMoved: self._moved}

    def hear(self, task: str, event: Event) -> None:
        self(event)

    def _moved(self, event: TaskMoved, at: float) -> None:
        self._is_merging = event.role == "merge"
        self._line(self._paint("bold", f"\n=== {moved(event)} ==="))

    def _run_started(self, event: RunStarted, at: float) -> None:
        self._status.started(event.used, event.elapsed)
        again = " resumed" if event.resumed else ""
        who = f"agent {clean(event.agent)}, max {count(event.iterations, 'iteration')}"
        self._line(f"Run {event.run}{again}: {'verifying the merged tree' if self._is_merging else who}")

    def _is_fed_back(self) -> bool:
        return super()._is_fed_back() and not self._is_merging

    def _run_ended(self, event: RunEnded, at: float) -> None:
        self._status.over()
        used = [count(event.iterations, "iteration"), duration(event.seconds), *usage_words(event.usage)]
        words = f"{clean(event.stop.headline)} ({', '.join(used)})"
        self._line(self._paint(end_colour(event.stop), words))
        for note in event.stop.notes:
            self._line(f"  note: {clean(note)}")


class _Line(Struct):
    """The current state of one task."""

    status: str = "todo"
    role: str = ""
    iteration: str = ""
    usage: Usage = Usage()
    in_hand: Usage = Usage()
    note: str = ""


class ManyTasks:
    """A line for each active task; agent output goes to the logs only.

    On a terminal, the lines stay at the bottom and are updated, and finished tasks move up. Otherwise every change
    is printed as a new line.
    """

    def __init__(self, err: TextIO, paint: Callable[[str, str], str]) -> None:
        self._err = err
        self._paint = paint
        self._is_live = is_able(err)
        self._lock = threading.Lock()
        self._tasks: dict[str, _Line] = {}
        self._shown: dict[str, str] = {}
        self._drawn = 0

    def hear(self, task: str, event: Event) -> None:
        handler: Callable[[_Line, Any], str] | None = _SAID.get(type(event))
        with self._lock:
            line = self._tasks.setdefault(task, _Line())
            words = handler(line, event) if handler else ""
            if words:
                self._write(task, line, words)

    def _write(self, task: str, line: _Line, words: str) -> None:
        cost = line.usage + line.in_hand
        money = f"  ${cost.cost_usd:.2f}" if cost.cost_usd else ""
        where = " ".join(filter(None, [line.role, line.iteration]))
        text = f"{task:<16} {line.status:<13} {where:<14}{money}  {clean(words)}".rstrip()
        painted = partial(self._paint, _COLOURS.get(line.status, ""))
        try:
            self._err.write(
                self._redrawn(task, line, text, painted) if self._is_live else painted(text) + "\n"
            )
            self._err.flush()
        except (OSError, ValueError):
            pass

    def _redrawn(self, task: str, line: _Line, text: str, painted: Callable[[str], str]) -> str:
        """The text that replaces the old lines with the new ones; a finished task is written permanently."""
        size = shutil.get_terminal_size()
        back = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        is_over = not task or line.status in _COLOURS
        for_good = f"{painted(text)}\n" if is_over else ""
        self._shown.pop(task, None)
        if not is_over:
            self._shown[task] = painted(text[: size.columns - 1])
        lines = [self._shown[each] for each in sorted(self._shown)][-max(1, size.lines - 2) :]
        self._drawn = len(lines)
        return back + for_good + "".join(f"{each}\n" for each in lines)

    def flush(self) -> None:
        pass


def _said_moved(line: _Line, event: TaskMoved) -> str:
    line.status, line.role, line.iteration = event.status, event.role, ""
    return event.reason.partition("\n")[0] or event.title


def _said_iteration(line: _Line, event: IterationStarted) -> str:
    line.iteration = f"{event.iteration}/{event.of}"
    return "started"


def _said_check(line: _Line, event: CheckEnded) -> str:
    verdict = event.verdict
    passed = "passed" if verdict.cause is None else "not judged"
    return f"{verdict.check}: {passed if verdict.green else 'FAILED'} ({verdict.reason})"


def _said_used(line: _Line, event: UsageReported) -> str:
    line.in_hand = event.usage
    return ""


def _said_ended(line: _Line, event: RunEnded) -> str:
    line.usage, line.in_hand = line.usage + event.usage, Usage()
    return "; ".join([event.stop.headline, *event.stop.notes])


def _said_holding(line: _Line, event: Holding) -> str:
    return (
        "waiting for the usage limit to reset"
        if event.hold.why is HoldWhy.LIMIT
        else f"waiting ({event.hold.why})"
    )


def _said_notice(line: _Line, event: Notice) -> str:
    return "" if event.detail else event.text


_SAID: dict[type[Event], Callable[[_Line, Any], str]] = {
    TaskMoved: _said_moved,
    IterationStarted: _said_iteration,
    CheckEnded: _said_check,
    UsageReported: _said_used,
    RunEnded: _said_ended,
    Holding: _said_holding,
    Notice: _said_notice,
}


def moved(event: TaskMoved) -> str:
    """A task's new status in one line."""
    role = f" ({event.role})" if event.role and event.status not in _COLOURS else ""
    why = f": {event.reason.partition(chr(10))[0]}" if event.reason else ""
    return clean(f"{event.task} {event.title} → {event.status}{role}{why}")


class WorkTaskJson:
    """Writes one JSON object per event, with the id of its task."""

    def __init__(self, lines: JsonLines) -> None:
        self._lines = lines
        self._lock = threading.Lock()

    def hear(self, task: str, event: Event) -> None:
        with self._lock:
            self._lines(event, task=task)

    def flush(self) -> None:
        pass
