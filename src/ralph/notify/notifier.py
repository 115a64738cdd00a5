"""Turns the events of a run or of `ralph work` into notifications. `notify/sender.py` sends them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from ralph.core.events import CheckStarted, Event, Holding, IterationStarted, TaskMoved, UsageReported
from ralph.core.model import Hold, HoldWhy, Limits, Occasion, Outcome, Plan, Stop, Usage
from ralph.core.task_model import TaskStatus
from ralph.core.text import clean
from ralph.errors import RalphError
from ralph.notify import notices
from ralph.notify.notices import WORDING, Notification
from ralph.notify.sender import Sender
from ralph.store.codec import RunBrief
from ralph.store.runs import Runs
from ralph.views.agent import duration

QUIET_SECONDS = 1800.0
"""How long to stay quiet after a limit notification: parallel tasks usually reach the same limit."""

MAX_TEXT = 2000

Tell = Callable[[Event], None]


# ---- one run ----


class RunNotifier(Struct):
    """Passes a run's events on and sends notifications about them."""

    tell: Tell
    sender: Sender
    plan: Plan
    runs: Runs
    _brief: RunBrief | None = None
    _current: Usage = field(default_factory=Usage)

    def __call__(self, event: Event) -> None:
        self.tell(event)
        with suppress(RalphError):  # the loop reports a store that cannot be read
            self._hear(event)

    def _hear(self, event: Event) -> None:
        match event:
            case UsageReported():
                self._current = event.usage
                self._mind_budget()
            case IterationStarted() | CheckStarted():
                self._look()
            case Holding():
                self._look()
                if event.hold.why is HoldWhy.LIMIT:
                    self._limited(event.hold)

    def _look(self) -> None:
        """Read usage and limits from the store, which is up to date between two steps."""
        self._current = Usage()
        self._brief = self.runs.brief(self.plan.run)
        self._mind_budget()
        for problem in self.sender.problems():
            self.tell(problem)

    def _mind_budget(self) -> None:
        brief = self._brief
        if brief is None:
            return
        for near in notices.nearly_spent(brief.limits, brief.usage + self._current, brief.elapsed):
            self._send(Occasion.BUDGET, near.key, f"Used {near.words}.", brief)

    def _limited(self, hold: Hold) -> None:
        """Notify of a limit once, no matter how many retries fail."""
        key = f"limit-{self.runs.last_served(self.plan.run)}"
        self._send(Occasion.LIMIT, key, _until(hold), self._brief, until=hold.until)

    def ended(self, stop: Stop) -> None:
        """The run is about to end. Called again after a crash, this sends nothing new."""
        occasion = notices.occasion_of(stop.outcome)
        if occasion is not None:
            with suppress(RalphError):
                self._tell_end(stop, occasion)

    def _tell_end(self, stop: Stop, occasion: Occasion) -> None:
        brief = self.runs.brief(self.plan.run)
        key = notices.key_of_end(stop, self.runs.last_agent(self.plan.run))
        noted = "".join(f"\nNote: {note}" for note in stop.notes)
        self._send(occasion, key, f"{stop.headline}.{noted}", brief, stop)

    def _send(
        self,
        occasion: Occasion,
        key: str,
        text: str,
        brief: RunBrief | None,
        stop: Stop | None = None,
        until: float | None = None,
    ) -> None:
        plan = self.plan
        used = _used(brief) if brief else ""
        name = plan.task.name if plan.task else Path(plan.directory).name
        hint = f"Details: ralph report {plan.run}"
        self.sender.send(
            Notification(
                key=key,
                occasion=occasion,
                title=clean(f"{WORDING[occasion].words}: {name}"),
                text=clean(f"{text[:MAX_TEXT]}\n{used}\n{plan.directory}\n{hint}"),
                directory=plan.directory,
                run=plan.run,
                task=plan.task_id or (plan.task.name if plan.task else ""),
                flow=plan.flow,
                outcome=stop.outcome if stop else "",
                cause=stop.cause if stop else "",
                reason=clean(stop.reason[:MAX_TEXT]) if stop else "",
                iterations=brief.iteration if brief else 0,
                cost_usd=brief.usage.cost_usd if brief else 0.0,
                tokens=brief.usage.tokens if brief else 0,
                seconds=brief.elapsed if brief else 0.0,
                until=until,
            )
        )

    def finish(self, is_interrupted: Callable[[], bool]) -> None:
        """Wait until everything is sent or given up, then report what failed."""
        self.sender.finish(is_interrupted)
        for problem in self.sender.problems():
            self.tell(problem)


