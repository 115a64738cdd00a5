"""OpenAI Responses, the API Codex uses."""

from __future__ import annotations

from typing import Any

from ralph.modelserver.answer import BROKEN, Json, ModelAnswer, Refusal, ToolCall, Wire, pieces, sse
from ralph.modelserver.chat import openai_error


class ResponsesWire(Wire):
    name = "responses"

    def serves(self, path: str) -> bool:
        return path.endswith("/responses")

    def counts(self, path: str) -> bool:
        return path.endswith("/responses/input_tokens")

    def count(self, tokens: int) -> Json:
        return {"object": "response.input_tokens", "input_tokens": tokens}

    def tools(self, body: Json) -> frozenset[str]:
        return frozenset(tool.get("name", tool["type"]) for tool in body.get("tools", []))

    def schema(self, body: Json) -> Json | None:
        schema: Json | None = body.get("text", {}).get("format", {}).get("schema")
        return schema

    def whole(self, answer: ModelAnswer) -> Json:
        return _response(answer, "completed", _items(answer))

    def events(self, answer: ModelAnswer, body: Json) -> list[bytes]:
        begun = _response(answer, "in_progress", [])
        found: list[Json] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        for index, item in enumerate(_items(answer)):
            found += _item_events(index, item)
        found.append({"type": "response.completed", "response": self.whole(answer)})
        return [sse(event | {"sequence_number": number}, event["type"]) for number, event in enumerate(found)]

    def malformed(self, answer: ModelAnswer) -> list[bytes]:
        return [self.events(answer, {})[0], b"event: response.output_item.done\n" + BROKEN]

    def error_event(self, kind: str, message: str) -> bytes:
        error = {"code": kind or "rate_limit_exceeded", "message": message}
        response = {"id": "resp_failed", "object": "response", "status": "failed", "error": error}
        return sse({"type": "response.failed", "response": response}, "response.failed")

    def error(self, status: int, kind: str, message: str) -> Json:
        return openai_error(status, kind, message)

    def usage_limit(self, reset: int, now: float) -> Refusal:
        error = {
            "type": "usage_limit_reached",
            "message": "The usage limit has been reached",
            "plan_type": "plus",
            "resets_at": reset,
            "resets_in_seconds": max(0, reset - int(now)),
        }
        return Refusal(429, {"error": error})


def _response(answer: ModelAnswer, status: str, output: list[Json]) -> Json:
    usage = answer.usage
    counted = {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input + usage.output,
    }
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": 0,
        "status": status,
        "model": answer.model,
        "error": None,
        "output": output,
        "usage": counted if status == "completed" else None,
    }


def _items(answer: ModelAnswer) -> list[Json]:
    found: list[Json] = []
    if answer.thinking:
        summary = [{"type": "summary_text", "text": answer.thinking}]
        found.append({"type": "reasoning", "id": f"rs_{answer.id}", "summary": summary})
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        found.append(
            {
                "type": "message",
                "id": f"msg_{answer.id}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    return found + [_call(call) for call in answer.calls]


def _call(call: ToolCall) -> Json:
    common = {"call_id": f"call_{call.id}", "name": call.name, "status": "completed"}
    if isinstance(call.input, str):
        return {"type": "custom_tool_call", "id": f"ctc_{call.id}", "input": call.input} | common
    return {"type": "function_call", "id": f"fc_{call.id}", "arguments": call.arguments} | common


def _item_events(index: int, item: Json) -> list[Json]:
    place = {"output_index": index, "item_id": item["id"]}
    empty: Json
    if item["type"] == "reasoning":
        empty, inner = {"summary": []}, _reasoning_events(item["summary"][0], place)
    elif item["type"] == "message":
        empty, inner = {"content": []}, _text_events(item["content"][0], place)
    elif item["type"] == "custom_tool_call":
        empty, inner = {"input": ""}, _deltas("custom_tool_call_input", "input", item["input"], place)
    else:
        empty = {"arguments": ""}
        inner = _deltas("function_call_arguments", "arguments", item["arguments"], place)
    begun = item | empty | ({"status": "in_progress"} if "status" in item else {})
    return [
        {"type": "response.output_item.added", "output_index": index, "item": begun},
        *inner,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _text_events(part: Json, place: Json) -> list[Json]:
    place = place | {"content_index": 0}
    return [
        {"type": "response.content_part.added", "part": part | {"text": ""}, **place},
        *_deltas("output_text", "text", part["text"], place),
        {"type": "response.content_part.done", "part": part, **place},
    ]


def _reasoning_events(part: Json, place: Json) -> list[Json]:
    place = place | {"summary_index": 0}
    return [
        {"type": "response.reasoning_summary_part.added", "part": part | {"text": ""}, **place},
        *_deltas("reasoning_summary_text", "text", part["text"], place),
        {"type": "response.reasoning_summary_part.done", "part": part, **place},
    ]


def _deltas(name: str, key: str, text: str, place: Json) -> list[Json]:
    whole: dict[str, Any] = {"type": f"response.{name}.done", key: text, **place}
    deltas: list[Json] = [
        {"type": f"response.{name}.delta", "delta": piece, **place} for piece in pieces(text)
    ]
    return [*deltas, whole]
