"""Acceptance criteria in verification configs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.core.task_model import ACCEPTANCE, ROLES, TaskCompletionSpec, injected

CRITERIA = ("one", "two")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {}),
        ({"check_for": ACCEPTANCE}, {"check_for": ["one", "two"]}),
        ({"check_for": ["a", ACCEPTANCE, "b"]}, {"check_for": ["a", "one", "two", "b"]}),
        ({"check_for": [ACCEPTANCE, ACCEPTANCE]}, {"check_for": ["one", "two", "one", "two"]}),
        (
            {"stages": [{"name": "x", "config": {"check_for": ACCEPTANCE}}, {"config": {"a": [ACCEPTANCE]}}]},
            {
                "stages": [
                    {"name": "x", "config": {"check_for": ["one", "two"]}},
                    {"config": {"a": ["one", "two"]}},
                ]
            },
        ),
        ({"command": f"echo {ACCEPTANCE}"}, {"command": f"echo {ACCEPTANCE}"}),
        ({"nested": [[ACCEPTANCE], 3, None, True]}, {"nested": [["one", "two"], 3, None, True]}),
    ],
)
def test_the_placeholder_becomes_the_criteria(config: dict[str, Any], expected: dict[str, Any]) -> None:
    """The placeholder is replaced by the criteria as a value or a list item, but not inside a longer text."""
    assert injected(config, CRITERIA) == expected


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_a_config_without_the_placeholder_is_unchanged(config: dict[str, Any]) -> None:
    """Nothing but the placeholder is replaced, and the given config is not modified."""
    assert injected(config, CRITERIA) == config


def test_a_spec_has_a_place_for_every_role() -> None:
    """A completion spec can have criteria for every role in `ROLES`."""
    spec = TaskCompletionSpec("x", ("y",))
    assert [spec.criteria_of(role) for role in ROLES] == [None] * 4
    assert list(spec.criteria) == []
