"""Everything a run uses while it is driven; built by `runs/context.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ralph.core.events import Event
from ralph.core.model import Plan, Stop
from ralph.loop.clock import Clock
from ralph.loop.confinement import Confinement
from ralph.loop.inbox import Inbox
from ralph.loop.supervised import Supervised
from ralph.process.client import Wakeup, Warden
from ralph.redact import Secrets
from ralph.scm.version_control import VersionControl
from ralph.store.journal import Journal
from ralph.store.runs import Runs
from ralph.store.runtime import Runtime

if TYPE_CHECKING:
    from ralph.loop.story_board import StoryBoard

Tell = Callable[[Event], None]


def nobody(stop: Stop) -> None:
    """The default listener: does nothing."""


class RunContext(Struct, frozen=True):
    """The journal, files, processes and listeners of a run.

    `environment`: the variables of its agents and checks. `copies`: the directory for copies of the project. `cache`:
    environments that copies share. `start_files`: a file with what the project's environment ran when the run started.
    `streams`: the open directory of its raw streams. `hooks`: the hook configuration for agents that support it.
    `ended` is called before the run ends, possibly more than once.
    """

    plan: Plan
    runs: Runs
    journal: Journal
    runtime: Runtime
    streams: int
    vcs: VersionControl
    warden: Warden
    wakeup: Wakeup
    tell: Tell
    clock: Clock
    inbox: Inbox
    confinement: Confinement
    secrets: Secrets
    environment: Mapping[str, str]
    copies: Path
    cache: Path
    start_files: Path
    supervised: Supervised | None = None
    stories: StoryBoard | None = None
    hooks: str = ""
    ended: Callable[[Stop], None] = nobody
