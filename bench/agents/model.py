"""What a scripted agent is: data, turned into JSON for the program that plays it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any


class Shape(StrEnum):
    """Whose output an agent's output looks like."""

    CLAUDE = "claude"
    CODEX = "codex"
    PLAIN = "plain"


class Kind(StrEnum):
    """What an agent shows before its last message."""

    TEXT = "text"
    THINKING = "thinking"
    TOOL = "tool"
    """A command and its output. In plain text the output stands behind a frame."""
    RAW_TOOL = "raw_tool"
    """The same; in plain text the output stands there as it is."""
    USER = "user"
    """The prompt, told once more by the CLI itself: as an event, or on stderr."""
    STDERR = "stderr"


class Limit(StrEnum):
    """Why an agent refuses to work."""

    USAGE = "usage"
    RATE = "rate"
    OVERLOAD = "overload"
    CREDIT = "credit"


@dataclass(frozen=True, slots=True)
class Tag:
    """The words by which a harness wants to be told that all is done."""

    name: str = "response"
    text: str = "DONE"

    def __str__(self) -> str:
        return f"<{self.name}>{self.text}</{self.name}>"

    @property
    def words(self) -> dict[str, str]:
        """What may stand in braces in what an agent says and does; `prompt` is known when it is played."""
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
    """One invocation. The last turn of an agent is played for ever."""

    say: str = ""
    """The last message."""
    do: str = ""
    """A shell command in the project."""
    shown: tuple[Shown, ...] = ()
    claims: bool = False
    """The last message says in earnest, by the tag, that all is done."""
    exit: int = 0
    """The exit code; a negative one is the signal it dies of."""
    cut: bool = False
    """A structured stream ends without its result."""
    cost: float = 0.10


@dataclass(frozen=True, slots=True)
class Refusal:
    """Before it works, an agent refuses: so many starts, or for so long since the first; it says how long."""

    limit: Limit
    seconds: float = 0.0
    starts: int = 0


@dataclass(frozen=True, slots=True)
class Agent:
    """`done_after`: after which invocation the work is truly done in the files, whoever commits them."""

    family: str
    name: str
    turns: tuple[Turn, ...]
    done_after: int | None = None
    useful: int | None = None
    """How many invocations are of use; any more are wasted. By default those until the first true claim."""
    refusal: Refusal | None = None
    """What it does first. A start that was refused is no invocation; one of them cannot be avoided."""

    @property
    def first_true_claim(self) -> int | None:
        """The first invocation that claims what is true."""
        if self.done_after is None:
            return None
        last = max(len(self.turns), self.done_after)
        return next((n for n in range(self.done_after, last + 1) if self.turn(n).claims), None)

    @property
    def useful_invocations(self) -> int:
        if self.useful is not None:
            return self.useful
        return self.first_true_claim or self.done_after or 0

    def turn(self, number: int) -> Turn:
        return self.turns[min(number, len(self.turns)) - 1]

    def cost(self, invocations: int) -> float:
        """What the invocations after the last useful one have cost."""
        return sum(self.turn(number).cost for number in range(self.useful_invocations + 1, invocations + 1))

    def script(self, shape: Shape, tag: Tag, state: str) -> str:
        """All that the player needs."""
        words = tag.words
        turns = [asdict(_filled(turn, words)) for turn in self.turns]
        refusal = asdict(self.refusal) if self.refusal else None
        values: dict[str, Any] = {"shape": shape, "state": state, "turns": turns, "refusal": refusal}
        return json.dumps(values)


def _filled(turn: Turn, words: dict[str, str]) -> Turn:
    shown = tuple(replace(each, text=_fill(each.text, words)) for each in turn.shown)
    return replace(turn, say=_fill(turn.say, words), do=_fill(turn.do, words), shown=shown)


def _fill(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text
