"""Real paths, and where the Claude Code plugin is installed."""

from __future__ import annotations

import os
from pathlib import Path

PLUGIN = Path(__file__).parents[1] / "plugin"


def real(path: Path) -> Path:
    """The path with links resolved. A circular link stays as it is, and opening it fails."""
    return Path(os.path.realpath(path))
