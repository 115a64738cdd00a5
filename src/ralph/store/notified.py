"""Of what people were notified, so that nobody is told twice; and how they are reached, kept for a resume."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import msgspec

from ralph.core.model import NotifyTargets
from ralph.errors import RalphError
from ralph.store.files import opened_directory, write

WAYS = "notify.json"
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


class Notified:
    """A directory with an empty file for each thing that was told."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def is_first(self, key: str) -> bool:
        """Has nobody been told of this yet? From now on somebody has, even if ralph is killed here."""
        name = _ODD.sub("_", key)[:200]
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(
                os.open(self._directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            )
        except OSError:  # it is there, or cannot be kept in mind: then it might be told again and again
            return False
        return True


def notified_of_run(streams: Path) -> Notified:
    return Notified(streams / "told")


def notified_of_project(home: Path, project: str) -> Notified:
    """What the works of a project have told."""
    place = hashlib.sha256(project.encode(errors="surrogateescape")).hexdigest()[:16]
    return Notified(home / "work" / "told" / place)


def keep_targets(streams: Path, targets: NotifyTargets) -> None:
    """Beside the streams, for their owner alone: the journal holds no secrets, and the project can be changed."""
    with opened_directory(str(streams)) as directory:
        write(directory, WAYS, msgspec.json.encode(targets), mode=0o600)


def kept_targets(streams: Path) -> NotifyTargets:
    try:
        return msgspec.json.decode((streams / WAYS).read_bytes(), type=NotifyTargets)
    except FileNotFoundError:
        return NotifyTargets()
    except (OSError, msgspec.DecodeError):
        raise RalphError(f"{streams / WAYS} cannot be read.") from None
