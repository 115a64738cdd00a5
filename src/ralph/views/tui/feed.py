"""Data for the dashboard, read from the store: short reads of changed rows only, and no writes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from ralph.core.events import Event
from ralph.core.model import Flow, Plan, RunAgent, Usage
from ralph.core.task_model import ROLES, Task, TaskProgress, TaskStatus
from ralph.errors import RalphError
from ralph.store.database import Missing
from ralph.store.home import Home
from ralph.store.journal import steps
from ralph.store.runs import Run, Runs
from ralph.store.tasks import Tasks
from ralph.views import stories
from ralph.views.status import PAUSED, Summary, as_tree, asked_of, summaries, summary
from ralph.views.task_status import TaskState, task_state
from ralph.views.tasks import RoleView
from ralph.views.tui.storyfile import StoryFile

TASK_LANES = tuple(str(status) for status in TaskStatus)
ACTIVE = frozenset(defaults.status for defaults in ROLES.values())


class Project(Struct, frozen=True):
    """A project: its `id` in the store, its directory, and how many runs and tasks it has."""

    id: str
    directory: str
    runs: int = 0
    tasks: int = 0

    @property
    def name(self) -> str:
        return Path(self.directory).name or self.directory


class Overview(Struct, frozen=True):
    """All runs with their depth in the tree, live ones first, and all projects."""

    runs: tuple[tuple[int, Summary], ...] = ()
    projects: tuple[Project, ...] = ()
    since: Mapping[str, float] = field(default_factory=dict)
    """Start time of each live run's current step; the summary does not include that step's time yet."""

    asked: Mapping[str, str] = field(default_factory=dict)
    """The prompt, prompt file or task title of each run."""

    def project_of(self, id: str) -> Project | None:
        return next((project for project in self.projects if project.id == id), None)


class Card(Struct, frozen=True):
    """A task or story in its lane. `count`: its iterations, or its number of reviews."""

    id: str
    title: str
    lane: str
    count: str = ""
    note: str = ""


class Boards(Struct, frozen=True):
    """A project's tasks by status and stories by state. `problem`: why its stories cannot be shown."""

    tasks: tuple[Card, ...] = ()
    stories: tuple[Card, ...] = ()
    problem: str = ""


class TaskSeen(Struct, frozen=True):
    """A task with the criteria and the verification results of its roles."""

    task: Task
    progress: TaskProgress
    roles: tuple[RoleView, ...]
    state: TaskState


class Past(Protocol):
    """The events of a run; each call of `news` returns those since the last call."""

    def news(self) -> Iterator[tuple[Event, float]]: ...

    @property
    def in_hand(self) -> Usage: ...


class FeedSources(Struct, frozen=True):
    """Functions from outside the views: `past` replays a run, `roles` returns a task's criteria for each role."""

    past: Callable[[Runs, str], Past]
    roles: Callable[[str, Task], Sequence[RoleView]]


class _Remembered(Struct):
    """The summary of a finished run, which no longer changes."""

    run: Run
    last: int
    summary: Summary


