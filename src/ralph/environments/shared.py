"""Environments that copies share: made once for one content of lock files, then only read."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path


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
    if target.is_dir():
        return target
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(cache / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            make()
            half = cache / f"{key}.half"
            shutil.rmtree(half, ignore_errors=True)
            shutil.move(made, half)
            half.rename(target)
        return target
    finally:
        os.close(lock)
