"""`ralph work`: tasks go through their roles, each role a run of its own in the task's worktree, then into the base.

The board decides what may begin; here it is begun, in a thread for each, and every fact is kept in the store before
the board is asked again. So a restart goes on from the tasks as they are.
"""

from __future__ import annotations

import os
import queue
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ralph.core import board, policy
from ralph.core.board import (
    Action,
    Added,
    Cancelled,
    Fact,
    Job,
    JobState,
    Merged,
    RunEnded,
    RunVerdict,
    StartRun,
    StopRun,
)
from ralph.core.events import AgentEnded, Event, Notice, TaskMoved, Used
from ralph.core.model import Cancel, Outcome, Usage
from ralph.core.tasks import ROLES, Task, TaskStatus
from ralph.errors import RalphError
from ralph.flows import roles
from ralph.flows.ground import Ground
from ralph.flows.roles import MERGE, Budget
from ralph.flows.run import limits
from ralph.flows.turns import LEAST, Halt, News, Site, Turn, lost
from ralph.flows.where import Where
from ralph.process.client import Wakeup
from ralph.scm.repository import Repository
from ralph.settings import Settings
from ralph.store.home import Home

Watch = Callable[[str, Event], None]
"""Hears every event with the id of its task; "" for the work as a whole."""

TICK_SECONDS = 0.25
"""How often the main thread looks for signals and for what has changed in the store."""

