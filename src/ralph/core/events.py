"""What a run tells those who watch it: what the agent did, and what the harness did."""

from __future__ import annotations

from dataclasses import dataclass

from ralph.core.model import FailAction, Hold, Purpose, Ran, Stop, Usage, Verdict


@dataclass(frozen=True, slots=True)
class Text:
    """Text that the agent printed: whole lines, or the rest of one."""

    text: str


@dataclass(frozen=True, slots=True)
class Noise:
    """What the agent printed on stderr: shown, never a claim."""

    text: str


@dataclass(frozen=True, slots=True)
class RunStarted:
    run: str
    flow: str
    directory: str
    agent: str
    checks: tuple[str, ...]
    iterations: int
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class IterationStarted:
    iteration: int
    of: int
    steered: int = 0


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """`prompt` is the beginning of the prompt, `prompt_chars` its whole length."""

    purpose: Purpose
    command: tuple[str, ...]
    prompt: str
    prompt_chars: int


@dataclass(frozen=True, slots=True)
class AgentEnded:
    purpose: Purpose
    ran: Ran


@dataclass(frozen=True, slots=True)
class CheckStarted:
    check: str


@dataclass(frozen=True, slots=True)
class CheckEnded:
    verdict: Verdict
    fail_action: FailAction
    seconds: float


@dataclass(frozen=True, slots=True)
class Holding:
    hold: Hold


@dataclass(frozen=True, slots=True)
class ClaimLooked:
    """Whether the agent has said that it is done, and in which words it would have to."""

    expected: str
    found: bool


@dataclass(frozen=True, slots=True)
class Committed:
    """What the agent made was committed."""

    iteration: int
    commit: str
    message: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that people should know. `detail` is shown in verbose mode only."""

    text: str
    detail: bool = False


@dataclass(frozen=True, slots=True)
class RunEnded:
    """`files` is how many files the run has changed, if that can be known; `commits` what it has made."""

    run: str
    stop: Stop
    iterations: int
    usage: Usage
    seconds: float
    files: int | None = None
    commits: tuple[str, ...] = ()


AgentEvent = Text | Noise
Event = (
    AgentEvent
    | RunStarted
    | IterationStarted
    | AgentStarted
    | AgentEnded
    | CheckStarted
    | CheckEnded
    | Holding
    | ClaimLooked
    | Committed
    | Notice
    | RunEnded
)
