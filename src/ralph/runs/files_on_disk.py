"""The files of a directory, read one at a time."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from msgspec import Struct

MAX_BYTES = 1 << 20


class FilesOnDisk(Struct, frozen=True):
    """Scripts and their links, below a directory. There is no list of all files."""

    top: Path

    @property
    def paths(self) -> Collection[str]:
        return ()

    def text(self, path: str) -> str | None:
        """The content of a regular file of at most 1 MB; None if there is none, or if it is not text."""
        try:
            descriptor = os.open(self.top / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                data = file.read(MAX_BYTES + 1)
            return data.decode() if len(data) <= MAX_BYTES else None
        except (OSError, ValueError):
            return None

    def target(self, path: str) -> str:
        """The target of a symbolic link; "" otherwise."""
        try:
            return os.readlink(self.top / path)
        except (OSError, ValueError):
            return ""
