"""The response of each API for a turn, streamed and whole."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from modelserver.modelserver_support import WIRES, ask, path, post, request, serve

TURN = """
turns:
  - thinking: I think.
    text: I look around, and I say so in more than one piece of text.
    tools: [{bash: "echo hi"}, {write: {path: a.txt, content: "one\\ntwo\\n"}}]
    usage: {input: 70, output: 8, cached: 20}
"""
TEXT = "I look around, and I say so in more than one piece of text."
FILE = {"content": "one\ntwo\n"}
PATCH = "*** Begin Patch\n*** Add File: a.txt\n+one\n+two\n*** End Patch"
RUN = {"command": "echo hi", "description": "Run a command"}
CALLS: dict[str, list[tuple[str, Any]]] = {
    "anthropic": [("Bash", RUN), ("Write", {"file_path": "a.txt"} | FILE)],
    "responses": [("exec_command", {"cmd": "echo hi", "yield_time_ms": 30_000}), ("apply_patch", PATCH)],
    "chat": [("bash", RUN), ("write", {"filePath": "a.txt"} | FILE)],
    "gemini": [("run_shell_command", RUN), ("write_file", {"file_path": "a.txt"} | FILE)],
}


def test_anthropic_streamed() -> None:
    """Blocks start, grow and end; usage is split into fresh and cached input."""
    with serve(TURN) as server:
        events = ask(server, "anthropic").events()
    start = events[0]["message"]
    assert (start["usage"]["input_tokens"], start["usage"]["cache_read_input_tokens"]) == (50, 20)
    kinds = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == TEXT
    assert len([delta for delta in deltas if delta["type"] == "text_delta"]) > 1
    names = [e["content_block"]["name"] for e in events if e.get("content_block", {}).get("name")]
    inputs = [
        "".join(e["delta"]["partial_json"] for e in events if e.get("index") == index and "delta" in e)
        for index in (2, 3)
    ]
    assert list(zip(names, map(json.loads, inputs), strict=True)) == CALLS["anthropic"]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert events[-2]["usage"] == {"output_tokens": 8}
    assert events[-1] == {"type": "message_stop"}


def test_responses_streamed() -> None:
    """Items are added and done; the last event holds all of them; a patch is free text."""
    with serve(TURN) as server:
        events = ask(server, "responses").events()
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call", "custom_tool_call"]
    calls = [(done[2]["name"], json.loads(done[2]["arguments"])), (done[3]["name"], done[3]["input"])]
    assert calls == CALLS["responses"]
    texts = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(texts) == TEXT
    last = events[-1]
    assert (last["type"], last["response"]["output"]) == ("response.completed", done)
    usage = last["response"]["usage"]
    assert (usage["input_tokens"], usage["input_tokens_details"], usage["output_tokens"]) == (
        70,
        {"cached_tokens": 20},
        8,
    )


def test_chat_streamed() -> None:
    """Deltas add up to the message; usage comes last because the client asked for it."""
    with serve(TURN) as server:
        reply = ask(server, "chat")
    events = reply.events()
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == TEXT
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "I think."
    parts = [part for delta in deltas for part in delta.get("tool_calls", [])]
    names = [part["function"]["name"] for part in parts if "name" in part["function"]]
    inputs = [
        "".join(part["function"]["arguments"] for part in parts if part["index"] == index) for index in (0, 1)
    ]
    assert list(zip(names, map(json.loads, inputs), strict=True)) == CALLS["chat"]
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert (events[-1]["usage"]["prompt_tokens"], events[-1]["usage"]["completion_tokens"]) == (70, 8)
    assert reply.text.endswith("data: [DONE]\n\n")


def test_gemini_streamed() -> None:
    """Parts come one by one; the last one has the finish reason."""
    with serve(TURN) as server:
        events = ask(server, "gemini").events()
    parts = [part for event in events for part in event["candidates"][0]["content"]["parts"]]
    assert "".join(part["text"] for part in parts if part.get("thought")) == "I think."
    assert "".join(part["text"] for part in parts if "text" in part and not part.get("thought")) == TEXT
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    assert [(call["name"], call["args"]) for call in calls] == CALLS["gemini"]
    assert [event["candidates"][0].get("finishReason") for event in events][-2:] == [None, "STOP"]
    usage = events[-1]["usageMetadata"]
    assert (usage["promptTokenCount"], usage["cachedContentTokenCount"]) == (70, 20)


def test_whole_answers() -> None:
    """Clients that do not stream get the same in one piece."""
    with serve(TURN) as server:
        found = {wire: ask(server, wire, stream=False).json() for wire in WIRES}
    assert [block["type"] for block in found["anthropic"]["content"]] == [
        *("thinking", "text"),
        *("tool_use", "tool_use"),
    ]
    message = found["chat"]["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == (TEXT, "I think.")
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["bash", "write"]
    assert found["responses"]["output"][1]["content"][0]["text"] == TEXT
    parts = found["gemini"]["candidates"][0]["content"]["parts"]
    assert [part.get("text") for part in parts] == ["I think.", TEXT, None, None]


@pytest.mark.parametrize(
    ("wire", "calls"),
    [
        (
            "anthropic",
            [
                ("Read", {"file_path": "a"}),
                ("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"}),
                (
                    "TodoWrite",
                    {"todos": [{"content": "first", "status": "pending", "activeForm": "Working"}]},
                ),
                ("Any", {"x": 1}),
            ],
        ),
        (
            "chat",
            [
                ("read", {"filePath": "a"}),
                ("edit", {"filePath": "a", "oldString": "x", "newString": "y"}),
                ("todowrite", {"todos": [{"content": "first", "status": "pending", "priority": "medium"}]}),
                ("Any", {"x": 1}),
            ],
        ),
        (
            "gemini",
            [
                ("read_file", {"file_path": "a"}),
                (
                    "replace",
                    {"file_path": "a", "instruction": "Change it", "old_string": "x", "new_string": "y"},
                ),
                ("write_todos", {"todos": [{"description": "first", "status": "pending"}]}),
                ("Any", {"x": 1}),
            ],
        ),
        (
            "responses",
            [
                ("exec_command", {"cmd": "cat a", "yield_time_ms": 30_000}),
                ("apply_patch", "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch"),
                ("update_plan", {"plan": [{"step": "first", "status": "pending"}]}),
                ("Any", {"x": 1}),
            ],
        ),
    ],
)
def test_tools_are_those_the_client_advertises(wire: str, calls: list[tuple[str, Any]]) -> None:
    """Read, edit and todo become each agent's own tool; a named call is sent unchanged."""
    script = """
    turns:
      - tools: [{read: a}, {edit: {path: a, old: x, new: y}}, {todo: [first]}, {call: {name: Any, input: {x: 1}}}]
    """
    with serve(script) as server:
        found = ask(server, wire, stream=False).json()
    if wire == "anthropic":
        got = [(block["name"], block["input"]) for block in found["content"]]
    elif wire == "chat":
        functions = [call["function"] for call in found["choices"][0]["message"]["tool_calls"]]
        got = [(function["name"], json.loads(function["arguments"])) for function in functions]
    elif wire == "gemini":
        parts = found["candidates"][0]["content"]["parts"]
        got = [(part["functionCall"]["name"], part["functionCall"]["args"]) for part in parts]
    else:
        got = [
            (item["name"], item["input"] if "input" in item else json.loads(item["arguments"]))
            for item in found["output"]
        ]
    assert got == calls


