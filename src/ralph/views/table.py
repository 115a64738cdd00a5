"""Aligned tables, coloured only on a terminal and never cut when piped."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ralph.core.text import clean


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], styles: dict[str, str] | None = None
) -> None:
    """Print one line per row; `styles` colours a cell by its first word."""
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 1000, highlight=False)
    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(
            *(Text(clean(cell), style=(styles or {}).get(cell.partition(" ")[0], "")) for cell in row)
        )
    console.print(table)


def size(count: int) -> str:
    """A number of bytes in readable units."""
    value, units = float(count), ["bytes", "KB", "MB", "GB", "TB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "bytes" or value >= 100 else f"{value:.1f} {units[0]}"
