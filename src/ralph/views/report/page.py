"""Report -> HTML: one self-contained page.

The template escapes every value. The page runs no script and loads nothing, and its Content-Security-Policy allows
only its own style sheet.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from ralph.views.agent import duration
from ralph.views.report import charts, words
from ralph.views.report.model import Report

_HERE = Path(__file__).parent
_CLASSES = {"+": "add", "-": "del", "@": "hunk", "d": "head", "[": "note"}


def page(report: Report) -> str:
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return _template().render(report=report, style=Markup(style), policy=policy)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": duration,
        "moment": words.moment,
        "money": words.money,
        "number": words.number,
        "short": words.short_number,
        "percent": "{:.3f}%".format,
        "diff_lines": _diff_lines,
    }
    environment.globals |= {"timeline": charts.timeline, "columns": charts.columns, "words": words}
    return environment.get_template("page.html.jinja")


def _diff_lines(text: str) -> list[tuple[str, str]]:
    """Each line with its CSS class; the `+++` and `---` lines of a file are headers, not changes."""
    lines = text.removesuffix("\n").split("\n")
    return [
        ("head" if line.startswith(("+++ ", "--- ")) else _CLASSES.get(line[:1], ""), line) for line in lines
    ]
