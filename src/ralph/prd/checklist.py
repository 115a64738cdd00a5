"""Reads a Markdown checklist: checkboxes are items, the text below belongs to them, headings are groups."""

from __future__ import annotations

import re

from msgspec import Struct, field

_ITEM = re.compile(r"^(?P<indent>\s*)(?:[-*+]|\d+[.)])\s+(?:\[(?P<box>[ xX])\]\s+)?(?P<text>.*\S)\s*$")
_HEADING = re.compile(r"^ {0,3}(?P<level>#{1,6})\s+(?P<text>.*?)\s*#*\s*$")
_FENCE = re.compile(r"^\s*(?P<fence>`{3,}|~{3,})")


class Item(Struct):
    """A checkbox. `groups` are the headings and plain items above it; `criteria` each have their ticked state."""

    title: str
    is_done: bool
    groups: tuple[str, ...]
    criteria: list[tuple[str, bool]] = field(default_factory=list)
    text: str = ""


def checklist(text: str) -> tuple[str, list[Item]]:
    """The title of the document, and its outermost checkboxes."""
    reader = _Reader()
    for line in text.splitlines():
        reader.read(line)
    return reader.title, reader.items


class _Reader:
    def __init__(self) -> None:
        self.title = ""
        self.items: list[Item] = []
        self._headings: dict[int, str] = {}
        self._plain: list[tuple[int, str]] = []
        self._open: tuple[int, Item] | None = None
        self._fence = ""

    def read(self, line: str) -> None:
        if self._is_fenced(line):
            self._belongs(line)
        elif (heading := _HEADING.match(line)) and not self._is_below(line):
            self._enter(len(heading["level"]), heading["text"])
        elif item := _ITEM.match(line):
            self._item(_width(item["indent"]), item["box"], item["text"])
        elif line.strip():
            self._belongs(line)

    def _is_fenced(self, line: str) -> bool:
        found = _FENCE.match(line)
        if self._fence:
            if found and found["fence"].startswith(self._fence):
                self._fence = ""
            return True
        if found:
            self._fence = found["fence"][:3]
        return bool(found)

    def _enter(self, level: int, text: str) -> None:
        self._open, self._plain = None, []
        if level == 1 and not self.title:
            self.title = text
        else:
            self._headings = {at: name for at, name in self._headings.items() if at < level} | {level: text}

    def _item(self, indent: int, box: str | None, text: str) -> None:
        is_ticked = box in ("x", "X")
        if self._open is not None and indent > self._open[0]:
            self._open[1].criteria.append((text, is_ticked))
            return
        self._open = None
        self._plain = [(at, name) for at, name in self._plain if at < indent]
        if box is None:
            self._plain.append((indent, text))
            return
        groups = (*self._headings.values(), *(name for _, name in self._plain))
        self._open = (indent, Item(text, is_ticked, groups))
        self.items.append(self._open[1])

    def _belongs(self, line: str) -> None:
        """Add text below an item to that item; other text closes it."""
        if self._open is None or not self._is_below(line):
            if line.strip() and not self._fence:
                self._open = None
            return
        item = self._open[1]
        item.text = f"{item.text}\n{line.strip()}".strip()

    def _is_below(self, line: str) -> bool:
        return self._open is not None and _width(line) > self._open[0]


def _width(line: str) -> int:
    """The indentation of a line, with tab stops at multiples of four."""
    text = line.expandtabs(4)
    return len(text) - len(text.lstrip())
