"""Many tasks as a state machine without I/O: which runs to start, which to stop, what to merge.

    ready(Board)              the actions that may start now
    begin(Board, action)      the board after the driver has started an action
    apply(Board, fact)        the board after something happened

Each role of a job is a child run. At most `slots` runs are active, at most `per_agent` of one agent, and
one merge at a time. A job starts when all its dependencies are merged, and is merged when its runs have ended.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ralph.core.model import RunVerdict, complete

MAX_SENT_BACK = 3
"""How often later roles may send a task back to the first role."""

MAX_MERGE_RETRIES = 1
"""How often a conflict or a failed check after merging returns to the first role before the job is blocked."""


class JobState(StrEnum):
    TODO = "todo"
    ACTIVE = "active"
    PROVED = "proved"
    MERGING = "merging"
    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"


ENDED = frozenset({JobState.DONE, JobState.FAILED, JobState.BLOCKED, JobState.CANCELLED})
LOST = ENDED - {JobState.DONE}
_MERGEABLE = frozenset({JobState.PROVED, JobState.MERGING})


class MergeVerdict(StrEnum):
    OK = "ok"
    CONFLICT = "conflict"
    RED = "red"
    HELD = "held"
    LOST = "lost"


class Role(Struct, frozen=True):
    name: str
    agent: str = ""


class Running(Struct, frozen=True):
    """One child run. `unwanted`: another attempt won, or the job ended; `stopping`: it was asked to stop."""

    attempt: int
    role: Role
    unwanted: bool = False
    stopping: bool = False


class Job(Struct, frozen=True):
    """One task in progress. `attempts` run the first role in parallel; the first one proved wins."""

    id: str
    roles: tuple[Role, ...]
    priority: int = 0
    depends_on: tuple[str, ...] = ()
    attempts: int = 1
    state: JobState = JobState.TODO
    role: int = 0
    pending: tuple[int, ...] = ()
    running: tuple[Running, ...] = ()
    winner: int = 1
    cancelled: bool = False
    sent_back: int = 0
    merge_retries: int = 0
    reason: str = ""


class Links(Struct, frozen=True):
    """The index and the dependents of each job, shared by all boards with the same jobs."""

    places: Mapping[str, int]
    dependents: Mapping[str, tuple[str, ...]]


class Board(Struct, frozen=True):
    """`jobs` keeps the order in which they were added."""

    jobs: tuple[Job, ...]
    slots: int = 1
    per_agent: tuple[tuple[str, int], ...] = ()
    links: Links = Links({}, {})

    def job(self, id: str) -> Job:
        return self.jobs[self.links.places[id]]


# ---- actions ----


class StartRun(Struct, frozen=True):
    job: str
    role: str
    attempt: int
    agent: str
    reason: str = ""


class StopRun(Struct, frozen=True):
    job: str
    attempt: int


class Merge(Struct, frozen=True):
    job: str
    attempt: int


Action = StartRun | StopRun | Merge


# ---- facts ----


class RoleRunEnded(Struct, frozen=True):
    job: str
    attempt: int
    verdict: RunVerdict
    reason: str = ""


class Merged(Struct, frozen=True):
    job: str
    verdict: MergeVerdict
    reason: str = ""


class JobAdded(Struct, frozen=True):
    job: Job


class JobCancelled(Struct, frozen=True):
    job: str


Fact = RoleRunEnded | Merged | JobAdded | JobCancelled


class Cycle(ValueError):
    """Tasks that depend on each other; `path` starts and ends with the same id."""

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__(" → ".join(path))
        self.path = path


def is_over(board: Board) -> bool:
    return all(job.state in ENDED and not job.running for job in board.jobs)


def ready(board: Board) -> tuple[Action, ...]:
    """All actions that may start now; the driver starts each and asks again."""
    live = [job for job in board.jobs if job.pending or job.running or job.state in _MERGEABLE]
    return (*_stops(live), *_merge(live), *_starts(board, live))


def begin(board: Board, action: Action) -> Board:
    job = board.job(action.job)
    if isinstance(action, Merge):
        job = replace(job, state=JobState.MERGING)
    elif isinstance(action, StopRun):
        told = (replace(r, stopping=True) if r.attempt == action.attempt else r for r in job.running)
        job = replace(job, running=tuple(told))
    else:
        pending = tuple(n for n in job.pending if n != action.attempt)
        run = Running(action.attempt, job.roles[job.role])
        job = replace(job, pending=pending, running=(*job.running, run), state=JobState.ACTIVE)
    return _put(board, job)


def apply(board: Board, fact: Fact) -> Board:
    board = _FACTS[type(fact)](board, fact)
    id = fact.job.id if isinstance(fact, JobAdded) else fact.job
    return _followed(board, [id, *board.links.dependents[id]])


def find_cycle(depends_on: dict[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    """A dependency cycle, if there is one."""
    finished: set[str] = set()
    for root in depends_on:
        path: dict[str, None] = {}
        stack: list[tuple[str, bool]] = [(root, False)]
        while stack:
            id, left = stack.pop()
            if left:
                del path[id]
                finished.add(id)
            elif id in path:
                ids = list(path)
                return (*ids[ids.index(id) :], id)
            elif id not in finished:
                path[id] = None
                stack.append((id, True))
                stack.extend((other, False) for other in depends_on.get(id, ()))
    return None


def open_board(jobs: Iterable[Job], slots: int, per_agent: tuple[tuple[str, int], ...] = ()) -> Board:
    """A board with these jobs, the ones without open dependencies ready to start."""
    board = Board(tuple(jobs), slots, per_agent)
    _check(board)
    return _followed(_linked(board), (job.id for job in board.jobs))


def _linked(board: Board) -> Board:
    dependents: dict[str, list[str]] = {job.id: [] for job in board.jobs}
    for job in board.jobs:
        for id in dict.fromkeys(job.depends_on):
            dependents[id].append(job.id)
    places = {job.id: place for place, job in enumerate(board.jobs)}
    return replace(board, links=Links(places, {id: tuple(ids) for id, ids in dependents.items()}))


def _check(board: Board) -> None:
    """Reject a board that could never finish."""
    if board.slots < 1 or any(most < 1 for _, most in board.per_agent):
        raise ValueError("a board needs at least one slot, for every agent")
    ids: set[str] = set()
    for job in board.jobs:
        if job.id in ids:
            raise ValueError(f"{job.id} is on the board twice")
        if not job.roles or job.attempts < 1:
            raise ValueError(f"{job.id} needs at least one role and one attempt")
        ids.add(job.id)
    for job in board.jobs:
        if not ids.issuperset(job.depends_on):
            unknown = next(id for id in job.depends_on if id not in ids)
            raise ValueError(f"{job.id} depends on {unknown}, which is not on the board")
    if cycle := find_cycle({job.id: job.depends_on for job in board.jobs}):
        raise Cycle(cycle)


# ---- actions that may start ----


def _stops(live: list[Job]) -> Iterable[StopRun]:
    for job in live:
        yield from (StopRun(job.id, r.attempt) for r in job.running if r.unwanted and not r.stopping)


def _merge(live: list[Job]) -> Iterable[Merge]:
    if any(job.state is JobState.MERGING for job in live):
        return
    proved = [job for job in live if job.state is JobState.PROVED and not job.running]
    if proved:
        job = min(proved, key=lambda job: job.priority)
        yield Merge(job.id, job.winner)


def _starts(board: Board, live: list[Job]) -> Iterable[StartRun]:
    free = board.slots - sum(len(job.running) for job in live)
    limits = dict(board.per_agent)
    busy = Counter(run.role.agent for job in live for run in job.running)
    begun_first = sorted(live, key=lambda job: (job.state is not JobState.ACTIVE, job.priority))
    for job in begun_first:
        role = job.roles[job.role]
        for attempt in job.pending:
            if free <= 0:
                return
            if busy[role.agent] >= limits.get(role.agent, board.slots):
                break
            busy[role.agent] += 1
            free -= 1
            yield StartRun(job.id, role.name, attempt, role.agent, job.reason)


# ---- the board after a fact ----


def _run_ended(board: Board, fact: RoleRunEnded) -> Board:
    job = board.job(fact.job)
    run = next((run for run in job.running if run.attempt == fact.attempt), None)
    if run is None:
        return board
    job = replace(job, running=tuple(other for other in job.running if other is not run))
    return _put(board, job if run.unwanted else _RUN_VERDICTS[fact.verdict](job, fact))


def _proved(job: Job, fact: RoleRunEnded) -> Job:
    job = _unwanted(replace(job, winner=fact.attempt, pending=(), reason=""))
    if job.role + 1 < len(job.roles):
        return replace(job, role=job.role + 1, pending=(job.winner,))
    return replace(job, state=JobState.PROVED)


def _unwanted(job: Job) -> Job:
    """Mark every run of this job to be stopped and its result ignored."""
    return replace(job, running=tuple(replace(run, unwanted=True) for run in job.running))


def _refused(job: Job, fact: RoleRunEnded) -> Job:
    if job.role == 0 or job.sent_back >= MAX_SENT_BACK:
        return _failed(job, fact)
    return replace(job, role=0, pending=(job.winner,), sent_back=job.sent_back + 1, reason=fact.reason)


def _failed(job: Job, fact: RoleRunEnded) -> Job:
    if job.pending or any(not run.unwanted for run in job.running):
        return job
    return replace(job, state=JobState.FAILED, reason=fact.reason)


def _stopped(job: Job, fact: RoleRunEnded) -> Job:
    """A person stopped this run: other attempts continue; without any, the job is cancelled."""
    job = _failed(job, replace(fact, reason="cancelled"))
    return replace(job, state=JobState.CANCELLED) if job.state is JobState.FAILED else job


def _lost(job: Job, fact: RoleRunEnded) -> Job:
    """The process that drove the run is gone: start it again."""
    return replace(job, pending=(*job.pending, fact.attempt))


_RUN_VERDICTS: dict[RunVerdict, Callable[[Job, RoleRunEnded], Job]] = complete(
    RunVerdict,
    {
        RunVerdict.PROVED: _proved,
        RunVerdict.REFUSED: _refused,
        RunVerdict.FAILED: _failed,
        RunVerdict.STOPPED: _stopped,
        RunVerdict.LOST: _lost,
    },
)


def _merged(board: Board, fact: Merged) -> Board:
    job = replace(board.job(fact.job), reason=fact.reason)
    if job.state is not JobState.MERGING:
        return board
    if fact.verdict is MergeVerdict.OK:
        job = replace(job, state=JobState.DONE)
    elif job.cancelled:
        job = replace(job, state=JobState.CANCELLED, reason="cancelled")
    elif fact.verdict is MergeVerdict.LOST:
        job = replace(job, state=JobState.PROVED)
    elif fact.verdict is MergeVerdict.HELD or job.merge_retries >= MAX_MERGE_RETRIES:
        job = replace(job, state=JobState.BLOCKED)
    else:
        retries = job.merge_retries + 1
        job = replace(job, state=JobState.ACTIVE, role=0, pending=(job.winner,), merge_retries=retries)
    return _put(board, job)


def _added(board: Board, fact: JobAdded) -> Board:
    board = replace(board, jobs=(*board.jobs, fact.job))
    _check(board)
    return _linked(board)


def _cancelled(board: Board, fact: JobCancelled) -> Board:
    job = board.job(fact.job)
    if job.state in ENDED:
        return board
    if job.state is JobState.MERGING:
        return _put(board, replace(job, cancelled=True))
    return _put(board, _unwanted(replace(job, state=JobState.CANCELLED, pending=(), reason="cancelled")))


_FACTS: dict[type[Fact], Callable[[Board, Any], Board]] = {
    RoleRunEnded: _run_ended,
    Merged: _merged,
    JobAdded: _added,
    JobCancelled: _cancelled,
}


def _followed(board: Board, ids: Iterable[str]) -> Board:
    """Propagate the states of dependencies to these jobs and on through the graph.

    A job with a dependency that will never be merged is blocked; one whose dependencies are all merged may start.
    """
    jobs, places = list(board.jobs), board.links.places
    todo = deque(ids)
    while todo:
        place = places[todo.popleft()]
        job = jobs[place]
        if job.state is not JobState.TODO or job.pending:
            continue
        above = [jobs[places[id]] for id in job.depends_on]
        cause = next((other for other in above if other.state in LOST), None)
        if cause is not None:
            reason = f"depends on {cause.id} ({cause.state})"
            jobs[place] = replace(job, state=JobState.BLOCKED, reason=reason)
            todo += board.links.dependents[job.id]
        elif all(other.state is JobState.DONE for other in above):
            jobs[place] = replace(job, pending=tuple(range(1, job.attempts + 1)))
    return replace(board, jobs=tuple(jobs))


def _put(board: Board, job: Job) -> Board:
    place = board.links.places[job.id]
    return replace(board, jobs=(*board.jobs[:place], job, *board.jobs[place + 1 :]))
