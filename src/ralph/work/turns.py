"""One turn at a task, in a thread of its own: a role's run in the task's worktree, or a merge (`merging.py`)."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from ralph.core.board import (
    Action,
    Fact,
    Merged,
    MergeVerdict,
    RoleRunEnded,
    StartRun,
)
from ralph.core.events import Event, Notice
from ralph.core.model import (
    Cause,
    Ended,
    Flow,
    Outcome,
    Plan,
    PromptSource,
    Resume,
    RunVerdict,
    SandboxSpec,
    State,
    Stop,
)
from ralph.core.task_model import Task, TaskProgress, TaskStatus
from ralph.errors import RalphError
from ralph.files.paths import real
from ralph.loop import confinement
from ralph.notify.sender import targets_of
from ralph.process.client import Wakeup, Warden, child_environment, output_of
from ralph.runs import locking, session
from ralph.runs.location import Location
from ralph.runs.repository import forget_pin
from ralph.scm.repository import Repository, repository_at
from ralph.scm.snapshots import snapshot_name
from ralph.scm.worktrees import branch_of, mark_ready
from ralph.settings import Settings
from ralph.store.files import opened_directory
from ralph.store.home import Home
from ralph.store.journal import load
from ralph.store.runs import Run
from ralph.work import role_plan
from ralph.work.project_repo import OpenProjectRepo, ProjectRepo
from ralph.work.role_plan import Assignment, BudgetLeft

LEAST = 0.000001
"""What is left of a budget that is used up: 0 would be no limit."""


class Halt(Struct, frozen=True):
    """Why the whole work stops."""

    exit_code: int
    reason: str


class TurnResult(Struct, frozen=True):
    """What a turn has come to: a fact for the board, and whether all has to stop."""

    fact: Fact
    halt: Halt | None = None


class WorkContext(Struct, frozen=True):
    """What all turns share. `base`: the branch that tasks go into. `left`: what the whole work may still use."""

    home: Home
    project: str
    settings: Settings
    repo: ProjectRepo
    base: str
    left: BudgetLeft = BudgetLeft()
    sandbox: SandboxSpec = SandboxSpec()


def lost(action: Action, halt: Halt) -> TurnResult:
    """A turn that came to nothing: the task stays where it is."""
    if isinstance(action, StartRun):
        return TurnResult(RoleRunEnded(action.job, action.attempt, RunVerdict.LOST), halt)
    return TurnResult(Merged(action.job, MergeVerdict.LOST), halt)


def halted(state: State) -> Halt:
    assert state.stop is not None
    return Halt(state.stop.outcome.exit_code, state.stop.reason)


class TaskTurn:
    """What both kinds of turns can do. `begun` hears the id of the run as soon as there is one."""

    def __init__(
        self,
        context: WorkContext,
        wakeup: Wakeup,
        tell: Callable[[Event], None],
        begun: Callable[[str], None],
    ) -> None:
        self.context = context
        self.wakeup = wakeup
        self.tell = tell
        self._begun = begun
        self.tasks = context.home.tasks(context.project)
        self.runs = context.home.runs()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.tasks.db.close()
        self.runs.db.close()

    def wait_for(self, path: Path) -> None:
        """Nobody works there any more; what is left of a killed Ralph is waited for."""
        if path.exists():
            os.close(self._lock(Location(path, path, self.context.project)))

    def _lock(self, where: Location) -> int:
        return locking.lock(self.context.home, where, self.wakeup, self.tell, alone=True)

    def drive(self, path: Path, run: Run | Plan, resume: Resume | None = None) -> State:
        """Drive a run in a worktree to its end: one that is there, or a new one with this plan."""
        where = Location(path, path, self.context.project)
        lock = self._lock(where)
        try:
            if isinstance(run, Plan):
                run = session.begin(self.context.home, where, run)
            self._begun(run.id)
            secrets = targets_of(self.context.settings.notify).secrets
            return session.drive(
                self.context.home, run, lock, self.wakeup, self.tell, resume, secrets=secrets
            )
        finally:
            os.close(lock)

    def set_up(self, worktree: Path) -> None:
        """What the user wants to be done in every new worktree."""
        command = self.context.settings.ralph.setup
        if not command:
            return
        self.tell(Notice(f"Setting up the worktree: {command}"))

        def watch(seconds: float, idle: float) -> Ended | None:
            return Ended.INTERRUPTED if self.wakeup.count else None

        with (
            opened_directory(str(worktree)) as directory,
            Warden(self.wakeup) as warden,
            tempfile.TemporaryDirectory(prefix="ralph-setup-") as scratch,
            confinement.opened_confinement(
                self._room_of(worktree, Path(scratch)), warden, directory
            ) as walled,
        ):
            inside = walled.check(["/bin/sh", "-c", command], child_environment({}), str(worktree))
            done = output_of(warden, inside.argv, directory, inside.environment, watch=watch)
        if done.exit.ended is Ended.INTERRUPTED:
            raise KeyboardInterrupt
        if done.exit.code != 0:
            said = (done.err or done.out).decode(errors="replace").strip()[-500:]
            raise RalphError(f"ralph.setup failed in {worktree}: {command}: {said}")

    def _room_of(self, worktree: Path, scratch: Path) -> confinement.ConfinedRun:
        """A sandbox for what is done before there is a run; in a worktree with work in it that is needed too."""
        agents = role_plan.agents_of(self.context.settings, role_plan.roles_of(self.context.settings)[0])
        plan = Plan("setup", Flow.WORK, str(worktree), agents, PromptSource(), sandbox=self.context.sandbox)
        return confinement.ConfinedRun(plan, repository_at(worktree), real(self.context.home.path), scratch)

    def restore(self, repo: OpenProjectRepo, repository: Repository, task: Task, attempt: int) -> None:
        """A worktree that was removed comes back as it was last, also what was not committed."""
        run = next(self.runs_in(task, repository.top), None)
        if run is not None:
            self.tell(Notice(f"{repository.top} was gone: it is made again, as run {run.id} had left it."))
            self.rewind(repo, repository, branch_of(task.id, attempt), run.id)
            forget_pin(self.scratch(run.id))

    def rewind(
        self, repo: OpenProjectRepo, repository: Repository, branch: str, run: str, snapshot: str = ""
    ) -> None:
        for problem in repo.put_back(repository, branch, run, snapshot, self.scratch(run)):
            self.tell(Notice(problem))

    def scratch(self, run: str) -> Path:
        return self.context.home.streams(run) / "scm"

    def runs_in(self, task: Task, path: Path) -> Iterator[Run]:
        """The runs of a task in one worktree, newest first."""
        return (run for run in self.runs.of_task(self.context.project, task.id) if run.directory == str(path))

    def budget(self, task: Task) -> BudgetLeft:
        """What this run may use: the rest of the whole work's budget, and of the task's own."""
        most, left = self.context.settings.ralph.max_task_cost_usd, self.context.left
        if not most:
            return left
        runs = self.runs.of_task(self.context.project, task.id)
        rest = max(LEAST, most - sum(self.runs.brief(run.id).usage.cost_usd for run in runs))
        return replace(left, cost_usd=min(rest, left.cost_usd or rest))


class RoleTurn(TaskTurn):
    """One role's turn."""

    def take(self, action: StartRun) -> TurnResult:
        task = self.tasks.find(action.job)
        self.wait_for(self.context.repo.worktree(task.id, action.attempt))
        assignment = self._prepared(task, action)
        if self.tasks.find(task.id).status is TaskStatus.CANCELLED:  # the board hears of it in a moment
            return TurnResult(RoleRunEnded(task.id, action.attempt, RunVerdict.LOST))
        state = self._played(assignment)
        assert state.stop is not None
        verdict = state.stop.cause.verdict
        if verdict is None and not assignment.worktree.is_dir():
            gone = f"{assignment.worktree} was removed while task {task.id} was worked on there"
            return lost(action, Halt(Outcome.FATAL.exit_code, gone))
        if verdict is None:
            return lost(action, halted(state))
        self._settle(assignment, state.plan.run, verdict)
        return TurnResult(RoleRunEnded(task.id, action.attempt, verdict, reason_of(state)))

    # ---- before the run ----

    def _prepared(self, task: Task, action: StartRun) -> Assignment:
        """The worktree as this role may find it, and what it is to be told."""
        with self.context.repo.opened(self.wakeup) as repo:
            progress = self._began(repo, task)
            repository, is_new = repo.place(task.id, action.attempt, progress.began)
            assignment = Assignment(
                task,
                action.role,
                repository.top,
                progress,
                action.reason,
                budget=self.budget(task),
                attempt=action.attempt,
            )
            if is_new:
                self.restore(repo, repository, task, action.attempt)
            self._take_up(repo, repository, assignment)
            last = next(self.runs_in(task, repository.top), None)
            scratch = self.scratch(last.id if last else "")
            trusted = repo.bring_in(repository, task.id, progress.began, progress.trusted, scratch)
            tracked = repo.worktrees.files(trusted)
        if trusted != progress.trusted:
            progress = self.tasks.keep_progress(task.id, trusted=trusted)
        if is_new:
            self.set_up(repository.top)
            mark_ready(repository)
        return replace(assignment, progress=progress, tracked=tracked)

    def _began(self, repo: OpenProjectRepo, task: Task) -> TaskProgress:
        """Where the work on a task begins, the same for all its attempts. One that was merged begins anew."""
        base, branch = self.context.base, branch_of(task.id)
        tip, own = repo.worktrees.branch_commits(base, branch)
        with self.tasks.writing():
            progress = self.tasks.progress(task.id)
            if progress.began and not progress.merged:
                return progress
            if not tip:
                raise RalphError(f"The branch {base} is not there any more.", "Bring it back, and go on.")
            if own not in ("", tip):
                self.tell(Notice(f"There was a branch {branch} already: the work goes on from it."))
            return self.tasks.keep_progress(task.id, base=base, began=tip, trusted=tip, merged="")

    def _take_up(self, repo: OpenProjectRepo, repository: Repository, assignment: Assignment) -> None:
        """What an earlier run of this turn has left.

        An iteration that was cut off begins again from where it had begun. A run that begins anew finds all that
        was made on the branch, else it would take it for what the user had lying around.
        """
        run = self._run_of_turn(assignment)
        if run is None:
            return
        task, branch = assignment.task, branch_of(assignment.task.id, assignment.attempt)
        loaded = load(self.runs.db, self.runs.path, run.id)
        if loaded.has_cut_off_agent:
            name = snapshot_name(loaded.state.iteration, loaded.state.again)
            self.rewind(repo, repository, branch, run.id, name)
        elif loaded.state.stop is not None and not _goes_on(loaded.state.stop):
            repo.keep(repository, f"{task.id}: unfinished ({assignment.role})", self.scratch(run.id))

    def _run_of_turn(self, assignment: Assignment) -> Run | None:
        """The last run of this role since the task has come to it, if there was one before."""
        runs = self.runs.of_task(self.context.project, assignment.task.id)
        if after := assignment.progress.after:
            ids = [run.id for run in runs]
            runs = runs[: ids.index(after)] if after in ids else []
        mine = str(assignment.worktree), assignment.role
        return next((run for run in runs if (run.directory, run.role) == mine), None)

    # ---- the run ----

    def _played(self, assignment: Assignment) -> State:
        """The run of this turn, to its end.

        One that was cut off or has stopped for something that passes goes on. One whose end was not heard is not
        repeated. One that met a fatal error begins anew: what was wrong may have been its settings.
        """
        run, path, context = self._run_of_turn(assignment), assignment.worktree, self.context
        loaded = load(self.runs.db, self.runs.path, run.id) if run else None
        stop = loaded.state.stop if loaded else None
        if run is None or loaded is None or (stop is not None and not _goes_on(stop)):
            return self.drive(path, role_plan.plan(context.settings, assignment, context.sandbox))
        if stop is None or stop.cause.verdict not in (RunVerdict.PROVED, RunVerdict.REFUSED):
            return self.drive(path, run, _resume(loaded.state, assignment.budget))
        return loaded.state if loaded.is_over else self.drive(path, run)

    # ---- after the run ----

    def _settle(self, assignment: Assignment, run: str, verdict: RunVerdict) -> None:
        """What was made lies on the task's branch, whatever an agent has done to branches.

        What was not committed is kept there too, and what the tester has left is trusted from now on.
        """
        task, role, is_proved = assignment.task, assignment.role, verdict is RunVerdict.PROVED
        with self.context.repo.opened(self.wakeup) as repo:
            repository = repo.worktrees.at(assignment.worktree)
            with repo.tree(repository) as tree:
                tree.attach(branch_of(task.id, assignment.attempt))
                if not is_proved or tree.is_merging():
                    about = f"merge {self.context.base}" if is_proved else f"unfinished ({role})"
                    repo.keep(repository, f"{task.id}: {about}", self.scratch(run))
                tree.put_on(assignment.progress.began, f"{task.id}: all of it")
                if is_proved and role == "tester":
                    self.tasks.keep_progress(task.id, trusted=tree.head())


