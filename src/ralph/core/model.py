"""The nouns of Ralph as frozen values, shared by all rooms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum
from typing import TypeVar

from msgspec import Struct, field

K = TypeVar("K", bound=Enum)
V = TypeVar("V")


def complete(keys: Iterable[K], table: Mapping[K, V]) -> dict[K, V]:
    """Return the table; raise an error at import if a key is missing."""
    if missing := [str(key) for key in keys if key not in table]:
        raise TypeError(f"A table has no entry for: {', '.join(missing)}")
    return dict(table)


class Flow(StrEnum):
    RUN = "run"
    SUPERVISE = "supervise"
    PRD = "prd"
    WORK = "work"


class Ended(StrEnum):
    """How an agent process ended."""

    OK = "ok"
    EMPTY = "empty"
    FAILED = "failed"
    TIMEOUT = "timeout"
    IDLE = "idle"
    KILLED = "killed"
    LIMIT = "limit"
    AUTH = "auth"
    BUDGET = "budget"
    DENIED = "denied"
    UNSTARTABLE = "unstartable"
    INTERRUPTED = "interrupted"

    @property
    def words(self) -> str:
        """What the agent did, after its name: `Agent timed out`."""
        return _ENDS[self]


_ENDS = complete(
    Ended,
    {
        Ended.OK: "finished",
        Ended.EMPTY: "printed nothing",
        Ended.FAILED: "failed",
        Ended.TIMEOUT: "timed out",
        Ended.IDLE: "was stopped after printing nothing for too long",
        Ended.KILLED: "was killed",
        Ended.LIMIT: "reached a usage limit",
        Ended.AUTH: "is not logged in or has no credit",
        Ended.BUDGET: "was stopped because the budget is used up",
        Ended.DENIED: "could not write",
        Ended.UNSTARTABLE: "could not be started",
        Ended.INTERRUPTED: "was interrupted",
    },
)


class Outcome(StrEnum):
    """How a run ended. The outcome determines the exit code of the command."""

    COMPLETE = "complete"
    LIMIT = "limit"
    FATAL = "fatal"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES[self]


_EXIT_CODES = complete(
    Outcome,
    {
        Outcome.COMPLETE: 0,
        Outcome.LIMIT: 1,
        Outcome.FATAL: 2,
        Outcome.WAITING: 3,
        Outcome.INTERRUPTED: 130,
    },
)


class Cause(StrEnum):
    """Why a run ended. The cause determines the outcome, the headline and the verdict for a task.

    Programs read the cause; the text of a reason is for people.
    """

    PROVED = "proved"
    UNVERIFIED = "unverified"
    AUTO_APPROVED = "auto_approved"
    ITERATIONS = "iterations"
    COST = "cost"
    TOKENS = "tokens"
    DURATION = "duration"
    STAGNATION = "stagnation"
    NEVER_CLAIMED = "never_claimed"
    CRASH_LOOP = "crash_loop"
    VERIFICATION = "verification"
    REFUSED = "refused"
    CONFIG = "config"
    GIT = "git"
    UNSTARTABLE = "unstartable"
    AUTH = "auth"
    DENIED = "denied"
    JUDGE = "judge"
    WAIT_MARKER = "wait_marker"
    OLD_TESTS = "old_tests"
    LIMIT_WAIT = "limit_wait"
    SIGNAL = "signal"
    CANCELLED = "cancelled"

    @property
    def outcome(self) -> Outcome:
        return _CAUSES[self].outcome

    @property
    def headline(self) -> str:
        return _CAUSES[self].headline

    @property
    def verdict(self) -> RunVerdict | None:
        return _CAUSES[self].verdict


class RunVerdict(StrEnum):
    """The result of a role's run for its task."""

    PROVED = "proved"
    REFUSED = "refused"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


class CauseMeaning(Struct, frozen=True):
    """`headline`: the first word of the line that reports the end; "" if the reason is a complete headline.

    `verdict`: the result for the task whose role ran; None stops all work and leaves the task where it is.
    """

    outcome: Outcome
    headline: str
    verdict: RunVerdict | None = None


