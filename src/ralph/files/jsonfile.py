"""Read a JSON object written by hand. Errors name the line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

from ralph.errors import RalphError
from ralph.files.textfile import read_text


class JsonDocument(Struct, frozen=True):
    """A JSON object, and the text it was read from."""

    path: Path
    text: str
    values: dict[str, Any]

    def line_of(self, keys: list[str]) -> int:
        """The line of the key at this path, or of the last key on the way that exists."""
        return line_of(self.text, keys)


def read_object(path: Path, most: int, what: str) -> JsonDocument:
    text = read_text(str(path), most=most, what=what, follow=False)
    if text.startswith("\ufeff"):
        raise RalphError(f"{path}:1: starts with a byte order mark.", "Save it as UTF-8 without one.")
    try:
        values = parse_strictly(text)
    except json.JSONDecodeError as error:
        raise RalphError(f"{path}:{error.lineno}: not valid JSON: {error.msg}.") from None
    except (ValueError, RecursionError) as error:
        raise RalphError(_unusable(path, text, error)) from None
    if not isinstance(values, dict):
        raise RalphError(f"{path}:1: a {what} must be a JSON object, not {_json_type(values)}.")
    return JsonDocument(path, text, values)


def parse_strictly(text: str) -> Any:
    """Parse strict JSON: no duplicate keys, no NaN. Raises ValueError, or RecursionError if it is too deep."""
    return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)


def scalars(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[list[str], Any]]:
    """Every scalar value and every key, with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield [*keys, key], key
            yield from scalars(inner, (*keys, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from scalars(inner, (*keys, str(number)))
    else:
        yield list(keys), value


def dotted(keys: Sequence[str]) -> str:
    """A path in the usual notation: `a.b[0]`."""
    return "".join(f"[{key}]" if key.isdigit() else f".{key}" for key in keys).lstrip(".")


def parse_any(text: str, name: str) -> Any:
    """Parse any JSON value. Errors use `name` for the file; text that is not JSON raises JSONDecodeError."""
    try:
        return parse_strictly(text)
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise RalphError(_unusable(Path(name), text, error)) from None


def line_of(text: str, keys: Sequence[str]) -> int:
    """The line of the key at this path, or of the last key on the way that exists."""
    best, depth = 0, 0
    for place, path in _places(text):
        if len(path) >= depth and path == list(keys[: len(path)]):
            best, depth = place, len(path)
    return _line(text, best)


# ---- what the json module accepts and we do not ----


class _Repeated(ValueError):
    """A duplicate key."""


class _NoNumber(ValueError):
    """A word in place of a number."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Repeated(key)
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise _NoNumber(name)


def _unusable(path: Path, text: str, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"{path}:1: nested too deeply."
    if isinstance(error, _Repeated):
        (key,) = error.args
        return f"{path}:{_line(text, _repetition(text, key))}: duplicate key {key!r}."
    if isinstance(error, _NoNumber):
        (word,) = error.args
        return f"{path}:{_line_of_word(text, word.__eq__)}: {word} is not a JSON number."
    line = _line_of_word(text, lambda word: len(word) > 4000 and word[0] != '"')
    return f"{path}:{line}: a number has too many digits."


def _json_type(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


# ---- positions ----

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


def _places(text: str) -> Iterator[tuple[int, list[str]]]:
    """The offset and the path of each key and each array element."""
    path: list[str] = []
    in_array: list[bool] = []
    expects_key = False
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in ("}", "]"):
            path, in_array, expects_key = path[:-1], in_array[:-1], False
        elif word == ",":
            expects_key = not (in_array and in_array[-1])
            if not expects_key:
                path[-1] = str(int(path[-1]) + 1)
        elif word == ":":
            expects_key = False
        elif expects_key and path:
            path[-1] = json.loads(word)
            yield token.start(), list(path)
        else:
            if in_array and in_array[-1]:
                yield token.start(), list(path)
            if word in ("{", "["):
                in_array.append(word == "[")
                path.append("0" if word == "[" else "")
                expects_key = word == "{"


def _repetition(text: str, key: str) -> int:
    """The offset of the second occurrence of a key in one object."""
    seen: set[tuple[str, ...]] = set()
    for place, keys in _places(text):
        if keys[-1] == key and tuple(keys) in seen:
            return place
        seen.add(tuple(keys))
    return 0


def _line_of_word(text: str, is_it: Callable[[str], bool]) -> int:
    return _line(text, next((token.start() for token in _TOKEN.finditer(text) if is_it(token[0])), 0))


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