_STATUS = {
    JobState.TODO: TaskStatus.TODO,
    JobState.DONE: TaskStatus.DONE,
    JobState.FAILED: TaskStatus.FAILED,
    JobState.BLOCKED: TaskStatus.BLOCKED,
    JobState.CANCELLED: TaskStatus.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Which tasks: those named, else those of a spec, else all of the project. `slots`: how many at once."""

    spec: str | None = None
    tasks: tuple[str, ...] = ()
    slots: int = 1


@dataclass(slots=True)
class _Running:
    """One turn in its thread: how it is interrupted, its run once there is one, what it has used."""

    action: Action
    wakeup: Wakeup
    thread: threading.Thread | None = None
    run: str = ""
    usage: Usage = Usage()
    in_hand: Usage = Usage()

    def begun(self, run: str) -> None:
        self.run = run

    def hear(self, event: Event) -> None:
        if isinstance(event, Used):
            self.in_hand = event.usage
        elif isinstance(event, AgentEnded):
            self.usage, self.in_hand = self.usage + event.ran.usage, Usage()


class Work:
    """All that one `ralph work` does."""

    def __init__(
        self,
        home: Home,
        where: Where,
        repository: Repository,
        settings: Settings,
        wakeup: Wakeup,
        watch: Watch,
    ) -> None:
        self._home = home
        self._project = where.project
        self._settings = settings
        self._roles = roles.roles_of(settings)
        self._wakeup = wakeup
        self._watch = watch
        self._tasks = home.tasks(where.project)
        self._runs = home.runs()
        self._record = home.path / "work" / f"{time.time_ns():x}-{os.getpid()}"
        self._ground = Ground(home, repository, where.project, self._record)
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._running: dict[tuple[str, int], _Running] = {}
        self._board = board.Board(())
        self._base = ""
        self._spent = Usage()
        self._limits = limits(settings, 1, 0.0)
        self._began = time.monotonic()
        self.halt: Halt | None = None

    # ---- from beginning to end ----

    def work(self, choice: Choice) -> int:
        """Until every chosen task has come to its end, or the whole work has to stop; returns the exit code."""
        try:
            with self._ground.opened() as yard:
                yard.check_identity()
                self._base = yard.base_branch()
            jobs = [self._job(task) for task in self.choose(choice)]
            most = tuple(self._settings.ralph.max_per_agent.items())
            self._board = board.open_board(jobs, choice.slots, most)
            for job in self._board.jobs:
                self._keep(job)
            self._loop(choice)
        finally:
            self._interrupt_all(2)
            for running in self._running.values():
                if running.thread is not None:
                    running.thread.join()
            shutil.rmtree(self._record, ignore_errors=True)
        if self.halt is not None:
            return self.halt.exit_code
        is_done = all(job.state is JobState.DONE for job in self._board.jobs)
        return Outcome.COMPLETE.exit_code if is_done else Outcome.LIMIT.exit_code

    @property
    def jobs(self) -> tuple[Job, ...]:
        return self._board.jobs

    @property
    def used(self) -> Usage:
        total = self._spent
        for running in self._running.values():
            total = total + running.usage + running.in_hand
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
            if self.halt is None and self._runs.has_news():
                self._look_at_store(choice)

    def _mind_signals_and_budget(self) -> None:
        count = self._wakeup.count
        if count and self.halt is None:
            self.halt = Halt(Outcome.INTERRUPTED.exit_code, "by a signal")
        if self.halt is None and (cause := policy.spent(self._limits, self.used, self._elapsed())):
            self.halt = Halt(Outcome.LIMIT.exit_code, f"the {cause} budget of the whole work is used up")
            count = 2
        self._interrupt_all(count)

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _interrupt_all(self, count: int) -> None:
        for running in self._running.values():
            while running.wakeup.count < min(count, 2):
                running.wakeup.interrupt()

    # ---- tasks and jobs ----

    def choose(self, choice: Choice) -> list[Task]:
        """The tasks, and what they depend on. One that is named is begun again if it had failed."""
        everything = {task.id: task for task in self._tasks.all()}
        if choice.tasks:
            wanted = [self._reopened(self._tasks.find(id)) for id in choice.tasks]
        else:
            wanted = [task for task in everything.values() if choice.spec in (None, task.spec_id)]
            wanted = [task for task in wanted if task.status is not TaskStatus.CANCELLED]
        chosen = {task.id: task for task in wanted}
        todo = list(wanted)
        while todo:
            for id in todo.pop().dependencies:
                if id not in chosen and id in everything:
                    chosen[id] = everything[id]
                    todo.append(everything[id])
        for task in chosen.values():
            if task.status is not TaskStatus.DONE:
                self._check(task)
        return list(chosen.values())

    def _reopened(self, task: Task) -> Task:
        if task.status not in (TaskStatus.FAILED, TaskStatus.CANCELLED):
            return task
        progress = replace(self._tasks.progress(task.id), role="", sent_back=0, merge_retries=0)
        self._tasks.move(task.id, TaskStatus.TODO, progress)
        return replace(task, status=TaskStatus.TODO)

    def _check(self, task: Task) -> None:
        if task.completion_spec is None:
            self._watch(
                task.id, Notice(f"{task.id} has no completion spec: only its promises are looked for.")
            )
        if problems := roles.problems(task, self._settings):
            raise RalphError(
                f"Task {task.id}: {'; '.join(problems)}.", f"`ralph task edit {task.id}` changes it."
            )

    def _job(self, task: Task) -> Job:
        """Where a task stands, as the board sees it. What was blocked is tried again."""
        progress = self._tasks.progress(task.id)
        agents = (roles.agents_of(self._settings, role)[0].name for role in self._roles)
        job = Job(
            id=task.id,
            roles=tuple(map(board.Role, self._roles, agents)),
            priority=task.priority,
            depends_on=task.dependencies,
            sent_back=progress.sent_back,
            merge_retries=progress.merge_retries,
            reason=progress.reason,
            attempts=task.attempts,
            winner=progress.attempt,
        )
        if task.status in (TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.CANCELLED):
            return replace(job, state=JobState(task.status))
        if progress.role == MERGE:
            return replace(job, state=JobState.PROVED)
        if progress.role not in self._roles:
            return job
        at = self._roles.index(progress.role)
        is_open = at == 0 and not (job.sent_back or job.merge_retries)
        pending = tuple(range(1, task.attempts + 1)) if is_open else (job.winner,)
        return replace(job, state=JobState.ACTIVE, role=at, pending=pending)

    def _keep(self, job: Job) -> None:
        """Where a job stands goes into the store, and is told if it has moved."""
        task = self._tasks.get(job.id)
        if task is None:
            return
        old = self._tasks.progress(job.id)
        role = self._role(job, old.role)
        status = _STATUS.get(job.state) or ROLES[self._roles[-1] if role == MERGE else role].status
        progress = replace(
            old,
            base=old.base or self._base,
            role=role,
            sent_back=job.sent_back,
            merge_retries=job.merge_retries,
            reason=job.reason,
            attempt=job.winner,
        )
        if (task.status, old) != (status, progress):
            self._tasks.move(job.id, status, progress)
        if (task.status, old.role) != (status, role):
            self._watch(task.id, TaskMoved(task.id, task.title, status, role, job.reason))

    @staticmethod
    def _role(job: Job, before: str) -> str:
        """What is to be done next; a job that is blocked or has ended stays where it was."""
        if job.state in (JobState.PROVED, JobState.MERGING):
            return MERGE
        if job.state is JobState.ACTIVE:
            return job.roles[job.role].name
        return before

    def _look_at_store(self, choice: Choice) -> None:
        """Tasks may be added and cancelled while others are worked on."""
        known = {job.id: job for job in self._board.jobs}
        for task in self._tasks.all(choice.spec):
            job = known.get(task.id)
            if job is None and not choice.tasks and task.status is TaskStatus.TODO:
                self._add(task)
            elif job is not None and task.status is TaskStatus.CANCELLED and job.state not in board.ENDED:
                self._apply(Cancelled(task.id))

    def _add(self, task: Task) -> None:
        if not {job.id for job in self._board.jobs}.issuperset(task.dependencies):
            return
        try:
            self._check(task)
            self._apply(Added(self._job(task)))
        except (RalphError, ValueError) as error:
            self._watch(task.id, Notice(f"{task.id} is left out: {_words(error)}"))

    # ---- what the board says, and hears ----

    def _apply(self, fact: Fact) -> None:
        before = {job.id: job for job in self._board.jobs}
        self._board = board.apply(self._board, fact)
        self._keep_changed(before)

    def _keep_changed(self, before: dict[str, Job]) -> None:
        for job in self._board.jobs:
            if job is not before.get(job.id):
                self._keep(job)

    def _begin(self, action: Action) -> None:
        before = {job.id: job for job in self._board.jobs}
        self._board = board.begin(self._board, action)
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
                running.wakeup.interrupt()

    def _hear(self, news: News) -> None:
        fact = news.fact
        assert isinstance(fact, RunEnded | Merged)
        running = self._running.pop(_key(fact))
        assert running.thread is not None
        running.thread.join()
        self._spent = self._spent + running.usage
        if news.halt is not None and self.halt is None:
            self.halt = news.halt
            self._interrupt_all(1)
        if isinstance(fact, RunEnded) and fact.verdict is RunVerdict.STOPPED and not self._is_unwanted(fact):
            self._apply(Cancelled(fact.job))
        self._mind_signals_and_budget()
        if isinstance(fact, RunEnded) and fact.verdict is RunVerdict.FAILED and self.halt is not None:
            fact = replace(fact, verdict=RunVerdict.LOST)  # the budget is used up: no fault of the task
        self._apply(fact)

    def _is_unwanted(self, fact: RunEnded) -> bool:
        running = self._board.job(fact.job).running
        return any(run.unwanted for run in running if run.attempt == fact.attempt)

    # ---- in a thread ----

    def _in_thread(self, running: _Running) -> None:
        action = running.action
        site = Site(self._home, self._project, self._settings, self._ground, self._base, self._left())
        try:
            turn = Turn(site, running.wakeup, partial(self._told, running), running.begun)
            try:
                news = turn.role(action) if isinstance(action, StartRun) else turn.merge(_merge(action))
            finally:
                turn.close()
        except KeyboardInterrupt:
            news = lost(action, Halt(Outcome.INTERRUPTED.exit_code, "by a signal"))
        except Exception as error:
            news = lost(action, Halt(Outcome.FATAL.exit_code, _words(error)))
        self._news.put(news)
        self._wakeup.wake()

    def _told(self, running: _Running, event: Event) -> None:
        """What a run tells goes on to those who watch; what it uses counts for the whole work."""
        running.hear(event)
        self._watch(running.action.job, event)

    def _left(self) -> Budget:
        """What the whole work may still use."""
        most, used = self._limits, self.used
        return Budget(
            max(LEAST, most.cost_usd - used.cost_usd) if most.cost_usd else 0.0,
            max(1, most.tokens - used.tokens) if most.tokens else 0,
            max(LEAST, most.seconds - self._elapsed()) if most.seconds else 0.0,
        )


def _key(what: Action | RunEnded | Merged) -> tuple[str, int]:
    """A job has one turn for each attempt, or one merge."""
    return what.job, what.attempt if isinstance(what, StartRun | RunEnded) else 0


def _merge(action: Action) -> board.Merge:
    assert isinstance(action, board.Merge)
    return action


def _words(error: Exception) -> str:
    if isinstance(error, RalphError):
        return f"{error.message} {error.hint}".strip()
    return str(error) or type(error).__name__