_CAUSES = complete(
    Cause,
    {
        Cause.PROVED: CauseMeaning(Outcome.COMPLETE, "Done", RunVerdict.PROVED),
        Cause.UNVERIFIED: CauseMeaning(Outcome.COMPLETE, "Unverified", RunVerdict.PROVED),
        Cause.AUTO_APPROVED: CauseMeaning(Outcome.COMPLETE, "Done", RunVerdict.PROVED),
        Cause.ITERATIONS: CauseMeaning(Outcome.LIMIT, "Stopped", RunVerdict.REFUSED),
        Cause.COST: CauseMeaning(Outcome.LIMIT, "Stopped", RunVerdict.FAILED),
        Cause.TOKENS: CauseMeaning(Outcome.LIMIT, "Stopped", RunVerdict.FAILED),
        Cause.DURATION: CauseMeaning(Outcome.LIMIT, "Stopped", RunVerdict.FAILED),
        Cause.STAGNATION: CauseMeaning(Outcome.LIMIT, "Stopped", RunVerdict.REFUSED),
        Cause.NEVER_CLAIMED: CauseMeaning(Outcome.LIMIT, "Stopped", RunVerdict.REFUSED),
        Cause.CRASH_LOOP: CauseMeaning(Outcome.LIMIT, "Stopped", RunVerdict.REFUSED),
        Cause.VERIFICATION: CauseMeaning(Outcome.LIMIT, "Stopped", RunVerdict.REFUSED),
        Cause.REFUSED: CauseMeaning(Outcome.LIMIT, "Refused", RunVerdict.REFUSED),
        Cause.CONFIG: CauseMeaning(Outcome.FATAL, "Failed"),
        Cause.GIT: CauseMeaning(Outcome.FATAL, "Git failed"),
        Cause.UNSTARTABLE: CauseMeaning(Outcome.FATAL, "Failed"),
        Cause.AUTH: CauseMeaning(Outcome.FATAL, "Failed"),
        Cause.DENIED: CauseMeaning(Outcome.FATAL, "Failed"),
        Cause.JUDGE: CauseMeaning(Outcome.FATAL, "Failed"),
        Cause.WAIT_MARKER: CauseMeaning(Outcome.WAITING, "Waiting"),
        Cause.OLD_TESTS: CauseMeaning(Outcome.WAITING, "Waiting"),
        Cause.LIMIT_WAIT: CauseMeaning(Outcome.WAITING, "Waiting"),
        Cause.SIGNAL: CauseMeaning(Outcome.INTERRUPTED, ""),
        Cause.CANCELLED: CauseMeaning(Outcome.INTERRUPTED, "", RunVerdict.STOPPED),
    },
)


class ClaimKind(StrEnum):
    """How completion is claimed. `given`: by earlier runs, so that only checks remain (a merge)."""

    TAG = "tag"
    DONE = "done"
    BOARD = "board"
    GIVEN = "given"


class FailAction(StrEnum):
    """How the output of a failed check changes the next prompt."""

    APPEND = "APPEND"
    PREPEND = "PREPEND"
    REPLACE = "REPLACE"

    @classmethod
    def _missing_(cls, value: object) -> FailAction | None:
        upper = str(value).upper()
        return cls(upper) if upper in cls.__members__ else None


class When(StrEnum):
    """When a check runs: after every iteration, to verify a claim, or once all other required checks have passed."""

    ALWAYS = "always"
    CLAIMED = "claimed"
    PROVED = "proved"


class OnLimit(StrEnum):
    """What happens when the iterations are used up."""

    FAIL = "fail"
    APPROVE = "approve"


class PromptVia(StrEnum):
    """How the prompt reaches the agent. `none`: a supervised command gets no prompt."""

    STDIN = "stdin"
    ARGUMENT = "argument"
    FILE = "file"
    NONE = "none"


class Permissions(StrEnum):
    """What an agent may do without asking: edit files, everything, or only what its own settings allow."""

    EDIT = "edit"
    BYPASS = "bypass"
    NONE = "none"


