"""Gemini generateContent, the API the Gemini CLI uses."""

from __future__ import annotations

import re
from typing import Any

from ralph.modelserver.answer import BROKEN, Json, ModelAnswer, Refusal, Wire, pieces, sse

KINDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_TYPE = "type.googleapis.com/google.rpc"


class GeminiWire(Wire):
    name = "gemini"

    def serves(self, path: str) -> bool:
        return path.endswith((":generateContent", ":streamGenerateContent"))

    def counts(self, path: str) -> bool:
        return path.endswith(":countTokens")

    def count(self, tokens: int) -> Json:
        return {"totalTokens": tokens}

    def streams(self, path: str, body: Json) -> bool:
        return path.endswith(":streamGenerateContent")

    def model(self, path: str, body: Json) -> str:
        found = re.search(r"/models/([^:/]+):", path)
        return found[1] if found else "scripted"

    def tools(self, body: Json) -> frozenset[str]:
        declared = [tool.get("functionDeclarations", []) for tool in body.get("tools", [])]
        return frozenset(function["name"] for functions in declared for function in functions)

    def schema(self, body: Json) -> Json | None:
        config = body.get("generationConfig", {})
        schema: Json | None = config.get("responseJsonSchema") or config.get("responseSchema")
        return schema

    def whole(self, answer: ModelAnswer) -> Json:
        return _chunk(answer, _parts(answer, [answer.thinking], [answer.text]), "STOP")

    def events(self, answer: ModelAnswer, body: Json) -> list[bytes]:
        parts = _parts(answer, pieces(answer.thinking), pieces(answer.text))
        last = parts[-1:]
        return [
            *(sse(_chunk(answer, [part], None)) for part in parts[:-1]),
            sse(_chunk(answer, last, "STOP")),
        ]

    def malformed(self, answer: ModelAnswer) -> list[bytes]:
        return [sse(_chunk(answer, [{"text": "…"}], None)), BROKEN]

    def error_event(self, kind: str, message: str) -> bytes:
        return sse(self.error(503, kind, message))

    def error(self, status: int, kind: str, message: str) -> Json:
        kind = kind or KINDS.get(status, "INTERNAL")
        return {"error": {"code": status, "message": message, "status": kind}}

    def usage_limit(self, reset: int, now: float) -> Refusal:
        body = self.error(429, "", "You exceeded your current quota, please check your plan.")
        violation = {
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
            "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier",
        }
        body["error"]["details"] = [
            {"@type": f"{_TYPE}.QuotaFailure", "violations": [violation]},
            {"@type": f"{_TYPE}.RetryInfo", "retryDelay": f"{max(1, reset - int(now))}s"},
        ]
        return Refusal(429, body)


def _parts(answer: ModelAnswer, thinking: list[str], text: list[str]) -> list[Json]:
    found: list[Json] = [{"text": piece, "thought": True} for piece in thinking if piece]
    found += [{"text": piece} for piece in text if piece]
    for call in answer.calls:
        found.append({"functionCall": {"id": call.id, "name": call.name, "args": call.input}})
    return found


def _chunk(answer: ModelAnswer, parts: list[Json], finish: str | None) -> Json:
    usage = answer.usage
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if finish:
        candidate["finishReason"] = finish
    return {
        "responseId": answer.id,
        "modelVersion": answer.model,
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": usage.input,
            "cachedContentTokenCount": usage.cached,
            "candidatesTokenCount": usage.output,
            "totalTokenCount": usage.input + usage.output,
        },
    }
