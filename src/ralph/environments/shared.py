"""Environments that copies share: made once for one content of lock files, then only read."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ralph.scm.worktrees import wipe

_HALF = ".half"


def digest(parts: Iterable[str | bytes]) -> str:
    """The key of what is made from these parts."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogateescape") if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()[:32]


def made_once(cache: Path, key: str, made: Path, make: Callable[[], None]) -> Path:
    """The shared directory of a key. If there is none yet, `make` fills `made`, which is moved there.

    Others that want the same wait. If `make` raises, nothing is kept.
    """
    target = cache / key
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(target, fcntl.LOCK_EX):
        if not target.is_dir():
            make()
            half = _half(target)
            shutil.rmtree(half, ignore_errors=True)
            shutil.move(made, half)
            half.rename(target)
        os.utime(target)  # a used environment is not pruned
        return target


@contextmanager
def _locked(target: Path, how: int) -> Iterator[None]:
    """Hold the lock of a shared directory. Its file stays: another process may wait for it."""
    lock = os.open(target.with_name(f"{target.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, how)
        yield
    finally:
        os.close(lock)


def _half(target: Path) -> Path:
    """What is not complete, or no longer."""
    return target.with_name(f"{target.name}{_HALF}")


def last_use(path: Path) -> float:
    """When a copy used a shared directory last."""
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()


def remove_shared(path: Path, before: float) -> bool:
    """Remove a shared directory that was last used before a time; not while a process makes or uses it."""
    target = path.with_name(path.name.removesuffix(_HALF))
    try:
        with _locked(target, fcntl.LOCK_EX | fcntl.LOCK_NB):
            if last_use(path) >= before:
                return False
            half = _half(target)
            if path != half:
                wipe(half)
                path.rename(half)
            wipe(half)
    except BlockingIOError:
        return False
    return True