class LimitKind(StrEnum):
    """Why a provider refuses requests. The first three pass by themselves; the others need a person."""

    USAGE = "usage"
    RATE = "rate"
    OVERLOAD = "overload"
    CREDIT = "credit"
    AUTH = "auth"

    @property
    def ended(self) -> Ended:
        return Ended.AUTH if self in (LimitKind.CREDIT, LimitKind.AUTH) else Ended.LIMIT


class TodoStatus(StrEnum):
    PENDING = "pending"
    ACTIVE = "in_progress"
    DONE = "completed"


class Purpose(StrEnum):
    WORK = "work"
    MESSAGE = "message"
    JUDGE = "judge"


class HoldWhy(StrEnum):
    RESTART = "restart"
    LIMIT = "limit"
    PAUSED = "paused"
    CHILDREN = "children"


class RestartKind(StrEnum):
    BACKOFF = "backoff"
    FIXED = "fixed"


class Network(StrEnum):
    """What a sandboxed command can reach: everything, nothing, or listed hosts."""

    OPEN = "open"
    OFF = "off"
    ALLOW_LIST = "allow-list"


# ---- differences between the flows ----


class TreeWatch(StrEnum):
    """When a run checks whether its tree changed, which takes time: never, after failures, always."""

    NEVER = "never"
    FAILURES = "failures"
    ALWAYS = "always"


class FlowRules(Struct, frozen=True):
    """The differences between flows; everything else is in the plan of a run.

    `counted`: the unit of the iteration limit in the outcome. `explains_limit`: the outcome at the limit names the last failure. `asks_again`: an empty answer without
    changes costs no iteration. `waits_on_exit_code`: exit code 42 means waiting. `judges_answers`: checks read the
    agent's answer, so more of it is kept. `reuses_results`: a command shared by several checks runs once per
    iteration. `locks_folder_only`: other runs are allowed in parent directories. `is_part`: the run belongs to
    `ralph work`, which reports what all its runs have in common. `names_tests`: the outcome names changed tests.
    """

    counted: str = "iterations"
    tree: TreeWatch = TreeWatch.ALWAYS
    explains_limit: bool = False
    asks_again: bool = False
    waits_on_exit_code: bool = False
    judges_answers: bool = False
    reuses_results: bool = False
    locks_folder_only: bool = False
    is_part: bool = False
    names_tests: bool = False


FLOW_RULES = complete(
    Flow,
    {
        Flow.RUN: FlowRules(tree=TreeWatch.NEVER, explains_limit=True, names_tests=True),
        Flow.SUPERVISE: FlowRules(counted="attempts", waits_on_exit_code=True, locks_folder_only=True),
        Flow.PRD: FlowRules(asks_again=True, names_tests=True),
        Flow.WORK: FlowRules(
            tree=TreeWatch.FAILURES,
            explains_limit=True,
            judges_answers=True,
            reuses_results=True,
            is_part=True,
        ),
    },
)


# ---- the plan ----


class ClaimRule(Struct, frozen=True):
    """How the agent says it is done. `strict`: the tag must be alone on the last non-empty line."""

    kind: ClaimKind = ClaimKind.TAG
    tag: str = "response"
    text: str = "DONE"
    strict: bool = False


class AgentSpec(Struct, frozen=True):
    """One agent command line. `type` names the adapter; `idle_seconds`: silence that counts as a hang (0: never)."""

    name: str
    type: str
    command: str
    flags: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    prompt_via: PromptVia = PromptVia.STDIN
    permissions: Permissions = Permissions.EDIT
    idle_seconds: float = 0.0


class Check(Struct, frozen=True):
    """One way to verify a claim. `config` is the method's own JSON."""

    name: str
    method: str
    config: str = "{}"
    required: bool = True
    when: When = When.ALWAYS
    fail_action: FailAction = FailAction.APPEND
    hint: str = ""


