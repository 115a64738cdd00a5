"""The messages on the troubleshooting page are those that the source prints.

A heading of the page is a message. Text in italics differs from case to case, and `…` leaves something out; every
other part must be in the string literals of the source, or be put together from whole ones.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from test_readme import parse

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
SYMPTOMS = "No message"
"""The section whose headings are not messages."""

SHORTEST = 10
"""Shorter parts of a heading are not looked up."""

LONG = 8
"""At least one piece of a message that is put together is this long."""

MAX_PIECES = 5


def headings() -> list[str]:
    """Return every heading that is a message."""
    sections = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)[1:]
    texts = dict(zip(sections[::2], sections[1::2], strict=True))
    assert SYMPTOMS in texts
    return [
        heading
        for section, text in texts.items()
        if section != SYMPTOMS
        for heading in re.findall(r"^### (.+)$", text, re.MULTILINE)
    ]


def fragments(heading: str) -> list[str]:
    """Return the fixed parts of a heading that are long enough to be looked up, at least the longest."""
    parts = [part.strip() for part in re.split(r"\*[^*]+\*|…", heading)]
    return [part for part in parts if len(part) >= SHORTEST] or [max(parts, key=len)]


# ---- the source ----


def strings(tree: ast.AST) -> Iterator[str]:
    """Return the string literals below a node and the fixed parts of its f-strings, without docstrings."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if not isinstance(tree, ast.Expr):
                yield node.value
        else:
            yield from strings(node)


def json_strings(value: object) -> Iterator[str]:
    """Return all strings in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from json_strings(each)


@cache
def literals() -> frozenset[str]:
    """Return every string literal of the package."""
    source = ROOT / "src" / "ralph"
    found = {text for path in source.rglob("*.py") for text in strings(ast.parse(path.read_text()))}
    found |= {text for path in source.rglob("*.json") for text in json_strings(json.loads(path.read_text()))}
    return frozenset(found)


@cache
def pieces() -> frozenset[str]:
    """Return the literals as parts of a message: also without spaces around them, and capitalised."""
    forms = {form for text in literals() for form in (text, text.strip(), text.lstrip(), text.rstrip())}
    return frozenset(forms | {text[:1].upper() + text[1:] for text in forms} - {""})


def is_printed(fragment: str) -> bool:
    """Return whether a literal contains the fragment, or whole literals make it up, one of them a long one."""
    if any(fragment in text for text in literals()):
        return True
    return _is_made_of(fragment, MAX_PIECES, needs_long=True)


def _is_made_of(text: str, most: int, *, needs_long: bool) -> bool:
    if not text:
        return not needs_long
    if not most:
        return False
    return any(
        text[:end] in pieces() and _is_made_of(text[end:], most - 1, needs_long=needs_long and end < LONG)
        for end in range(len(text), 0, -1)
    )


# ---- the tests ----


@pytest.mark.parametrize("heading", headings())
def test_the_message_is_in_the_source(heading: str) -> None:
    """A reworded message needs a new heading."""
    assert [part for part in fragments(heading) if not is_printed(part)] == []


def test_reworded_messages_are_noticed() -> None:
    """The look-up finds messages in one literal and in several, but neither invented ones nor docstrings."""
    assert is_printed("Agent timed out")
    assert is_printed("Done: all checks passed")
    assert not is_printed("Agent ran out of time")
    assert not is_printed("Done: every check is green")
    assert not is_printed("One run as a state machine without I/O.")


def test_headings_are_split_at_what_differs() -> None:
    """Italics and an ellipsis are not looked up, nor are short parts next to a long one."""
    assert fragments("Run *RUN* is still running.") == ["is still running."]
    assert fragments("Agent timed out…") == ["Agent timed out"]
    assert fragments("Undone: *CHANGE*.") == ["Undone:"]
    assert len(headings()) > 40


@pytest.mark.parametrize("text", sorted(set(re.findall(r"`(ralph [^`\n]+)`", PAGE))))
def test_commands_of_the_page_exist(text: str) -> None:
    """Commands in the text name commands and options that exist."""
    parse(text)
