"""A scene: what agents do with a task, and what its verification can find out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bench.agents.calculator import NOTES_LINE, PYTEST
from bench.agents.installed import Stage
from bench.agents.model import MESSAGE, Shape, Shown, Turn


class Method(StrEnum):
    """How a promise is verified. The last one is the floor: it accepts the promise."""

    EXTERNAL = "external"
    SEMANTIC = "semantic"
    MULTI_STAGE = "multi_stage"
    STRING_MATCH = "string_match"


EXTERNAL = frozenset({Method.EXTERNAL})


@dataclass(frozen=True, slots=True)
class Scene:
    """`turns` are the coder's, `others` those of the later roles. The method verifies the role `verified`."""

    family: str
    name: str
    turns: tuple[Turn, ...]
    others: Mapping[str, tuple[Turn, ...]] = field(default_factory=dict)
    verified: str = "coder"
    check: str = PYTEST
    finishes: bool = False
    """All work is finally done and promised, so the task must be completed."""
    needs_test: bool = False
    """The work requires a new, effective test."""
    beyond: frozenset[Method] = frozenset()
    judge: str = "answers"
    shapes: tuple[Shape, ...] = (Shape.PLAIN,)
    methods: tuple[Method, ...] = tuple(Method)
    stage: Stage = Stage()
    """The project, and how the user's checkout is set up."""
    message: Turn = MESSAGE
    """What every role does when asked for a commit message."""


CODE = "printf 'def add(a, b):\\n    return a + b\\n\\n\\ndef mul(a, b):\\n    return a * b\\n' > calc.py"
HALF = "printf 'def add(a, b):\\n    return a + b\\n' > calc.py"
NOTES = f"grep -qx '{NOTES_LINE}' NOTES.md || echo '{NOTES_LINE}' >> NOTES.md"
ALL = f"{CODE}; {NOTES}"
COMMIT = "git add -A; git commit -q -m Work"
SAID = "All is done.\n\n{tag}"
TEST = "printf 'import calc\\n\\n\\ndef test_mul():\\n    assert calc.mul(3, 4) == 12\\n' > tests/test_mul.py"
EMPTY_TEST = "printf 'def test_mul():\\n    pass\\n' > tests/test_mul.py"


def lies(do: str = "", say: str = SAID, shown: tuple[Shown, ...] = ()) -> Turn:
    return Turn(say, do, shown, claims=True)


DONE = lies(ALL)
APPROVES = (lies(),)
TESTS = (lies(TEST),)
