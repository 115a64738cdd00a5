"""What backends do outside of their walls: find their program, understand it, and hold a lock as long as they live."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from ralph.core.model import Exit
from ralph.errors import RalphError
from ralph.sandbox.base import SandboxOutput

USUAL = "/usr/bin:/bin:/usr/local/bin:/usr/sbin:/sbin"
"""Looked at before PATH, which may have directories that an agent can write to."""


def find_program(name: str) -> str:
    """Where it is; "" if it is not installed."""
    return shutil.which(name, path=USUAL) or shutil.which(name) or ""


def complaint(done: SandboxOutput) -> str:
    """What a command that failed said first, but for warnings."""
    if done.code is None:
        return "it does not answer"
    lines = done.err.strip().splitlines() or done.out.decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if "level=warning" not in line]
    return (errors or lines)[0][:200] if lines else f"it fails with exit code {done.code}"


def as_it_died(exit: Exit) -> Exit:
    """A death by signal, which wrappers tell as 128 and its number, is told as one again."""
    if exit.code is not None and 128 < exit.code < 128 + 65:
        return replace(exit, code=None, signal=exit.code - 128)
    return exit


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Held until the end, and let go of when ralph dies, however it dies."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RalphError(refusal, "Wait for it, or cancel it.") from None
        yield


def is_locked(path: Path) -> bool:
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
