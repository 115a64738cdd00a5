"""`.ralph-active`: the file by which hooks, and loops of other kinds, know that a PRD loop runs in a project."""

from __future__ import annotations

import json
import os
from typing import Any

from ralph.core.model import MARKER as MARKER
from ralph.errors import RalphError
from ralph.store.prd_folder import PrdFolder
from ralph.store.runs import process_start


class Marker:
    """The marker of one project, an open directory."""

    def __init__(self, project: int) -> None:
        self._top = PrdFolder(project, "")

    def read(self) -> bytes | None:
        return self._top.read(MARKER)

    def write(self, data: bytes) -> None:
        self._top.write(MARKER, data, durable=False)

    def remove(self) -> None:
        """Whatever is there; a directory is put aside."""
        self._top.remove(MARKER)

    def holder(self) -> int | None:
        """The live process that it names, if that is not this one."""
        try:
            payload = json.loads(self.read() or b"")
        except (ValueError, RecursionError):
            return None
        return live_process(payload)

    def sweep(self) -> None:
        """One that a killed loop has left is removed; that of a live one stops us, whoever runs it."""
        if (holder := self.holder()) is not None:
            raise RalphError(
                f"{MARKER} says that a loop is running here (process {holder}).",
                "Wait for it or end it; if it is none, remove the file.",
            )
        self.remove()


def this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "pidStart": process_start(os.getpid())}


def live_process(payload: Any) -> int | None:
    """A process other than this one that lives; a number that another process has got since does not count."""
    try:
        pid, start = int(payload["pid"]), payload.get("pidStart")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    now = process_start(pid) if 0 < pid < 1 << 22 and pid != os.getpid() else None
    return pid if now is not None and start in (None, now) else None
