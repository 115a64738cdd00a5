"""The state of jobs survives a round trip through the store, whenever Ralph is killed and restarted."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.board import (
    ENDED,
    Board,
    Job,
    JobState,
    Merged,
    MergeVerdict,
    RoleRunEnded,
    StartRun,
    StopRun,
    apply,
    begin,
    is_over,
    open_board,
    ready,
)
from ralph.core.model import RunVerdict
from ralph.core.task_model import TaskStatus
from ralph.settings import Settings
from ralph.store.home import Home
from ralph.work.jobs import Choice, Jobs
from work_support import task

RUNS = [RunVerdict.PROVED] * 3 + [RunVerdict.REFUSED, RunVerdict.FAILED]
MERGES = [MergeVerdict.OK, MergeVerdict.CONFLICT, MergeVerdict.RED, MergeVerdict.HELD]


def configured(*off: str) -> Settings:
    """Settings with some roles disabled."""
    agents = {role: {"enabled": False} for role in off}
    return msgspec.convert({"agent": {"command": "claude"}, "ralph": {"agents": agents}}, Settings)


@dataclass
class Ralph:
    """A Ralph that works on two tasks and may be killed at any moment."""

    home: Home
    proved: Counter[tuple[str, str]] = field(default_factory=Counter)
    running: dict[tuple[str, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.called()

    def called(self) -> None:
        self.jobs = Jobs(self.home, "p", configured(), lambda id, event: None)
        self.board = open_board(self.jobs.chosen(Choice()), 3)
        self.jobs.keep_all(self.board.jobs)
        self.running.clear()

    def moved(self, board: Board) -> None:
        pairs = zip(board.jobs, self.board.jobs, strict=True)
        self.board, changed = board, [job for job, old in pairs if job is not old]
        self.jobs.keep(changed)

    def begins(self) -> None:
        while actions := ready(self.board):
            for action in actions:
                self.moved(begin(self.board, action))
                if isinstance(action, StartRun):
                    self.running[action.job, action.attempt] = action.role
                elif isinstance(action, StopRun):
                    self.hears(RoleRunEnded(action.job, action.attempt, RunVerdict.STOPPED))

    def hears(self, fact: RoleRunEnded | Merged) -> None:
        if isinstance(fact, RoleRunEnded):
            role = self.running.pop((fact.job, fact.attempt))
            if fact.verdict is RunVerdict.PROVED:
                self.proved[fact.job, role] += 1
        self.moved(apply(self.board, fact))

    def answers(self) -> list[RoleRunEnded | Merged]:
        merging = [job.id for job in self.board.jobs if job.state is JobState.MERGING]
        ends = [RoleRunEnded(*run, verdict) for run in self.running for verdict in RUNS]
        return [*ends, *(Merged(id, verdict) for id in merging for verdict in MERGES)]


def come_back(job: Job) -> tuple[object, ...]:
    """The state of an unfinished job after its Ralph is gone."""
    state = JobState.PROVED if job.state is JobState.MERGING else job.state
    return state, job.role, job.sent_back, job.merge_retries, job.winner, job.reason


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 3))
def test_a_restart_continues_from_the_stored_jobs(data: st.DataObject, attempts: int) -> None:
    """Each job keeps its state, no proved role is repeated, and finally all are finished."""
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory))
        with closing(home.tasks("p").db):
            home.tasks("p").add([task("a", attempts=attempts), task("b", dependencies=("a",))])
        ralph, restarts = Ralph(home), data.draw(st.integers(0, 6))
        for _ in range(100):
            ralph.begins()
            if is_over(ralph.board):
                break
            if restarts and data.draw(st.integers(0, 3)) == 0:
                restarts -= 1
                before = {job.id: job for job in ralph.board.jobs}
                ralph.called()
                for job in ralph.board.jobs:
                    if before[job.id].state not in ENDED:
                        assert come_back(job) == come_back(before[job.id])
            else:
                ralph.hears(data.draw(st.sampled_from(ralph.answers())))
        assert is_over(ralph.board)
        for job in ralph.board.jobs:
            ways = 1 + job.sent_back + job.merge_retries
            assert all(n <= ways for (id, _), n in ralph.proved.items() if id == job.id)


def test_a_disabled_role_is_skipped(tmp_path: Path) -> None:
    """A task at the tester continues with the next enabled role, not from the beginning."""
    home = Home(tmp_path)
    tasks = home.tasks("p")
    tasks.add([task("a"), task("b")])
    for id, role in (("a", "tester"), ("b", "qa")):
        tasks.move(id, TaskStatus.TESTING, tasks.keep_progress(id, role=role))
    for off, expected in ((("tester", "qa"), JobState.PROVED), (("tester",), "qa")):
        found = Jobs(home, "p", configured(*off), lambda id, event: None).chosen(Choice())
        places = [job.state if job.state is JobState.PROVED else job.roles[job.role].name for job in found]
        assert places == [expected] * 2


def test_a_cancel_is_not_overwritten(tmp_path: Path) -> None:
    """A cancellation that the board does not know of stays in the store, whatever the job did meanwhile."""
    home = Home(tmp_path)
    tasks = home.tasks("p")
    tasks.add([task("a")])
    ralph = Ralph(home)
    ralph.begins()
    tasks.move("a", TaskStatus.CANCELLED, tasks.progress("a"))
    ralph.hears(RoleRunEnded("a", 1, RunVerdict.PROVED))
    assert tasks.find("a").status is TaskStatus.CANCELLED
    assert ralph.jobs.cancelled() == {"a"}


def test_progress_written_by_turns_is_not_overwritten(tmp_path: Path) -> None:
    """A turn writes the starting point; the board changes only its own fields."""
    home = Home(tmp_path)
    home.tasks("p").add([task("a")])
    ralph = Ralph(home)
    home.tasks("p").keep_progress("a", began="1234", trusted="1234")
    ralph.begins()
    ralph.hears(RoleRunEnded("a", 1, RunVerdict.PROVED))
    progress = home.tasks("p").progress("a")
    assert (progress.began, progress.trusted, progress.role) == ("1234", "1234", "reviewer")