def _goes_on(stop: Stop) -> bool:
    """Is this an end that need not be one, or one that only has to be told?"""
    if stop.cause is Cause.CANCELLED:
        return False
    is_told = stop.cause.verdict is not None
    return is_told or stop.outcome in (Outcome.INTERRUPTED, Outcome.WAITING)


def _resume(state: State, left: BudgetLeft) -> Resume:
    """Go on with what may be used now, which is not what might have been used then."""
    used = state.usage
    return Resume(
        time.time(),
        cost_usd=used.cost_usd + left.cost_usd if left.cost_usd else 0.0,
        tokens=used.tokens + left.tokens if left.tokens else 0,
        seconds=state.elapsed + left.seconds if left.seconds else 0.0,
    )


def reason_of(state: State) -> str:
    """Why a run has not proved its part: one line, then what a role that refuses or a check that is red has said."""
    assert state.stop is not None
    if state.stop.cause is Cause.REFUSED and state.ran is not None:
        return f"{state.stop.reason}\n\n{state.ran.text[-4000:]}"
    if state.stop.cause in (Cause.ITERATIONS, Cause.VERIFICATION) and state.feedback:
        return "\n\n".join([state.stop.reason, *(feedback.text for feedback in state.feedback)])
    return "" if state.stop.outcome is Outcome.COMPLETE else state.stop.reason