class Limits(Struct, frozen=True):
    """The limits of a run. 0 means no limit, except for `iterations`."""

    iterations: int = 10
    cost_usd: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    iteration_seconds: float = 0.0
    exit_grace_seconds: float = 30.0
    stagnation: int = 0
    limit_wait_seconds: float = 21600.0
    children_seconds: float = 300.0


class Restart(Struct, frozen=True):
    """The delay between attempts, and when repeated failures are a crash loop."""

    kind: RestartKind = RestartKind.BACKOFF
    delay: float = 1.0
    longest: float = 300.0
    healthy_seconds: float = 600.0
    most_failures: int = 12
    most_same: int = 5


class TaskBrief(Struct, frozen=True):
    """The contents of a role's prompt. `told`: why the task was sent back to this role."""

    id: str
    title: str
    description: str
    outcome: str
    acceptance_criteria: tuple[str, ...]
    role: str
    duty: str
    criteria: str
    method: str
    may_refuse: bool = False
    told: str = ""


class Prd(Struct, frozen=True):
    """A PRD loop: the folder of its task list, relative to the project, and its review rules."""

    folder: str = "ralph"
    skip_review: bool = False
    review_cap: int = 5


class PromptSource(Struct, frozen=True):
    """The source of the base prompt (`text`, `file` or `task`) and the additions to it.

    `prd`: values for its variables.
    """

    text: str = ""
    file: str = ""
    instruction: bool = True
    count: bool = False
    truncate: int = 5000
    task: TaskBrief | None = None
    prd: Prd | None = None


class Scm(Struct, frozen=True):
    """The version control command and its tasks, run after an iteration with green checks.

    `message`: a fixed commit message; if empty, the agent is asked for one.
    """

    command: str
    tasks: tuple[str, ...] = ()
    message: str = ""


TASK_BUS, PROJECT_BUS = "TASK-MESSAGE-BUS.md", "PROJECT-MESSAGE-BUS.md"
"""Message files. Ralph writes to them too, so changes to them do not count as progress."""

MARKER = ".ralph-active"
"""The marker file of a running PRD loop, written by Ralph."""

OURS = frozenset({TASK_BUS, PROJECT_BUS, MARKER})


class TaskFolder(Struct, frozen=True):
    """The folder in which a supervised agent leaves DONE, markers and messages, and its names."""

    path: str
    project: str
    name: str
    poll_seconds: float = 1.0


class GuardPattern(Struct, frozen=True):
    """A glob for one simple command, and why it is allowed or denied."""

    pattern: str
    reason: str


class Guarding(Struct, frozen=True):
    """The user's own rules for the command guard, and whether it is on."""

    enabled: bool = True
    allow: tuple[GuardPattern, ...] = ()
    deny: tuple[GuardPattern, ...] = ()


class SandboxSpec(Struct, frozen=True):
    """The sandbox backend for agents and checks, and its non-default options.

    `hosts`: allowed in addition to the agent's own. `variables`: passed in addition to the usual ones.
    `downgraded`: why no sandbox is used although one was requested. `image`: container image, "" for the default.
    0 means no limit.
    """

    backend: str = field(default="direct", name="rung")
    network: Network = Network.OPEN
    hosts: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    memory_mb: int = 0
    processes: int = 0
    downgraded: str = ""
    image: str = ""

    @property
    def is_real(self) -> bool:
        return self.backend != "direct"


NO_SANDBOX = SandboxSpec()