def test_claude_without_a_todo_list_gets_tasks() -> None:
    """A todo list becomes one TaskCreate for each entry if the client has only that tool."""
    with serve("turns: [{tools: [{todo: [a, b]}]}]") as server:
        body = request("anthropic", ["Bash", "TaskCreate"], stream=False)
        content = post(server, path("anthropic"), body).json()["content"]
    assert [(block["name"], block["input"]["subject"]) for block in content] == [
        ("TaskCreate", "a"),
        ("TaskCreate", "b"),
    ]
    assert len({block["id"] for block in content}) == 2


def test_a_shell_is_enough_to_write() -> None:
    """Without file tools, files are written by shell commands."""
    with serve("turns: [{tools: [{write: {path: my file, content: it's}}]}]") as server:
        body = request("responses", ["shell"], stream=False)
        item = post(server, path("responses"), body).json()["output"][0]
    command = ["bash", "-c", "printf %s 'it'\"'\"'s' > 'my file'"]
    assert (item["name"], json.loads(item["arguments"])) == ("shell", {"command": command})


def test_a_tool_that_the_client_does_not_have() -> None:
    """The client gets an error that names the tool."""
    with serve("turns: [{tools: [{todo: [a]}]}]") as server:
        reply = post(server, path("anthropic"), request("anthropic", ["Bash"]))
        assert [entry.played for entry in server.requests] == ["refused"]
    assert reply.status == 400
    assert "The script wants `todo`, but the request advertises only: Bash." in reply.text


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("stream", [True, False])
def test_side_calls_use_no_turn(wire: str, stream: bool) -> None:
    """A request without tools gets a harmless text, and the script does not advance."""
    with serve("{turns: [{text: the-turn}], then: error, side: harmless}") as server:
        side = post(server, path(wire, stream=stream), request(wire, [], stream=stream))
        turn = ask(server, wire, stream=stream)
        assert [entry.played for entry in server.requests] == ["side", 1]
    assert (side.status, "harmless" in side.text, "the-turn" in side.text) == (200, True, False)
    assert "the-turn" in turn.text


def test_a_side_call_that_wants_json() -> None:
    """A title or a next-speaker check that comes with a schema gets a value of that schema."""
    properties = {
        "reasoning": {"type": "STRING"},
        "next_speaker": {"type": "STRING", "enum": ["model", "user"]},
    }
    config = {"responseSchema": {"type": "OBJECT", "properties": properties}}
    with serve("turns: [{text: a}]") as server:
        body = request("gemini", []) | {"generationConfig": config}
        reply = post(server, path("gemini", stream=False), body).json()
    text = reply["candidates"][0]["content"]["parts"][0]["text"]
    assert json.loads(text) == {"reasoning": "ok", "next_speaker": "user"}


def test_counting_and_models() -> None:
    """Token counts and the list of models are answered and use no turn."""
    with serve("turns: [{text: a}]") as server:
        counted = post(server, "/v1/messages/count_tokens", request("anthropic")).json()
        total = post(server, "/v1beta/models/m:countTokens", request("gemini")).json()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", "/v1/models")
        models = json.loads(connection.getresponse().read())
        connection.close()
        assert [entry.played for entry in server.requests] == ["side"] * 3
    assert counted["input_tokens"] > 0
    assert total["totalTokens"] > 0
    assert [model["id"] for model in models["data"]] == ["scripted"]
