"""Amp, tested against its documented formats: no real Amp was available."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ralph.agents.amp import Amp
from ralph.agents.base import AgentReport, Prompt, Reading
from ralph.agents.plain import PlainParser
from ralph.agents.registry import AGENTS, announced_permissions, type_of
from ralph.core.events import AgentEvent, AgentProgress, Body, Result, Text, ToolEnd, ToolStart
from ralph.core.model import AgentSpec, Ended, Exit, Permissions, PromptVia, Purpose, Usage

TAG = "<response>DONE</response>"
ANSWER = f"All done. {TAG}"
ALL = "--dangerously-allow-all"


def spec(
    *flags: str, permissions: Permissions = Permissions.EDIT, via: PromptVia = PromptVia.ARGUMENT
) -> AgentSpec:
    return AgentSpec("amp", "amp", "amp", flags, prompt_via=via, permissions=permissions)


def argv(agent: AgentSpec, purpose: Purpose = Purpose.WORK) -> list[str]:
    return Amp().argv(agent, purpose, Prompt("Do it.", "/x"))


def read(*lines: dict[str, Any], code: int = 0) -> tuple[list[AgentEvent], AgentReport]:
    parser = Amp().parser(Reading(spec=spec()))
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    events = parser.stdout(data)
    last, report = parser.finish(Exit(code))
    return [*events, *last], report


# ---- the command line ----


def test_the_prompt_comes_last_after_x() -> None:
    """`-x` and the prompt come together at the end, after the user's flags."""
    assert argv(spec("--mode", "smart")) == ["amp", "--stream-json", ALL, "--mode", "smart", "-x", "Do it."]


def test_a_commit_message_is_requested_in_text_mode() -> None:
    """In text mode the whole output is the answer."""
    assert argv(spec(), Purpose.MESSAGE) == ["amp", ALL, "-x", "Do it."]
    assert isinstance(Amp().parser(Reading(purpose=Purpose.MESSAGE)), PlainParser)


def test_the_prompt_by_stdin() -> None:
    """If the user asks for stdin, `-x` comes alone."""
    assert argv(spec(via=PromptVia.STDIN)) == ["amp", "--stream-json", ALL, "-x"]


@pytest.mark.parametrize(
    ("permissions", "words"), [(Permissions.EDIT, [ALL]), (Permissions.BYPASS, [ALL]), (Permissions.NONE, [])]
)
def test_permissions(permissions: Permissions, words: list[str]) -> None:
    """Amp has one permission flag, which allows everything."""
    assert argv(spec(permissions=permissions)) == ["amp", "--stream-json", *words, "-x", "Do it."]


def test_own_permission_flags_win() -> None:
    """Ralph adds no permission flags if the user passes one."""
    assert argv(spec(ALL)) == ["amp", "--stream-json", ALL, "-x", "Do it."]
    assert announced_permissions(spec(ALL)) is None


def test_it_is_known_by_its_name_and_marked_as_unverified() -> None:
    """No version of it was ever tested."""
    agent = AGENTS[type_of("/opt/bin/amp")]
    assert isinstance(agent, Amp)
    assert agent.about.seen == ""


# ---- the documented samples ----

INIT = {"type": "system", "subtype": "init", "session_id": "T-1", "tools": ["Bash"]}
USAGE = {
    "input_tokens": 100,
    "output_tokens": 50,
    "cache_read_input_tokens": 80,
    "cache_creation_input_tokens": 0,
}
TOOL = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"cmd": "ls"}}
OUTPUT = {"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"}
CALL = {"type": "assistant", "message": {"content": [TOOL]}}
BACK = {"type": "user", "message": {"content": [OUTPUT]}}
SUCCESS = {
    "type": "result",
    "subtype": "success",
    "result": "",
    "duration_ms": 1234,
    "num_turns": 3,
    "usage": USAGE,
}


def said(text: str, **usage: int) -> dict[str, Any]:
    message: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    return {"type": "assistant", "message": message | ({"usage": usage} if usage else {})}


def test_a_session() -> None:
    """Text, a tool call with its result, the answer, tokens, and no cost."""
    events, report = read(
        INIT, said("I look.", **USAGE), CALL, BACK, said(ANSWER), SUCCESS | {"result": ANSWER}
    )
    usage = Usage(0.0, 100, 50, 80)
    assert events == [
        AgentProgress("session T-1"),
        Text("I look.\n"),
        ToolStart("t1", "Bash", Body(b'{"cmd":"ls"}')),
        ToolEnd("t1", Body(b'"a.txt"')),
        Text(f"{ANSWER}\n"),
        Result(usage),
    ]
    assert report == AgentReport(Ended.OK, True, ANSWER, usage)


def test_a_failed_result() -> None:
    """The message is in `error`."""
    failed = {"type": "result", "subtype": "error_during_execution", "error": "No network", "is_error": True}
    events, report = read(INIT, said(TAG), failed, code=1)
    assert events[-1] == Result(Usage(), is_error=True)
    assert (report.ended, report.detail) == (Ended.FAILED, "No network")


def test_messages_have_no_id() -> None:
    """Each event is a separate message: a later one withdraws the claim, and all tokens count."""
    lines = [said(TAG, input_tokens=10), said("No, wait.", input_tokens=20)]
    assert read(*lines)[1].usage == Usage(0.0, 30)
    _, report = read(*lines, SUCCESS | {"result": "No, wait."})
    assert (report.claim, report.text) == (False, "No, wait.")


def test_an_answer_in_the_result_alone() -> None:
    """The text of the result counts if no message had text."""
    _, report = read(INIT, CALL, BACK, SUCCESS | {"result": TAG})
    assert (report.ended, report.claim) == (Ended.OK, True)
