"""All agents Ralph knows. To add one, write a file that defines `AGENT` and add its name here."""

from __future__ import annotations

import os
from importlib import import_module

from msgspec.structs import replace

from ralph.agents.base import Agent, without
from ralph.core.model import AgentSpec, Permissions
from ralph.registry import Registry

_NAMES = ("amp", "claude", "codex", "custom", "gemini", "opencode", "scripted")


def _load(name: str) -> Agent:
    agent: Agent = import_module(f"ralph.agents.{name}").AGENT
    return agent


AGENTS = Registry(_NAMES, _load)


def type_of(command: str) -> str:
    """The agent type of a command, by its base name."""
    name = os.path.basename(command)
    return name if name in AGENTS else "custom"


_MODEL = ("--model", "-m")


def with_model(spec: AgentSpec, model: str) -> AgentSpec:
    """The same agent with another model ("": a small one, unless its flags name one).

    Earlier model flags are removed, because some CLIs refuse to get two.
    """
    agent = AGENTS[spec.type]
    if not model and any(flag.partition("=")[0] in _MODEL for flag in spec.flags):
        return spec
    words = agent.model_flags(model or agent.small_model)
    return replace(spec, flags=(*without(spec.flags, _MODEL), *words)) if words else spec


def as_judge(spec: AgentSpec, model: str) -> AgentSpec:
    """The same agent as a judge: with this model and unable to act."""
    return disarmed(with_model(spec, model))


def disarmed(spec: AgentSpec) -> AgentSpec:
    """The same agent, unable to act; a custom one, which Ralph cannot restrict, only without permission flags."""
    return replace(AGENTS[spec.type].disarmed(spec), permissions=Permissions.NONE)


def announced_permissions(spec: AgentSpec) -> Permissions | None:
    """The permissions Ralph gives this agent; None for an unknown agent or if the user's flags set them."""
    agent = AGENTS[spec.type]
    return spec.permissions if agent.permission_flags and not agent.has_own_permissions(spec) else None
