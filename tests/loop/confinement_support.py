"""The mounts of a run, recorded instead of set up in a real sandbox."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from conftest import Project
from ralph.core.model import AgentSpec, Exit, Flow, Plan, PromptSource, SandboxSpec
from ralph.loop.confinement import ConfinedRun, Confinement
from ralph.sandbox.base import Mounts, WrappedCommand
from ralph.scm.repository import find_repository


class Noted:
    """A sandbox that only records the requested mounts and environment."""

    def __init__(self) -> None:
        self.mounts = Mounts("", ())
        self.environment: dict[str, str] = {}

    def wrap(self, argv: Any, environment: Any, mounts: Mounts) -> WrappedCommand:
        self.mounts, self.environment = mounts, dict(environment)
        return WrappedCommand(argv, environment)

    def after(self, exit: Exit, wrapped: WrappedCommand) -> Exit:
        return exit


def rooms_of(
    project: Project, directory: Path | None = None, *, kind: str = "claude", **more: Any
) -> Confinement:
    """The confinement of a run in this directory, with a sandbox that only records."""
    place = directory or project.path
    spec = SandboxSpec("bubblewrap", **more.pop("sandbox", {}))
    agents = (AgentSpec(kind, kind, kind),)
    plan = Plan("r", Flow.RUN, str(place), agents, PromptSource(), sandbox=spec, **more)
    streams = project.home.make_streams("r").resolve()
    confinement = Confinement(ConfinedRun(plan, find_repository(place), project.home.path.resolve(), streams))
    confinement.sandbox = Noted()
    return confinement


def room_of(confinement: Confinement, program: str = "/bin/true") -> Mounts:
    confinement.agent(confinement._plan.agents[0], [program], dict(os.environ), None)
    assert isinstance(confinement.sandbox, Noted)
    return confinement.sandbox.mounts
