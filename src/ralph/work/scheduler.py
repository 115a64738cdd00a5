"""`ralph work`: takes tasks through their roles, each a separate run in the task's worktree, and merges them.

The board decides what may start. Here it is started, each in a thread, and every fact is written to the store before
the board is asked again, so that a restart continues from the stored state of the tasks.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import zip_longest

from msgspec import Struct
from msgspec.structs import replace

from ralph.core import board, policy
from ralph.core.board import (
    Action,
    Fact,
    Job,
    JobAdded,
    JobCancelled,
    JobState,
    Merge,
    Merged,
    RoleRunEnded,
    StartRun,
    StopRun,
)
from ralph.core.events import AgentEnded, Event, Notice, UsageReported
from ralph.core.model import NO_SANDBOX, Cancel, Limits, Outcome, RunVerdict, SandboxSpec, Usage
from ralph.errors import RalphError
from ralph.loop.driver import GIT_PAUSES
from ralph.process.client import Wakeup
from ralph.runs.run_plan import limits
from ralph.scm.git import GitError
from ralph.settings import Settings
from ralph.store.home import Home
from ralph.work.jobs import Choice, Jobs, Watch
from ralph.work.merging import MergeTurn
from ralph.work.project_repo import ProjectRepo
from ralph.work.role_plan import BudgetLeft
from ralph.work.turns import LEAST, Halt, RoleTurn, TurnResult, WorkContext, lost

TICK_SECONDS = 0.25
"""How often the main thread checks for signals and for changes in the store."""


Spending = Callable[[Limits, Usage, float], None]
"""Called regularly with the limits, the usage and the elapsed seconds of `ralph work`."""


class _Running(Struct):
    """One turn in its thread: its wakeup for interrupts, its run once it exists, and its usage."""

    action: StartRun | Merge
    wakeup: Wakeup
    thread: threading.Thread | None = None
    run: str = ""
    usage: Usage = Usage()
    unsettled: Usage = Usage()

    def begun(self, run: str) -> None:
        self.run = run

    def hear(self, event: Event) -> None:
        if isinstance(event, UsageReported):
            self.unsettled = event.usage
        elif isinstance(event, AgentEnded):
            self.usage, self.unsettled = self.usage + event.ran.usage, Usage()


class Work:
    """One `ralph work`, from start to finish."""

    def __init__(
        self,
        home: Home,
        repo: ProjectRepo,
        settings: Settings,
        wakeup: Wakeup,
        watch: Watch,
        spending: Spending,
        sandbox: SandboxSpec = NO_SANDBOX,
    ) -> None:
        self._sandbox = sandbox
        self._home = home
        self._repo = repo
        self._project = repo.project
        self._settings = settings
        self._wakeup = wakeup
        self._watch = watch
        self._spending = spending
        self._runs = home.runs()
        self._jobs = Jobs(home, repo.project, settings, watch)
        self._news: queue.SimpleQueue[TurnResult] = queue.SimpleQueue()
        self._running: dict[tuple[str, int], _Running] = {}
        self._board = board.Board(())
        self._base = ""
        self._spent = Usage()
        self._limits = limits(settings, 1, 0.0)
        self._began = self._looked = time.monotonic()
        self.halt: Halt | None = None

    # ---- from beginning to end ----

    def work(self, choice: Choice) -> int:
        """Work until every chosen task is finished or everything has to stop; returns the exit code."""
        try:
            with self._repo.opened(self._wakeup) as repo:
                self._base = repo.base_branch()
                self._jobs.check_base(self._base)
                repo.check_commits()
                for problem in repo.repair(self._base):
                    self._watch("", Notice(problem))
            self._board = self._opened_board(choice)
            self._jobs.keep_all(self._board.jobs)
            self._loop(choice)
        finally:
            self._interrupt_all(2)
            for running in self._running.values():
                if running.thread is not None:
                    running.thread.join()
        if all(job.state is JobState.DONE for job in self._board.jobs):
            self.halt = None  # the reason to stop came too late
            return Outcome.COMPLETE.exit_code
        return self.halt.exit_code if self.halt is not None else Outcome.LIMIT.exit_code

    def _opened_board(self, choice: Choice) -> board.Board:
        most = tuple(self._settings.ralph.max_per_agent.items())
        try:
            return board.open_board(self._jobs.chosen(choice), choice.slots, most)
        except ValueError as error:
            hint = "To change dependencies: ralph task edit ID"
            raise RalphError(f"The tasks cannot be ordered: {error}.", hint) from None

    @property
    def jobs(self) -> tuple[Job, ...]:
        return self._board.jobs

    @property
    def used(self) -> Usage:
        total = self._spent
        for running in self._running.values():
            total = total + running.usage + running.unsettled
        return total

    def _loop(self, choice: Choice) -> None:
        while self._running or not (self.halt or board.is_over(self._board)):
            self._mind_signals_and_budget()
            if self.halt is None:
                for action in board.ready(self._board):
                    self._begin(action)
            if self._news.empty():
                self._wakeup.wait(TICK_SECONDS)
            while not self._news.empty():
                self._hear(self._news.get())
            if self.halt is None and self._is_time_to_look() and self._runs.has_news():
                self._look_at_store(choice)

    def _is_time_to_look(self) -> bool:
        """Limit how often the store is read: our own turns write to it all the time."""
        now = time.monotonic()
        if now - self._looked < TICK_SECONDS:
            return False
        self._looked = now
        return True

    def _mind_signals_and_budget(self) -> None:
        count = self._wakeup.count
        if count and self.halt is None:
            self.halt = Halt(Outcome.INTERRUPTED.exit_code, f"stopped by {self._wakeup.by}")
        if self.halt is None:
            self._spending(self._limits, self.used, self._elapsed())
        if self.halt is None and (cause := policy.spent(self._limits, self.used, self._elapsed())):
            self.halt = Halt(
                Outcome.LIMIT.exit_code, f"the {policy.BUDGETS[cause]} budget of `ralph work` is used up"
            )
            count = 2
        self._interrupt_all(count)

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _interrupt_all(self, count: int) -> None:
        for running in self._running.values():
            while running.wakeup.count < min(count, 2):
                running.wakeup.interrupt(self._wakeup.by or "`ralph work`")

    def _look_at_store(self, choice: Choice) -> None:
        """Pick up tasks that were added or cancelled while others are running."""
        for job in self._jobs.added(choice, {job.id for job in self._board.jobs}):
            try:
                self._apply(JobAdded(job))
            except ValueError as error:
                self._jobs.leave_out(job.id, f"{error}.")
        for id in self._jobs.cancelled() & {job.id for job in self._board.jobs}:
            self._apply(JobCancelled(id))

    # ---- between the board and the turns ----

    def _apply(self, fact: Fact) -> None:
        before = self._board
        self._board = board.apply(before, fact)
        self._keep_changed(before)

    def _keep_changed(self, before: board.Board) -> None:
        """Write the jobs that changed. Jobs keep their positions; new ones come last."""
        pairs = zip_longest(self._board.jobs, before.jobs)
        if changed := [job for job, old in pairs if job is not old]:
            self._jobs.keep(changed)

    def _begin(self, action: Action) -> None:
        before = self._board
        self._board = board.begin(before, action)
        if isinstance(action, StopRun):
            self._stop(self._running.get((action.job, action.attempt)))
            return
        self._keep_changed(before)
        running = _Running(action, Wakeup())
        self._running[_key(action)] = running
        running.thread = threading.Thread(target=self._in_thread, args=(running,), name=f"ralph {action.job}")
        running.thread.start()

    def _stop(self, running: _Running | None) -> None:
        if running is not None:
            if running.run:
                self._runs.send(running.run, Cancel(time.time()))
            else:
                running.wakeup.interrupt("`ralph work`")

    def _hear(self, news: TurnResult) -> None:
        fact = news.fact
        assert isinstance(fact, RoleRunEnded | Merged)
        running = self._running.pop(_key(fact))
        assert running.thread is not None
        running.thread.join()
        self._spent = self._spent + running.usage
        if news.halt is not None and self.halt is None and not self._is_unwanted(fact):
            self.halt = news.halt
            self._interrupt_all(1)
        self._mind_signals_and_budget()
        if isinstance(fact, RoleRunEnded) and fact.verdict is RunVerdict.FAILED and self.halt is not None:
            fact = replace(
                fact, verdict=RunVerdict.LOST
            )  # the budget is used up, which is not the task's fault
        self._apply(fact)

    def _is_unwanted(self, fact: RoleRunEnded | Merged) -> bool:
        """Whether this run had been asked to stop, so that its result does not count."""
        running = self._board.job(fact.job).running
        return isinstance(fact, RoleRunEnded) and any(
            r.unwanted for r in running if r.attempt == fact.attempt
        )

    # ---- in a thread ----

    def _in_thread(self, running: _Running) -> None:
        action = running.action
        context = WorkContext(
            self._home, self._project, self._settings, self._repo, self._base, self._left(), self._sandbox
        )
        try:
            news = self._taken(context, running)
        except KeyboardInterrupt:
            news = lost(action, Halt(Outcome.INTERRUPTED.exit_code, "stopped by Ctrl-C"))
        except Exception as error:
            news = lost(action, Halt(Outcome.FATAL.exit_code, _words(error)))
        self._news.put(news)
        self._wakeup.wake()

    def _taken(self, context: WorkContext, running: _Running) -> TurnResult:
        """Take a turn. If git fails, take it again: like a restart, it continues from the stored state of the task."""
        for seconds in GIT_PAUSES:
            try:
                return self._taken_once(context, running)
            except GitError as error:
                if running.wakeup.count:
                    raise
                self._watch(running.action.job, Notice(f"{error.message} Trying again.", detail=True))
                running.wakeup.wait(seconds)
        return self._taken_once(context, running)

    def _taken_once(self, context: WorkContext, running: _Running) -> TurnResult:
        action, means = running.action, (context, running.wakeup, partial(self._told, running), running.begun)
        if isinstance(action, StartRun):
            with RoleTurn(*means) as turn:
                return turn.take(action)
        with MergeTurn(*means) as merging:
            return merging.take(action)

    def _told(self, running: _Running, event: Event) -> None:
        """Count a run's usage towards the total and pass its event on."""
        running.hear(event)
        self._watch(running.action.job, event)

    def _left(self) -> BudgetLeft:
        """The remaining budget of `ralph work`."""
        most, used = self._limits, self.used
        return BudgetLeft(
            max(LEAST, most.cost_usd - used.cost_usd) if most.cost_usd else 0.0,
            max(1, most.tokens - used.tokens) if most.tokens else 0,
            max(LEAST, most.seconds - self._elapsed()) if most.seconds else 0.0,
        )


def _key(what: StartRun | Merge | RoleRunEnded | Merged) -> tuple[str, int]:
    """The key of a turn: a job has one turn for each attempt, or one merge."""
    return what.job, what.attempt if isinstance(what, StartRun | RoleRunEnded) else 0


def _words(error: Exception) -> str:
    if isinstance(error, RalphError):
        return error.text
    return str(error) or type(error).__name__
