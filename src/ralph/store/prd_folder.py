"""The user's files in a folder where an agent works: read without following links, and restored reliably.

An agent may have put anything in place of a file or its folder: a link, a pipe, a directory. When reading, this
counts as a missing file. When writing, it is moved aside under another name, so that nothing is lost.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from ralph.errors import RalphError
from ralph.store import files

MAX_BYTES = 16 << 20
ASIDE = ".undone"


class PrdFolder:
    """A folder below an open directory. `path` is relative to it, with slashes, and may be ""."""

    def __init__(self, project: int, path: str) -> None:
        self._project = project
        self._parts = [part for part in path.split("/") if part not in ("", ".")]

    def read(self, name: str, most: int = MAX_BYTES) -> bytes | None:
        """The content of a file; None if it is missing, not a regular file, or too large."""
        try:
            with self._opened() as folder:
                return read(folder, name, most)
        except (OSError, RalphError):
            return None

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        with self._made() as folder:
            _make_way(folder, name)
            files.write(folder, name, data, durable=durable)

    def remove(self, name: str) -> None:
        with suppress(OSError, RalphError), self._opened() as folder:
            _make_way(folder, name)
            os.unlink(name, dir_fd=folder)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with ExitStack() as stack:
            folder = self._project
            for part in self._parts:
                folder = stack.enter_context(files.opened_directory(part, folder))
            yield folder

    @contextmanager
    def _made(self) -> Iterator[int]:
        """The open folder, created again if it is gone or something else is in its place."""
        with ExitStack() as stack:
            folder = self._project
            for part in self._parts:
                mode = _mode(folder, part)
                if mode and not stat.S_ISDIR(mode):
                    put_aside(folder, part)
                elif mode and mode & stat.S_IRWXU != stat.S_IRWXU:
                    os.chmod(part, stat.S_IMODE(mode) | stat.S_IRWXU, dir_fd=folder)
                folder = stack.enter_context(files.opened_directory(part, folder, make=True))
            yield folder


def read(directory: int, name: str, most: int = MAX_BYTES) -> bytes | None:
    """Read a regular file, never through a link."""
    flags = files.OLD_FILE | os.O_NONBLOCK
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except PermissionError:
        if not stat.S_ISREG(_mode(directory, name)):
            return None
        os.chmod(name, 0o644, dir_fd=directory)
        descriptor = os.open(name, flags, dir_fd=directory)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            return None
        pieces = []
        while piece := os.read(descriptor, 1 << 20):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def put_aside(directory: int, name: str, mark: str = ASIDE) -> str:
    """Rename an entry out of the way, and return its new name."""
    number = 1
    while _mode(directory, other := f"{name}{mark}" + (f"-{number}" if number > 1 else "")):
        number += 1
    os.rename(name, other, src_dir_fd=directory, dst_dir_fd=directory)
    return other


def _make_way(directory: int, name: str) -> None:
    """Move a directory aside: a file can replace anything else."""
    if stat.S_ISDIR(_mode(directory, name)):
        put_aside(directory, name)


def _mode(directory: int, name: str) -> int:
    """The mode of an entry; 0 if it does not exist."""
    status = files.status_of(directory, name)
    return status.st_mode if status else 0
