"""The interface of a wire, which turns a neutral answer into the bytes of one API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

from msgspec import Struct

from ralph.modelserver.script import TokenCounts

Json = dict[str, Any]


class ToolCall(Struct, frozen=True):
    """A tool call in the terms of the requesting CLI. A string input is for tools that take free text."""

    id: str
    name: str
    input: Json | str

    @property
    def arguments(self) -> str:
        return self.input if isinstance(self.input, str) else json.dumps(self.input)


class ModelAnswer(Struct, frozen=True):
    """The model's answer in one turn. `id` is unique for the lifetime of a server."""

    id: str
    model: str
    usage: TokenCounts
    thinking: str = ""
    text: str = ""
    calls: tuple[ToolCall, ...] = ()


class Refusal(Struct, frozen=True):
    """An error response."""

    status: int
    body: Json | str
    headers: tuple[tuple[str, str], ...] = ()


class Wire(Protocol):
    """One API. A wire only translates; the server does the rest."""

    name: str

    def serves(self, path: str) -> bool:
        """Whether this path (without its query) generates an answer."""

    def counts(self, path: str) -> bool:
        """Whether this path counts tokens."""
        return False

    def count(self, tokens: int) -> Json:
        """The response of the path that counts tokens."""
        return {"input_tokens": tokens}

    def streams(self, path: str, body: Json) -> bool:
        """Whether the client wants a stream."""
        return bool(body.get("stream"))

    def model(self, path: str, body: Json) -> str:
        """The requested model."""
        return str(body.get("model", "scripted"))

    def tools(self, body: Json) -> frozenset[str]:
        """The names of the tools that the request advertises."""

    def schema(self, body: Json) -> Json | None:
        """The JSON Schema that the answer's text must match."""

    def whole(self, answer: ModelAnswer) -> Json:
        """The answer in one piece."""

    def events(self, answer: ModelAnswer, body: Json) -> list[bytes]:
        """The answer as a stream."""

    def malformed(self, answer: ModelAnswer) -> list[bytes]:
        """The start of a stream, followed by data no client can read."""

    def error_event(self, kind: str, message: str) -> bytes:
        """An error within a stream."""

    def error(self, status: int, kind: str, message: str) -> Json:
        """The body of an error. An empty kind means the API's usual one for this status."""

    def usage_limit(self, reset: int, now: float) -> Refusal:
        """The error for a usage limit that resets at a Unix time."""


def conversation(body: Json) -> str:
    """All text of the conversation in a request, for any wire."""
    return "\n".join(_texts([body.get(key) for key in ("messages", "input", "contents")]))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def sse(data: Json, event: str = "") -> bytes:
    """One server-sent event."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


BROKEN = b'data: {"type": "broken", "delta": {"te\n\n'
"""An event whose data ends in the middle of a string."""


def pieces(text: str) -> list[str]:
    """A text split into the deltas it is streamed in."""
    size = max(24, -(-len(text) // 20))
    return [text[i : i + size] for i in range(0, len(text), size)]


def sample(schema: Json) -> Any:
    """A minimal value for a JSON Schema, enough for the small schemas of side calls."""
    if options := schema.get("enum"):
        return "user" if "user" in options else options[0]
    if "const" in schema:
        return schema["const"]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return sample(schema[key][0])
    kind = schema.get("type", "object")
    kind = (kind[0] if isinstance(kind, list) else kind).lower()
    if kind == "object":
        return {name: sample(inner) for name, inner in schema.get("properties", {}).items()}
    plain: Json = {"string": "ok", "integer": 0, "number": 0, "boolean": False, "array": []}
    return plain.get(kind)
