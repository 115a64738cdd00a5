"""Support for tests that need bubblewrap. They are skipped without it, except in CI, where it must be installed.

pytestmark = BUBBLEWRAP
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import debian
import ralph

NOBODY = 65534


@cache
def problem() -> str:
    """Return why bubblewrap cannot be used here."""
    bwrap = debian.program("bwrap", "bubblewrap")
    tried = [bwrap, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--", "true"]
    done = subprocess.run(tried, capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else ""


def needs_bubblewrap() -> None:
    if found := problem():
        debian.missing(found)


BUBBLEWRAP = [pytest.mark.usefixtures("bubblewrap")]
"""The marks of a module whose tests need bubblewrap."""


def as_nobody(*words: str) -> list[str]:
    """Return the command that runs `ralph` as an ordinary user, with a Python that this user can start."""
    if os.geteuid() != 0:
        return [sys.executable, "-m", "ralph", *words]
    python = _public_python()
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return [*drop, python, "-m", "ralph", *words]


def _public_python() -> str:
    """Return a Python of our version, which gets our packages through PYTHONPATH."""
    for candidate in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        real = Path(candidate).resolve()
        if real.exists() and all(_is_public(path) for path in (real, *real.parents)):
            return candidate
    pytest.skip("there is no Python of this version that an ordinary user can start")


def _is_public(path: Path) -> bool:
    mode = path.stat().st_mode
    return bool(mode & (stat.S_IXOTH if path.is_dir() or os.access(path, os.X_OK) else stat.S_IROTH))


def python_path() -> str:
    """Return our package and its dependencies, for another interpreter."""
    return os.pathsep.join(
        [str(Path(ralph.__file__).parents[1]), *(p for p in sys.path if "site-packages" in p)]
    )
