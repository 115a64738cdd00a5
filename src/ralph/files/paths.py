"""Paths as the disk knows them, and where the Claude Code plugin is installed."""

from __future__ import annotations

import os
from pathlib import Path

PLUGIN = Path(__file__).parents[1] / "plugin"


def real(path: Path) -> Path:
    """Without links. One that leads in a circle stays as it is, and whoever opens it hears of it."""
    return Path(os.path.realpath(path))
