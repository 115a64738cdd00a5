"""What the tests of every agent with a structured stream need: recorded streams, made ones, and their reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ralph.agents.base import Parser, Report
from ralph.core.events import AgentEvent, Body
from ralph.core.model import AgentSpec, Exit, Permissions, PromptVia

STREAMS = Path(__file__).parent / "streams"
TAG = "<response>DONE</response>"


def spec_of(
    agent: str,
    *flags: str,
    permissions: Permissions = Permissions.EDIT,
    via: PromptVia = PromptVia.STDIN,
) -> AgentSpec:
    return AgentSpec(agent, agent, agent, flags, prompt_via=via, permissions=permissions)


def read_by(
    parser: Parser, data: bytes, exit: Exit, *, stderr: bytes = b""
) -> tuple[list[AgentEvent], Report]:
    """The events of a process that prints `stderr` and then `data`, and what it amounts to."""
    events = [*parser.stderr(stderr), *parser.stdout(data)]
    last, report = parser.finish(exit)
    return [*events, *last], report


def body(value: Any = "") -> Body:
    return Body(json.dumps(value).encode())


def stream(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
