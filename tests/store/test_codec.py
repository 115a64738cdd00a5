"""Rows of the journal: every core value as JSON and back."""

from __future__ import annotations

import json
import subprocess
import sys
import types
import typing
from enum import StrEnum
from typing import Any, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields, replace

from ralph.core import machine, model
from ralph.core.model import (
    AgentSpec,
    Cause,
    Command,
    Flow,
    Plan,
    PromptSource,
    Ran,
    Result,
    State,
    Steer,
    Step,
    Stop,
    Verdict,
)
from ralph.errors import RalphError
from ralph.store import codec

PLAN = Plan("20260101-000000-abcd", Flow.RUN, "/work", (AgentSpec("a", "custom", "a"),), PromptSource("x"))

SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a core type."""
    if hint in SCALARS:
        return SCALARS[hint]
    if hint is Verdict:
        return VERDICTS
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of([values(one) for one in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(one) for one in arguments))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    assert isinstance(hint, type) and issubclass(hint, Struct), hint
    return built(hint)


def built(type_: type[Any], **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(type_)
    names = [field.name for field in fields(type_) if field.name not in known]
    return st.builds(type_, **known, **{name: values(hints[name]) for name in names})


VERDICTS = built(Verdict, parts=st.just(()) | st.tuples(built(Verdict, parts=st.just(()))))
"""A verdict can contain verdicts: two levels are enough."""


def test_every_step_result_and_command_has_a_kind() -> None:
    """Nothing that the machine requests or receives can be missing from the journal."""
    members = {*typing.get_args(Step), *typing.get_args(Result), *typing.get_args(Command), Plan}
    assert set(codec.KINDS.values()) == members


@pytest.mark.parametrize("kind", codec.KINDS)
def test_a_row_comes_back_as_it_was(kind: str) -> None:
    """Encoding and decoding any value gives the same value, and its kind is found by its type."""

    @settings(max_examples=40, deadline=None)
    @given(values(codec.KINDS[kind]))
    def check(value: Any) -> None:
        text = codec.encode(value)
        assert codec.decode(kind, text) == value
        assert codec.kind_of(value) == kind
        text.encode()

    check()


@settings(max_examples=60, deadline=None)
@given(values(State))
def test_a_state_comes_back_with_the_plan_of_row_0(state: State) -> None:
    """A state is stored without its plan and is the same again with it."""
    text = codec.encode_state(state)
    assert "plan" not in json.loads(text)
    assert codec.decode_state(text, state.plan) == state


@pytest.mark.parametrize(
    "text", ["\0", "a\0b", "🦀 4 bytes", "\u2028\u2029", "\ufeff", '"\\\n\t\r', "\x1b[31m", "\uffff"]
)
def test_any_text_survives(text: str) -> None:
    """NUL, emoji, separators and controls come back from a row unchanged."""
    ran = Ran(1.0, model.Ended.OK, text=text, detail=text)
    assert codec.decode("ran", codec.encode(ran)) == ran
    assert codec.decode("steer", codec.encode(Steer(1.0, 1, text))) == Steer(1.0, 1, text)


def test_an_unknown_kind_is_refused_by_its_name() -> None:
    """A row of an unknown kind is named, with what to do."""
    with pytest.raises(RalphError, match="unknown kind: 'dance'") as caught:
        codec.decode("dance", "{}")
    assert caught.value.hint == "It was written by a newer Ralph: upgrade."


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"at": "noon"}', '{"at": 1.0, "ended": "?"}'])
def test_a_damaged_row_is_one_clear_error(text: str) -> None:
    """A row that is not JSON, or not of its kind, is reported as damaged, with what to do."""
    with pytest.raises(
        RalphError, match="The journal is damaged: a row of kind 'ran' cannot be read"
    ) as caught:
        codec.decode("ran", text)
    assert "ralph prune" in caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"phase": "lunch"}'])
def test_a_damaged_state_is_one_clear_error(text: str) -> None:
    """The same for a state."""
    with pytest.raises(RalphError, match="The journal is damaged: a state cannot be read"):
        codec.decode_state(text, PLAN)


def test_rows_of_other_versions_can_be_read() -> None:
    """Schema changes only add: a new field is ignored, a missing one has its default."""
    body = json.loads(codec.encode(PLAN))
    older = {key: value for key, value in body.items() if key not in ("snapshots", "allow_degraded", "role")}
    newer = body | {"colour": "green"}
    assert codec.decode("plan", json.dumps(older)) == PLAN
    assert codec.decode("plan", json.dumps(newer)) == PLAN
    state = replace(machine.start(PLAN, 5.0), stop=Stop(Cause.PROVED, "done"))
    kept = json.loads(codec.encode_state(state))
    del kept["approved"]
    assert codec.decode_state(json.dumps(kept | {"mood": "good"}), PLAN) == state


THREADS = """
import os, sys, threading
from ralph.core import machine
from ralph.core.model import *
from ralph.store import codec

plan = Plan("r", Flow.RUN, "/", (AgentSpec("a", "custom", "a"),), PromptSource("x"), limits=Limits(iterations=1))
row, state = codec.encode(plan), codec.encode_state(machine.start(plan, 0.0))
sys.setswitchinterval(1e-6)

def read(barrier):
    barrier.wait()
    codec.decode_state(state, codec.decode("plan", row))

def read_all():
    barrier = threading.Barrier(8)
    threads = [threading.Thread(target=read, args=(barrier,)) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

for _ in range(40):
    if not (child := os.fork()):
        read_all()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_several_threads_may_read_at_once() -> None:
    """Whichever thread meets a type first, none of them crashes."""
    assert subprocess.run([sys.executable, "-c", THREADS]).returncode == 0
