"""Tasks as the board sees them: which are chosen, where each stands, and what of it is kept in the store."""

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
"""Hears every event with the id of its task; "" for the work as a whole."""

_STATUS = {
    JobState.TODO: TaskStatus.TODO,
    JobState.DONE: TaskStatus.DONE,
    JobState.FAILED: TaskStatus.FAILED,
    JobState.BLOCKED: TaskStatus.BLOCKED,
    JobState.CANCELLED: TaskStatus.CANCELLED,
}
_ENDED = (TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.CANCELLED)


class Choice(Struct, frozen=True):
    """Which tasks: those named, else those of a spec, else all of the project. `slots`: how many at once."""

    spec: str | None = None
    tasks: tuple[str, ...] = ()
    slots: int = 1


class Jobs:
    """The tasks of one project on their way between store and board."""

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
        """Into the branch of a task nothing can be merged: it goes when the task is done."""
        if (id := task_of(branch)) in self._tasks.statuses():
            raise RalphError(
                f"{branch} is the branch of task {id}: finished tasks cannot go into it.",
                "Check out the branch that they are to go into: git switch BRANCH",
            )

    def chosen(self, choice: Choice) -> list[Job]:
        """The tasks, and what they depend on. One that is named is begun again if it had failed."""
        wanted = [self._reopened(self._tasks.find(id)) for id in choice.tasks]
        rows = {row.id: row for row in self._tasks.stored()}
        if not choice.tasks:
            of_spec = [row for row in rows.values() if choice.spec in (None, row.spec_id)]
            if choice.spec is not None and not of_spec:
                hint = did_you_mean(choice.spec, {row.spec_id for row in rows.values()})
                raise RalphError(f"There is no task of spec {choice.spec!r} in this project{hint or '.'}")
            wanted = [row.id for row in of_spec if row.status != TaskStatus.CANCELLED]
        progresses, new = self._tasks.progresses(), TaskProgress()
        order = _with_dependencies(wanted, {id: self._tasks.depends_on(row) for id, row in rows.items()})
        return [self._job(self._tasks.read(rows[id]), progresses.get(id, new)) for id in order]

    def added(self, choice: Choice, known: Collection[str]) -> Iterator[Job]:
        """Tasks that were added since; one that cannot be worked on is left out, and that is said once."""
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
            self._watch(id, Notice(f"{id} is left out: {why}"))

    def _reopened(self, task: Task) -> str:
        progress = replace(self._tasks.progress(task.id), sent_back=0, merge_retries=0)
        if task.status is TaskStatus.BLOCKED:
            self._tasks.move(task.id, TaskStatus.BLOCKED, progress)
        elif task.status in (TaskStatus.FAILED, TaskStatus.CANCELLED):
            self._tasks.move(task.id, TaskStatus.TODO, replace(progress, role=""))
        return task.id

    def _job(self, task: Task, progress: TaskProgress) -> Job:
        """Where a task stands, as the board sees it. What was blocked is tried again."""
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
        """A role that was switched off meanwhile is passed over."""
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
            raise RalphError(f"The id of task {task.id!r} {problem}.", "Import it again under another id.")
        if task.completion_spec is None:
            self._watch(
                task.id, Notice(f"{task.id} has no completion spec: only its promises are looked for.")
            )
        if problems := role_plan.problems(task, self._roles, self._settings):
            raise RalphError(
                f"Task {task.id}: {'; '.join(problems)}.", f"`ralph task edit {task.id}` changes it."
            )

    # ---- into the store ----

    def keep(self, jobs: Sequence[Job]) -> None:
        """Where jobs stand goes into the store, all of it or nothing; then those that have moved are told."""
        with self._tasks.writing():
            moved = [event for job in jobs if (event := self._kept(job))]
        for event in moved:
            self._watch(event.task, event)

    def keep_all(self, jobs: Sequence[Job]) -> None:
        """The same for all that there are: most of them stand where they stood."""
        statuses, progresses = self._tasks.statuses(), self._tasks.progresses()
        new = TaskProgress()
        self.keep([job for job in jobs if not self._stands(job, statuses, progresses.get(job.id, new))])

    def _stands(self, job: Job, statuses: Mapping[str, str], old: TaskProgress) -> bool:
        status, progress = self._place(job, old)
        return statuses.get(job.id) == status and progress == old

    def _kept(self, job: Job) -> TaskMoved | None:
        """A cancel that the board has not heard of yet stays; so does what the turns of the job have kept.

        A job that goes on from an earlier time is told too, when it begins.
        """
        task, old = self._tasks.get(job.id), self._tasks.progress(job.id)
        if task is None or (task.status is TaskStatus.CANCELLED and job.state not in board.ENDED):
            return None
        status, progress = self._place(job, old)
        if (task.status, old) != (status, progress):
            self._tasks.move(job.id, status, progress)
        goes_on = job.id not in self._told and job.state in (JobState.ACTIVE, JobState.MERGING)
        if (task.status, old.role) == (status, progress.role) and not goes_on:
            return None
        self._told.add(job.id)
        return TaskMoved(task.id, task.title, status, progress.role, job.reason)

    def _place(self, job: Job, old: TaskProgress) -> tuple[TaskStatus, TaskProgress]:
        """The status of a job's task, and its progress from what it was."""
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
    """Tasks and all that they depend on, each after what it depends on."""
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
    """What is to be done next; a job that is blocked or has ended stays where it was."""
    if job.state in (JobState.PROVED, JobState.MERGING):
        return MERGE
    if job.state is JobState.ACTIVE:
        return job.roles[job.role].name
    return before
