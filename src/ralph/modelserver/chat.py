"""OpenAI chat completions, the API OpenCode uses with most providers."""

from __future__ import annotations

from ralph.modelserver.answer import BROKEN, Json, ModelAnswer, Refusal, Wire, pieces, sse

KINDS = {
    400: "invalid_request_error",
    401: "invalid_api_key",
    402: "insufficient_quota",
    403: "permission_denied",
    404: "not_found",
    429: "rate_limit_exceeded",
    503: "server_is_overloaded",
}


class ChatWire(Wire):
    name = "chat"

    def serves(self, path: str) -> bool:
        return path.endswith("/chat/completions")

    def tools(self, body: Json) -> frozenset[str]:
        return frozenset(tool["function"]["name"] for tool in body.get("tools", []))

    def schema(self, body: Json) -> Json | None:
        schema: Json | None = body.get("response_format", {}).get("json_schema", {}).get("schema")
        return schema

    def whole(self, answer: ModelAnswer) -> Json:
        message: Json = {"role": "assistant", "content": answer.text or None}
        if answer.thinking:
            message["reasoning_content"] = answer.thinking
        if answer.calls:
            message["tool_calls"] = _calls(answer)
        choice = {"index": 0, "message": message, "finish_reason": _finish(answer), "logprobs": None}
        return _head(answer, "chat.completion") | {"choices": [choice], "usage": _usage(answer)}

    def events(self, answer: ModelAnswer, body: Json) -> list[bytes]:
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": piece} for piece in pieces(answer.thinking)]
        deltas += [{"content": piece} for piece in pieces(answer.text)]
        for index, call in enumerate(_calls(answer)):
            deltas += _call_deltas(index, call)
        chunks = [_chunk(answer, delta, None) for delta in deltas]
        chunks.append(_chunk(answer, {}, _finish(answer)))
        if (body.get("stream_options") or {}).get("include_usage"):
            chunks.append(_head(answer, "chat.completion.chunk") | {"choices": [], "usage": _usage(answer)})
        return [*map(sse, chunks), b"data: [DONE]\n\n"]

    def malformed(self, answer: ModelAnswer) -> list[bytes]:
        return [self.events(answer, {})[0], BROKEN]

    def error_event(self, kind: str, message: str) -> bytes:
        return sse(openai_error(500, kind, message))

    def error(self, status: int, kind: str, message: str) -> Json:
        return openai_error(status, kind, message)

    def usage_limit(self, reset: int, now: float) -> Refusal:
        message = "You exceeded your current quota, please check your plan and billing details."
        after = ("retry-after", str(max(1, reset - int(now))))
        return Refusal(429, openai_error(429, "insufficient_quota", message), (after,))


def openai_error(status: int, kind: str, message: str) -> Json:
    kind = kind or KINDS.get(status, "server_error")
    return {"error": {"message": message, "type": kind, "code": kind, "param": None}}


def _head(answer: ModelAnswer, kind: str) -> Json:
    return {"id": f"chatcmpl-{answer.id}", "object": kind, "created": 0, "model": answer.model}


def _chunk(answer: ModelAnswer, delta: Json, finish: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _head(answer, "chat.completion.chunk") | {"choices": [choice]}


def _calls(answer: ModelAnswer) -> list[Json]:
    return [
        {
            "id": f"call_{call.id}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in answer.calls
    ]


def _call_deltas(index: int, call: Json) -> list[Json]:
    """The deltas of a call: first its name, then its arguments in pieces."""
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    begun = call | {"index": index, "function": {"name": name, "arguments": ""}}
    rest = [{"index": index, "function": {"arguments": piece}} for piece in pieces(arguments)]
    return [{"tool_calls": [part]} for part in (begun, *rest)]


def _finish(answer: ModelAnswer) -> str:
    return "tool_calls" if answer.calls else "stop"


def _usage(answer: ModelAnswer) -> Json:
    usage = answer.usage
    return {
        "prompt_tokens": usage.input,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
    }
