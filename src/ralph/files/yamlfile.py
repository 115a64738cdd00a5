"""Read YAML written by hand or by a model. Every problem has its line, and memory use stays bounded.

Plain data only: strings, numbers, booleans, lists, mappings. JSON is read as JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import yaml
from msgspec import Struct, field
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from ralph.errors import RalphError
from ralph.files import jsonfile

MAX_DEEP = 50
MAX_UNFOLDED = 1 << 20
"""Maximum number of characters that expanding aliases may add."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_QUOTES = "Quote strings that contain `: ` or ` #`, or start with a special character. Indent with spaces."


class YamlDocument(Struct, frozen=True):
    """One document of a file. `problems` lists, by line, what YAML allows but we do not.

    `line_of` returns the line of the key at a path, or of the last key on the way that exists.
    """

    values: Any
    problems: tuple[tuple[int, str], ...]
    line_of: Callable[[Sequence[str]], int]


def parse(text: str, name: str) -> list[YamlDocument]:
    """All documents of a text. Errors use `name` for the file."""
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] in ("{", "["):
        try:
            values = jsonfile.parse_any(text, name)
        except json.JSONDecodeError:
            pass
        else:
            if _is_deeper(values, MAX_DEEP):
                raise RalphError(f"{name}:1: nested too deeply.")
            return [YamlDocument(values, (), partial(jsonfile.line_of, text))]
    try:
        return list(_documents(text, name))
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise RalphError(f"{name}{line}: not valid YAML: {error.problem}.", _QUOTES) from None
    except yaml.reader.ReaderError as error:
        line = str(text.encode()[: error.position].count(b"\n") + 1)
        raise RalphError(f"{name}:{line}: not valid YAML: control character.") from None


def _is_deeper(value: Any, than: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is not None and (than == 0 or any(_is_deeper(each, than - 1) for each in inner))


def _documents(text: str, name: str) -> Iterator[YamlDocument]:
    """Nodes know their lines but take thirty times the memory of the text, so they are built only when needed."""

    @cache
    def roots() -> list[yaml.Node]:
        return list(yaml.compose_all(text, Loader=_LOADER))

    def line_of(number: int, keys: Sequence[str]) -> int:
        return _line_in(roots()[number], keys)

    events = yaml.parse(text, Loader=_LOADER)
    starts = (event for event in events if isinstance(event, yaml.DocumentStartEvent))
    for number, _ in enumerate(starts):
        reader = _Reader(name, events, len(text) + MAX_UNFOLDED)
        values = reader.value(next(events), 0)
        yield YamlDocument(values, tuple(reader.problems), partial(line_of, number))


def _line(at: yaml.Event | yaml.Node) -> int:
    assert at.start_mark is not None
    return int(at.start_mark.line) + 1


def _line_in(node: yaml.Node, keys: Sequence[str]) -> int:
    line = _line(node)
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == key), None)
            if found is None:
                break
            line, node = _line(found[0]), found[1]
        elif isinstance(node, yaml.SequenceNode) and key.isdigit() and int(key) < len(node.value):
            node = node.value[int(key)]
            line = _line(node)
        else:
            break
    return line


