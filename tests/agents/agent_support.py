"""Helpers for tests of agents with a structured stream: recorded streams, made-up streams, and reading them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ralph.agents.base import AgentReport, Parser, Prompt, Reading
from ralph.agents.registry import AGENTS
from ralph.core.events import AgentEvent, Body, Result, Text, ToolEnd, ToolStart
from ralph.core.model import AgentSpec, Exit, Permissions, PromptVia, Purpose

STREAMS = Path(__file__).parent / "streams"
TAG = "<response>DONE</response>"
PROMPT = f"Do it. When all is done, say {TAG}."
WELL = Exit(0)

Read = tuple[list[AgentEvent], AgentReport]
"""The events and the report of a whole process."""


@dataclass(frozen=True)
class Bench:
    """One agent: how it is started and how its output is read, always at the same time of day."""

    agent: str
    now: float
    prompt: str = ""

    def spec(
        self, *flags: str, permissions: Permissions = Permissions.EDIT, via: PromptVia = PromptVia.STDIN
    ) -> AgentSpec:
        name = self.agent
        return AgentSpec(name, name, name, flags, prompt_via=via, permissions=permissions)

    def argv(self, agent: AgentSpec, purpose: Purpose = Purpose.WORK, prompt: str = "Do it.") -> list[str]:
        return AGENTS[self.agent].argv(agent, purpose, Prompt(prompt, "/x"))

    def parser(self, agent: AgentSpec | None = None, purpose: Purpose = Purpose.WORK) -> Parser:
        reading = Reading(
            prompt=self.prompt, spec=agent or self.spec(), purpose=purpose, now=lambda: self.now
        )
        return AGENTS[self.agent].parser(reading)

    def read(
        self, *pieces: bytes, exit: Exit | int = WELL, stderr: bytes = b"", agent: AgentSpec | None = None
    ) -> Read:
        """A process that prints `stderr` and then its stream in these pieces."""
        exit = Exit(code=exit) if isinstance(exit, int) else exit
        return read_by(self.parser(agent), pieces, exit, stderr=stderr)

    def raw(self, name: str) -> bytes:
        """A recorded stream."""
        return (STREAMS / f"{self.agent}_{name}.ndjson").read_bytes()


def read_by(parser: Parser, pieces: Iterable[bytes], exit: Exit, *, stderr: bytes = b"") -> Read:
    events = [*parser.stderr(stderr), *(event for piece in pieces for event in parser.stdout(piece))]
    last, report = parser.finish(exit)
    return [*events, *last], report


def timeless(events: Iterable[AgentEvent]) -> list[AgentEvent]:
    """The events without their times."""
    timed = Text | ToolStart | ToolEnd | Result
    return [replace(event, at=None) if isinstance(event, timed) else event for event in events]


def body(value: Any = "") -> Body:
    return Body(json.dumps(value).encode())


def stream(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
