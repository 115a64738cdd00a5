"""A record of sent notifications, so that none is sent twice, and the notification targets, kept for a resume."""

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
    """A directory with an empty file for each notification sent."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def is_first(self, key: str) -> bool:
        """Whether this was not notified yet. It counts as sent from now on, even if ralph is killed here."""
        name = _ODD.sub("_", key)[:200]
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(
                os.open(self._directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            )
        except OSError:  # already sent, or it cannot be recorded and might be sent again and again
            return False
        return True


def notified_of_run(streams: Path) -> Notified:
    return Notified(streams / "told")


def notified_of_project(home: Path, project: str) -> Notified:
    """The notifications sent by `ralph work` in a project."""
    place = hashlib.sha256(project.encode(errors="surrogateescape")).hexdigest()[:16]
    return Notified(home / "work" / "told" / place)


def keep_targets(streams: Path, targets: NotifyTargets) -> None:
    """Save the targets next to the streams, readable by the owner only.

    The journal must hold no secrets, and files in the project could be changed.
    """
    with opened_directory(str(streams)) as directory:
        write(directory, WAYS, msgspec.json.encode(targets), mode=0o600)


def kept_targets(streams: Path) -> NotifyTargets:
    try:
        return msgspec.json.decode((streams / WAYS).read_bytes(), type=NotifyTargets)
    except FileNotFoundError:
        return NotifyTargets()
    except (OSError, msgspec.DecodeError):
        raise RalphError(f"{streams / WAYS} cannot be read.") from None