class _Reader(Struct):
    """Turns events into values. `left` is the number of characters that may still be produced.

    `anchors` maps each anchor to its value and its number of characters; None while it is being read.
    """

    name: str
    events: Iterator[yaml.Event]
    left: int
    problems: list[tuple[int, str]] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int] | None] = field(default_factory=dict)
    resolver: Any = field(default_factory=Resolver)
    constructor: SafeConstructor = field(default_factory=SafeConstructor)

    def value(self, event: yaml.Event, depth: int) -> Any:
        assert isinstance(event, yaml.NodeEvent)
        if isinstance(event, yaml.AliasEvent):
            return self._unfolded(event)
        if event.anchor is None:
            return self._plain(event, depth)
        if event.anchor in self.anchors:
            raise self._error(event, "not valid YAML: found duplicate anchor")
        before, self.anchors[event.anchor] = self.left, None
        value = self._plain(event, depth)
        self.anchors[event.anchor] = value, before - self.left
        return value

    def _plain(self, event: yaml.Event, depth: int) -> Any:
        self._spend(event, 1)
        if isinstance(event, yaml.ScalarEvent):
            self._spend(event, len(event.value))
            return self._scalar(event)
        if depth == MAX_DEEP:
            raise self._error(event, "nested too deeply")
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        inside = self._mapping(event, depth + 1) if is_mapping else self._sequence(depth + 1)
        assert isinstance(event, yaml.CollectionStartEvent)
        if event.tag in (None, "!", f"{_TAG}map" if is_mapping else f"{_TAG}seq"):
            return inside
        return self._refuse(event, f"the tag {_short(event.tag)} is not allowed")

    def _unfolded(self, event: yaml.AliasEvent) -> Any:
        if event.anchor not in self.anchors:
            raise self._error(event, "not valid YAML: found undefined alias")
        value, size = self.anchors[event.anchor] or (None, self.left + 1)
        self._spend(event, size)
        return value

    def _spend(self, event: yaml.Event, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise self._error(event, "aliases expand to too much data")

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        tag = self._tag(event)
        kind = tag.removeprefix(_TAG)
        if kind in ("str", "timestamp", "value", "merge"):
            return event.value
        if kind not in ("null", "bool", "int", "float"):
            return self._refuse(event, f"the tag {_short(tag)} is not allowed")
        try:
            value = getattr(self.constructor, f"construct_yaml_{kind}")(yaml.ScalarNode(tag, event.value))
        except (ValueError, KeyError, IndexError):
            return self._refuse(event, f"{event.value[:40]!r} is not a usable number")
        if isinstance(value, float) and not math.isfinite(value):
            return self._refuse(event, f"{event.value!r} is not a usable number")
        return value

    def _tag(self, event: yaml.ScalarEvent) -> str:
        if event.tag not in (None, "!"):
            return str(event.tag)
        return str(self.resolver.resolve(yaml.ScalarNode, event.value, event.implicit))

    def _sequence(self, depth: int) -> list[Any]:
        found = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            found.append(self.value(event, depth))
        return found

    def _mapping(self, start: yaml.Event, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: list[Any] = []
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            is_merge = isinstance(event, yaml.ScalarEvent) and self._tag(event) == f"{_TAG}merge"
            key = self.value(event, depth)
            value = self.value(next(self.events), depth)
            if is_merge:
                merged += value if isinstance(value, list) else [value]
            elif not isinstance(key, str):
                what = f"the key {event.value!r}" if isinstance(event, yaml.ScalarEvent) else "this key"
                self._refuse(event, f"{what} is not a string: put it in quotes")
            elif key in found:
                self._refuse(event, f"duplicate key {key!r}")
            else:
                found[key] = value
        for each in merged:
            if not isinstance(each, dict):
                self._refuse(start, "`<<` takes mappings only")
                continue
            for key, value in each.items():
                found.setdefault(key, value)
        return found

    def _refuse(self, event: yaml.Event, problem: str) -> None:
        self.problems.append((_line(event), problem))

    def _error(self, event: yaml.Event, problem: str) -> RalphError:
        return RalphError(f"{self.name}:{_line(event)}: {problem}.")


def _short(tag: str) -> str:
    return f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag


# ---- writing ----


class _Dumper(yaml.SafeDumper):
    """Block style, keys in their given order, multi-line strings as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = text.replace("\n", "").isprintable()
    style = "|" if "\n" in text and plain else None if plain else '"'
    return dumper.represent_scalar(f"{_TAG}str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump(values: Any) -> str:
    """Readable YAML that `parse` reads back as the same values."""
    text: str = yaml.dump(values, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=100)
    return text