class Feed:
    """Reads the store over one connection, one caller at a time; raises `RalphError` if it cannot be read."""

    def __init__(self, home: Home, sources: FeedSources) -> None:
        self.home = home
        self.sources = sources
        self._lock = threading.Lock()
        self._runs: Runs | None = None
        self._inode = 0
        self._ended: dict[str, _Remembered] = {}
        self._rows: dict[str, int] = {}
        self._driven: list[Run] = []
        self._since: dict[str, float] = {}
        self._asked: dict[str, str] = {}
        self._prds: dict[str, tuple[str, str]] = {}
        self._seen: tuple[Any, ...] = ()
        self._overview = Overview()
        self._stories: dict[str, StoryFile] = {}
        self._cards: dict[str, tuple[Overview | None, tuple[Card, ...]]] = {}

    @contextmanager
    def reading(self) -> Iterator[Runs]:
        """Lock the connection and yield the runs; reopen the store first if its file was replaced."""
        with self._lock:
            inode = self._inode_now()
            if self._runs is not None and inode != self._inode:
                self._close()
            if self._runs is None:
                self._runs, self._inode = self.home.to_read(), inode
            try:
                yield self._runs
            except RalphError:
                self._close()
                raise

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._runs is not None:
            self._runs.db.close()
        self._runs, self._seen = None, ()

    def _inode_now(self) -> int:
        try:
            return os.stat(self.home.database).st_ino
        except OSError:
            return 0

    # ---- all runs ----

    def overview(self) -> Overview:
        """All runs and projects: the same object as before if nothing has changed, empty if there is no store."""
        try:
            with self.reading() as runs:
                version = _version(runs)
                if (version, *self._alive()) != self._seen:
                    self._driven, self._since = [], {}
                    self._overview = self._looked(runs)
                    self._seen = (version, *self._alive())
                return self._overview
        except Missing:
            return Overview()

    def _alive(self) -> Iterable[bool]:
        """Whether each process is alive: a dead process changes its run without a write to the store."""
        return (run.is_live for run in self._driven)

    def _looked(self, runs: Runs) -> Overview:
        self._rows = runs.last_rows()
        found = summaries(runs, self._summed)
        self._ended = {s.id: self._ended[s.id] for s in found if s.id in self._ended}
        for s in found:
            if s.id not in self._asked:
                plan = runs.plan(s.id)
                self._asked[s.id] = asked_of(plan) if plan else ""
        projects = tuple(self._projects(runs, found))
        return Overview(tuple(as_tree(found)), projects, dict(self._since), self._asked)

    def _summed(self, runs: Runs, run: Run) -> Summary:
        if run.pid is not None:
            self._driven.append(run)
        known, last = self._ended.get(run.id), self._rows.get(run.id, -1)
        if known is not None and (known.run, known.last) == (run, last):
            return known.summary
        found = summary(runs, run)
        if found.pid is not None:
            return self._in_hand(runs, found, last)
        if found.outcome is not None and run.pid is None:
            self._ended[run.id] = _Remembered(run, last, found)
        return found

    def _in_hand(self, runs: Runs, s: Summary, last: int) -> Summary:
        """Count the iteration that a live run has started, even if it is waiting for a usage limit in it."""
        for entry in steps(runs.db, runs.path, s.id, last - 4, looks=False):
            if entry.is_in_hand and s.state != PAUSED:
                self._since[s.id] = entry.started
            if isinstance(entry.step, RunAgent):
                s = replace(s, iteration=max(s.iteration, entry.step.iteration))
        return s

    def _projects(self, runs: Runs, found: Sequence[Summary]) -> Iterator[Project]:
        counts = Tasks(runs.db, runs.path, "").totals()
        for id in runs.projects():
            mine = [s for s in found if s.project == id and s.task is None]
            directory = mine[0].directory if mine else project_directory(id)
            yield Project(id, directory, len(mine), counts.get(id, 0))

    # ---- the boards of a project ----

    def boards(self, project: Project) -> Boards:
        try:
            with self.reading() as runs:
                known, tasks = self._cards.get(project.id, (None, ()))
                if known is not self._overview or not self._seen:
                    tasks = tuple(self._tasks(runs, project.id))
                    self._cards = {project.id: (self._overview, tasks)}
                directory, folder = self._prd_of(runs, project)
        except Missing:
            return Boards()
        file = self._stories.setdefault(f"{directory}\0{folder}", StoryFile(directory, folder))
        return Boards(tasks, tuple(map(_story_card, file.listed())), file.problem)

    def _tasks(self, runs: Runs, project: str) -> Iterator[Card]:
        live = {s.task: s for _, s in self._overview.runs if s.task and s.project == project}
        for brief in Tasks(runs.db, runs.path, project).briefs():
            count, note = (str(brief.iteration) if brief.iteration else ""), ""
            newest = next(iter(runs.of_task(project, brief.id)), None) if brief.status in ACTIVE else None
            if newest is not None:
                s = live.get(brief.id) or summary(runs, newest)
                note, count = s.role or "", f"{s.iteration}/{s.max_iterations}"
            yield Card(brief.id, brief.title, brief.status, count, note)

    def _prd_of(self, runs: Runs, project: Project) -> tuple[str, str]:
        """Directory and folder of a project's PRD task list: those of its newest loop, otherwise the default."""
        for _, s in self._overview.runs:
            if s.project == project.id and s.flow == Flow.PRD:
                if s.id not in self._prds:
                    self._prds[s.id] = _prd(runs.plan(s.id)) or (project.directory, "ralph")
                return self._prds[s.id]
        return project.directory, "ralph"

    def story(self, id: str) -> Mapping[str, Any] | None:
        """A story of the board, as last read."""
        listed = (story for file in self._stories.values() for story in file.stories)
        return next((story for story in listed if str(story.get("id")) == id), None)

    # ---- one task ----

    def task(self, project: str, id: str) -> TaskSeen:
        with self.reading() as runs:
            tasks = Tasks(runs.db, runs.path, project)
            task, progress = tasks.find(id), tasks.progress(id)
            state = task_state(self.home, runs, project, task, progress)
        return TaskSeen(task, progress, tuple(self.sources.roles(project_directory(project), task)), state)


def project_directory(id: str) -> str:
    """The project's directory: its id is the git directory shared by its worktrees, or the directory itself."""
    path = Path(id)
    return str(path.parent if path.name == ".git" else path)


def _version(runs: Runs) -> int:
    """A number that changes whenever another connection writes to the store."""
    return int(runs.db.execute("PRAGMA data_version").fetchone()[0])


def _prd(plan: Plan | None) -> tuple[str, str] | None:
    prd = plan.prompt.prd if plan else None
    return (plan.directory, prd.folder) if plan and prd else None


def _story_card(story: Mapping[str, Any]) -> Card:
    state, reviews = stories.state_of(story), story.get("reviewCount")
    lane = state if state in stories.STATES else stories.TODO
    return Card(str(story.get("id")), str(story.get("title")), lane, f"{reviews} rev" if reviews else "")
