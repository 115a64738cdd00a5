"""Git lock files that block a command: wait for one that is in use, remove one that was left behind."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from ralph.scm.repository import Repository

STALE_SECONDS = 2.0
PATIENCE = 6.0
_EVERY = 0.05

_IN_THE_WAY = re.compile(r"Unable to create '([^']+\.lock)': File exists")


def is_freed(error: str, repository: Repository, index: Path | None = None) -> bool:
    """Whether a lock caused the error and is gone now, so that the command can be retried.

    `index` is one of Ralph's own index files, outside the repository.
    """
    found = _IN_THE_WAY.search(error)
    if found is None:
        return False
    lock = Path(os.path.realpath(found[1]))
    is_ours = index is not None and lock == Path(os.path.realpath(f"{index}.lock"))
    return (is_ours or _is_inside(lock, repository)) and _is_gone(lock, repository.top)


def _is_inside(lock: Path, repository: Repository) -> bool:
    places = (os.path.realpath(place) for place in (repository.git_dir, repository.common))
    return any(lock.is_relative_to(place) for place in places)


def _is_gone(lock: Path, top: Path) -> bool:
    """Wait for a lock to go, or remove a stale one.

    Git closes some of its lock files before it is done, so a git process in the directory counts as holding it.
    """
    began = time.monotonic()
    with suppress(OSError):
        while (watched := time.monotonic() - began) < PATIENCE:
            try:
                age = max(time.time() - lock.stat().st_mtime, watched)
            except FileNotFoundError:
                return True
            if age >= STALE_SECONDS and not is_held(lock) and not _is_git_in(top):
                lock.unlink()
                return True
            time.sleep(_EVERY)
    return False


def is_held(path: Path) -> bool:
    """Whether a live process has this file open. True if that cannot be determined."""
    if not os.path.isdir("/proc/self/fd"):
        return True
    wanted = os.path.realpath(path)
    return any(wanted in _open_files(pid) for pid in _processes())


def _is_git_in(top: Path) -> bool:
    return any(_name(pid) == "git" and _directory(pid) == os.path.realpath(top) for pid in _processes())


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _name(pid: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _directory(pid: str) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd")
    return ""


def _open_files(pid: str) -> set[str]:
    found = set()
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
        for entry in descriptors:
            with suppress(OSError):
                found.add(os.readlink(entry.path))
    return found
