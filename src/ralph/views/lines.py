"""A table as plain lines, one per row; fast for thousands of rows."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence

from ralph.core.text import clean

_GAP = "  "
_LEAST = 16
"""Minimum width of a column that is shortened to fit the terminal."""


def uses_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, code: str) -> str:
    """The text in a colour (an SGR code) if stdout is a terminal."""
    return f"\x1b[{code}m{text}\x1b[0m" if code and uses_colour() else text


def print_lines(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, wide: int, accent: int, styles: Mapping[str, str]
) -> None:
    """Print aligned columns. `wide`: the column shortened to fit a terminal; `accent`: the one with `styles`."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(titles, *cells, strict=True)]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - sum(widths) - len(_GAP) * (len(widths) - 1)
        widths[wide] = max(min(widths[wide], _LEAST), widths[wide] + min(room, 0))
    lines = [styled(_GAP.join(map(_padded, titles, widths)).rstrip(), "1")]
    codes = styles if uses_colour() else {}
    for row in cells:
        parts = list(map(_padded, row, widths))
        if code := codes.get(row[accent]):
            parts[accent] = f"\x1b[{code}m{parts[accent]}\x1b[0m"
        lines.append(_GAP.join(parts).rstrip())
    sys.stdout.write("\n".join(lines) + "\n")


def _padded(cell: str, width: int) -> str:
    if cell.isascii():
        return cell.ljust(width) if len(cell) <= width else f"{cell[: width - 1]}…"
    while _width(cell) > width:
        cell = f"{cell.removesuffix('…')[:-1]}…"
    return cell + " " * (width - _width(cell))


def one_line(text: str) -> str:
    return text if text.isascii() and text.isprintable() else " ".join(clean(text).split())


def _width(text: str) -> int:
    """Width in terminal columns."""
    if text.isascii():
        return len(text)
    return sum(_width_of(character) for character in text)


def _width_of(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
