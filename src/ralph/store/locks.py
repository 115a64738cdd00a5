"""One run per directory: a lock on the directory itself, which `git clean` cannot remove."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from ralph.errors import RalphError

_REFUSED = {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
"""Errors of file systems that cannot lock a directory."""


class Locked(Exception):
    """Another process has locked this directory or one above it."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.directory = directory


def acquire(directory: Path, state: Path, patience: float = 0.2, *, above: bool = True) -> int:
    """Lock a directory, and return the descriptor that holds the lock.

    With `above`, no directory above it may be locked either.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return _try(directory, state, above=above)
        except Locked:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def is_held(directory: Path, state: Path) -> bool:
    """Whether a process has locked this directory."""
    try:
        os.close(_lock(directory, state, fcntl.LOCK_SH))
    except Locked:
        return True
    except OSError:
        return False
    return False


def _try(directory: Path, state: Path, *, above: bool) -> int:
    lock = _lock(directory, state, fcntl.LOCK_EX)
    try:
        for parent in directory.parents if above else ():
            try:
                os.close(_lock(parent, state, fcntl.LOCK_SH))
            except PermissionError:
                continue
    except BaseException:
        os.close(lock)
        raise
    return lock


def _lock(directory: Path, state: Path, how: int) -> int:
    try:
        return _flock(directory, os.O_RDONLY, how)
    except Locked:
        raise
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
    return _lock_file(directory, state, how)


def _lock_file(directory: Path, state: Path, how: int) -> int:
    """Lock a file in the state directory, named after the real path, for a directory that cannot be locked."""
    import hashlib  # imported here: rarely needed, and it loads OpenSSL

    locks = state / "locks"
    name = hashlib.sha256(os.fsencode(os.path.realpath(directory))).hexdigest()[:32]
    try:
        locks.mkdir(mode=0o700, exist_ok=True)
        return _flock(locks / name, os.O_RDWR | os.O_CREAT, how)
    except Locked:
        raise Locked(str(directory)) from None
    except OSError as error:
        raise RalphError(
            f"Neither {directory} nor a file in {locks} can be locked: {error.strerror}.",
            "Set RALPH_STATE_DIR to a directory on a local disk.",
        ) from None


def _flock(path: Path, flags: int, how: int) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Locked(str(path)) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