class Plan(Struct, frozen=True):
    """Everything a run needs to know. Journalled as row 0, so that resume does not read the settings again.

    `run`: its id, "" until the store assigns one. `task_id`: the task that this run works on. `base`: the commit to
    diff against. `judge`: the agent that judges criteria; by default the first agent with a small model. `guard`:
    None in plans older than the command guard. `origin`: the user's checkout, if the run works in a worktree.
    `setup`: the command that installs what a copy of the project needs.
    """

    run: str
    flow: Flow
    directory: str
    agents: tuple[AgentSpec, ...]
    prompt: PromptSource
    claim: ClaimRule = ClaimRule()
    checks: tuple[Check, ...] = ()
    limits: Limits = Limits()
    role: str = ""
    scm: Scm | None = None
    restart: Restart | None = None
    on_limit: OnLimit = OnLimit.FAIL
    allow_degraded: bool = False
    snapshots: bool = True
    task: TaskFolder | None = None
    task_id: str = ""
    base: str = ""
    judge: AgentSpec | None = None
    guard: Guarding | None = None
    sandbox: SandboxSpec = NO_SANDBOX
    origin: str = ""
    setup: str = ""

    @property
    def rules(self) -> FlowRules:
        return FLOW_RULES[self.flow]

    @property
    def verifies_in_copy(self) -> bool:
        """Whether a claim is checked in a fresh copy: the agent could have prepared its worktree for the checks."""
        return bool(self.origin) and self.claim.kind is ClaimKind.TAG


# ---- notifications ----


class Occasion(StrEnum):
    """When to notify. `waiting`: a person is needed. `limit`: usage limit reached. `budget`: 80 % of a budget is used."""

    FINISHED = "finished"
    FAILED = "failed"
    WAITING = "waiting"
    LIMIT = "limit"
    BUDGET = "budget"


class NotifyTargets(Struct, frozen=True):
    """Notification targets: apprise URLs, a shell command, and the occasions."""

    urls: tuple[str, ...] = ()
    command: str = ""
    on: tuple[Occasion, ...] = tuple(Occasion)

    @property
    def is_empty(self) -> bool:
        return not (self.urls or self.command) or not self.on

    @property
    def secrets(self) -> frozenset[str]:
        """The parts of the URLs to redact: they contain tokens."""
        return frozenset(
            part for url in self.urls for part in (url, url.partition("://")[2]) if len(part) >= 8
        )


# ---- measurements ----


class Usage(Struct, frozen=True):
    """Usage as reported by the agents."""

    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.cost_usd + other.cost_usd,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )


class Left(Struct, frozen=True):
    """The remaining budget of one agent process. None means no limit."""

    cost_usd: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    iteration_seconds: float | None = None
    idle_seconds: float | None = None
    exit_grace_seconds: float | None = None
    done_seconds: float | None = None


class Meter(Struct, frozen=True):
    """Usage of the running agent process; times are monotonic.

    `is_over`: it reported its result. `is_refused`: its provider refuses all requests. `done`: age of its DONE file
    in seconds.
    """

    seconds: float = 0.0
    idle: float = 0.0
    usage: Usage = Usage()
    interrupted: bool = False
    is_over: bool = False
    is_refused: bool = False
    done: float = 0.0


class Exit(Struct, frozen=True):
    """How a command ended.

    `ended` is set when Ralph stopped it, `error` when it could not be started, `lost` when its warden was killed;
    `left`: a process that it started could not be killed.
    """

    code: int | None = None
    signal: int | None = None
    error: int | None = None
    lost: bool = False
    ended: Ended | None = None
    seconds: float = 0.0
    passes: int = 0
    left: bool = False


class Feedback(Struct, frozen=True):
    """Text of a failed check for the next prompt."""

    action: FailAction
    text: str


class Verdict(Struct, frozen=True):
    """The result of a check.

    `degraded`: the check ran in a weaker form than configured. `parts`: the verdicts of its stages or criteria.
    `excerpt`: the few lines of its output that show what failed. `cause`: why the run stops if this verdict is degraded
    and may not decide; None if the agent tries again. `tests`: old tests that fail on the new work. `note`: what the
    outcome says about a check that is green or not required.
    """

    check: str
    green: bool
    required: bool = True
    degraded: bool = False
    reason: str = ""
    feedback: Feedback | None = None
    log: str = ""
    parts: tuple[Verdict, ...] = ()
    excerpt: tuple[str, ...] = ()
    cause: Cause | None = None
    tests: tuple[str, ...] = ()
    note: str = ""


