"""Read a text file written by others. Any bad content is one clear error."""

from __future__ import annotations

import os
import stat

from ralph.errors import RalphError


def read_text(path: str, *, most: int, what: str, follow: bool = True) -> str:
    """Read a regular file of reasonable size as UTF-8 text. Anything else is one clear error."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise RalphError(f"{path}: {what} not found.") from None
    except OSError as error:
        link = not follow and os.path.islink(path)
        reason = "it is a symbolic link" if link else (error.strerror or str(error))
        raise RalphError(f"{path}: the {what} cannot be read: {reason}.") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise RalphError(f"{path}: the {what} is not a regular file.")
        if status.st_size > most:
            raise RalphError(f"{path}: the {what} is too large ({status.st_size:,} bytes, at most {most:,}).")
        data = _read(descriptor, most)
    except OSError as error:
        raise RalphError(f"{path}: the {what} cannot be read: {error.strerror}.") from None
    finally:
        os.close(descriptor)
    return decoded(data, path, what)


def decoded(data: bytes, path: str, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RalphError(f"{path}:{line}: the {what} is not UTF-8 text.") from None


def _read(descriptor: int, most: int) -> bytes:
    pieces = []
    while most > 0 and (piece := os.read(descriptor, min(most, 1 << 20))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)
