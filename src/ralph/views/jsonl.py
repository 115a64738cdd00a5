"""Machine-readable output of a run: one JSON object per event on stdout."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from ralph.core import events
from ralph.core.events import Event
from ralph.core.text import clean
from ralph.views.writer import Sink

KINDS: dict[type[Event], str] = {
    events.RunStarted: "run_started",
    events.IterationStarted: "iteration_started",
    events.AgentStarted: "agent_started",
    events.Text: "text",
    events.Noise: "stderr",
    events.ToolStart: "tool_start",
    events.ToolEnd: "tool_end",
    events.Todo: "todo",
    events.AgentProgress: "progress",
    events.Result: "result",
    events.Limited: "limit",
    events.Retry: "retry",
    events.AgentError: "error",
    events.Unread: "unread",
    events.UsageReported: "used",
    events.AgentEnded: "agent_ended",
    events.CheckStarted: "check_started",
    events.CheckEnded: "check_ended",
    events.ClaimLooked: "claim",
    events.Holding: "holding",
    events.Committed: "committed",
    events.Notice: "notice",
    events.TaskMoved: "task_moved",
    events.RunEnded: "run_ended",
}


def _harmless(value: Any) -> Any:
    """The value without control characters in any text, at any depth, and with oversized integers as strings."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int) and value.bit_length() > 63:
        return str(value)
    if isinstance(value, dict):
        return {clean(str(key)): _harmless(inner) for key, inner in value.items()}
    return [_harmless(inner) for inner in value] if isinstance(value, list | tuple) else value


def _decoded(value: Any) -> Any:
    if isinstance(value, events.Body):
        return value.value
    raise NotImplementedError(type(value))


class JsonLines:
    """Writes `{"event": kind, "at": seconds since 1970, …the event's fields}`; an event's own `at` takes precedence."""

    def __init__(self, out: Sink) -> None:
        self._out = out
        self._encoder = msgspec.json.Encoder()

    def __call__(self, event: Event, at: float | None = None, task: str = "") -> None:
        when: dict[str, Any] = {"event": KINDS[type(event)], "at": time.time() if at is None else at}
        if task:
            when["task"] = clean(task)
        values = _harmless(msgspec.to_builtins(event, enc_hook=_decoded))
        values = when | {key: value for key, value in values.items() if key != "at" or value is not None}
        if isinstance(event, events.RunEnded):
            values["outcome"] = event.stop.outcome
            values["exit_code"] = event.stop.outcome.exit_code
        self._out.write(self._encoder.encode(values).decode() + "\n")
        self._out.flush()
