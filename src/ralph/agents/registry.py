"""Every agent that Ralph knows. A new one is one file and one line here."""

from __future__ import annotations

import os

from msgspec.structs import replace

from ralph.agents.amp import Amp
from ralph.agents.base import Agent, without
from ralph.agents.claude import Claude
from ralph.agents.codex import Codex
from ralph.agents.custom import Custom
from ralph.agents.gemini import Gemini
from ralph.agents.opencode import OpenCode
from ralph.agents.scripted import Scripted
from ralph.core.model import AgentSpec, Permissions

AGENTS: dict[str, Agent] = {
    "amp": Amp(),
    "claude": Claude(),
    "codex": Codex(),
    "custom": Custom(),
    "gemini": Gemini(),
    "opencode": OpenCode(),
    "scripted": Scripted(),
}


def type_of(command: str) -> str:
    """Which agent a command is, by its base name."""
    name = os.path.basename(command)
    return name if name in AGENTS else "custom"


_MODEL = ("--model", "-m")


def with_model(spec: AgentSpec, model: str) -> AgentSpec:
    """The same agent with another model; "": a small one, unless its flags name one. Some refuse to be told twice."""
    agent = AGENTS[spec.type]
    if not model and any(flag.partition("=")[0] in _MODEL for flag in spec.flags):
        return spec
    words = agent.model_flags(model or agent.small_model)
    return replace(spec, flags=(*without(spec.flags, _MODEL), *words)) if words else spec


def as_judge(spec: AgentSpec, model: str) -> AgentSpec:
    """The same agent, to be asked about work that others have done."""
    disarmed = AGENTS[spec.type].disarmed(with_model(spec, model))
    return replace(disarmed, permissions=Permissions.NONE)


def announced_permissions(spec: AgentSpec) -> Permissions | None:
    """What Ralph lets this agent do; None where it has no say: an unknown agent, or the user's own flags."""
    agent = AGENTS[spec.type]
    return spec.permissions if agent.permission_flags and not agent.has_own_permissions(spec) else None
