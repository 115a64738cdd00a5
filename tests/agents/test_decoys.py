"""Twelve ways a tag can appear without being a claim, for every agent with a structured stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ralph.agents.base import AgentReport, Reading
from ralph.agents.registry import AGENTS
from ralph.agents.stream import StreamParser
from ralph.core.model import Ended, Exit, Purpose

TAG = "<response>DONE</response>"
INSTRUCTION = f"When everything is finished, print {TAG} on a separate line."
PROMPT = f"Fix the bug.\n\n{INSTRUCTION}\n"
NOT_YET = "Not all of it is done."

Line = dict[str, Any]


@dataclass(frozen=True)
class Shapes:
    """How one agent prints things. `echoed` is the user's message; `over` is its success after `said`."""

    said: Callable[[str], list[Line]]
    thought: Callable[[str], list[Line]]
    called: Callable[[str, str], list[Line]]
    listed: Callable[[str], list[Line]]
    echoed: Callable[[str], list[Line]]
    failed: Callable[[str], list[Line]]
    over: Callable[[], list[Line]]


# ---- Claude Code and Amp ----


def _message(block: Line, kind: str = "assistant", **more: Any) -> Line:
    return {"type": kind, "message": {"content": [block]}, "parent_tool_use_id": None} | more


def _claude_text(text: str) -> list[Line]:
    return [_message({"type": "text", "text": text})]


def _claude_call(input: str, output: str) -> list[Line]:
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": input}}
    back = {"type": "tool_result", "tool_use_id": "t", "content": output}
    more = {"tool_use_result": {"stdout": output, "stderr": output}}
    return [_message(call), _message(back, "user", **more)]


def _claude_todo(text: str) -> list[Line]:
    todos = [{"content": text, "activeForm": text, "status": "pending"}]
    call = {"type": "tool_use", "id": "t", "name": "TodoWrite", "input": {"todos": todos}}
    return [_message(call), _message({"type": "tool_result", "tool_use_id": "t", "content": text}, "user")]


def _claude_failure(text: str) -> list[Line]:
    synthetic = {"content": [{"type": "text", "text": text}], "model": "<synthetic>", "id": "e"}
    error = {"type": "assistant", "message": synthetic, "is_api_error_message": True}
    return [error, {"type": "result", "subtype": "success", "is_error": True, "result": text}]


CLAUDE = Shapes(
    said=_claude_text,
    thought=lambda text: [_message({"type": "thinking", "thinking": text})],
    called=_claude_call,
    listed=_claude_todo,
    echoed=lambda text: [_message({"type": "text", "text": text}, "user")],
    failed=_claude_failure,
    over=lambda: [{"type": "result", "subtype": "success", "is_error": False, "result": ""}],
)


# ---- Codex ----


def _item(kind: str, **values: Any) -> Line:
    return {"type": "item.completed", "item": {"id": "i", "type": kind} | values}


