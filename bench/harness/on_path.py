"""Other programs named `ralph` on PATH, distinguished by their --help."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.harness.base import NotMeasured


def other_ralph(*marks: str) -> Path:
    """Return the first `ralph` on PATH that is not ours and has all these words in its help."""
    ours = (Path(sys.executable).parent / "ralph").resolve()
    for place in os.environ.get("PATH", "").split(os.pathsep):
        candidate = Path(place or ".") / "ralph"
        if os.access(candidate, os.X_OK) and candidate.resolve() != ours:
            words = _help(candidate)
            if all(mark in words for mark in marks):
                return candidate.absolute()
    raise NotMeasured(f"no `ralph` on PATH whose help has {' and '.join(marks)}")


def _help(candidate: Path) -> str:
    env = {"PATH": os.defpath, "HOME": "/nonexistent"}
    pages = [[str(candidate), "--help"], [str(candidate), "run", "--help"]]
    found = []
    for page in pages:
        try:
            done = subprocess.run(page, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
            found.append((done.stdout + done.stderr).decode(errors="replace"))
        except (OSError, subprocess.TimeoutExpired):
            pass
    return "\n".join(found)
