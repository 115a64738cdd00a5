"""One run for the dashboard: what its agent is doing, and its events as console lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ralph.core.events import IterationStarted, Todo, TodoItem
from ralph.core.model import ClaimKind, RunAgent, Usage
from ralph.store.journal import JournalStep, steps
from ralph.store.runs import Run, Runs
from ralph.views.agent import ViewOptions
from ralph.views.console import Console
from ralph.views.status import Detail, detail, plan_in
from ralph.views.tui.feed import Feed, Past
from ralph.views.work import OneTask


class Panel(Struct, frozen=True):
    """The current facts about a run. `usage` and `elapsed` include the current step."""

    detail: Detail
    role: str = ""
    story: str = ""
    tool: str = ""
    todo: tuple[TodoItem, ...] = ()
    claim: str = ""
    """The text with which the agent says that it is done."""

    usage: Usage = Usage()
    elapsed: float = 0.0


class RunNews(Struct, frozen=True):
    """The current panel, and the text since the last call."""

    panel: Panel
    text: str


class _Kept:
    """Collects console output."""

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def write(self, text: str) -> None:
        self.pieces.append(text)

    def flush(self) -> None:
        pass


class Watch:
    """Follows one run; each call of `news` returns the news since the last one."""

    def __init__(self, feed: Feed, run: str, look: ViewOptions, now: Callable[[], float]) -> None:
        self.run = run
        self._feed = feed
        self._now = now
        self._look = look
        self._past: Past | None = None
        self._of: Runs | None = None
        self._journal: list[JournalStep] = []
        self._kept = _Kept()
        self._console = self._make_console(is_task=False)
        self._todo: tuple[TodoItem, ...] = ()

    def news(self) -> RunNews:
        with self._feed.reading() as runs:
            run = runs.find(self.run)
            self._follow(runs, run)
            self._read_on(runs)
            found = detail(runs, run, self._journal)
            in_hand = self._past.in_hand if self._past and found.doing else Usage()
            usage = runs.brief(run.id).usage + in_hand
        text = "".join(self._kept.pieces)
        self._kept.pieces.clear()
        return RunNews(self._panel(found, usage), text)

    def _follow(self, runs: Runs, run: Run) -> None:
        if self._past is None or self._of is not runs:
            if self._past is not None:  # the store was reopened: replay its end
                self._kept.write("\x1b[2m[... reloaded ...]\x1b[0m\n")
            self._console = self._make_console(is_task=run.task is not None)
            self._past, self._of, self._journal = self._feed.sources.past(runs, run.id), runs, []
        for event, at in self._past.news():
            if isinstance(event, Todo):
                self._todo = event.items
            elif isinstance(event, IterationStarted):
                self._todo = ()
            self._console(event, at)

    def _read_on(self, runs: Runs) -> None:
        """Read new journal rows, and read an unfinished step again."""
        while self._journal and self._journal[-1].is_in_hand:
            self._journal.pop()
        last = self._journal[-1].seq if self._journal else -1
        self._journal += steps(runs.db, runs.path, self.run, last, looks=False)

    def _make_console(self, *, is_task: bool) -> Console:
        kind = OneTask if is_task else Console
        return kind(sys.stdout, sys.stderr, self._look, lambda stream: self._kept)

    def _panel(self, found: Detail, usage: Usage) -> Panel:
        iteration, role, story = _about(self._journal)
        if found.doing and iteration > found.summary.iteration:
            found = replace(found, summary=replace(found.summary, iteration=iteration))
        last = self._journal[-1] if self._journal else None
        extra = self._now() - last.started if found.doing and last and last.is_in_hand else 0.0
        return Panel(
            detail=found,
            role=role or found.summary.role or "",
            story=story,
            tool=self._console.current if found.doing else "",
            todo=self._todo,
            claim=_claim(self._journal),
            usage=usage,
            elapsed=found.summary.elapsed + max(0.0, extra),
        )


def _claim(journal: Sequence[JournalStep]) -> str:
    plan = plan_in(journal)
    rule = plan.claim if plan else None
    return f"<{rule.tag}>{rule.text}</{rule.tag}>" if rule and rule.kind is ClaimKind.TAG else ""


def _about(journal: Sequence[JournalStep]) -> tuple[int, str, str]:
    """The last iteration started, its role and its story."""
    for entry in reversed(journal):
        if isinstance(entry.step, RunAgent):
            return entry.step.iteration, entry.step.role, entry.step.story
    return 0, "", ""
