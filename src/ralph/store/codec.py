"""Core values as JSON rows and back. Each row has a kind, and a table maps kinds to types."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

from ralph.core import model
from ralph.core.model import Hold, Limits, Phase, Plan, State, Stop, Usage
from ralph.errors import RalphError

T = TypeVar("T")
_NEWER = "It was written by a newer Ralph: upgrade."
_DAMAGED = "Start a new run; `ralph prune` removes old ones."

KINDS: dict[str, type[Any]] = {
    "plan": model.Plan,
    # steps
    "look": model.Look,
    "run_agent": model.RunAgent,
    "restore": model.Restore,
    "run_checks": model.RunChecks,
    "commit": model.Commit,
    "hold": model.Hold,
    "stop": model.Stop,
    # results
    "seen": model.Seen,
    "ran": model.Ran,
    "checked": model.Checked,
    "did": model.Did,
    # commands
    "pause": model.Pause,
    "cancel": model.Cancel,
    "steer": model.Steer,
    "resume": model.Resume,
    "fail": model.Fail,
}
ENDS = frozenset({"stop", "fail"})
"""The rows that end a run. A run that has only decided to stop is not over: its final work is not done yet."""

_KIND_OF = {type_: kind for kind, type_ in KINDS.items()}
_encoder = msgspec.json.Encoder()
_decoders: dict[str, msgspec.json.Decoder[Any]] = {}
_making = threading.Lock()
"""One thread at a time: msgspec crashes if a thread uses type information that another is still building."""
_state_fields = tuple(field.name for field in fields(State) if field.name != "plan")


def kind_of(value: object) -> str:
    return _KIND_OF[type(value)]


def encode(value: object) -> str:
    return _encoder.encode(value).decode()


def decode(kind: str, text: str) -> Any:
    """The value of a row. A kind this version does not know is an error that names it."""
    if kind not in KINDS:
        raise RalphError(f"The journal has a row of an unknown kind: {kind!r}.", _NEWER)
    return decoded(_decoder(kind, KINDS[kind]), text, f"a row of kind {kind!r}")


def _decoder(name: str, type_: type[Any]) -> msgspec.json.Decoder[Any]:
    if name not in _decoders:
        with _making:
            _decoders[name] = msgspec.json.Decoder(type_)
    return _decoders[name]


def decoded(decoder: msgspec.json.Decoder[T], text: str, what: str) -> T:
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RalphError(f"The journal is damaged: {what} cannot be read ({error}).", _DAMAGED) from None


class RunBrief(Struct, frozen=True):
    """The part of a state that a list of runs needs. `stop` is the run's result; None until it is over."""

    phase: Phase
    now: float
    elapsed: float
    iteration: int
    limits: Limits
    usage: Usage
    hold: Hold | None
    paused: bool
    notes: tuple[str, ...]
    stop: Stop | None


_brief = msgspec.json.Decoder(RunBrief)


def decode_brief(kind: str, text: str, run: str) -> RunBrief:
    """The brief of the state after a row of this kind."""
    brief = decoded(_brief, text, f"the state of run {run}")
    return brief if kind in ENDS else replace(brief, stop=None)


def encode_state(state: State) -> str:
    """Encode a state without its plan, which is row 0 of the run."""
    return encode({name: getattr(state, name) for name in _state_fields})


def decode_state(text: str, plan: Plan) -> State:
    _decoder("state", State)
    try:
        values = msgspec.json.decode(text)
        return msgspec.convert(values | {"plan": plan}, State)
    except (msgspec.DecodeError, TypeError) as error:
        raise RalphError(f"The journal is damaged: a state cannot be read ({error}).", _DAMAGED) from None
