"""Values of the core as JSON rows and back. A row has a kind; a table says which value that is."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec

from ralph.core import model
from ralph.core.model import Plan, State

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
COMMANDS = frozenset({"pause", "cancel", "steer", "resume", "fail"})

_KIND_OF = {type_: kind for kind, type_ in KINDS.items()}
_encoder = msgspec.json.Encoder()
_decoders: dict[str, msgspec.json.Decoder[Any]] = {}
_state_fields = tuple(field.name for field in fields(State) if field.name != "plan")


def kind_of(value: object) -> str:
    return _KIND_OF[type(value)]


def encode(value: object) -> str:
    return _encoder.encode(value).decode()


def decode(kind: str, text: str) -> Any:
    """The value of a row. A kind that this version does not know is refused by its name."""
    if kind not in _decoders:
        if kind not in KINDS:
            raise ValueError(f"unknown kind of row: {kind}")
        _decoders[kind] = msgspec.json.Decoder(KINDS[kind])
    return _decoders[kind].decode(text)


def encode_state(state: State) -> str:
    """A state without its plan, which is row 0 of the run."""
    return encode({name: getattr(state, name) for name in _state_fields})


def decode_state(text: str, plan: Plan) -> State:
    values = msgspec.json.decode(text)
    return msgspec.convert(values | {"plan": plan}, State)
