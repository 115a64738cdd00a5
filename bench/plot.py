"""Horizontal bars as SVG, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LABELS, VALUES, ROW, TOP = 760, 300, 130, 24, 44
STYLE = (
    "text{font:13px sans-serif;fill:#444}.title{font-weight:bold;font-size:15px}.ours{fill:#2a7f62}"
    ".other{fill:#9aa5b1}.limit{stroke:#c0392b;stroke-dasharray:4 3}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}.ours{fill:#4fc39b}.other{fill:#6b7683}}"
)


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    text: str
    is_ours: bool = True


def bars(title: str, found: Sequence[Bar], limit: float | None = None) -> str:
    """Return horizontal bars as SVG; `limit` is the position of a dashed line."""
    most = max([bar.value for bar in found] + [limit or 0.0]) or 1.0
    scale = (WIDTH - LABELS - VALUES) / most
    height = TOP + ROW * len(found) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text class="title" x="8" y="24">{escape(title)}</text>',
    ]
    for number, bar in enumerate(found):
        top = TOP + ROW * number
        length = max(1.0, bar.value * scale)
        kind = "ours" if bar.is_ours else "other"
        lines += [
            f'<text x="{LABELS - 8}" y="{top + 13}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect class="{kind}" x="{LABELS}" y="{top}" width="{length:.1f}" height="{ROW - 7}" rx="2"/>',
            f'<text x="{LABELS + length + 6:.1f}" y="{top + 13}">{escape(bar.text)}</text>',
        ]
    if limit is not None:
        x = f"{LABELS + limit * scale:.1f}"
        lines.append(f'<line class="limit" x1="{x}" x2="{x}" y1="{TOP - 8}" y2="{height - 8}"/>')
    return "\n".join([*lines, "</svg>", ""])
