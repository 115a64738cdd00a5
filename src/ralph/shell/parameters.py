"""The operators of `${name…}`: substrings, prefixes and suffixes, replacement, upper and lower case."""

from __future__ import annotations

from ralph.shell.words import UNKNOWN, UNSET, ansi_c

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def name_of(text: str) -> tuple[str, str]:
    """Split a text into the name that it starts with and the rest."""
    end = 0
    while end < len(text) and (text[end].isalnum() or text[end] == "_"):
        end += 1
    if not end and text:
        end = 1
    return text[:end], text[end:]


def changed(value: str, change: str, expand: Callable[[str], str]) -> str:
    """Apply an operator to an existing value. `expand` expands the words after the operator."""
    if UNKNOWN in value or UNSET in value:
        return value
    operator = change[0]
    if operator == ":":
        return _substring(value, change[1:])
    if operator in "#%":
        return _trimmed(value, operator, change[1:2] == operator, expand(change.lstrip(operator)))
    if operator == "/":
        return _replaced(value, change[1:], expand)
    if operator in "^,":
        return value.upper() if operator == "^" else value.lower()
    if operator == "@":
        return ansi_c(value) if change == "@E" else value
    return UNKNOWN


def _substring(value: str, change: str) -> str:
    start, _, length = (part.strip() for part in change.partition(":"))
    try:
        first = int(start or 0)
        end = None if not length else int(length) if int(length) < 0 else first + int(length)
    except ValueError:
        return UNKNOWN
    return value[first:end]


def _trimmed(value: str, side: str, is_longest: bool, pattern: str) -> str:
    from fnmatch import fnmatchcase

    cuts = range(len(value) + 1)
    if side == "#":
        order = reversed(cuts) if is_longest else iter(cuts)
        return next((value[cut:] for cut in order if fnmatchcase(value[:cut], pattern)), value)
    order = iter(cuts) if is_longest else reversed(cuts)
    return next((value[:cut] for cut in order if fnmatchcase(value[cut:], pattern)), value)


def _replaced(value: str, change: str, expand: Callable[[str], str]) -> str:
    is_all = change.startswith("/")
    pattern, _, new = change[is_all:].partition("/")
    pattern, new = expand(pattern), expand(new)
    if any(char in pattern for char in "*?["):
        return UNKNOWN
    return value.replace(pattern, new, -1 if is_all else 1)
