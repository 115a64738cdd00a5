"""Sends notifications without blocking the loop.

A message is marked as sent, queued, and sent by a thread with its own warden. A webhook that hangs times out, one that
fails becomes a notice, and the loop keeps running meanwhile.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator

from msgspec import to_builtins

from ralph.core.events import Notice
from ralph.core.model import Ended, NotifyTargets
from ralph.core.text import clean
from ralph.errors import RalphError
from ralph.notify.notices import WORDING, Notification
from ralph.process.client import Wakeup, Warden, child_environment, output_of
from ralph.process.warden import LIVE_GRACE
from ralph.redact import secrets_of
from ralph.settings import NotifySettings
from ralph.store.files import opened_directory
from ralph.store.notified import Notified

MAX_SECONDS = 10.0
"""Timeout for sending one message."""

LAST_SECONDS = 15.0
"""How long a finished run waits for its last messages."""


def targets_of(settings: NotifySettings) -> NotifyTargets:
    return NotifyTargets(settings.urls, settings.command, settings.on)


def deliver(
    targets: NotifyTargets, message: Notification, warden: Warden, is_interrupted: Callable[[], bool]
) -> list[str]:
    """Send a message to every configured target, each with a timeout; returns the problems."""
    data = json.dumps(to_builtins(message) | {"event": message.occasion}, ensure_ascii=False)
    mail = {
        "urls": targets.urls,
        "title": message.title,
        "body": message.text,
        "type": WORDING[message.occasion].type,
    }
    orders: list[tuple[str, list[str], str, dict[str, str]]] = []
    if targets.urls:
        argv = [sys.executable, "-I", "-m", "ralph.notify.apprise_worker"]
        orders.append(("notify.urls", argv, json.dumps(mail), {}))
    if targets.command:
        orders.append(("notify.command", ["sh", "-c", targets.command], data, _variables(message)))
    problems = []
    for name, argv, stdin, variables in orders:
        if problem := _run(argv, stdin, variables, message.directory, warden, is_interrupted):
            problems.append(secrets_of(targets.secrets).text(f"{name}: {problem}"))
    return problems


def _variables(message: Notification) -> dict[str, str]:
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
        return Ended.TIMEOUT if seconds >= MAX_SECONDS else None

    where = directory if os.path.isdir(directory) else "/"
    with opened_directory(where) as opened:
        environment = child_environment(variables)
        done = output_of(warden, argv, opened, environment, stdin.encode(errors="replace"), watch, 1 << 16)
    if done.problem:
        return done.problem
    if done.exit.ended is Ended.TIMEOUT:
        return f"timed out after {MAX_SECONDS:g} s"
    if done.exit.ended is Ended.INTERRUPTED:
        return "interrupted"
    if done.exit.code == 0 or done.is_cut:
        return ""
    said = (done.out or done.err).decode(errors="replace").strip()
    code = f"exit code {done.exit.code}" if done.exit.code is not None else "killed by a signal"
    return clean(said.splitlines()[-1][:300] if said else code)


class Sender:
    """Sends messages in order, in a thread that runs only while there are messages."""

    def __init__(self, targets: NotifyTargets, told: Notified) -> None:
        self.targets = targets
        self._told = told
        self._waiting: queue.SimpleQueue[Notification] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_interrupted: Callable[[], bool] = lambda: False
        self._problems: list[str] = []
        self._known: set[str] = set()

    def send(self, message: Notification) -> None:
        """Queue the message if its event is enabled and it was not sent before."""
        if (
            self.targets.is_empty
            or message.occasion not in self.targets.on
            or not self._told.is_first(message.key)
        ):
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
                    self._complain(deliver(self.targets, message, warden, lambda: self._is_interrupted()))
        except (RalphError, OSError) as error:
            self._complain([str(error)])
            with self._lock:
                self._thread = None

    def _next(self) -> Notification | None:
        """The next message. Without one, this thread ends; the next message starts another."""
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
        """The problems since the last call, each one reported once."""
        with self._lock:
            found, self._problems = self._problems, []
        for problem in found:
            yield Notice(f"Notification not sent: {problem}")

    def finish(self, is_interrupted: Callable[[], bool]) -> None:
        """Wait briefly until everything is sent or given up."""
        deadline = time.monotonic() + LAST_SECONDS
        self._is_interrupted = lambda: is_interrupted() or time.monotonic() > deadline
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(LAST_SECONDS + LIVE_GRACE + 2)
