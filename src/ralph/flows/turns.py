"""One turn at a task: a role's run in the task's worktree, or the merge of what was proved. Each in its own thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ralph.core.board import (
    Action,
    Fact,
    Merge,
    Merged,
    MergeVerdict,
    RunEnded,
    RunVerdict,
    StartRun,
)
from ralph.core.events import Event, Notice
from ralph.core.model import Cause, Ended, Flow, Outcome, Plan, Resume, State
from ralph.core.tasks import Progress, Task
from ralph.errors import RalphError
from ralph.flows import ground, roles, session
from ralph.flows.ground import Ground, Yard
from ralph.flows.roles import MERGE, Assignment, Budget
from ralph.flows.where import Where
from ralph.process.client import Wakeup, Warden, child_environment, output_of
from ralph.scm.repository import Repository
from ralph.scm.snapshots import snapshot_name
from ralph.scm.worktrees import branch_of
from ralph.settings import Settings
from ralph.store.files import opened_directory
from ralph.store.home import Home
from ralph.store.journal import load
from ralph.store.runs import Run

MOST_TRIES = 5
"""How often a merge is begun anew because the base has moved meanwhile."""

LEAST = 0.000001
"""What is left of a budget that is used up: 0 would be no limit."""

_VERDICTS = {
    Cause.PROVED: RunVerdict.PROVED,
    Cause.AUTO_APPROVED: RunVerdict.PROVED,
    Cause.ITERATIONS: RunVerdict.REFUSED,
    Cause.STAGNATION: RunVerdict.REFUSED,
    Cause.CRASH_LOOP: RunVerdict.REFUSED,
    Cause.VERIFICATION: RunVerdict.REFUSED,
    Cause.REFUSED: RunVerdict.REFUSED,
    Cause.COST: RunVerdict.FAILED,
    Cause.TOKENS: RunVerdict.FAILED,
    Cause.DURATION: RunVerdict.FAILED,
    Cause.CANCELLED: RunVerdict.STOPPED,
}
"""What the end of a run means for its task; any other end stops the whole work, and the task stays where it is."""


@dataclass(frozen=True, slots=True)
class Halt:
    """Why the whole work stops."""

    exit_code: int
    reason: str


@dataclass(frozen=True, slots=True)
class News:
    """What a turn has come to: a fact for the board, and whether all has to stop."""

    fact: Fact
    halt: Halt | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """What all turns share. `base`: the branch that tasks go into. `left`: what the whole work may still use."""

    home: Home
    project: str
    settings: Settings
    ground: Ground
    base: str
    left: Budget = Budget()


def lost(action: Action, halt: Halt) -> News:
    """A turn that came to nothing: the task stays where it is."""
    if isinstance(action, StartRun):
        return News(RunEnded(action.job, action.attempt, RunVerdict.LOST), halt)
    return News(Merged(action.job, MergeVerdict.LOST), halt)


class Turn:
    """`begun` hears the id of the run as soon as there is one."""

    def __init__(
        self, site: Site, wakeup: Wakeup, tell: Callable[[Event], None], begun: Callable[[str], None]
    ) -> None:
        self._site = site
        self._wakeup = wakeup
        self._tell = tell
        self._begun = begun
        self._tasks = site.home.tasks(site.project)
        self._runs = site.home.runs()

    def close(self) -> None:
        self._tasks.db.close()
        self._runs.db.close()

    # ---- a role ----

    def role(self, action: StartRun) -> News:
        task = self._tasks.find(action.job)
        with self._site.ground.opened() as yard:
            assignment = self._prepared(yard, task, action)
        state = self._drive(
            assignment,
            lambda run: roles.plan(run, self._site.settings, assignment),
            self._unfinished(assignment),
        )
        assert state.stop is not None
        verdict = _VERDICTS.get(state.stop.cause)
        if verdict is None:
            return lost(action, _halt(state))
        with self._site.ground.opened() as yard:
            self._left_behind(yard, assignment, verdict)
        return News(RunEnded(task.id, action.attempt, verdict, _reason(state)))

    def _prepared(self, yard: Yard, task: Task, action: StartRun) -> Assignment:
        """The worktree as this role may find it, and what it is to be told."""
        progress = self._tasks.progress(task.id)
        if not progress.began:
            tip = yard.worktrees.branch_commit(self._site.base)
            progress = replace(progress, base=self._site.base, began=tip, trusted=tip)
            self._move(task, progress)
        path = self._site.ground.worktree(task.id, action.attempt)
        is_new = not path.exists()
        repository = yard.add(task.id, action.attempt, progress.began)
        if is_new:
            self._set_up(repository)
        tracked = yard.worktrees.files(progress.trusted)
        budget = self._budget(task)
        return Assignment(task, action.role, path, progress, action.reason, tracked, budget, action.attempt)

    def _set_up(self, repository: Repository) -> None:
        """What the user wants to be done in every new worktree."""
        command = self._site.settings.ralph.setup
        if not command:
            return
        self._tell(Notice(f"Setting up the worktree: {command}"))

        def watch(seconds: float, idle: float) -> Ended | None:
            return Ended.INTERRUPTED if self._wakeup.count else None

        with opened_directory(str(repository.top)) as directory, Warden(self._wakeup) as warden:
            argv = ["/bin/sh", "-c", command]
            done = output_of(warden, argv, directory, child_environment({}), watch=watch)
        if done.exit.code != 0:
            said = (done.err or done.out).decode(errors="replace").strip()[-500:]
            raise RalphError(f"ralph.setup failed in {repository.top}: {command}: {said}")

    def _unfinished(self, assignment: Assignment) -> Run | None:
        """The last run of this role, if it was cut off or has stopped for something that passes.

        One that met a fatal error begins anew: what was wrong may have been its settings.
        """
        runs = self._runs.of_task(self._site.project, assignment.task.id)
        here = str(assignment.worktree.resolve())
        run = next((run for run in runs if run.directory == here), None)
        if run is None or run.role != assignment.role:
            return None
        stop = self._runs.brief(run.id).stop
        can_go_on = stop is None or stop.outcome in (Outcome.INTERRUPTED, Outcome.WAITING)
        if not can_go_on or (stop is not None and stop.cause is Cause.CANCELLED):
            return None
        self._put_back(run, assignment)
        return run

    def _put_back(self, run: Run, assignment: Assignment) -> None:
        """An iteration that was cut off begins again from where it had begun."""
        loaded = load(self._runs.db, self._runs.path, run.id)
        if loaded.half_done is None or loaded.half_done.kind != "run_agent":
            return
        name = snapshot_name(loaded.state.iteration, loaded.state.again)
        with self._site.ground.opened() as yard:
            repository = yard.worktrees.at(assignment.worktree)
            scratch = self._site.home.streams(run.id) / "scm"
            for problem in yard.put_back(repository, run.id, name, scratch):
                self._tell(Notice(problem))

    def _left_behind(self, yard: Yard, assignment: Assignment, verdict: RunVerdict) -> None:
        """What was not committed is kept on the branch, and what the tester has left is trusted from now on."""
        task = assignment.task
        with yard.tree(yard.worktrees.at(assignment.worktree)) as tree:
            if verdict is not RunVerdict.PROVED:
                tree.keep(f"{task.id}: unfinished ({assignment.role})")
            elif assignment.role == "tester":
                self._move(task, replace(self._tasks.progress(task.id), trusted=tree.head()))

    # ---- a merge ----

    def merge(self, action: Merge) -> News:
        task = self._tasks.find(action.job)
        for _ in range(MOST_TRIES):
            done, halt = self._merge_once(task, action)
            if halt is not None:
                return lost(action, halt)
            if done.verdict is not MergeVerdict.LOST:
                break
        verdict = done.verdict or MergeVerdict.LOST
        if verdict is MergeVerdict.OK:
            self._move(task, replace(self._tasks.progress(task.id), merged=done.commit))
        elif verdict in (MergeVerdict.CONFLICT, MergeVerdict.RED):
            self._bring_in(task, action)
        with self._site.ground.opened() as yard:
            if verdict is MergeVerdict.OK:
                yard.clear(task.id, task.attempts)
            else:
                yard.worktrees.remove(self._site.ground.merge_worktree(task.id))
        return News(Merged(task.id, verdict, done.reason))

    def _merge_once(self, task: Task, action: Merge) -> tuple[ground.Merge, Halt | None]:
        base = self._site.base
        with self._site.ground.opened() as yard:
            merge = yard.merge(task.id, action.attempt, base, f"Merge {task.id}: {task.title}")
        if merge.verdict is not None:
            return merge, None
        path = self._site.ground.merge_worktree(task.id)
        progress = replace(self._tasks.progress(task.id), began=merge.old)
        assignment = Assignment(task, MERGE, path, progress, budget=self._budget(task))
        with self._site.ground.opened() as yard:
            self._set_up(yard.worktrees.at(path))
        state = self._drive(assignment, lambda run: roles.merge_plan(run, self._site.settings, assignment))
        assert state.stop is not None
        if state.stop.outcome is Outcome.LIMIT:
            reason = f"On the merged tree: {state.stop.reason}"
            return replace(merge, verdict=MergeVerdict.RED, reason=reason), None
        if state.stop.outcome is not Outcome.COMPLETE:
            return merge, _halt(state)
        with self._site.ground.opened() as yard:
            return yard.advance(task.id, action.attempt, base, merge), None

    def _bring_in(self, task: Task, action: Merge) -> None:
        """The coder gets the base merged in, to see what does not go together."""
        progress = self._tasks.progress(task.id)
        with self._site.ground.opened() as yard:
            repository = yard.add(task.id, action.attempt, progress.began)
            tip = yard.bring_in(
                repository,
                self._site.base,
                f"Merge {self._site.base} into {branch_of(task.id, action.attempt)}",
            )
        self._move(task, replace(progress, began=tip, trusted=tip))

    # ---- both ----

    def _drive(
        self, assignment: Assignment, make_plan: Callable[[str], Plan], unfinished: Run | None = None
    ) -> State:
        """Drive a run in the worktree to its end: the one that was cut off, or a new one."""
        home, path = self._site.home, assignment.worktree.resolve()
        where = Where(path, path, self._site.project)
        lock = session.lock(home, where, self._wakeup, self._tell)
        try:
            run = unfinished or session.begin(home, Flow.WORK, where, make_plan)
            self._begun(run.id)
            resume = Resume(time.time()) if unfinished else None
            return session.drive(home, run, lock, self._wakeup, self._tell, resume)
        finally:
            os.close(lock)

    def _move(self, task: Task, progress: Progress) -> None:
        self._tasks.keep_progress(task.id, progress)

    def _budget(self, task: Task) -> Budget:
        """What this run may use: the rest of the whole work's budget, and of the task's own."""
        most, left = self._site.settings.ralph.max_task_cost_usd, self._site.left
        if not most:
            return left
        runs = self._runs.of_task(self._site.project, task.id)
        rest = max(LEAST, most - sum(self._runs.brief(run.id).usage.cost_usd for run in runs))
        return replace(left, cost_usd=min(rest, left.cost_usd or rest))


def _halt(state: State) -> Halt:
    assert state.stop is not None
    return Halt(state.stop.outcome.exit_code, state.stop.reason)


def _reason(state: State) -> str:
    """Why a run has not proved its part; a role that refuses says more than one line."""
    assert state.stop is not None
    if state.stop.cause is Cause.REFUSED and state.ran is not None:
        return f"{state.stop.reason}\n\n{state.ran.text[-4000:]}"
    if state.stop.cause is Cause.ITERATIONS and state.feedback:
        return "\n\n".join([state.stop.reason, *(feedback.text for feedback in state.feedback)])
    return "" if state.stop.outcome is Outcome.COMPLETE else state.stop.reason
