"""The report as one value. HTML, Markdown and JSON are all made from it, so they cannot disagree.

Times are seconds since 1970, durations seconds.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from ralph.core.model import Usage
from ralph.scm.history import Counted
from ralph.store.runs import Guidance

FORMAT = 1
"""The format of `ralph report --json`; fields are only ever added."""


class Doing(StrEnum):
    """The activity in a span of time. `away`: the run had no process."""

    AGENT = "agent"
    CHECK = "check"
    COMMIT = "commit"
    LIMIT = "limit"
    RESTART = "restart"
    PAUSED = "paused"
    CHILDREN = "children"
    AWAY = "away"


class RemarkKind(StrEnum):
    """Kinds of facts that a reader should know before trusting the outcome."""

    LIMIT = "limit"
    AUTO_APPROVED = "auto_approved"
    DEGRADED = "degraded"
    UNDONE = "undone"
    FAILED = "failed"
    RESUMED = "resumed"
    NOTE = "note"


class Excerpt(Struct, frozen=True):
    """A text that may be cut. `left_out`: how much is missing, in characters (for a diff, also the lines of omitted
    files). `see`: the command that shows all of it.
    """

    text: str = ""
    left_out: int = 0
    see: str = ""


class Segment(Struct, frozen=True):
    """A span of time spent on one thing. `is_open`: still running."""

    doing: Doing
    label: str
    began: float
    seconds: float
    is_open: bool = False
    is_red: bool = False


class Found(Struct, frozen=True):
    """The result of one check. `parts`: its stages or criteria."""

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
    """The file changes of an iteration. `count`: number of changed files; `files` lists the first of them."""

    count: int
    added: int
    removed: int
    files: tuple[Counted, ...] = ()
    diff: Excerpt = Excerpt()


class MadeCommit(Struct, frozen=True):
    id: str
    message: str


class Iteration(Struct, frozen=True):
    """One iteration. `ended`: how its agent ended, empty while it works. `moved`: a story's new state, or "refused".
    `is_short`: its texts are omitted.
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
    """One event in the history of a story or task: who did what, and why."""

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
    """The evidence for the outcome: the claim, the checks, and the git tree they passed on.

    `snapshot` is the ref that keeps exactly this tree; `commit` is the last commit made by Ralph.
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
    """The limits of the run (0: no limit)."""

    iterations: int
    cost_usd: float
    tokens: int
    seconds: float


class RunReport(Struct, frozen=True):
    """One run. `left_out`: number of iterations in the middle that are not listed."""

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
    """A task and its progress."""

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
    """The report of a run or a task. `notes`: the parts it omits, and how to see them."""

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
