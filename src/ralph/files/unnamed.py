"""An unnamed file, to pass data to another process without leaving a file on disk."""

from __future__ import annotations

import fcntl
import os
import sys

_FIRST = 10
"""Lower descriptors are those that a new process gets by number."""


def unnamed_file(data: bytes) -> int:
    """An open file with this content, positioned at the start, and in memory if the system supports that."""
    if sys.platform == "linux":
        file = open(os.memfd_create("ralph"), "r+b", buffering=0)
    else:
        import tempfile

        file = tempfile.TemporaryFile(buffering=0)
    with file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        file.seek(0)
        return fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, _FIRST)
