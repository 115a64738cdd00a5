"""Screen lines made from plain text: agent output is never treated as markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from ralph.views.tui.colours import tone

Piece = tuple[str, str]
"""A text and its tone."""

_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_TONES = {"1": "bold", "2": "dim", "31": "red", "32": "done", "33": "wait", "36": "accent"}
_STRONG = {"1;31": "bad", "1;33": "busy"}


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """The text at exactly `width` columns: cut with an ellipsis, or padded."""
    if width <= 0:
        return ""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    gap = " " * (width - length)
    return gap + text if right else text + gap


def cut(pieces: Iterable[Piece], width: int) -> list[Piece]:
    """The pieces cut to `width` columns."""
    found: list[Piece] = []
    for text, name in pieces:
        length = cell_len(text)
        if length > width:
            if width > 0:
                found.append((fitted(text, width), name))
            break
        found.append((text, name))
        width -= length
    return found


def parsed(line: str, name: str = "") -> tuple[list[Piece], str]:
    """Split a line at the few colour codes that our views use; also return the tone at its end.

    `name` is the tone at its start. Our views have removed all other control characters.
    """
    if "\x1b" not in line:
        return [(line, name)], name
    pieces: list[Piece] = []
    start = 0
    for found in _SGR.finditer(line):
        if found.start() > start:
            pieces.append((line[start : found.start()], name))
        code, start = found[1], found.end()
        name = _STRONG.get(code) or _TONES.get(code.rpartition(";")[2], "")
    if start < len(line):
        pieces.append((line[start:], name))
    return pieces, name


def wrapped(pieces: Sequence[Piece], width: int) -> list[list[Piece]]:
    """The pieces wrapped to `width` columns, at spaces where possible, with continuation lines indented."""
    lines: list[list[Piece]] = [[]]
    room = width
    first = pieces[0][0] if pieces else ""
    indent = min(len(first) - len(first.lstrip(" ")) + 2, width // 3) if width > 20 else 0
    for text, name in pieces:
        while text:
            if cell_len(text) <= room:
                lines[-1].append((text, name))
                room -= cell_len(text)
                break
            head = _head(text, room, is_fresh=room >= width - indent)
            if head:
                lines[-1].append((text[:head], name))
            text = text[head:].removeprefix(" ") if head else text
            lines.append([(" " * indent, "")] if indent else [])
            room = width - indent
    return lines


def _head(text: str, room: int, *, is_fresh: bool) -> int:
    """Number of characters that fit on the rest of a line; at least one on a fresh line."""
    if text.isascii():
        most = room
    else:
        most, used = 0, 0
        for character in text:
            used += cell_len(character)
            if used > room:
                break
            most += 1
    space = text.rfind(" ", 0, most + 1)
    if space > most // 2:
        return space
    return max(most, 1) if is_fresh else most if most > 20 else 0


def strip_of(widget: Widget, pieces: Iterable[Piece], width: int, base: Style | None = None) -> Strip:
    """A line of a widget, padded or cut to `width`."""
    base = base if base is not None else Style()
    segments = [Segment(text, base + tone(widget, name)) for text, name in pieces]
    return Strip(segments).adjust_cell_length(width, base)
