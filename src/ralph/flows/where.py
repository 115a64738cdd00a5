"""Where a command was called: the directory, the lock that it needs, and the project."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ralph.errors import RalphError
from ralph.paths import real
from ralph.scm.repository import find_repository


@dataclass(frozen=True, slots=True)
class Where:
    """A working directory, the directory whose lock it needs, and the project it belongs to."""

    directory: Path
    lock: Path
    project: str


def here(directory: Path) -> Where:
    directory = real(directory)
    try:
        str(directory).encode()
    except UnicodeEncodeError:
        raise RalphError(
            f"The name of {os.fsencode(directory)!r} is not UTF-8 text.", "Rename the directory."
        ) from None
    repository = find_repository(directory)
    if repository is None:
        return Where(directory, directory, str(directory))
    return Where(directory, repository.top, str(repository.common))
