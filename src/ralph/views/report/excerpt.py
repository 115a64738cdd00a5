"""Foreign text in a report: made harmless, and cut to a useful length."""

from __future__ import annotations

import os
from enum import Enum
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import fields

from ralph.core.text import clean
from ralph.redact import Secrets, secret_values, secrets_of
from ralph.views.report.model import Excerpt

MAX_LINE = 1_000
"""Characters shown of one line."""

_MAX_PLAIN = 20_000
"""Characters kept of any text that is not an excerpt already."""

T = TypeVar("T")


def beginning(text: str, most: int, see: str) -> Excerpt:
    """The first `most` characters of a text. `see`: the command that shows all of it."""
    return Excerpt(text[:most], len(text) - most, see) if len(text) > most else Excerpt(text)


def ending(text: str, most: int, see: str) -> Excerpt:
    """The last `most` characters of a text, for texts whose end matters."""
    return Excerpt(text[-most:], len(text) - most, see) if len(text) > most else Excerpt(text)


def harmless(value: T) -> T:
    """The same value with secrets, control characters and overlong lines removed from all texts, at any depth.

    Every part of a report passes through here, so no writer can forget it. Agent output is already redacted; files
    and prompts may still hold secrets.
    """
    made: T = _harmless(value, secrets_of(frozenset(secret_values(os.environ))))
    return made


def _harmless(value: Any, secrets: Secrets) -> Any:
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return _short_lines(clean(secrets.text(value[: 4 * _MAX_PLAIN])))
    if isinstance(value, tuple):
        return tuple(_harmless(each, secrets) for each in value)
    if isinstance(value, Struct):
        made = {field.name: _harmless(getattr(value, field.name), secrets) for field in fields(value)}
        return type(value)(**made)
    return value


def _short_lines(text: str) -> str:
    if len(text) <= MAX_LINE:
        return text
    return "\n".join(map(_short_line, text.split("\n")))


def _short_line(line: str) -> str:
    if len(line) <= MAX_LINE:
        return line
    return f"{line[:MAX_LINE]} [... {len(line) - MAX_LINE:,} more characters in this line]"
