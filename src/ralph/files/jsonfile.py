"""Read a JSON object that somebody has written by hand: an error says in which line it is."""

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
        """The line of the key that this path leads to; of the last one on the way that is there."""
        return line_of(self.text, keys)


def read_object(path: Path, most: int, what: str) -> JsonDocument:
    text = read_text(str(path), most=most, what=what, follow=False)
    if text.startswith("\ufeff"):
        raise RalphError(f"{path}:1: begins with a byte order mark.", "Save it as UTF-8 without one.")
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
    """JSON as its standard has it: no key twice, no NaN. Raises ValueError, or RecursionError if it is too deep."""
    return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)


def scalars(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[list[str], Any]]:
    """Every plain value, and every key, with the path that leads to it."""
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
    """A path as people write it: `a.b[0]`."""
    return "".join(f"[{key}]" if key.isdigit() else f".{key}" for key in keys).lstrip(".")


def parse_any(text: str, name: str) -> Any:
    """Any JSON value; `name` is what errors call it. That it is no JSON at all is for the caller to say."""
    try:
        return parse_strictly(text)
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise RalphError(_unusable(Path(name), text, error)) from None


def line_of(text: str, keys: Sequence[str]) -> int:
    """The line of the key that this path leads to; of the last one on the way that is there."""
    best, depth = 0, 0
    for place, path in _places(text):
        if len(path) >= depth and path == list(keys[: len(path)]):
            best, depth = place, len(path)
    return _line(text, best)


# ---- what json accepts and we do not ----


class _Repeated(ValueError):
    """A key that stands there twice."""


class _NoNumber(ValueError):
    """A word in the place of a number."""


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
        return f"{path}:{_line(text, _repetition(text, key))}: the key {key!r} stands there twice."
    if isinstance(error, _NoNumber):
        (word,) = error.args
        return f"{path}:{_line_of_word(text, word.__eq__)}: {word} is no JSON number."
    line = _line_of_word(text, lambda word: len(word) > 4000 and word[0] != '"')
    return f"{path}:{line}: a number has too many digits."


def _json_type(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


# ---- where things stand ----

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


def _places(text: str) -> Iterator[tuple[int, list[str]]]:
    """Where each key and each element of an array begins, with the path that leads to it."""
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
    """Where a key stands for the second time in one object."""
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
