"""The two palettes, and the tones used everywhere."""

from __future__ import annotations

import os
from functools import lru_cache

from rich.style import Style
from textual.theme import Theme
from textual.widget import Widget

from ralph.views import stories

DARK = Theme(
    name="ralph-dark",
    primary="#82aaff",
    secondary="#6b7089",
    accent="#c099ff",
    success="#8fd69e",
    warning="#e8c275",
    error="#f38b86",
    foreground="#d5d9e6",
    background="#14161b",
    surface="#191c23",
    panel="#232833",
    dark=True,
    variables={
        "muted": "#8b93a7",
        "line": "#39404f",
        "cursor": "#2b3a5c",
        "cursor-idle": "#232a38",
        "footer-background": "#191c23",
        "footer-key-foreground": "#82aaff",
        "footer-description-foreground": "#8b93a7",
        "scrollbar": "#39404f",
        "scrollbar-background": "#14161b",
    },
)
LIGHT = Theme(
    name="ralph-light",
    primary="#1f5fbf",
    secondary="#6b7280",
    accent="#7a3fb5",
    success="#1a7f37",
    warning="#8a5a00",
    error="#c2301f",
    foreground="#1f2430",
    background="#fbfbf9",
    surface="#f1f2f0",
    panel="#e6e8ea",
    dark=False,
    variables={
        "muted": "#5f6775",
        "line": "#c5cad3",
        "cursor": "#cfe0fb",
        "cursor-idle": "#e3e8f0",
        "footer-background": "#f1f2f0",
        "footer-key-foreground": "#1f5fbf",
        "footer-description-foreground": "#5f6775",
        "scrollbar": "#c5cad3",
        "scrollbar-background": "#fbfbf9",
    },
)
THEMES = {"dark": DARK, "light": LIGHT}

STATES = {
    "running": "good",
    "paused": "wait",
    "waiting": "wait",
    "crashed": "bad",
    "complete": "done",
    "limit": "bad",
    "fatal": "bad",
    "interrupted": "wait",
    "todo": "dim",
    "implementing": "busy",
    "reviewing": "busy",
    "testing": "busy",
    "qa": "busy",
    "done": "done",
    "failed": "bad",
    "blocked": "bad",
    "cancelled": "dim",
    **{state: style.tone for state, style in stories.STATES.items()},
}
"""The tone of each state of runs, tasks and stories."""

MARKS = {
    "running": "●",
    "paused": "‖",
    "waiting": "◷",
    "crashed": "✗",
    "complete": "✓",
    "limit": "■",
    "fatal": "✗",
    "interrupted": "□",
}
"""The mark before a run's state, so that states differ without colour."""


def terminal_theme() -> str:
    """Light or dark, according to the terminal's COLORFGBG; dark if it is not set."""
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if background in ("7", "15") else "dark"


def tone(widget: Widget, name: str) -> Style:
    """The style of a tone in the current theme."""
    return _tone(name, widget.app.theme == LIGHT.name)


@lru_cache
def _tone(name: str, is_light: bool) -> Style:
    theme = LIGHT if is_light else DARK
    found = {
        "": Style(),
        "good": Style(color=theme.success, bold=True),
        "done": Style(color=theme.success),
        "bad": Style(color=theme.error, bold=True),
        "red": Style(color=theme.error),
        "wait": Style(color=theme.warning),
        "busy": Style(color=theme.primary, bold=True),
        "accent": Style(color=theme.primary),
        "bold": Style(bold=True),
        "dim": Style(color=theme.variables["muted"]),
        "line": Style(color=theme.variables["line"]),
        "head": Style(color=theme.variables["muted"], bold=True),
    }
    return found[name]


def ground(widget: Widget, name: str) -> Style:
    """The theme's background for `cursor` or `cursor-idle`; without colours the cursor is reversed instead."""
    if widget.app.no_color:
        return Style(reverse=name == "cursor", bold=True)
    return Style(bgcolor=THEMES["light" if widget.app.theme == LIGHT.name else "dark"].variables[name])
