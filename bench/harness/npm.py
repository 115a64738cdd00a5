"""Peers from npm, installed once at pinned versions into a cache outside the checkout."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.harness.base import NotMeasured, program

INSTALL_SECONDS = 500.0


def cache() -> Path:
    return Path(os.environ.get("RALPH_BENCH_CACHE") or Path.home() / ".cache" / "ralph-bench")


def installed(name: str, *packages: str) -> Path:
    """Return the program directory of these packages, installing them if needed."""
    place = cache() / name
    if not (place / ".complete").exists():
        if os.environ.get("RALPH_BENCH_INSTALL") == "0":
            raise NotMeasured(f"{name} is not installed (and RALPH_BENCH_INSTALL=0)")
        npm = program("npm", f"{name} is not installed, and there is no npm")
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place.with_name(f"{name}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (place / ".complete").exists():
                _install(npm, place, packages)
    return place / "node_modules" / ".bin"


def _install(npm: Path, place: Path, packages: tuple[str, ...]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
    command = [str(npm), "install", "--prefix", str(scratch), "--no-fund", "--no-audit", *packages]
    null = subprocess.DEVNULL
    try:
        done = subprocess.run(command, stdin=null, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        if done.returncode:
            raise NotMeasured(f"npm could not install {' '.join(packages)}: {_last_line(done.stderr)}")
        (scratch / ".complete").touch()
        scratch.rename(place)
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"npm did not install {' '.join(packages)} in {INSTALL_SECONDS:.0f} s") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no reason given")[:200]