def _until(hold: Hold) -> str:
    when = time.strftime("at %Y-%m-%d %H:%M", time.localtime(hold.until)) if hold.until else "later"
    return f"Usage or rate limit reached. Ralph continues by itself {when}."


def _used(brief: RunBrief) -> str:
    cost = f", ${brief.usage.cost_usd:.2f}" if brief.usage.cost_usd else ""
    plural = "" if brief.iteration == 1 else "s"
    return f"{brief.iteration} iteration{plural}, {duration(brief.elapsed)}{cost}"


# ---- ralph work ----


class WorkNotifier:
    """Notifies of each task that is done or has failed, and of limits and budgets of `ralph work`."""

    def __init__(
        self, watch: Callable[[str, Event], None], sender: Sender, runs: Runs, project: str, directory: str
    ) -> None:
        self._watch = watch
        self._sender = sender
        self._runs = runs
        self._project = project
        self._directory = directory
        self._lock = threading.Lock()
        self._began = time.time()
        self._limited_at = -QUIET_SECONDS

    def hear(self, task: str, event: Event) -> None:
        """Called from the threads of all tasks."""
        self._watch(task, event)
        if isinstance(event, TaskMoved):
            with self._lock, suppress(RalphError):
                self._moved(event)
        elif isinstance(event, Holding) and event.hold.why is HoldWhy.LIMIT:
            with self._lock, suppress(RalphError):
                self._limited(task, event.hold)

    def _moved(self, event: TaskMoved) -> None:
        if event.status not in (TaskStatus.DONE, TaskStatus.FAILED):
            return
        occasion = Occasion.FINISHED if event.status == TaskStatus.DONE else Occasion.FAILED
        last = self._last_run(event.task)
        why = f"\n{event.reason}" if event.reason else ""
        text = f"{event.task} {event.title}: {event.status}.{why}"
        key = f"{occasion}-{event.task}-{last}"
        self._send(occasion, key, f"task {event.task}", text, task=event.task, run=last, reason=event.reason)

    def _limited(self, task: str, hold: Hold) -> None:
        now = time.monotonic()
        if now - self._limited_at < QUIET_SECONDS:
            return
        self._limited_at = now
        last = self._last_run(task)
        key = f"limit-{last}-{self._runs.last_served(last)}"
        self._send(Occasion.LIMIT, key, f"task {task}", _until(hold), task=task, run=last, until=hold.until)

    def _last_run(self, task: str) -> str:
        return next((run.id for run in self._runs.of_task(self._project, task)), "")

    def spent(self, limits: Limits, usage: Usage, elapsed: float) -> None:
        """Check what `ralph work` has used so far. Its budgets start from zero with each call."""
        for near in notices.nearly_spent(limits, usage, elapsed):
            key = f"{near.key}-{self._began}"
            self._send(Occasion.BUDGET, key, "", f"All tasks together used {near.words}.")

    def halted(self, exit_code: int, reason: str) -> None:
        """`ralph work` stops before all tasks are finished."""
        outcome = next((each for each in Outcome if each.exit_code == exit_code), Outcome.FATAL)
        occasion = notices.occasion_of(outcome)
        if occasion is not None:
            last = next((run.id for run in self._runs.all() if run.project == self._project), "")
            key = f"halt-{exit_code}-{last}"
            self._send(occasion, key, "", f"Stopped: {reason}\nTo continue: ralph work", reason=reason)

    def _send(
        self,
        occasion: Occasion,
        key: str,
        what: str,
        text: str,
        task: str = "",
        run: str = "",
        reason: str = "",
        until: float | None = None,
    ) -> None:
        name = Path(self._directory).name
        hint = f"\nDetails: ralph report {task}" if task else ""
        self._sender.send(
            Notification(
                key=key,
                occasion=occasion,
                title=clean(f"{WORDING[occasion].words}: {name}{what and f', {what}'}"),
                text=clean(f"{text[:MAX_TEXT]}\n{self._directory}{hint}"),
                directory=self._directory,
                run=run,
                task=task,
                flow="work",
                reason=clean(reason[:MAX_TEXT]),
                until=until,
            )
        )

    def finish(self, is_interrupted: Callable[[], bool]) -> None:
        self._sender.finish(is_interrupted)
        for problem in self._sender.problems():
            self._watch("", problem)
