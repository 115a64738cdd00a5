"""Programs that some tests need. CI installs them from Debian packages."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest


def program(name: str, package: str = "") -> str:
    """Return the path of a program. If it is missing, CI installs it or fails the test; elsewhere the test is
    skipped."""
    if found := shutil.which(name):
        return found
    if os.environ.get("CI") != "true" or os.geteuid() or not shutil.which("apt-get"):
        missing(f"{name} is not installed")
    with open(Path(tempfile.gettempdir()) / "ralph-debian.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        complaint = "" if shutil.which(name) else _install(package or name)
    return shutil.which(name) or missing(f"apt-get did not install {name}: {complaint}")


def _install(package: str) -> str:
    """Install a package and return the last error line of apt-get."""
    for words in (["update"], ["install", "-y", "--no-install-recommends", package]):
        done = subprocess.run(
            ["apt-get", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=400,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        )
    return done.stderr[-500:]


def missing(why: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)