class BoardSeen(Struct, frozen=True):
    """The story board after an iteration, and the forbidden changes that were undone.

    `legal`: the board without the forbidden changes, as it is now on disk; `unapproved`: the same without the
    approvals of this iteration. `told`: allowed changes that must not happen again. `at_cap`: stories approved only
    because they reached the review limit.
    """

    role: str
    done: bool
    approves: bool = False
    legal: str = ""
    illegal: tuple[str, ...] = ()
    story: str = ""
    unapproved: str = ""
    told: tuple[str, ...] = ()
    at_cap: tuple[str, ...] = ()


# ---- steps: requests of the machine ----


class Look(Struct, frozen=True):
    pass


class RunAgent(Struct, frozen=True):
    """`asks_claim`: all checks passed without a claim, so the prompt asks for it.

    `may_refuse`: the agent has been told that old tests fail, and may say why they must change.
    """

    purpose: Purpose
    iteration: int
    agent: str
    role: str
    limits: Left
    of: int = 0
    feedback: tuple[Feedback, ...] = ()
    steer: tuple[Steer, ...] = ()
    story: str = ""
    asks_claim: bool = False
    may_refuse: bool = False


class Restore(Struct, frozen=True):
    """Revoke an approval that the checks refuted."""

    board: str
    told: tuple[str, ...]


class RunChecks(Struct, frozen=True):
    iteration: int
    names: tuple[str, ...]


class Commit(Struct, frozen=True):
    """Commit the tree `tree` on top of the commit `head` ("": the first one).

    `checked`: the work tree at the last look. All three are "" in steps of older versions.
    """

    iteration: int
    message: str
    tree: str = ""
    head: str = ""
    checked: str = ""


class Hold(Struct, frozen=True):
    """Wait until a wall-clock time (`until`, a limit's reset) or for a monotonic duration (`seconds`)."""

    why: HoldWhy
    until: float | None = None
    seconds: float | None = None


class Stop(Struct, frozen=True):
    """`tree`: the id of the git tree on which the required checks passed, if the run is complete.

    `tests`: old tests that fail on the new work, for which the run waits.
    """

    cause: Cause
    reason: str
    notes: tuple[str, ...] = ()
    tree: str = ""
    tests: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        return self.cause.outcome

    @property
    def headline(self) -> str:
        """The end in one line for people: `Done: all checks passed`."""
        if self.cause.headline:
            return f"{self.cause.headline}: {self.reason}"
        return f"{self.reason[:1].upper()}{self.reason[1:]}"


Step = Look | RunAgent | Restore | RunChecks | Commit | Hold | Stop


# ---- results of steps. `at` is wall-clock time, `took` monotonic seconds ----


class Seen(Struct, frozen=True):
    """The observed state on disk. `waited`: age of the DONE file in seconds.

    Before a commit, `changed`: there is something to commit, namely the tree `delivery` on top of the commit `head`.
    `left_out`: paths of the checked tree that are not committed. `modified`: paths in which the work tree differs from
    the checked one. `lacking`: what the work tree cannot hold. `message`: a commit message made from the prompt.
    """

    at: float
    took: float = 0.0
    problem: str = ""
    prompt: str = ""
    board: BoardSeen | None = None
    done: bool = False
    wait: str = ""
    children: int = 0
    tree: str = ""
    changed: bool = False
    waited: float = 0.0
    delivery: str = ""
    head: str = ""
    left_out: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    message: str = ""


class Ran(Struct, frozen=True):
    """The result of an agent process.

    `board`: the story board after it, with forbidden changes undone. `unclaimed`: why the tag in its final message is
    not a claim, "" without a tag or with a claim.
    """

    at: float
    ended: Ended
    agent: str = ""
    took: float = 0.0
    claim: bool = False
    usage: Usage = Usage()
    retry_at: float | None = None
    exit: int | None = None
    text: str = ""
    detail: str = ""
    fingerprint: str = ""
    stream: str = ""
    refusal: str = ""
    board: BoardSeen | None = None
    unclaimed: str = ""


