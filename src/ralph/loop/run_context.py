"""Where a run happens and is recorded, and the one place that reads the clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from ralph.core.events import Event
from ralph.core.model import Stop
from ralph.loop.confinement import Confinement
from ralph.loop.story_board import StoryBoard
from ralph.loop.supervised import Supervised
from ralph.process.client import Wakeup, Warden
from ralph.scm.version_control import VersionControl
from ralph.store.journal import Journal
from ralph.store.runs import Runs
from ralph.store.runtime import Runtime

Tell = Callable[[Event], None]


class Clock:
    """The one place that reads the clock."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def _nobody(stop: Stop) -> None:
    """Nobody is told of the end."""


class RunContext(Struct, frozen=True):
    """Where a run happens and is recorded: its journal, its files, its processes, its listeners.

    `ended` hears how the run is about to end, perhaps more than once. `secrets`: what has to be redacted besides what
    looks like a secret.
    """

    runs: Runs
    journal: Journal
    runtime: Runtime
    streams: int
    vcs: VersionControl
    warden: Warden
    wakeup: Wakeup
    tell: Tell
    clock: Clock
    confinement: Confinement
    supervised: Supervised | None = None
    stories: StoryBoard | None = None
    hooks: str = ""
    """The file with the hooks for agents that take some."""
    ended: Callable[[Stop], None] = _nobody
    secrets: frozenset[str] = frozenset()
