"""Files that belong to people and lie where an agent works: read without following anything, put back for certain.

An agent may have put anything in the place of such a file or of its folder: a link, a pipe, a directory. To read, that
is no file; to write, it is put aside under another name, so nothing is lost.
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
    """A folder below an open directory; `path` from there, with slashes, may be ""."""

    def __init__(self, project: int, path: str) -> None:
        self._project = project
        self._parts = [part for part in path.split("/") if part not in ("", ".")]

    def read(self, name: str, most: int = MAX_BYTES) -> bytes | None:
        """What is in a file; None: there is no such file, or something else, or too much."""
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
        """The folder, made anew if it is gone or something else is in its place."""
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
    """A regular file, never through a link."""
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
    """Give what is there another name, and return that."""
    number = 1
    while _mode(directory, other := f"{name}{mark}" + (f"-{number}" if number > 1 else "")):
        number += 1
    os.rename(name, other, src_dir_fd=directory, dst_dir_fd=directory)
    return other


def _make_way(directory: int, name: str) -> None:
    """A directory cannot be replaced by a file; everything else can."""
    if stat.S_ISDIR(_mode(directory, name)):
        put_aside(directory, name)


def _mode(directory: int, name: str) -> int:
    """0: nothing is there."""
    status = files.status_of(directory, name)
    return status.st_mode if status else 0
