"""The script of a model server: a list of turns that depends on no agent and no wire.

A script is YAML or JSON. The Nth request that works on the task is answered with turn N; the last turn repeats
forever unless the script sets `then: error`. Turns with `when` form a separate sequence for the requests that
contain that text. `docs/model-server.md` describes every key.
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
    """A replacement in a file. Agents that use patches (codex) need whole lines."""

    path: Name
    old: Name
    new: str


class TodoEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the agent's task list."""

    text: Name
    status: Literal["pending", "in_progress", "completed"] = "pending"


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool by the agent's name for it. A string input is for tools that take free text."""

    name: Name
    input: dict[str, Any] | str = {}


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tool call, with exactly one of the fields set."""

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
    """Tokens of one answer. `cached` is included in `input`."""

    input: Natural = 1000
    output: Natural = 100
    cached: Natural = 0

    def __post_init__(self) -> None:
        if self.cached > self.input:
            raise ValueError("Expected `cached` to be at most `input`")


class UsageLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A usage limit that resets at a Unix time, or a number of seconds after the answer."""

    resets_at: Natural | None = None
    resets_in: Natural = 3600

    def reset(self, now: float) -> int:
        """The Unix time of the reset."""
        return self.resets_at if self.resets_at is not None else int(now) + self.resets_in


class ModelTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer, with thinking, text and tool calls in this order, or a fault."""

    text: str = ""
    thinking: str = ""
    tools: list[Tool] = []
    usage: TokenCounts = TokenCounts()
    times: Annotated[int, msgspec.Meta(ge=1)] | Literal["forever"] = 1
    delay: Seconds = 0.0
    when: str = ""
    """Only for requests with this text in their conversation, which then get no other turns."""

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
            raise ValueError("Expected `status` along with `body`")
        if (self.type or self.message) and self.status is None and not self.stream_error:
            raise ValueError("Expected `status` or `stream_error` along with `type` or `message`")
        if self.empty and (self.text or self.thinking or self.tools):
            raise ValueError("Expected no text, thinking or tools in an empty turn")
        if not (faults or self.text or self.thinking or self.tools):
            raise ValueError("Expected text, thinking, tools or a fault (`empty: true` for an empty answer)")


class ModelScript(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    turns: Annotated[list[ModelTurn], msgspec.Meta(min_length=1)]
    then: Literal["repeat", "error"] = "repeat"
    """After the last turn: repeat it, or return an error."""
    side: str = "ok"
    """The answer to requests without tools that match no `when`, such as titles and probes."""

    def addressed(self, said: str) -> list[int]:
        """The indexes of the turns whose `when` matches this conversation."""
        return [index for index, turn in enumerate(self.turns) if turn.when and turn.when in said]

    def turn(self, said: str, played: Sequence[int]) -> int | None:
        """The index of the turn that answers a request; None if there is none left.

        `said` is the conversation in the request, `played` how often each turn was played before.
        """
        mine = self.addressed(said) or [index for index, turn in enumerate(self.turns) if not turn.when]
        for index in mine:
            times = self.turns[index].times
            if times == "forever" or played[index] < times:
                return index
        return mine[-1] if mine and self.then == "repeat" else None


def load(path: str) -> ModelScript:
    """Load a script from a file. Errors name the file and the key."""
    return parse(read_text(path, most=MAX_BYTES, what="script"), path)


def parse(text: str, name: str = "script") -> ModelScript:
    """Parse a script from YAML or JSON text. Errors use `name` for the file."""
    import yaml

    try:
        values = yaml.safe_load(text)
        script = msgspec.convert(values, ModelScript)
        json.dumps(values)  # bodies and inputs are sent as JSON: no dates, no cycles
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise RalphError(
            f"{name}{line}: not valid YAML: {getattr(error, 'problem', None) or error}."
        ) from None
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        key = f" {where.rstrip('`').removeprefix('.')}:" if where else ""
        raise RalphError(f"{name}:{key} {what}.", "See docs/model-server.md for the format.") from None
    except (RecursionError, TypeError, ValueError) as error:
        raise RalphError(f"{name}: cannot be sent as JSON: {error}.") from None
    return script
