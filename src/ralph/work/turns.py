"""One turn at a task, in its own thread: a role's run in the task's worktree, or a merge (`merging.py`)."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
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
    Outcome,
    Phase,
    Plan,
    Resume,
    RunVerdict,
    SandboxSpec,
    State,
    Steer,
)
from ralph.core.task_model import Task, TaskProgress, TaskStatus
from ralph.environments.prepare import is_needed
from ralph.errors import RalphError
from ralph.files.paths import real
from ralph.loop import confinement
from ralph.loop.copies import NoEnvironment, Preparer, check_compiled, worktree_copy
from ralph.notify.sender import targets_of
from ralph.process.client import Wakeup, Warden, child_environment
from ralph.runs import locking, session
from ralph.runs.location import Location
from ralph.runs.repository import forget_pin
from ralph.scm.repository import Repository
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
"""The rest of a budget that is used up; 0 would mean no limit."""


class Halt(Struct, frozen=True):
    """Why `ralph work` stops. `cause`: why the run stopped that stops everything."""

    exit_code: int
    reason: str
    cause: Cause | None = None


class TurnResult(Struct, frozen=True):
    """The result of a turn: a fact for the board, and whether everything has to stop."""

    fact: Fact
    halt: Halt | None = None


class WorkContext(Struct, frozen=True):
    """Shared by all turns. `base` is the branch that tasks are merged into; `left` is the remaining budget."""

    home: Home
    project: str
    settings: Settings
    repo: ProjectRepo
    base: str
    left: BudgetLeft = BudgetLeft()
    sandbox: SandboxSpec = SandboxSpec()


def lost(action: Action, halt: Halt) -> TurnResult:
    """A turn without a result: the task stays where it is."""
    if isinstance(action, StartRun):
        return TurnResult(RoleRunEnded(action.job, action.attempt, RunVerdict.LOST), halt)
    return TurnResult(Merged(action.job, MergeVerdict.LOST), halt)


def halted(state: State) -> Halt:
    assert state.stop is not None
    return Halt(state.stop.outcome.exit_code, state.stop.reason, state.stop.cause)


class TaskTurn:
    """Common parts of both kinds of turns. `begun` is called with the id of the run as soon as it exists."""

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
        """Wait until the processes of a killed Ralph in this directory have exited."""
        if path.exists():
            os.close(self._lock(Location(path, path, self.context.project)))

    def _lock(self, where: Location) -> int:
        return locking.lock(self.context.home, where, self.wakeup, self.tell, alone=True)

    def drive(
        self, path: Path, run: Run | Plan, resume: Resume | None = None, guidance: Sequence[Steer] = ()
    ) -> State:
        """Drive a run in a worktree to its end: an existing one, or a new one with this plan and guidance."""
        where = Location(path, path, self.context.project)
        lock = self._lock(where)
        try:
            if isinstance(run, Plan):
                run = session.begin(self.context.home, where, run)
                for steer in guidance:
                    self.runs.send(run.id, steer)
            self._begun(run.id)
            secrets = targets_of(self.context.settings.notify).secrets
            return session.drive(
                self.context.home, run, lock, self.wakeup, self.tell, resume, secrets=secrets
            )
        finally:
            os.close(lock)

    def prepare(self, worktree: Repository) -> None:
        """Run the user's setup command in a worktree, unless it was run there, and make what is still missing."""
        plan = role_plan.setup_plan(
            self.context.settings, self.context.repo.place_of(worktree.top), self.context.sandbox
        )
        home = real(self.context.home.path)
        Path(plan.directory).mkdir(parents=True, exist_ok=True)
        copy, base = worktree_copy(plan, worktree), child_environment({})
        if not is_needed(copy, base, plan.setup):
            return
        if not plan.setup:
            check_compiled(
                copy, base, lambda names: [each for each in names if not (worktree.top / each).exists()]
            )
        copy.own.mkdir(parents=True, exist_ok=True)
        with (
            opened_directory(plan.directory) as directory,
            Warden(self.wakeup) as warden,
            tempfile.TemporaryDirectory(prefix="ralph-setup-") as scratch,
            confinement.opened_confinement(
                confinement.ConfinedRun(plan, worktree, home, Path(scratch), writes=(str(copy.own),)),
                warden,
                directory,
            ) as confined,
        ):
            Preparer(copy, None, self.context.home.environments, base, warden, confined, self.tell).prepare(
                plan.setup
            )

    def restore(self, repo: OpenProjectRepo, repository: Repository, task: Task, attempt: int) -> None:
        """Restore a removed worktree to its last state, including uncommitted changes."""
        run = next(self.runs_in(task, repository.top), None)
        if run is not None:
            self.tell(Notice(f"{repository.top} was missing. Restored as run {run.id} left it."))
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
        """The runs of a task in one worktree, newest first, without those before `ralph task reset`."""
        runs = self.runs.of_task(self.context.project, task.id)
        ids, last = [run.id for run in runs], self.tasks.progress(task.id).reset
        runs = runs[: ids.index(last)] if last in ids else runs
        return (run for run in runs if run.directory == str(path))

    def budget(self, task: Task) -> BudgetLeft:
        """The budget of this run: the rest of the total budget and of the task's own budget."""
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
        if self.tasks.find(task.id).status is TaskStatus.CANCELLED:  # the board learns of it in a moment
            return TurnResult(RoleRunEnded(task.id, action.attempt, RunVerdict.LOST))
        state = self._played(assignment)
        assert state.stop is not None
        verdict = state.stop.cause.verdict
        if verdict is None and not assignment.worktree.is_dir():
            gone = f"{assignment.worktree} was removed while task {task.id} was running there"
            return lost(action, Halt(Outcome.FATAL.exit_code, gone))
        if verdict is None:
            return lost(action, halted(state))
        self._settle(assignment, state.plan.run, verdict)
        return TurnResult(RoleRunEnded(task.id, action.attempt, verdict, reason_of(state)))

    # ---- before the run ----

    def _prepared(self, task: Task, action: StartRun) -> Assignment:
        """Prepare the worktree for this role; returns the assignment."""
        with self.context.repo.opened(self.wakeup) as repo:
            progress = self._began(repo, task)
            repository, is_new = repo.place(task.id, action.attempt, progress.began)
            assignment = Assignment(
                task,
                action.role,
                self.context.repo.place_of(repository.top),
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
        try:
            self.prepare(repository)
        except NoEnvironment as problem:  # the agent can fix it: a claim is checked in a copy, which needs it
            self.tell(Notice(problem.text))
        if is_new:
            mark_ready(repository)
        return replace(assignment, progress=progress, tracked=tracked)

    def _began(self, repo: OpenProjectRepo, task: Task) -> TaskProgress:
        """The starting point of a task, the same for all its attempts. A merged task starts again from the base."""
        base, branch = self.context.base, branch_of(task.id)
        tip, own = repo.worktrees.branch_commits(base, branch)
        with self.tasks.writing():
            progress = self.tasks.progress(task.id)
            if progress.began and not progress.merged:
                return progress
            if not tip:
                raise RalphError(
                    f"The branch {base} no longer exists.", "Restore it, then run `ralph work` again."
                )
            if own not in ("", tip):
                self.tell(Notice(f"The branch {branch} already exists. Continuing from it."))
            return self.tasks.keep_progress(task.id, base=base, began=tip, trusted=tip, merged="")

    def _take_up(self, repo: OpenProjectRepo, repository: Repository, assignment: Assignment) -> None:
        """Handle what an earlier run of this turn left behind.

        An interrupted iteration is rewound to its start. Before a new run, earlier changes are committed to the branch;
        otherwise the run would take them for the user's own uncommitted files.
        """
        run = self._run_of_turn(assignment)
        if run is None:
            return
        task, branch = assignment.task, branch_of(assignment.task.id, assignment.attempt)
        loaded = load(self.runs.db, self.runs.path, run.id)
        if loaded.has_cut_off_agent:
            name = snapshot_name(loaded.state.iteration, loaded.state.again)
            self.rewind(repo, repository, branch, run.id, name)
        elif loaded.state.stop is not None and not self._goes_on(loaded.state, task):
            repo.keep(repository, f"{task.id}: unfinished ({assignment.role})", self.scratch(run.id))

    def _run_of_turn(self, assignment: Assignment) -> Run | None:
        """The last run of this role since the task reached it, or None."""
        runs = self.runs.of_task(self.context.project, assignment.task.id)
        if after := assignment.progress.after:
            ids = [run.id for run in runs]
            runs = runs[: ids.index(after)] if after in ids else []
        mine = str(assignment.worktree), assignment.role
        return next((run for run in runs if (run.directory, run.role) == mine), None)

    # ---- the run ----

    def _played(self, assignment: Assignment) -> State:
        """Drive the run of this turn to its end.

        A run that was interrupted or stopped for a temporary reason is resumed. A run that finished, but whose result
        was not recorded, is not repeated. After a fatal error a new run starts: its settings may have been wrong. Only
        the judge is never the old one.
        """
        run, path, context = self._run_of_turn(assignment), assignment.worktree, self.context
        loaded = load(self.runs.db, self.runs.path, run.id) if run else None
        stop = loaded.state.stop if loaded else None
        if run is None or loaded is None or not self._goes_on(loaded.state, assignment.task):
            plan = role_plan.plan(context.settings, assignment, context.sandbox)
            return self.drive(path, plan, guidance=self._undelivered(assignment))
        if stop is None or stop.cause.verdict not in (RunVerdict.PROVED, RunVerdict.REFUSED):
            return self.drive(path, run, self._resume(loaded.state, assignment))
        return loaded.state if loaded.is_over else self.drive(path, run)

    def _undelivered(self, assignment: Assignment) -> list[Steer]:
        """Guidance for this role that its last run ended without."""
        runs = self.runs_in(assignment.task, assignment.worktree)
        last = next((run for run in runs if run.role == assignment.role), None)
        known = self.runs.guidance(last.id) if last is not None else []
        return [Steer(each.at, 0, each.text) for each in known if each.iteration is None]

    def _goes_on(self, state: State, task: Task) -> bool:
        """Whether a run can be resumed, or only its result has to be recorded.

        If only its judge failed, it can, unless the role is now verified in another way.
        """
        stop = state.stop
        if stop is None:
            return True
        if stop.cause is Cause.CANCELLED:
            return False
        if stop.cause is Cause.GIT:
            return True
        if stop.cause in (Cause.JUDGE, Cause.AUTH) and state.phase is Phase.CHECK:
            return role_plan.is_verified_as_now(state.plan, task, self.context.settings)
        is_told = stop.cause.verdict is not None
        return is_told or stop.outcome in (Outcome.INTERRUPTED, Outcome.WAITING)

    def _resume(self, state: State, assignment: Assignment) -> Resume:
        """Resume with the remaining budget and the judge of today, not those the run started with."""
        used, left, settings = state.usage, assignment.budget, self.context.settings
        return Resume(
            time.time(),
            cost_usd=used.cost_usd + left.cost_usd if left.cost_usd else 0.0,
            tokens=used.tokens + left.tokens if left.tokens else 0,
            seconds=state.elapsed + left.seconds if left.seconds else 0.0,
            judge=role_plan.judge_of(settings, role_plan.agents_of(settings, assignment.role)[0]),
            allow_degraded=settings.ralph.allow_degraded,
        )

    # ---- after the run ----

    def _settle(self, assignment: Assignment, run: str, verdict: RunVerdict) -> None:
        """Put the work on the task's branch, no matter what the agent did to branches.

        Uncommitted changes are committed there too, and from now on the tester's result is trusted.
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


def reason_of(state: State) -> str:
    """Why a run did not prove its part: one line, then the output of the refusing role or the failed check."""
    assert state.stop is not None
    if state.stop.cause is Cause.REFUSED and state.ran is not None:
        return f"{state.stop.reason}\n\n{state.ran.text[-4000:]}"
    if state.stop.cause in (Cause.ITERATIONS, Cause.VERIFICATION) and state.feedback:
        return "\n\n".join([state.stop.reason, *(feedback.text for feedback in state.feedback)])
    return "" if state.stop.outcome is Outcome.COMPLETE else state.stop.reason
