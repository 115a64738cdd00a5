"""What the model server answers: a script of turns, in a form that no agent and no wire knows of.

A script is YAML or JSON. Request N that works on the task is answered with turn N; the last turn is played
for ever, unless the script says `then: error`. Turns with `when` are a sequence of their own, for the requests
that have that text. `docs/model-server.md` describes every key.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from ralph.errors import RalphError
from ralph.files.textfile import read_text

MAX_BYTES = 16 << 20
FAULTS = ("status", "usage_limit", "hang", "hang_after", "cut", "malformed", "stream_error", "empty")

Natural = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole file."""

    path: Name
    content: str


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One place of a file; agents that patch (codex) need whole lines."""

    path: Name
    old: Name
    new: str


class TodoEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the agent's task list."""

    text: Name
    status: Literal["pending", "in_progress", "completed"] = "pending"


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool of the agent by its own name; a text as input is for tools that take free text."""

    name: Name
    input: dict[str, Any] | str = {}


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tool call: exactly one of the fields."""

    bash: str | None = None
    read: Name | None = None
    write: Write | None = None
    edit: Edit | None = None
    todo: list[TodoEntry | str] | None = None
    call: Named | None = None

    def __post_init__(self) -> None:
        if sum(getattr(self, name) is not None for name in self.__struct_fields__) != 1:
            raise ValueError(f"Expected exactly one of {', '.join(self.__struct_fields__)}")

    @property
    def kind(self) -> str:
        return next(name for name in self.__struct_fields__ if getattr(self, name) is not None)


class TokenCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens of one answer. `cached` is a part of `input`."""

    input: Natural = 1000
    output: Natural = 100
    cached: Natural = 0

    def __post_init__(self) -> None:
        if self.cached > self.input:
            raise ValueError("Expected `cached` to be at most `input`")


class UsageLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The account's window is used up until a Unix time, or for so many seconds from the answer on."""

    resets_at: Natural | None = None
    resets_in: Natural = 3600

    def reset(self, now: float) -> int:
        """The Unix time of the reset."""
        return self.resets_at if self.resets_at is not None else int(now) + self.resets_in


class ModelTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer: thinking, text and tool calls in this order, or a fault."""

    text: str = ""
    thinking: str = ""
    tools: list[Tool] = []
    usage: TokenCounts = TokenCounts()
    times: Annotated[int, msgspec.Meta(ge=1)] | Literal["forever"] = 1
    delay: Seconds = 0.0
    when: str = ""
    """Only for requests with this text in their conversation; these get no other turns."""

    status: Annotated[int, msgspec.Meta(ge=400, le=599)] | None = None
    type: str = ""
    message: str = ""
    headers: dict[str, str] = {}
    body: dict[str, Any] | str | None = None
    usage_limit: UsageLimit | None = None
    hang: bool = False
    hang_after: Natural | None = None
    cut: bool = False
    malformed: bool = False
    stream_error: bool = False
    empty: bool = False

    def __post_init__(self) -> None:
        faults = [name for name in FAULTS if getattr(self, name) not in (None, False)]
        if len(faults) > 1:
            raise ValueError(f"Expected at most one fault, found {' and '.join(faults)}")
        if self.body is not None and self.status is None:
            raise ValueError("Expected `status` where there is `body`")
        if (self.type or self.message) and self.status is None and not self.stream_error:
            raise ValueError("Expected `status` or `stream_error` where there is `type` or `message`")
        if self.empty and (self.text or self.thinking or self.tools):
            raise ValueError("Expected no text, thinking or tools in an empty turn")
        if not (faults or self.text or self.thinking or self.tools):
            raise ValueError("Expected text, thinking, tools or a fault (`empty: true` for an empty answer)")


class ModelScript(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    turns: Annotated[list[ModelTurn], msgspec.Meta(min_length=1)]
    then: Literal["repeat", "error"] = "repeat"
    """After the last turn: that turn again, or an error."""
    side: str = "ok"
    """What requests get that advertise no tools and that no `when` is about: titles, probes."""

    def addressed(self, said: str) -> list[int]:
        """The turns, by their index, whose `when` is about this conversation."""
        return [index for index, turn in enumerate(self.turns) if turn.when and turn.when in said]

    def turn(self, said: str, played: Sequence[int]) -> int | None:
        """The index of the turn that answers a request; None when there is none left.

        `said` is the conversation that the request carries, `played` how often each turn was played before.
        """
        mine = self.addressed(said) or [index for index, turn in enumerate(self.turns) if not turn.when]
        for index in mine:
            times = self.turns[index].times
            if times == "forever" or played[index] < times:
                return index
        return mine[-1] if mine and self.then == "repeat" else None


def load(path: str) -> ModelScript:
    """A script from a file; an error names the file and the key."""
    return parse(read_text(path, most=MAX_BYTES, what="script"), path)


def parse(text: str, name: str = "script") -> ModelScript:
    """A script from YAML or JSON text; `name` is what errors call it."""
    import yaml

    try:
        values = yaml.safe_load(text)
        script = msgspec.convert(values, ModelScript)
        json.dumps(values)  # bodies and inputs go out as JSON: no dates, nothing that contains itself
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise RalphError(f"{name}{line}: no YAML: {getattr(error, 'problem', None) or error}.") from None
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        key = f" {where.rstrip('`').removeprefix('.')}:" if where else ""
        raise RalphError(f"{name}:{key} {what}.", "docs/model-server.md describes the format.") from None
    except (RecursionError, TypeError, ValueError) as error:
        raise RalphError(f"{name}: cannot be sent as JSON: {error}.") from None
    return script
