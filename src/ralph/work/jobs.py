"""Moves tasks between the store and the board: which ones are chosen, and the progress of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ralph.core import board
from ralph.core.board import Job, JobState
from ralph.core.events import Event, Notice, TaskMoved
from ralph.core.task_model import ROLES, Task, TaskProgress, TaskStatus
from ralph.errors import RalphError
from ralph.scm.worktrees import task_of
from ralph.settings import Settings
from ralph.store.home import Home
from ralph.tasks.form import id_problem
from ralph.tasks.verification import did_you_mean
from ralph.work import role_plan
from ralph.work.role_plan import MERGE

Watch = Callable[[str, Event], None]
"""Receives every event with the id of its task, or "" for events of `ralph work` as a whole."""

_STATUS = {
    JobState.TODO: TaskStatus.TODO,
    JobState.DONE: TaskStatus.DONE,
    JobState.FAILED: TaskStatus.FAILED,
    JobState.BLOCKED: TaskStatus.BLOCKED,
    JobState.CANCELLED: TaskStatus.CANCELLED,
}
_ENDED = (TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.CANCELLED)


class Choice(Struct, frozen=True):
    """The tasks to work on: the named ones, those of a spec, or all of the project. `slots` run in parallel."""

    spec: str | None = None
    tasks: tuple[str, ...] = ()
    slots: int = 1


class Jobs:
    """The tasks of one project, read from the store for the board and written back."""

    def __init__(self, home: Home, project: str, settings: Settings, watch: Watch) -> None:
        self._tasks = home.tasks(project)
        self._runs = home.runs()
        self._project = project
        self._settings = settings
        self._roles = role_plan.roles_of(settings)
        agents = (role_plan.agents_of(settings, role)[0].name for role in self._roles)
        self._of_job = tuple(map(board.Role, self._roles, agents))
        self._watch = watch
        self._left_out: set[tuple[str, str]] = set()
        self._told: set[str] = set()

    # ---- from the store ----

    def check_base(self, branch: str) -> None:
        """Refuse to merge into the branch of a task, which is deleted when that task is done."""
        if (id := task_of(branch)) in self._tasks.statuses():
            raise RalphError(
                f"{branch} is the branch of task {id}: finished tasks cannot be merged into it.",
                "Check out the branch to merge into: git switch BRANCH",
            )

    def chosen(self, choice: Choice) -> list[Job]:
        """The chosen tasks and their dependencies. A named task that had failed starts again."""
        wanted = [self._reopened(self._tasks.find(id)) for id in choice.tasks]
        rows = {row.id: row for row in self._tasks.stored()}
        if not choice.tasks:
            of_spec = [row for row in rows.values() if choice.spec in (None, row.spec_id)]
            if choice.spec is not None and not of_spec:
                hint = did_you_mean(choice.spec, {row.spec_id for row in rows.values()})
                raise RalphError(f"This project has no task of spec {choice.spec!r}{hint or '.'}")
            wanted = [row.id for row in of_spec if row.status != TaskStatus.CANCELLED]
        progresses, new = self._tasks.progresses(), TaskProgress()
        order = _with_dependencies(wanted, {id: self._tasks.depends_on(row) for id, row in rows.items()})
        return [self._job(self._tasks.read(rows[id]), progresses.get(id, new)) for id in order]

    def added(self, choice: Choice, known: Collection[str]) -> Iterator[Job]:
        """Tasks added since the start. A task that cannot be worked on is skipped, with one notice."""
        new = [id for id in self._tasks.ids(TaskStatus.TODO, choice.spec) if id not in known]
        if choice.tasks or not new:
            return
        for id in _with_dependencies(new, self._tasks.graph()):
            try:
                if id not in known:
                    yield self._job(self._tasks.find(id), self._tasks.progress(id))
            except RalphError as error:
                self.leave_out(id, error.text)

    def cancelled(self) -> set[str]:
        return set(self._tasks.ids(TaskStatus.CANCELLED))

    def leave_out(self, id: str, why: str) -> None:
        if (id, why) not in self._left_out:
            self._left_out.add((id, why))
            self._watch(id, Notice(f"Skipping {id}: {why}"))

    def _reopened(self, task: Task) -> str:
        progress = replace(self._tasks.progress(task.id), sent_back=0, merge_retries=0)
        if task.status is TaskStatus.BLOCKED:
            self._tasks.move(task.id, TaskStatus.BLOCKED, progress)
        elif task.status in (TaskStatus.FAILED, TaskStatus.CANCELLED):
            self._tasks.move(task.id, TaskStatus.TODO, replace(progress, role=""))
        return task.id

    def _job(self, task: Task, progress: TaskProgress) -> Job:
        """The board's view of a task. Blocked tasks are tried again."""
        if task.status is not TaskStatus.DONE:
            self._check(task)
        job = Job(
            id=task.id,
            roles=self._of_job,
            priority=task.priority,
            depends_on=task.dependencies,
            sent_back=progress.sent_back,
            merge_retries=progress.merge_retries,
            reason=progress.reason,
            attempts=task.attempts,
            winner=progress.attempt,
        )
        if task.status in _ENDED:
            return replace(job, state=JobState(task.status))
        if not progress.role:
            return job
        return self._under_way(job, progress)

    def _under_way(self, job: Job, progress: TaskProgress) -> Job:
        """A job that resumes at its stored role, or at the next enabled role if that one was disabled."""
        order = [*ROLES, MERGE]
        left = [role for role in self._roles if order.index(role) >= order.index(progress.role)]
        if not left:
            return replace(job, state=JobState.PROVED, role=len(self._roles) - 1)
        at = self._roles.index(left[0])
        is_open = at == 0 and not (job.sent_back or job.merge_retries)
        pending = tuple(range(1, job.attempts + 1)) if is_open else (job.winner,)
        return replace(job, state=JobState.ACTIVE, role=at, pending=pending)

    def _check(self, task: Task) -> None:
        if problem := id_problem(task.id):
            raise RalphError(f"The id of task {task.id!r} {problem}.", "Import it again with a different id.")
        if task.completion_spec is None:
            self._watch(task.id, Notice(f"{task.id} has no completion spec: only its promises are checked."))
        if problems := role_plan.problems(task, self._roles, self._settings):
            raise RalphError(
                f"Task {task.id}: {'; '.join(problems)}.", f"To change it: ralph task edit {task.id}"
            )

    # ---- into the store ----

    def keep(self, jobs: Sequence[Job]) -> None:
        """Write the state of jobs to the store in one transaction, then report the ones that moved."""
        with self._tasks.writing():
            moved = [event for job in jobs if (event := self._kept(job))]
        for event in moved:
            self._watch(event.task, event)

    def keep_all(self, jobs: Sequence[Job]) -> None:
        """The same for all jobs, skipping the ones that have not changed."""
        statuses, progresses = self._tasks.statuses(), self._tasks.progresses()
        new = TaskProgress()
        self.keep([job for job in jobs if not self._stands(job, statuses, progresses.get(job.id, new))])

    def _stands(self, job: Job, statuses: Mapping[str, str], old: TaskProgress) -> bool:
        status, progress = self._place(job, old)
        return statuses.get(job.id) == status and progress == old

    def _kept(self, job: Job) -> TaskMoved | None:
        """Write one job to the store; returns the event to report, if any.

        A cancellation that the board does not know of yet is kept, and so is progress written by the job's turns.
        A job resumed from an earlier `ralph work` is reported when it starts.
        """
        task, old = self._tasks.get(job.id), self._tasks.progress(job.id)
        if task is None or (task.status is TaskStatus.CANCELLED and job.state not in board.ENDED):
            return None
        status, progress = self._place(job, old)
        if (task.status, old) != (status, progress):
            self._tasks.move(job.id, status, progress)
        is_resumed = job.id not in self._told and job.state in (JobState.ACTIVE, JobState.MERGING)
        if (task.status, old.role) == (status, progress.role) and not is_resumed:
            return None
        self._told.add(job.id)
        return TaskMoved(task.id, task.title, status, progress.role, job.reason)

    def _place(self, job: Job, old: TaskProgress) -> tuple[TaskStatus, TaskProgress]:
        """The new status of a job's task, and its progress updated from the old one."""
        role = _role(job, old.role)
        status = _STATUS.get(job.state) or ROLES[self._roles[-1] if role == MERGE else role].status
        return status, replace(
            old,
            role=role,
            sent_back=job.sent_back,
            merge_retries=job.merge_retries,
            reason=job.reason,
            attempt=job.winner,
            after=old.after if role == old.role else self._last_run(job.id),
        )

    def _last_run(self, task: str) -> str:
        return next((run.id for run in self._runs.of_task(self._project, task)), "")


def _with_dependencies(wanted: list[str], depends_on: Mapping[str, Sequence[str]]) -> list[str]:
    """Tasks and all their dependencies, with dependencies first."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    todo = wanted[::-1]
    while todo:
        id = todo[-1]
        new = [other for other in depends_on[id] if other in depends_on and other not in seen]
        if id in seen or not new:
            found[todo.pop()] = None
        else:
            todo += new
        seen.add(id)
    return list(found)


def _role(job: Job, before: str) -> str:
    """The next role of a job. A blocked or finished job keeps its role."""
    if job.state in (JobState.PROVED, JobState.MERGING):
        return MERGE
    if job.state is JobState.ACTIVE:
        return job.roles[job.role].name
    return before
