"""A file without a name: for what another process is to read and nobody is to find."""

from __future__ import annotations

import fcntl
import os
import sys

_FIRST = 10
"""Descriptors below it are those that a new process gets by number."""


def unnamed_file(data: bytes) -> int:
    """An open file with this content, at its beginning; in memory where the system has such files."""
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
