"""Writes files that survive a crash intact and never leave their directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ralph.errors import RalphError

OLD_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC

_TEMPORARY = ".tmp-"


@contextmanager
def opened_directory(name: str, parent: int | None = None, *, make: bool = False) -> Iterator[int]:
    """Open a directory, never through a symbolic link put in its place."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if parent is not None else 0)
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=parent)
    try:
        descriptor = os.open(name, flags, dir_fd=parent)
    except NotADirectoryError:
        raise RalphError(
            f"{name} is not a directory but a file or a symbolic link: Ralph will not use it.",
            f"Remove {name} and try again.",
        ) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write(directory: int, name: str, data: bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Replace a whole file: temp + fsync + rename + directory fsync.

    Without `durable` no one ever sees it half-written, but a power cut may lose it.
    """
    temporary = f"{_TEMPORARY}{os.getpid()}-{name}"
    descriptor = create(directory, temporary, mode)
    try:
        try:
            write_all(descriptor, data)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
    if durable:
        os.fsync(directory)


def status_of(directory: int, name: str) -> os.stat_result | None:
    """The status of an entry, without following a link; None if it does not exist."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def create(directory: int, name: str, mode: int) -> int:
    """Create a new file. Anything that has its name, such as a link or a pipe, is removed, not opened."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(10):
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        with suppress(FileExistsError):
            return os.open(name, flags, mode, dir_fd=directory)
    raise RalphError(f"{name}: another process keeps creating a file with this name.")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all data, continuing after short writes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sweep_temporaries(directory: int) -> None:
    """Remove the temporary files of killed writers. Those of live writers are not touched."""
    for name in os.listdir(directory):
        if not name.startswith(_TEMPORARY):
            continue
        owner = re.match(rf"{re.escape(_TEMPORARY)}([0-9]{{1,9}})-", name)
        if owner and not _is_alive(int(owner[1])):
            with suppress(OSError):
                os.unlink(name, dir_fd=directory)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != os.getpid()
