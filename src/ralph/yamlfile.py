"""Read YAML that somebody has written by hand, or a model: each problem has its line, and nothing can blow up.

Only plain data: texts, numbers, yes and no, lists, mappings. JSON is read as JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from ralph import jsonfile
from ralph.errors import RalphError

MOST_DEEP = 50
MOST_UNFOLDED = 1 << 20
"""By how many characters a file may grow when its aliases are unfolded."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_QUOTES = "A text with `: `, ` #` or a special character at its beginning needs quotes; indent with spaces."


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file. `problems`: by line, what YAML allows and we do not."""

    values: Any
    problems: tuple[tuple[int, str], ...] = ()
    root: yaml.Node | None = None
    text: str = ""

    def line_of(self, keys: Sequence[str]) -> int:
        """The line of the key that this path leads to; of the last one on the way that is there."""
        return _line_in(self.root, keys) if self.root else jsonfile.line_of(self.text, keys)


def parse(text: str, name: str) -> list[Document]:
    """All documents of a text; `name` is what errors call it."""
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] in ("{", "["):
        try:
            values = jsonfile.parse_any(text, name)
        except json.JSONDecodeError:
            pass
        else:
            if _is_deeper(values, MOST_DEEP):
                raise RalphError(f"{name}:1: nested too deeply.")
            return [Document(values, text=text)]
    try:
        _check_depth(text, name)
        return [_document(root, name, len(text)) for root in yaml.compose_all(text, Loader=_LOADER)]
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise RalphError(f"{name}{line}: no YAML: {error.problem}.", _QUOTES) from None
    except yaml.reader.ReaderError as error:
        line = str(text.encode()[: error.position].count(b"\n") + 1)
        raise RalphError(f"{name}:{line}: no YAML: it has a control character.") from None


def _is_deeper(value: Any, than: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is not None and (than == 0 or any(_is_deeper(each, than - 1) for each in inner))


def _check_depth(text: str, name: str) -> None:
    """Composing is recursive: what is nested without end would end the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MOST_DEEP:
                raise RalphError(f"{name}:{_line(event)}: nested too deeply.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _line(at: yaml.Event | yaml.Node) -> int:
    assert at.start_mark is not None
    return int(at.start_mark.line) + 1


def _document(root: yaml.Node, name: str, size: int) -> Document:
    reader = _Reader(name, size + MOST_UNFOLDED)
    values = reader.value(root, 0)
    return Document(values, tuple(reader.problems), root)


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


@dataclass
class _Reader:
    """Nodes become values; `left`: how many characters may still come out of them."""

    name: str
    left: int
    problems: list[tuple[int, str]] = field(default_factory=list)
    constructor: SafeConstructor = field(default_factory=SafeConstructor)

    def value(self, node: yaml.Node, depth: int) -> Any:
        self.left -= 1 + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        if self.left < 0 or depth > MOST_DEEP:
            raise RalphError(f"{self.name}:{_line(node)}: its aliases unfold to far too much.")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.value(each, depth + 1) for each in node.value]
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, depth)
        return self._refuse(node, f"the tag {_short(node.tag)} is not allowed")

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        kind = node.tag.removeprefix(_TAG)
        if kind in ("str", "timestamp", "value", "merge"):
            return node.value
        if kind not in ("null", "bool", "int", "float"):
            return self._refuse(node, f"the tag {_short(node.tag)} is not allowed")
        try:
            value = getattr(self.constructor, f"construct_yaml_{kind}")(node)
        except (ValueError, KeyError, IndexError):
            return self._refuse(node, f"{node.value[:40]!r} is no number that can be used")
        if isinstance(value, float) and not math.isfinite(value):
            return self._refuse(node, f"{node.value!r} is no number that can be used")
        return value

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: list[Any] = []
        for key_node, value_node in node.value:
            value = self.value(value_node, depth + 1)
            if key_node.tag == f"{_TAG}merge":
                merged += value if isinstance(value, list) else [value]
                continue
            key = self.value(key_node, depth + 1)
            if not isinstance(key, str):
                what = f"the key {key_node.value!r}" if isinstance(key_node, yaml.ScalarNode) else "this key"
                self._refuse(key_node, f"{what} is no text: put it in quotes")
            elif key in found:
                self._refuse(key_node, f"the key {key!r} stands there twice")
            else:
                found[key] = value
        for each in merged:
            if not isinstance(each, dict):
                self._refuse(node, "`<<` takes mappings only")
                continue
            for key, value in each.items():
                found.setdefault(key, value)
        return found

    def _refuse(self, node: yaml.Node, problem: str) -> None:
        self.problems.append((_line(node), problem))


def _short(tag: str) -> str:
    return f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag


# ---- writing ----


class _Dumper(yaml.SafeDumper):
    """Block style, keys as they come, a text of several lines as such."""

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