class Checked(Struct, frozen=True):
    """Verdicts of checks. `undone`: changes that a check made to the files of a PRD loop."""

    at: float
    took: float = 0.0
    verdicts: tuple[Verdict, ...] = ()
    usage: Usage = Usage()
    retry_at: float | None = None
    undone: tuple[str, ...] = ()


class Did(Struct, frozen=True):
    """The result of Restore, Commit, Hold and Stop.

    `over`: the hold's time has passed, or the commit was not interrupted. `detail`: what went wrong. `made`: the new
    commit. `files`: number of files the run changed, if known. `notes`: what the outcome says about them. `undone`: changes that a commit hook made to the files
    of a PRD loop. `refused`: why nothing was committed. `tree`: the work tree that has to be checked because a commit
    hook or another task has changed it.
    """

    at: float
    took: float = 0.0
    over: bool = True
    detail: str = ""
    made: str = ""
    files: int | None = None
    undone: tuple[str, ...] = ()
    refused: str = ""
    tree: str = ""
    notes: tuple[str, ...] = ()


Result = Seen | Ran | Checked | Did


# ---- commands: legal in every phase ----


class Pause(Struct, frozen=True):
    at: float


class Cancel(Struct, frozen=True):
    """`now`: kill the running agent; otherwise it may finish. `by`: the signal or command that asked."""

    at: float
    cause: Cause = Cause.CANCELLED
    now: bool = True
    by: str = ""


class Steer(Struct, frozen=True):
    at: float
    id: int
    text: str


class Resume(Struct, frozen=True):
    """Continue the run. Limits that are given replace those of the run, and so do the judge and its rule.

    `allow`: globs of tests that may have changed, in addition to earlier ones.
    """

    at: float
    iterations: int | None = None
    cost_usd: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    judge: AgentSpec | None = None
    allow_degraded: bool | None = None
    allow: tuple[str, ...] = ()


class Fail(Struct, frozen=True):
    """The driver cannot continue (disk error, replaced directory, failing git): stop as fatal."""

    at: float
    reason: str
    cause: Cause = Cause.CONFIG


Command = Pause | Cancel | Steer | Resume | Fail


class Phase(StrEnum):
    """The phase of a run: it determines the next step."""

    BEFORE = "before"
    WORK = "work"
    AFTER = "after"
    RESTORE = "restore"
    CHECK = "check"
    CHANGES = "changes"
    MESSAGE = "message"
    COMMIT = "commit"
    CHILDREN = "children"


class State(Struct, frozen=True):
    """The complete state of one run.

    `now`: time of the last fact. `again`: how often this iteration was restarted without counting. `unproved`: why
    the last iteration did not complete the run. `delivery`: the look before a commit. `rechecked`: the checks of this
    iteration run a second time, because the files have changed since. `asked`: the next prompt asks for the claim.
    `start`: the tree when the run started, if a check compares with it. `old_red`: old tests of which the agent has been
    told that they fail. `allowed`: globs of tests that may change, from `ralph resume`.
    """

    plan: Plan
    limits: Limits
    phase: Phase = Phase.BEFORE
    now: float = 0.0
    elapsed: float = 0.0
    iteration: int = 0
    again: int = 0
    before: Seen | None = None
    after: Seen | None = None
    ran: Ran | None = None
    verdicts: tuple[Verdict, ...] = ()
    feedback: tuple[Feedback, ...] = ()
    told: tuple[str, ...] = ()
    steer: tuple[Steer, ...] = ()
    message: str = ""
    usage: Usage = Usage()
    claimed: bool = False
    judged: bool = False
    approved: bool = False
    started: bool = False
    failures: int = 0
    fingerprints: tuple[str, ...] = ()
    empties: int = 0
    still: int = 0
    unstartable_since: float | None = None
    limited: tuple[tuple[str, float], ...] = ()
    limited_since: float | None = None
    hold: Hold | None = None
    paused: bool = False
    cancelled: Cancel | None = None
    notes: tuple[str, ...] = ()
    stop: Stop | None = None
    unproved: str = ""
    delivery: Seen | None = None
    rechecked: bool = False
    asked: bool = False
    start: str = ""
    old_red: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