CODEX = Shapes(
    said=lambda text: [_item("agent_message", text=text)],
    thought=lambda text: [_item("reasoning", text=text)],
    called=lambda input, output: [
        _item("command_execution", command=input, aggregated_output=output, exit_code=0, status="completed")
    ],
    listed=lambda text: [_item("todo_list", items=[{"text": text, "completed": True}])],
    echoed=lambda text: [_item("user_message", text=text)],
    failed=lambda text: [
        {"type": "error", "message": text},
        {"type": "turn.failed", "error": {"message": text}},
    ],
    over=lambda: [{"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}}],
)


# ---- Gemini CLI ----


def _gemini_call(name: str, parameters: Line, output: str) -> list[Line]:
    return [
        {"type": "tool_use", "tool_name": name, "tool_id": "t", "parameters": parameters},
        {"type": "tool_result", "tool_id": "t", "status": "success", "output": output},
    ]


GEMINI = Shapes(
    said=lambda text: [
        {"type": "message", "role": "assistant", "content": piece, "delta": True}
        for piece in (text[:9], text[9:])
    ],
    thought=lambda text: [{"type": "message", "role": "thought", "content": text, "delta": True}],
    called=lambda input, output: _gemini_call("run_shell_command", {"command": input}, output),
    listed=lambda text: _gemini_call(
        "write_todos", {"todos": [{"description": text, "status": "pending"}]}, text
    ),
    echoed=lambda text: [{"type": "message", "role": "user", "content": text}],
    failed=lambda text: [
        {"type": "error", "severity": "error", "message": text},
        {"type": "result", "status": "error", "error": {"type": "Error", "message": text}},
    ],
    over=lambda: [{"type": "result", "status": "success", "stats": {"total_tokens": 2}}],
)


# ---- OpenCode ----


def _part(kind: str, **part: Any) -> Line:
    return {"type": kind, "timestamp": 1794783600000, "sessionID": "s", "part": part}


def _opencode_call(tool: str, input: Line, output: str) -> list[Line]:
    state = {"status": "completed", "input": input, "output": output, "title": output}
    step = [_part("tool_use", tool=tool, callID="c", state=state), _part("step_finish", reason="tool-calls")]
    return [_part("step_start"), *step]


OPENCODE = Shapes(
    said=lambda text: [_part("step_start"), _part("text", text=text)],
    thought=lambda text: [_part("step_start"), _part("reasoning", text=text)],
    called=lambda input, output: _opencode_call("bash", {"command": input}, output),
    listed=lambda text: _opencode_call(
        "todowrite", {"todos": [{"content": text, "status": "pending"}]}, text
    ),
    echoed=lambda text: [_part("user", text=text)],
    failed=lambda text: [{"type": "error", "error": {"name": "APIError", "data": {"message": text}}}],
    over=lambda: [_part("step_finish", reason="stop")],
)

SHAPES = {"amp": CLAUDE, "claude": CLAUDE, "codex": CODEX, "gemini": GEMINI, "opencode": OPENCODE}


# ---- the decoys ----

Decoy = Callable[[Shapes], list[Line]]


def _told(text: str) -> Decoy:
    """A final message that contains the tag where it does not count."""
    return lambda agent: [*agent.called("ls", "a"), *agent.said(text)]


DECOYS: dict[str, Decoy] = {
    "tool result": lambda agent: agent.called("cat notes.md", f"Say\n{TAG}\n"),
    "tool input": lambda agent: agent.called(f"echo '{TAG}' > notes.md", ""),
    "thinking": lambda agent: agent.thought(f"Now I say {TAG}"),
    "task list": lambda agent: agent.listed(TAG),
    "prompt that is repeated by the CLI": lambda agent: agent.echoed(PROMPT),
    "prompt that is repeated by the model": _told(f"The task says: {INSTRUCTION}"),
    "message before more tools": lambda agent: [*agent.said(TAG), *agent.called("ls", "a")],
    "code fence": _told(f"I would print\n```\n{TAG}\n```\n"),
    "quoted line": _told(f"The notes say\n> {TAG}\n"),
    "unknown event": lambda agent: [
        {"type": "something_new", "text": TAG, "content": TAG, "message": {"text": TAG}, "result": TAG}
    ],
}
"""The decoys in each agent's own format, besides stderr and errors, which end it."""


def read(name: str, lines: list[Line], *, stderr: str = "", code: int = 0) -> AgentReport:
    parser = AGENTS[name].parser(Reading(prompt=PROMPT))
    parser.stderr(stderr.encode())
    parser.stdout(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    return parser.finish(Exit(code))[1]


AGENT = pytest.mark.parametrize("name", SHAPES)


def test_every_agent_is_here() -> None:
    """A new agent with a structured stream must define its formats here."""
    structured = {name for name in AGENTS if isinstance(AGENTS[name].parser(Reading()), StreamParser)}
    assert structured == set(SHAPES)


@AGENT
@pytest.mark.parametrize("decoy", DECOYS)
def test_a_decoy_is_not_a_claim(name: str, decoy: str) -> None:
    """Neither at the end of the stream, nor where it is cut off, nor before an answer without the tag."""
    agent, lines = SHAPES[name], DECOYS[decoy](SHAPES[name])
    assert not read(name, [*lines, *agent.over()]).claim
    assert not read(name, lines, code=1).claim
    said = read(name, [*lines, *agent.said(NOT_YET), *agent.over()])
    assert (said.ended, said.claim) == (Ended.OK, False)


TOLD = {
    "prompt that is repeated by the model": "in a sentence that repeats the prompt",
    "code fence": "inside a code block",
    "quoted line": "in a quotation",
}


@AGENT
@pytest.mark.parametrize("decoy", DECOYS)
def test_a_decoy_in_the_final_message_is_explained(name: str, decoy: str) -> None:
    """Where the agent itself wrote the tag in its final message, the report says why it does not count."""
    agent = SHAPES[name]
    report = read(name, [*DECOYS[decoy](agent), *agent.over()])
    assert report.unclaimed == TOLD.get(decoy, "")


@AGENT
def test_a_decoy_is_explained_for_work_only(name: str) -> None:
    """A commit message or a verdict is not a claim."""
    agent = SHAPES[name]
    parser = AGENTS[name].parser(Reading(purpose=Purpose.MESSAGE))
    parser.stdout(
        b"".join(json.dumps(line).encode() + b"\n" for line in [*agent.said(f"`{TAG}`"), *agent.over()])
    )
    assert parser.finish(Exit(0))[1].unclaimed == ""


@AGENT
def test_a_tag_on_stderr_is_not_a_claim(name: str) -> None:
    """Output on stderr is noise."""
    agent = SHAPES[name]
    assert not read(name, [*agent.said(NOT_YET), *agent.over()], stderr=f"{TAG}\n").claim
    assert not read(name, [], stderr=f"{TAG}\n", code=1).claim


@AGENT
def test_a_tag_in_an_error_is_not_a_claim(name: str) -> None:
    """An error is about the agent, not by the agent."""
    report = read(name, SHAPES[name].failed(f"no such model: {TAG}"), code=1)
    assert (report.ended, report.claim) == (Ended.FAILED, False)


@AGENT
@pytest.mark.parametrize("decoy", DECOYS)
def test_the_true_claim_after_a_decoy(name: str, decoy: str) -> None:
    """No decoy hides it if the final message has it."""
    agent = SHAPES[name]
    lines = [*DECOYS[decoy](agent), *agent.called("ls", "a"), *agent.said(f"It is all done.\n\n{TAG}")]
    report = read(name, [*lines, *agent.over()], stderr=f"{TAG}\n")
    assert (report.ended, report.claim) == (Ended.OK, True)
