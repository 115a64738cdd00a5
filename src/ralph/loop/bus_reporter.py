"""Messages of a supervised run on its task's bus, and its log lines."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct, field

from ralph.core.events import AgentEnded, Event, Holding, IterationStarted, Notice, RunEnded
from ralph.core.machine import WAIT_EXIT
from ralph.core.model import Cause, Ended, HoldWhy, Outcome, Purpose, Ran, Stop
from ralph.store.bus import ERROR, FACT, INFO, WARNING
from ralph.store.task_folder import STARTED, Folder, sequence
from ralph.views.agent import duration

_BY_US = {Ended.TIMEOUT, Ended.IDLE, Ended.BUDGET}
"""Ralph stopped it, so its exit status means nothing."""

COMPLETED = "task completed (DONE marker present, no active children)"


class BusReporter(Struct):
    """Passes events on, and posts attempts, failures and the end to the bus and the log."""

    tell: Callable[[Event], None]
    folder: Folder
    _attempt: int = 0
    _of: int = 0
    _ran: Ran | None = None
    _problems: set[str] = field(default_factory=set)

    def __call__(self, event: Event) -> None:
        self.tell(event) if not isinstance(event, RunEnded) else None
        match event:
            case IterationStarted():
                self._attempt, self._of = event.iteration, event.of
                self._post(INFO, f"attempt {event.iteration}/{event.of} started", STARTED)
            case AgentEnded(purpose=Purpose.WORK):
                self._ended(event.ran)
            case Holding() if event.hold.why is HoldWhy.RESTART:
                self._restarting()
            case RunEnded():
                self._log_end(event)
                self.tell(event)

    def post_end(self, stop: Stop, attempts: int) -> None:
        """Post how the run ended. After a crash nothing is posted twice: each message has an id."""
        self._attempt = attempts
        if stop.cause is Cause.ITERATIONS:
            self._post(ERROR, f"max restarts exceeded ({attempts})", 3)
        elif stop.cause is Cause.WAIT_MARKER:
            self._post(INFO, f"stopped: {stop.reason}", 4)
        elif stop.outcome is Outcome.COMPLETE:
            if stop.notes:
                self._post(WARNING, "\n".join(stop.notes), 5)
            self._post(FACT, COMPLETED, 6)
            self._complain(self.folder.post_to_project(time.time(), COMPLETED, sequence(attempts, 6)))
        elif stop.outcome is Outcome.FATAL:
            self._post(ERROR, stop.reason, 7)
        elif stop.outcome is Outcome.LIMIT:
            self._post(ERROR, f"stopped: {stop.reason}", 8)

    def _ended(self, ran: Ran) -> None:
        self._ran = ran
        if ran.ended is Ended.TIMEOUT:
            self._log(f"Agent timeout after {duration(ran.took)}, killing process group")
            self._log("Process group killed, treating as failure")
        if _failed(ran):
            self._post(WARNING, f"attempt {self._attempt} failed: {_how(ran)}", 2)

    def _restarting(self) -> None:
        following = f"restarting (attempt {self._attempt + 1}/{self._of})"
        if self._ran is not None and _failed(self._ran):
            self._log(f"Agent failed with {_how(self._ran)}, {following}")
        else:
            self._log(f"Agent exited without DONE, {following}")

    def _log_end(self, event: RunEnded) -> None:
        if event.stop.cause is Cause.ITERATIONS:
            self._log(f"Attempt {event.iterations}: Max restarts exceeded, stopping")
        elif event.stop.cause is Cause.WAIT_MARKER:
            self._log("Wait-without-restart signal detected")
        elif event.stop.outcome is Outcome.COMPLETE:
            self._log(COMPLETED)

    def _post(self, type: str, body: str, kind: int) -> None:
        self._complain(self.folder.post(time.time(), type, body, sequence(self._attempt, kind)))

    def _complain(self, problem: str) -> None:
        if problem and problem not in self._problems:
            self._problems.add(problem)
            self.tell(Notice(problem))

    def _log(self, text: str) -> None:
        self.tell(Notice(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}"))


def _failed(ran: Ran) -> bool:
    if ran.ended is Ended.INTERRUPTED or ran.exit == WAIT_EXIT:
        return False
    return ran.ended is not Ended.OK or bool(ran.exit)


def _how(ran: Ran) -> str:
    if ran.ended is Ended.FAILED and ran.exit is not None:
        return f"exit code {ran.exit}"
    if ran.ended in _BY_US or not ran.detail:
        return str(ran.ended)
    return f"{ran.ended}: {ran.detail}"
