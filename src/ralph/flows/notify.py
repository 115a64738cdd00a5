"""Notifications: what a run or a work tells its people, sent beside the loop and never in its way.

A message is marked as told, queued, and sent by a thread that has a warden of its own: a webhook that hangs is ended
after a while, one that fails is a notice, and the loop goes on meanwhile.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ralph.core import notices
from ralph.core.events import (
    CheckStarted,
    Event,
    Holding,
    IterationStarted,
    Notice,
    TaskMoved,
    Used,
)
from ralph.core.model import Ended, Hold, HoldWhy, Limits, Outcome, Plan, Stop, Usage
from ralph.core.notices import Message, Occasion, Ways
from ralph.core.tasks import TaskStatus
from ralph.core.text import clean
from ralph.errors import RalphError
from ralph.process.client import Wakeup, Warden, child_environment, output_of
from ralph.process.warden import LIVE_GRACE
from ralph.redact import secrets_of
from ralph.settings import NotifySettings
from ralph.store.codec import Brief
from ralph.store.files import opened_directory
from ralph.store.runs import Runs
from ralph.store.told import Told
from ralph.views.agent import duration

MOST_SECONDS = 10.0
"""A message that is not through after so long is given up."""

LAST_SECONDS = 15.0
"""So long a run that is over waits for its last messages."""

QUIET_SECONDS = 1800.0
"""Tasks that meet the same limit at about the same time tell of it once."""

MOST_TEXT = 2000

_TYPES = {
    Occasion.FINISHED: "success",
    Occasion.FAILED: "failure",
    Occasion.WAITING: "warning",
    Occasion.LIMIT: "warning",
    Occasion.BUDGET: "warning",
}
_WORDS = {
    Occasion.FINISHED: "finished",
    Occasion.FAILED: "is not done",
    Occasion.WAITING: "waits for you",
    Occasion.LIMIT: "waits for a limit",
    Occasion.BUDGET: "has used 80 % of a budget",
}

Tell = Callable[[Event], None]


def ways_of(settings: NotifySettings) -> Ways:
    return Ways(settings.urls, settings.command, settings.on)


# ---- sending ----


def deliver(ways: Ways, message: Message, warden: Warden, is_interrupted: Callable[[], bool]) -> list[str]:
    """Send a message in every way there is, in the time there is; returns what went wrong."""
    data = json.dumps(asdict(message) | {"event": message.occasion}, ensure_ascii=False)
    mail = {
        "urls": ways.urls,
        "title": message.title,
        "body": message.text,
        "type": _TYPES[message.occasion],
    }
    orders: list[tuple[str, list[str], str, dict[str, str]]] = []
    if ways.urls:
        argv = [sys.executable, "-I", "-m", "ralph.courier"]
        orders.append(("notify.urls", argv, json.dumps(mail), {}))
    if ways.command:
        orders.append(("notify.command", ["sh", "-c", ways.command], data, _variables(message)))
    problems = []
    for name, argv, stdin, variables in orders:
        if problem := _run(argv, stdin, variables, message.directory, warden, is_interrupted):
            problems.append(secrets_of(ways.secrets).text(f"{name}: {problem}"))
    return problems


def _variables(message: Message) -> dict[str, str]:
    return {
        "RALPH_EVENT": str(message.occasion),
        "RALPH_RUN_ID": message.run,
        "RALPH_TASK_ID": message.task,
        "RALPH_TITLE": message.title,
        "RALPH_MESSAGE": message.text,
        "RALPH_DIRECTORY": message.directory,
        "RALPH_OUTCOME": message.outcome,
        "RALPH_CAUSE": message.cause,
    }


def _run(
    argv: list[str],
    stdin: str,
    variables: dict[str, str],
    directory: str,
    warden: Warden,
    is_interrupted: Callable[[], bool],
) -> str:
    def watch(seconds: float, idle: float) -> Ended | None:
        if is_interrupted():
            return Ended.INTERRUPTED
        return Ended.TIMEOUT if seconds >= MOST_SECONDS else None

    where = directory if os.path.isdir(directory) else "/"
    with opened_directory(where) as opened:
        environment = child_environment(variables)
        done = output_of(warden, argv, opened, environment, stdin.encode(errors="replace"), watch, 1 << 16)
    if done.problem:
        return done.problem
    if done.exit.ended is Ended.TIMEOUT:
        return f"no answer within {MOST_SECONDS:g} s"
    if done.exit.ended is Ended.INTERRUPTED:
        return "interrupted"
    if done.exit.code == 0 or done.is_cut:
        return ""
    said = (done.out or done.err).decode(errors="replace").strip()
    code = f"exit code {done.exit.code}" if done.exit.code is not None else "it was killed"
    return clean(said.splitlines()[-1][:300] if said else code)


class Sender:
    """Sends messages one after the other, in a thread that lives while there are some."""

    def __init__(self, ways: Ways, told: Told) -> None:
        self.ways = ways
        self._told = told
        self._waiting: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_interrupted: Callable[[], bool] = lambda: False
        self._problems: list[str] = []
        self._known: set[str] = set()

    def send(self, message: Message) -> None:
        """If it is wanted, and nobody was told of it before."""
        if self.ways.is_empty or message.occasion not in self.ways.on or not self._told.is_first(message.key):
            return
        with self._lock:
            self._waiting.put(message)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="ralph notify", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        try:
            with Warden(Wakeup()) as warden:
                while (message := self._next()) is not None:
                    self._complain(deliver(self.ways, message, warden, lambda: self._is_interrupted()))
        except (RalphError, OSError) as error:
            self._complain([str(error)])
            with self._lock:
                self._thread = None

    def _next(self) -> Message | None:
        """The next message; without one the thread ends, and another begins with the next."""
        with self._lock:
            if self._waiting.empty():
                self._thread = None
                return None
            return self._waiting.get()

    def _complain(self, problems: list[str]) -> None:
        with self._lock:
            self._problems += [problem for problem in problems if problem not in self._known]
            self._known.update(problems)

    def problems(self) -> Iterator[Notice]:
        """What went wrong since the last time; each thing once."""
        with self._lock:
            found, self._problems = self._problems, []
        for problem in found:
            yield Notice(f"A notification could not be sent: {problem}")

    def finish(self, is_interrupted: Callable[[], bool]) -> None:
        """Wait until all is sent or given up, which is soon."""
        deadline = time.monotonic() + LAST_SECONDS
        self._is_interrupted = lambda: is_interrupted() or time.monotonic() > deadline
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(LAST_SECONDS + LIVE_GRACE + 2)


# ---- one run ----


@dataclass(slots=True)
class RunNotifier:
    """Hears what a run tells, passes it on, and notifies."""

    tell: Tell
    sender: Sender
    plan: Plan
    runs: Runs
    _brief: Brief | None = None
    _in_hand: Usage = field(default_factory=Usage)

    def __call__(self, event: Event) -> None:
        self.tell(event)
        with suppress(RalphError):  # a store that cannot be read is for the loop to complain of
            self._hear(event)

    def _hear(self, event: Event) -> None:
        match event:
            case Used():
                self._in_hand = event.usage
                self._mind_budget()
            case IterationStarted() | CheckStarted():
                self._look()
            case Holding():
                self._look()
                if event.hold.why is HoldWhy.LIMIT:
                    self._limited(event.hold)

    def _look(self) -> None:
        """Between two steps the store says what was used, and how much may be."""
        self._in_hand = Usage()
        self._brief = self.runs.brief(self.plan.run)
        self._mind_budget()
        for problem in self.sender.problems():
            self.tell(problem)

    def _mind_budget(self) -> None:
        brief = self._brief
        if brief is None:
            return
        for near in notices.nearly_spent(brief.limits, brief.usage + self._in_hand, brief.elapsed):
            self._send(Occasion.BUDGET, near.key, f"{near.words} are used.", brief)

    def _limited(self, hold: Hold) -> None:
        """Told once, however often it is tried again in vain."""
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(hold.until)) if hold.until else "later"
        key = f"limit-{self.runs.last_served(self.plan.run)}"
        text = f"A usage or rate limit was reached. It goes on by itself at {when}."
        self._send(Occasion.LIMIT, key, text, self._brief, until=hold.until)

    def ended(self, stop: Stop) -> None:
        """The run is about to end; done again after a crash, nobody is told again."""
        occasion = notices.occasion_of(stop.outcome)
        if occasion is not None:
            with suppress(RalphError):
                self._tell_end(stop, occasion)

    def _tell_end(self, stop: Stop, occasion: Occasion) -> None:
        brief = self.runs.brief(self.plan.run)
        key = notices.key_of_end(stop, self.runs.last_agent(self.plan.run))
        noted = "".join(f"\nNote: {note}" for note in stop.notes)
        self._send(occasion, key, f"{stop.outcome}: {stop.reason}.{noted}", brief, stop)

    def _send(
        self,
        occasion: Occasion,
        key: str,
        text: str,
        brief: Brief | None,
        stop: Stop | None = None,
        until: float | None = None,
    ) -> None:
        plan = self.plan
        used = _used(brief) if brief else ""
        name = plan.task.name if plan.task else Path(plan.directory).name
        hint = f"ralph report {plan.run}"
        self.sender.send(
            Message(
                key=key,
                occasion=occasion,
                title=clean(f"Ralph: {name} {_WORDS[occasion]}"),
                text=clean(f"{text[:MOST_TEXT]}\n{used}\n{plan.directory}\n{hint}"),
                directory=plan.directory,
                run=plan.run,
                task=plan.task_id or (plan.task.name if plan.task else ""),
                flow=plan.flow,
                outcome=stop.outcome if stop else "",
                cause=stop.cause if stop else "",
                reason=clean(stop.reason[:MOST_TEXT]) if stop else "",
                iterations=brief.iteration if brief else 0,
                cost_usd=brief.usage.cost_usd if brief else 0.0,
                tokens=brief.usage.tokens if brief else 0,
                seconds=brief.elapsed if brief else 0.0,
                until=until,
            )
        )

    def finish(self, is_interrupted: Callable[[], bool]) -> None:
        """All is sent or given up, and what went wrong is told."""
        self.sender.finish(is_interrupted)
        for problem in self.sender.problems():
            self.tell(problem)


def _used(brief: Brief) -> str:
    cost = f", ${brief.usage.cost_usd:.2f}" if brief.usage.cost_usd else ""
    plural = "" if brief.iteration == 1 else "s"
    return f"{brief.iteration} iteration{plural}, {duration(brief.elapsed)}{cost}"


# ---- a whole work ----


class WorkNotifier:
    """Hears what the tasks of a work tell, and notifies: of each task that is done or has failed, of limits and budgets."""

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
        last = next((run.id for run in self._runs.of_task(self._project, event.task)), "")
        why = f"\n{event.reason}" if event.reason else ""
        text = f"{event.task} {event.title}: {event.status}.{why}"
        key = f"{occasion}-{event.task}-{last}"
        self._send(occasion, key, f"task {event.task}", text, task=event.task, run=last, reason=event.reason)

    def _limited(self, task: str, hold: Hold) -> None:
        now = time.monotonic()
        if now - self._limited_at < QUIET_SECONDS:
            return
        self._limited_at = now
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(hold.until)) if hold.until else "later"
        last = next((run.id for run in self._runs.of_task(self._project, task)), "")
        key = f"limit-{last}-{self._runs.last_served(last)}"
        text = f"A usage or rate limit was reached. It goes on by itself at {when}."
        self._send(Occasion.LIMIT, key, f"task {task}", text, task=task, run=last, until=hold.until)

    def spent(self, limits: Limits, usage: Usage, elapsed: float) -> None:
        """What the whole work has used so far; its budgets begin anew with each `ralph work`."""
        for near in notices.nearly_spent(limits, usage, elapsed):
            key = f"{near.key}-{self._began}"
            self._send(Occasion.BUDGET, key, "the work", f"{near.words} are used by the whole work.")

    def halted(self, exit_code: int, reason: str) -> None:
        """The whole work stops before its end."""
        outcome = next((each for each in Outcome if each.exit_code == exit_code), Outcome.FATAL)
        occasion = notices.occasion_of(outcome)
        if occasion is not None:
            last = next((run.id for run in self._runs.all() if run.project == self._project), "")
            key = f"halt-{exit_code}-{last}"
            self._send(occasion, key, "the work", f"Stopped: {reason}\nGo on with: ralph work", reason=reason)

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
        hint = f"\nralph report {task}" if task else ""
        self._sender.send(
            Message(
                key=key,
                occasion=occasion,
                title=clean(f"Ralph: {name}, {what} {_WORDS[occasion]}"),
                text=clean(f"{text[:MOST_TEXT]}\n{self._directory}{hint}"),
                directory=self._directory,
                run=run,
                task=task,
                flow="work",
                reason=clean(reason[:MOST_TEXT]),
                until=until,
            )
        )

    def finish(self, is_interrupted: Callable[[], bool]) -> None:
        self._sender.finish(is_interrupted)
        for problem in self._sender.problems():
            self._watch("", problem)
