"""What a report says: one value, from which the page, the Markdown and the JSON are made, so that they cannot disagree.

Times are seconds since 1970, durations seconds.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from ralph.core.model import Usage
from ralph.scm.history import Counted
from ralph.store.runs import Guidance

FORMAT = 1
"""Of `ralph report --json`; fields are only ever added."""


class Doing(StrEnum):
    """What a stretch of time was spent on. `away`: no process drove the run."""

    AGENT = "agent"
    CHECK = "check"
    COMMIT = "commit"
    LIMIT = "limit"
    RESTART = "restart"
    PAUSED = "paused"
    CHILDREN = "children"
    AWAY = "away"


class RemarkKind(StrEnum):
    """What a reader should know before believing the outcome."""

    LIMIT = "limit"
    AUTO_APPROVED = "auto_approved"
    DEGRADED = "degraded"
    UNDONE = "undone"
    FAILED = "failed"
    RESUMED = "resumed"
    NOTE = "note"


class Excerpt(Struct, frozen=True):
    """A text, perhaps not all of it: `left_out` is how much is missing (characters; of a diff also lines of files that
    are left out), and `see` the command that shows it.
    """

    text: str = ""
    left_out: int = 0
    see: str = ""


class Segment(Struct, frozen=True):
    """`is_open`: it goes on."""

    doing: Doing
    label: str
    began: float
    seconds: float
    is_open: bool = False
    is_red: bool = False


class Found(Struct, frozen=True):
    """What one check found. `parts`: its stages, or the criteria it looked at."""

    check: str
    green: bool
    required: bool
    degraded: bool
    reason: str
    command: str = ""
    log: str = ""
    feedback: Excerpt = Excerpt()
    parts: tuple[Found, ...] = ()


class Changes(Struct, frozen=True):
    """What an iteration did to the files. `count`: how many files, of which `files` are the first."""

    count: int
    added: int
    removed: int
    files: tuple[Counted, ...] = ()
    diff: Excerpt = Excerpt()


class MadeCommit(Struct, frozen=True):
    id: str
    message: str


class Iteration(Struct, frozen=True):
    """One iteration. `ended`: how its agent ended, empty while it works. `moved`: what it did to a story, or that it
    refused. `is_short`: its texts are left out.
    """

    number: int
    agent: str = ""
    role: str = ""
    story: str = ""
    began: float = 0.0
    seconds: float = 0.0
    segments: tuple[Segment, ...] = ()
    ended: str = ""
    exit: int | None = None
    detail: str = ""
    claim: bool = False
    moved: str = ""
    used: Usage = Usage()
    checks: tuple[Found, ...] = ()
    said: Excerpt = Excerpt()
    changes: Changes | None = None
    commits: tuple[MadeCommit, ...] = ()
    is_open: bool = False
    is_short: bool = False


class Remark(Struct, frozen=True):
    kind: RemarkKind
    text: str
    iteration: int = 0
    at: float = 0.0


class Review(Struct, frozen=True):
    """One step in the life of a story or a task: who did what to it, and why."""

    at: float
    subject: str
    by: str
    what: str
    text: str = ""
    run: str = ""
    iteration: int = 0


class Story(Struct, frozen=True):
    id: str
    title: str
    status: str
    passes: bool
    reviews: int
    at_cap: bool = False


class Proof(Struct, frozen=True):
    """Why the outcome can be believed: what was claimed, what was checked, and on which tree.

    `snapshot` is the ref that keeps the tree; `commit` the last one that the harness made.
    """

    claim: str
    checks: tuple[Found, ...]
    tree: str = ""
    snapshot: str = ""
    commit: str = ""


class PlannedCheck(Struct, frozen=True):
    name: str
    method: str
    command: str
    required: bool


class Budget(Struct, frozen=True):
    """What the run may use; 0 is no limit."""

    iterations: int
    cost_usd: float
    tokens: int
    seconds: float


class RunReport(Struct, frozen=True):
    """One run. `left_out`: so many iterations in the middle are not listed."""

    id: str
    flow: str
    role: str
    directory: str
    state: str
    outcome: str
    cause: str
    reason: str
    began: float
    updated: float
    elapsed: float
    agents: tuple[str, ...]
    prompt: Excerpt
    checks: tuple[PlannedCheck, ...]
    budget: Budget
    used: Usage
    count: int
    iterations: tuple[Iteration, ...]
    left_out: int = 0
    files: int | None = None
    proof: Proof | None = None
    remarks: tuple[Remark, ...] = ()
    guidance: tuple[Guidance, ...] = ()
    reviews: tuple[Review, ...] = ()
    stories: tuple[Story, ...] = ()
    said: Excerpt = Excerpt()
    sandbox: str = ""


class TaskFacts(Struct, frozen=True):
    """A task as it was asked for, and how far it has come."""

    id: str
    title: str
    description: str
    wanted: str
    criteria: tuple[str, ...]
    status: str
    role: str
    reason: str
    base: str
    branch: str
    merged: str
    sent_back: int


class Report(Struct, frozen=True):
    """`subject`: a run or a task. `notes`: what this report does not show, and how to see it."""

    format: int
    version: str
    made: float
    subject: str
    id: str
    title: str
    state: str
    outcome: str
    cause: str
    reason: str
    project: str
    began: float
    updated: float
    elapsed: float
    used: Usage
    count: int
    runs: tuple[RunReport, ...]
    task: TaskFacts | None = None
    reviews: tuple[Review, ...] = ()
    notes: tuple[str, ...] = ()
