"""Every agent that Ralph knows. A new one is one file and one line here."""

from __future__ import annotations

import os

from ralph.agents.base import Agent
from ralph.agents.custom import Custom
from ralph.agents.scripted import Scripted

AGENTS: dict[str, Agent] = {
    "custom": Custom(),
    "scripted": Scripted(),
}


def type_of(command: str) -> str:
    """Which agent a command is, by its base name."""
    name = os.path.basename(command)
    return name if name in AGENTS else "custom"
