"""Anthropic Messages, the API Claude Code uses."""

from __future__ import annotations

import json
from typing import Any

from ralph.modelserver.answer import BROKEN, Json, ModelAnswer, Refusal, Wire, pieces, sse

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class AnthropicWire(Wire):
    name = "anthropic"

    def serves(self, path: str) -> bool:
        return path.endswith("/messages")

    def counts(self, path: str) -> bool:
        return path.endswith("/messages/count_tokens")

    def tools(self, body: Json) -> frozenset[str]:
        return frozenset(tool["name"] for tool in body.get("tools", []))

    def schema(self, body: Json) -> Json | None:
        schema: Json | None = body.get("output_config", {}).get("format", {}).get("schema")
        return schema

    def whole(self, answer: ModelAnswer) -> Json:
        return _message(answer, _blocks(answer), _stop(answer))

    def events(self, answer: ModelAnswer, body: Json) -> list[bytes]:
        start = _message(answer, [], None)
        start["usage"]["output_tokens"] = 0
        found = [_event("message_start", message=start)]
        for index, block in enumerate(_blocks(answer)):
            found += _block_events(index, block)
        stop = {"stop_reason": _stop(answer), "stop_sequence": None}
        found.append(_event("message_delta", delta=stop, usage={"output_tokens": answer.usage.output}))
        found.append(_event("message_stop"))
        return found

    def malformed(self, answer: ModelAnswer) -> list[bytes]:
        return [self.events(answer, {})[0], b"event: content_block_start\n" + BROKEN]

    def error_event(self, kind: str, message: str) -> bytes:
        return _event("error", error={"type": kind or "overloaded_error", "message": message})

    def error(self, status: int, kind: str, message: str) -> Json:
        kind = kind or KINDS.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}

    def usage_limit(self, reset: int, now: float) -> Refusal:
        prefix = "anthropic-ratelimit-unified"
        headers = (
            (f"{prefix}-status", "rejected"),
            (f"{prefix}-reset", str(reset)),
            (f"{prefix}-representative-claim", "five_hour"),
            (f"{prefix}-5h-status", "rejected"),
            (f"{prefix}-5h-reset", str(reset)),
            (f"{prefix}-5h-utilization", "1.0"),
            (f"{prefix}-overage-status", "rejected"),
            (f"{prefix}-overage-disabled-reason", "org_level_disabled"),
            ("retry-after", str(max(1, reset - int(now)))),
            ("x-should-retry", "false"),
        )
        message = "This request would exceed your account's rate limit. Please try again later."
        return Refusal(429, self.error(429, "", message), headers)


def _message(answer: ModelAnswer, content: list[Json], stop: str | None) -> Json:
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": answer.usage.input - answer.usage.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": answer.usage.cached,
            "output_tokens": answer.usage.output,
        },
    }


def _blocks(answer: ModelAnswer) -> list[Json]:
    found: list[Json] = []
    if answer.thinking:
        found.append({"type": "thinking", "thinking": answer.thinking, "signature": "c2NyaXB0ZWQ="})
    if answer.text:
        found.append({"type": "text", "text": answer.text})
    for call in answer.calls:
        found.append({"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": call.input})
    return found


def _block_events(index: int, block: Json) -> list[bytes]:
    kind = block["type"]
    empty: Json
    if kind == "thinking":
        empty = {"thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif kind == "text":
        empty = {"text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    else:
        empty = {"input": {}}
        text = json.dumps(block["input"])
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(text)]
    return [
        _event("content_block_start", index=index, content_block=block | empty),
        *(_event("content_block_delta", index=index, delta=delta) for delta in deltas),
        _event("content_block_stop", index=index),
    ]


def _stop(answer: ModelAnswer) -> str:
    return "tool_use" if answer.calls else "end_turn"


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)
