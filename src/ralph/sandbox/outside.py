"""Helpers that backends use outside the sandbox: find a program, read its errors, hold a lock."""

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
"""Searched before PATH, which can contain directories that an agent can write to."""


def find_program(name: str) -> str:
    """Return the path of a program, or "" if it is not installed."""
    return shutil.which(name, path=USUAL) or shutil.which(name) or ""


def complaint(done: SandboxOutput) -> str:
    """Return the first error line of a failed command, skipping warnings."""
    if done.code is None:
        return "it does not respond"
    lines = done.err.strip().splitlines() or done.out.decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if "level=warning" not in line]
    return (errors or lines)[0][:200] if lines else f"it failed with exit code {done.code}"


def as_it_died(exit: Exit) -> Exit:
    """Turn exit code 128 + N, by which wrappers report a death by signal N, back into that signal."""
    if exit.code is not None and 128 < exit.code < 128 + 65:
        return replace(exit, code=None, signal=exit.code - 128)
    return exit


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock for the duration of the context. The kernel releases it if ralph dies."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RalphError(refusal, "Wait for it to finish, or cancel it.") from None
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
