"""`.ralph-active`, the file that tells hooks and other kinds of loops that a PRD loop runs in a project."""

from __future__ import annotations

import json
import os
from typing import Any

from ralph.core.model import MARKER as MARKER
from ralph.errors import RalphError
from ralph.store.prd_folder import PrdFolder
from ralph.store.runs import process_start


class Marker:
    """The marker of one project, given as an open directory."""

    def __init__(self, project: int) -> None:
        self._top = PrdFolder(project, "")

    def read(self) -> bytes | None:
        return self._top.read(MARKER)

    def write(self, data: bytes) -> None:
        self._top.write(MARKER, data, durable=False)

    def remove(self) -> None:
        """Remove the marker, whatever it is. A directory is moved aside."""
        self._top.remove(MARKER)

    def holder(self) -> int | None:
        """The live process it names, if that is not this one."""
        try:
            payload = json.loads(self.read() or b"")
        except (ValueError, RecursionError):
            return None
        return live_process(payload)

    def refuse_live(self) -> None:
        """Raise an error if the marker names a live loop."""
        if (holder := self.holder()) is not None:
            raise RalphError(
                f"A loop is already running here, according to {MARKER} (process {holder}).",
                "Wait for it or stop it. If that process is not a loop, remove the file.",
            )


def this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "pidStart": process_start(os.getpid())}


def live_process(payload: Any) -> int | None:
    """The pid of another live process. A pid that was reused by a different process does not count."""
    try:
        pid, start = int(payload["pid"]), payload.get("pidStart")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    now = process_start(pid) if 0 < pid < 1 << 22 and pid != os.getpid() else None
    return pid if now is not None and start in (None, now) else None
