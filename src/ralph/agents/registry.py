"""Every agent that Ralph knows. A new one is one file, which ends with its `AGENT`, and one name here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from threading import Lock

from msgspec.structs import replace

from ralph.agents.base import Agent, has_own_permissions, without
from ralph.core.model import AgentSpec, Permissions

_NAMES = ("amp", "claude", "codex", "custom", "gemini", "opencode", "scripted")


class _Agents(Mapping[str, Agent]):
    """Each is loaded when it is first wanted: a run needs one or two of them, and has them before it begins."""

    def __init__(self) -> None:
        self._loaded: dict[str, Agent] = {}
        self._loading = Lock()

    def __getitem__(self, name: str) -> Agent:
        if name not in self._loaded:
            if name not in _NAMES:
                raise KeyError(name)
            with self._loading:  # several threads at once would crash msgspec
                self._loaded[name] = import_module(f"ralph.agents.{name}").AGENT
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in _NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


AGENTS: Mapping[str, Agent] = _Agents()


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
    users = AGENTS[spec.type].permission_flags
    return spec.permissions if users and not has_own_permissions(spec, users) else None
