"""Terminal screens as one SVG, animated with CSS: no script, no external fonts or other resources."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

import pyte
from pyte.screens import Char

CELL, LEADING, SIZE = 8.4, 19, 14
MARGIN, BAR = 16, 34
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"

BACKGROUND, FRAME, TEXT = "#0d1117", "#30363d", "#e6edf3"
COLOURS = {
    "black": "#6e7681",
    "red": "#ff7b72",
    "green": "#3fb950",
    "brown": "#d29922",
    "blue": "#58a6ff",
    "magenta": "#bc8cff",
    "cyan": "#39c5cf",
    "white": "#b1bac4",
    "brightblack": "#8b949e",
    "brightred": "#ffa198",
    "brightgreen": "#56d364",
    "brightbrown": "#e3b341",
    "brightblue": "#79c0ff",
    "brightmagenta": "#d2a8ff",
    "brightcyan": "#56d4dd",
    "brightwhite": "#ffffff",
}

_TICK, _CROSS = "M1 8.5l3 3.5 4.5-7.5", "M1.5 5l6 7m0-7l-6 7"
SYMBOLS = {
    "⏺": '<circle cx="4" cy="9" r="3.6" stroke="none"/>',
    "⎿": '<path fill="none" d="M1.5 1v9h6"/>',
    "✓": f'<path fill="none" d="{_TICK}"/>',
    "✔": f'<path fill="none" d="{_TICK}"/>',
    "✗": f'<path fill="none" d="{_CROSS}"/>',
    "✘": f'<path fill="none" d="{_CROSS}"/>',
    "✅": f'<rect x="2" y="2" width="13" height="13" rx="3" fill="#238636" stroke="none"/>'
    f'<path fill="none" stroke="#fff" transform="translate(3.7 0)" d="{_TICK}"/>',
    "❌": f'<path fill="none" stroke="#f85149" stroke-width="2.6" transform="translate(4 0)" d="{_CROSS}"/>',
}
"""Drawn as shapes: fonts may lack these characters or show them as emoji."""


class Piece(NamedTuple):
    """Text in one style; `cells` is its width on the screen."""

    column: int
    cells: int
    text: str
    colour: str
    bold: bool
    italic: bool


Line = tuple[Piece, ...]


class Frame(NamedTuple):
    lines: tuple[Line, ...]
    seconds: float


def lines_of(screen: pyte.Screen) -> tuple[Line, ...]:
    """Return all lines of a screen, the empty ones too."""
    return tuple(tuple(_pieces(screen, row)) for row in range(screen.lines))


def _pieces(screen: pyte.Screen, row: int) -> Iterator[Piece]:
    cells = [screen.buffer[row][column] for column in range(screen.columns)]
    column = 0
    while column < len(cells):
        end = column + 1
        if _is_wide(cells, column):
            end = column + 2
        elif cells[column].data not in SYMBOLS:
            while (
                end < len(cells) and _style(cells[end]) == _style(cells[column]) and not _is_alone(cells, end)
            ):
                end += 1
        text = "".join(cell.data for cell in cells[column:end])
        kept = text.strip()
        if kept:
            before = len(text) - len(text.lstrip())
            width = 2 if _is_wide(cells, column) else len(kept)
            colour, bold, italic = _style(cells[column])
            yield Piece(column + before, width, kept, colour, bold, italic)
        column = end


def _is_wide(cells: list[Char], column: int) -> bool:
    """Whether the character takes two cells; the second one is then empty."""
    return column + 1 < len(cells) and not cells[column + 1].data


def _is_alone(cells: list[Char], column: int) -> bool:
    return cells[column].data in SYMBOLS or _is_wide(cells, column)


def _style(cell: Char) -> tuple[str, bool, bool]:
    colour = cell.bg if cell.reverse and cell.bg != "default" else cell.fg
    return "" if colour == "default" else COLOURS.get(colour, f"#{colour}"), cell.bold, cell.italics


def svg(frames: list[Frame], columns: int, rows: int, title: str) -> str:
    """Return the picture: every different line once, every frame as a list of them, one strip of frames."""
    width, height = round(columns * CELL + 2 * MARGIN), rows * LEADING + BAR + MARGIN
    names: dict[Line, str] = {}
    for frame in frames:
        for line in filter(None, frame.lines):
            names.setdefault(line, f"l{len(names)}")
    definitions = "\n".join(f'<g id="{name}">{"".join(map(_text, line))}</g>' for line, name in names.items())
    strip = "\n".join(
        f'<g transform="translate(0 {number * height})">'
        + "".join(
            f'<use href="#{names[line]}" y="{row * LEADING}"/>'
            for row, line in enumerate(frame.lines)
            if line
        )
        + "</g>"
        for number, frame in enumerate(frames)
    )
    last = (len(frames) - 1) * height
    dots = "".join(
        f'<circle cx="{18 + 20 * number}" cy="17" r="6" fill="{colour}"/>'
        for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
<title>{escape(title)}</title>
<style>
text{{font:{SIZE}px {FONTS};fill:{TEXT};white-space:pre}}
.b{{font-weight:bold}}.i{{font-style:italic}}
.film{{transform:translateY(-{last}px);animation:film {sum(frame.seconds for frame in frames):.2f}s step-end infinite}}
@keyframes film{{{_keyframes(frames, height)}}}
@media (prefers-reduced-motion:reduce){{.film{{animation:none}}}}
</style>
<defs>
{definitions}
</defs>
<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10" fill="{BACKGROUND}" stroke="{FRAME}"/>
{dots}
<svg x="{MARGIN}" y="{BAR}" width="{width - 2 * MARGIN}" height="{rows * LEADING}">
<g class="film">
{strip}
</g>
</svg>
</svg>
"""


def _keyframes(frames: list[Frame], height: int) -> str:
    total = sum(frame.seconds for frame in frames)
    steps, at = [], 0.0
    for number, frame in enumerate(frames):
        steps.append(f"{at / total:.3%}{{transform:translateY(-{number * height}px)}}")
        at += frame.seconds
    return "".join([*steps, f"to{{transform:translateY(-{(len(frames) - 1) * height}px)}}"])


def _text(piece: Piece) -> str:
    """Return a piece at its column; its width is that of its cells, whatever the font."""
    if symbol := SYMBOLS.get(piece.text.rstrip("\ufe0f")):
        colour = piece.colour or TEXT
        place = f"translate({piece.column * CELL:.1f} 0)"
        return f'<g transform="{place}" fill="{colour}" stroke="{colour}" stroke-width="1.5">{symbol}</g>'
    style = f' style="fill:{piece.colour}"' if piece.colour else ""
    kinds = " ".join(name for name, has in (("b", piece.bold), ("i", piece.italic)) if has)
    kind = f' class="{kinds}"' if kinds else ""
    fit = f' textLength="{piece.cells * CELL:.1f}" lengthAdjust="spacingAndGlyphs"' if piece.cells > 1 else ""
    return f'<text x="{piece.column * CELL:.1f}" y="{SIZE}"{fit}{kind}{style}>{escape(piece.text, quote=False)}</text>'
