"""A plain HTTP client for the model server, and the request that each wire's CLI would send."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

from ralph.modelserver.script import parse
from ralph.modelserver.server import ModelServer

Json = dict[str, Any]
PATHS = {
    "anthropic": "/v1/messages?beta=true",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
}
WIRES = tuple(PATHS)
TOOLS = {
    "anthropic": ["Bash", "Read", "Write", "Edit", "TodoWrite"],
    "responses": ["exec_command", "apply_patch", "update_plan"],
    "chat": ["bash", "read", "write", "edit", "todowrite"],
    "gemini": ["run_shell_command", "read_file", "write_file", "replace", "write_todos"],
}
DONE = {
    "anthropic": "message_stop",
    "responses": "response.completed",
    "chat": "[DONE]",
    "gemini": '"finishReason": "STOP"',
}
"""Text that only the end of a stream contains."""


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Json:
        found: Json = json.loads(self.body)
        return found

    def events(self) -> list[Json]:
        """The data of every server-sent event."""
        lines = [line[6:] for line in self.text.splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


def request(wire: str, tools: list[str] | None = None, *, stream: bool = True, said: str = "Go") -> Json:
    """A request as the wire's CLI sends it; without tools it is a side call."""
    names = TOOLS[wire] if tools is None else tools
    if wire == "gemini":
        body: Json = {"contents": [{"role": "user", "parts": [{"text": said}]}]}
        listed: list[Json] = [{"functionDeclarations": [{"name": name} for name in names]}]
    elif wire == "responses":
        body = {"model": "m", "stream": stream, "input": [{"role": "user", "content": said}]}
        listed = [{"type": "function", "name": name} for name in names]
    else:
        body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": said}]}
        listed = [{"name": name} for name in names]
        if wire == "chat":
            body["stream_options"] = {"include_usage": True}
            listed = [{"type": "function", "function": tool} for tool in listed]
    return body | ({"tools": listed} if names else {})


def path(wire: str, *, stream: bool = True) -> str:
    return PATHS[wire] if stream else PATHS[wire].replace("streamGenerateContent?alt=sse", "generateContent")


def post(server: ModelServer | int, where: str, body: Json | bytes) -> Reply:
    """Send one request to a server or a port, and read the response to its end or to where it was cut off."""
    port = server if isinstance(server, int) else server.port
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request("POST", where, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        try:
            content, whole = answer.read(), True
        except http.client.IncompleteRead as error:
            content, whole = error.partial, False
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, headers, content, whole)
    finally:
        connection.close()


def ask(server: ModelServer, wire: str, *, stream: bool = True, said: str = "Go") -> Reply:
    """One request that works on the task."""
    return post(server, path(wire, stream=stream), request(wire, stream=stream, said=said))


def serve(text: str) -> ModelServer:
    return ModelServer(parse(text))
