"""Scripted agents as data, turned into JSON for the program that plays them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from bench.agents import failing_git


class Shape(StrEnum):
    """The CLI whose output format an agent imitates."""

    CLAUDE = "claude"
    CODEX = "codex"
    PLAIN = "plain"


class Kind(StrEnum):
    """What an agent shows before its final message."""

    TEXT = "text"
    THINKING = "thinking"
    TOOL = "tool"
    """A command and its output; framed in plain text."""
    RAW_TOOL = "raw_tool"
    """A command and its output; unframed in plain text."""
    USER = "user"
    """The prompt, repeated by the CLI itself: as an event, or on stderr."""
    STDERR = "stderr"


class Limit(StrEnum):
    """Why an agent refuses to work."""

    USAGE = "usage"
    RATE = "rate"
    OVERLOAD = "overload"
    CREDIT = "credit"


@dataclass(frozen=True, slots=True)
class Tag:
    """The tag by which a harness recognises a claim."""

    name: str = "response"
    text: str = "DONE"

    def __str__(self) -> str:
        return f"<{self.name}>{self.text}</{self.name}>"

    @property
    def words(self) -> dict[str, str]:
        """Placeholders for an agent's texts and commands; `prompt` is filled in when it is played."""
        return {
            "tag": str(self),
            "name": self.name,
            "word": self.text,
            "spaced": f"<{self.name}>\n  {self.text.lower()}\n</{self.name}>",
            "unclosed": f"<{self.name}>{self.text}",
            "misspelt": f"<{self.name[:-1]}>{self.text}</{self.name[:-1]}>",
            "other": f"<{self.name}>NOT {self.text}</{self.name}>",
        }


@dataclass(frozen=True, slots=True)
class Shown:
    kind: Kind
    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One invocation. An agent's last turn is repeated forever."""

    say: str = ""
    """The final message."""
    do: str = ""
    """A shell command in the project."""
    shown: tuple[Shown, ...] = ()
    claims: bool = False
    """The final message is a real claim."""
    exit: int = 0
    """The exit code; a negative one is the signal that kills it."""
    cut: bool = False
    """A structured stream ends without its result."""
    cost: float = 0.10


@dataclass(frozen=True, slots=True)
class Assignment:
    """What an agent is asked to do in which project, and whether the committed work does it."""

    task: str
    guardrail: str
    kept: tuple[str, ...]
    """Files that the agent must not change."""
    files: Callable[[Tag], Mapping[str, str]]
    is_done: Callable[[Path], bool]
    """The oracle's verdict on a project."""
    allow: tuple[str, ...] = ()
    """Globs of tests that the user has allowed to change."""
    needs_python: bool = False
    """The guardrail runs `python` with pytest."""

    def prompt(self, tag: Tag) -> str:
        return f"{self.task}\n\nWhen everything is done, end your answer with {tag}\n"


MESSAGE = Turn("Add sum and product", cost=0.01)
"""The answer to a call for a commit message."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An agent refuses to work for a number of starts, or for some seconds since the first; it says how long."""

    limit: Limit
    seconds: float = 0.0
    starts: int = 0


@dataclass(frozen=True, slots=True)
class Agent:
    """`done_after`: the invocation after which the work is done in the files, whoever commits them."""

    family: str
    name: str
    turns: tuple[Turn, ...]
    done_after: int | None = None
    useful: int | None = None
    """Number of useful invocations; more are wasted. By default those up to the first true claim."""
    refusal: Refusal | None = None
    """The initial refusal. A refused start does not count as an invocation; one of them is unavoidable."""
    message: Turn = MESSAGE
    """What it does when asked for a commit message; a command runs in the project."""
    assignment: Assignment | None = None
    """By default the project of shell scripts."""
    shapes: tuple[Shape, ...] = tuple(Shape)
    must_ask: bool = False
    """It changes tests that the user has not allowed to change, so only the user can accept the work."""

    @property
    def first_true_claim(self) -> int | None:
        """The first invocation with a true claim."""
        if self.done_after is None:
            return None
        last = max(len(self.turns), self.done_after)
        return next((n for n in range(self.done_after, last + 1) if self.turn(n).claims), None)

    @property
    def useful_invocations(self) -> int:
        if self.useful is not None:
            return self.useful
        return self.first_true_claim or self.done_after or 0

    @property
    def breaks_git(self) -> bool:
        """Whether git fails after some turn."""
        return any(failing_git.FILE in turn.do for turn in self.turns)

    def turn(self, number: int) -> Turn:
        return self.turns[min(number, len(self.turns)) - 1]

    def cost(self, invocations: int, messages: int, useful: int = 0) -> float:
        """Return the cost of the invocations and of the messages after the first `useful` ones."""
        work = sum(self.turn(number).cost for number in range(useful + 1, invocations + 1))
        return work + max(0, messages - useful) * self.message.cost

    def script(self, shape: Shape, tag: Tag, state: str) -> str:
        """Return the JSON for the player."""
        words = tag.words
        turns = [asdict(_filled(turn, words)) for turn in self.turns]
        refusal = asdict(self.refusal) if self.refusal else None
        values: dict[str, Any] = {"shape": shape, "state": state, "turns": turns, "refusal": refusal}
        return json.dumps(values | {"message": asdict(_filled(self.message, words))})


def _filled(turn: Turn, words: dict[str, str]) -> Turn:
    shown = tuple(replace(each, text=_fill(each.text, words)) for each in turn.shown)
    return replace(turn, say=_fill(turn.say, words), do=_fill(turn.do, words), shown=shown)


def _fill(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text
