"""Events of a run: those of the agent, and those of Ralph.

`at` is the agent's own timestamp of an event, if it gave one; the end of a tool call has the `id` of its start.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from ralph.core.model import (
    FailAction,
    Hold,
    LimitKind,
    Network,
    Permissions,
    Purpose,
    Ran,
    Stop,
    TodoStatus,
    Usage,
    Verdict,
)

# ---- events of the agent ----


MAX_DEPTH = 50
"""A value nested deeper than this is shown as raw text."""


class Body:
    """A JSON value as the agent printed it (a tool's input or output), decoded on demand."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes | bytearray | memoryview = b'""') -> None:
        self._raw = raw

    @property
    def value(self) -> Any:
        """The decoded value, or the raw text if it cannot be decoded."""
        text = bytes(self._raw).decode(errors="replace")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return text if _is_deep(value) else value

    @property
    def text(self) -> str:
        """The value for people: strings as they are, content blocks joined, anything else as JSON."""
        return _as_text(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Body) and self.value == other.value

    def __hash__(self) -> int:
        return hash(bytes(self._raw))

    def __repr__(self) -> str:
        return f"Body({bytes(self._raw)!r})"


def _is_deep(value: Any) -> bool:
    """Whether the value is nested too deeply to traverse."""
    level = [value]
    for _ in range(MAX_DEPTH):
        dicts = [inner for each in level if isinstance(each, dict) for inner in each.values()]
        level = dicts + [inner for each in level if isinstance(each, list) for inner in each]
        if not level:
            return False
    return True


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(block, dict) and "type" in block for block in value):
        return "\n".join(str(block.get("text", f"[{block['type']}]")) for block in value)
    return json.dumps(value, ensure_ascii=False)


class Text(Struct, frozen=True):
    """Text from the agent: whole lines, or the rest of one. `thinking`: not part of its answer."""

    text: str
    thinking: bool = False
    at: float | None = None


class Noise(Struct, frozen=True):
    """Agent output on stderr: shown, never a claim."""

    text: str


class ToolStart(Struct, frozen=True):
    """A tool was called. `inside`: the id of the tool (a subagent) that called it."""

    id: str
    name: str
    input: Body
    inside: str = ""
    at: float | None = None


class ToolEnd(Struct, frozen=True):
    id: str
    output: Body
    is_error: bool = False
    at: float | None = None


class TodoItem(Struct, frozen=True):
    text: str
    status: TodoStatus


class Todo(Struct, frozen=True):
    """The agent's task list as it is now."""

    items: tuple[TodoItem, ...]


class AgentProgress(Struct, frozen=True):
    """A status message of the agent, such as its session, its model or the reason for a wait."""

    text: str


class Result(Struct, frozen=True):
    """The agent reported its result. `usage` covers the whole process so far."""

    usage: Usage
    is_error: bool = False
    at: float | None = None


class Limited(Struct, frozen=True):
    """The agent's provider refuses requests. `retry_at`: when it will accept them again, if known."""

    kind: LimitKind
    text: str
    retry_at: float | None = None


class Retry(Struct, frozen=True):
    """The agent retries on its own, after `seconds` if known. `of`: max retries, 0 if unknown."""

    why: str
    attempt: int = 0
    of: int = 0
    seconds: float | None = None


class AgentError(Struct, frozen=True):
    """An error reported by the agent."""

    text: str


class Unread(Struct, frozen=True):
    """A line that this version of Ralph does not understand: shown in verbose mode, never fatal."""

    line: str
    why: str


# ---- events of Ralph ----


class RunStarted(Struct, frozen=True):
    run: str
    flow: str
    directory: str
    agent: str
    checks: tuple[str, ...]
    iterations: int
    resumed: bool = False
    permissions: Permissions | None = None
    fallbacks: tuple[str, ...] = ()
    used: Usage = Usage()
    elapsed: float = 0.0
    unguarded: tuple[str, ...] = ()
    """Agents whose commands the guard cannot inspect."""
    sandbox: str = "direct"
    network: Network = Network.OPEN


class IterationStarted(Struct, frozen=True):
    """`role`, `story`: the subject of an iteration of a PRD loop."""

    iteration: int
    of: int
    steered: int = 0
    agent: str = ""
    role: str = ""
    story: str = ""


class AgentStarted(Struct, frozen=True):
    """`prompt` is the start of the prompt, `prompt_chars` its full length."""

    purpose: Purpose
    command: tuple[str, ...]
    prompt: str
    prompt_chars: int


class UsageReported(Struct, frozen=True):
    """Usage of the running agent process so far."""

    usage: Usage


class AgentEnded(Struct, frozen=True):
    """`unread`: number of lines that Ralph did not understand."""

    purpose: Purpose
    ran: Ran
    unread: int = 0


class CheckStarted(Struct, frozen=True):
    check: str


class CheckEnded(Struct, frozen=True):
    verdict: Verdict
    fail_action: FailAction
    seconds: float


class Holding(Struct, frozen=True):
    hold: Hold


class ClaimLooked(Struct, frozen=True):
    """Whether the agent said it was done, the expected words, and why the tag that it wrote, if any, is not a claim."""

    expected: str
    found: bool
    unclaimed: str = ""


class Committed(Struct, frozen=True):
    """The agent's changes were committed."""

    iteration: int
    commit: str
    message: str


class Notice(Struct, frozen=True):
    """A message for people. With `detail`, shown only in verbose mode."""

    text: str
    detail: bool = False


class RunEnded(Struct, frozen=True):
    """`files`: number of files the run changed, if known. `commits`: the commits it made."""

    run: str
    stop: Stop
    iterations: int
    usage: Usage
    seconds: float
    files: int | None = None
    commits: tuple[str, ...] = ()


class TaskMoved(Struct, frozen=True):
    """A task changed its status or role. `reason`: why it was sent back or stopped."""

    task: str
    title: str
    status: str
    role: str = ""
    reason: str = ""


AgentEvent = (
    Text | Noise | ToolStart | ToolEnd | Todo | AgentProgress | Result | Limited | Retry | AgentError | Unread
)
Event = (
    AgentEvent
    | RunStarted
    | IterationStarted
    | AgentStarted
    | UsageReported
    | AgentEnded
    | CheckStarted
    | CheckEnded
    | Holding
    | ClaimLooked
    | Committed
    | Notice
    | TaskMoved
    | RunEnded
)
