"""Gemini CLI: its command line, and the meaning of its recorded streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.agent_support import PROMPT, TAG, Bench, Read, body, stream, timeless
from ralph.agents.base import AgentReport
from ralph.agents.gemini import Gemini
from ralph.agents.registry import AGENTS, type_of
from ralph.core.events import (
    AgentError,
    AgentEvent,
    AgentProgress,
    Limited,
    Noise,
    Result,
    Retry,
    Text,
    Todo,
    TodoItem,
    ToolEnd,
    ToolStart,
    Unread,
)
from ralph.core.model import (
    Ended,
    Exit,
    LimitKind,
    Permissions,
    PromptVia,
    Purpose,
    TodoStatus,
    Usage,
)

NOW = datetime(2026, 11, 15, 22, 47, tzinfo=UTC).timestamp()
PER_MODEL_QUOTA = (
    "[API Error: You have exhausted your daily quota on this model.]\nPlease wait and try again later."
)

GEMINI = Bench("gemini", NOW, PROMPT)
spec, argv, read, raw = GEMINI.spec, GEMINI.argv, GEMINI.read, GEMINI.raw


def recorded(name: str, *, exit: Exit | int = 0) -> Read:
    """A recorded stream without its first event, which names session and model."""
    events, report = read(raw(name), exit=exit)
    assert isinstance(events[0], AgentProgress) and events[0].text.endswith(", gemini-2.5-pro")
    return events[1:], report


def at(events: list[AgentEvent]) -> Iterator[float | None]:
    """The times of the events that have one."""
    return (event.at for event in events if isinstance(event, Text | ToolStart | ToolEnd | Result))


def said(text: str, role: str = "assistant") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text, "delta": True}


def called(name: str = "run_shell_command", id: str = "1", **parameters: Any) -> dict[str, Any]:
    return {"type": "tool_use", "tool_name": name, "tool_id": id, "parameters": parameters}


def answered(output: str = "", id: str = "1", status: str = "success", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_id": id, "status": status, "output": output, **more}


def refused(message: str, type: str = "unknown") -> dict[str, Any]:
    return {"type": "result", "status": "error", "error": {"type": type, "message": message}}


END = {"type": "result", "status": "success", "stats": {"total_tokens": 11, "input_tokens": 10}}


# ---- the command line ----


@pytest.mark.parametrize("purpose", Purpose)
def test_the_prompt_is_on_stdin_and_the_stream_is_structured(purpose: Purpose) -> None:
    """Work and commit messages both use the stream, which alone reports tokens and limits."""
    words = ["--prompt=", "--output-format", "stream-json", "--skip-trust", "--approval-mode", "auto_edit"]
    assert argv(spec(), purpose) == ["gemini", *words]


@pytest.mark.parametrize(
    ("permissions", "words"),
    [
        (Permissions.EDIT, ["--approval-mode", "auto_edit"]),
        (Permissions.BYPASS, ["--approval-mode", "yolo"]),
        (Permissions.NONE, []),
    ],
)
def test_permissions(permissions: Permissions, words: list[str]) -> None:
    """The CLI's own flags set the permissions."""
    started = argv(spec("-m", "x", permissions=permissions))
    assert started[1:4] == ["--prompt=", "--output-format", "stream-json"]
    assert started[4:] == ["--skip-trust", *words, "-m", "x"]


@pytest.mark.parametrize(
    "flags", [("--yolo",), ("-y",), ("--approval-mode", "plan"), ("--approval-mode=default",)]
)
def test_own_permission_flags_win(flags: tuple[str, ...]) -> None:
    """The CLI refuses two of them, so Ralph adds none to the user's."""
    started = argv(spec(*flags, permissions=Permissions.BYPASS))
    assert started == ["gemini", "--prompt=", "--output-format", "stream-json", "--skip-trust", *flags]


def test_a_prompt_as_argument() -> None:
    """It is one word with its flag, so that a prompt may start with a dash."""
    started = argv(spec(via=PromptVia.ARGUMENT), prompt="- one\n- two")
    assert started[1] == "--prompt=- one\n- two"


def test_it_is_known_by_its_name() -> None:
    """The base name of the command decides."""
    assert type_of("/opt/bin/gemini") == "gemini"
    assert isinstance(AGENTS["gemini"], Gemini)


# ---- work ----


def test_work() -> None:
    """Text in whole lines, tools with their ids, a task list, tokens and the claim."""
    events, report = recorded("work")
    listing, failing, missing = (
        f"{name}__{id}"
        for name, id in (
            ("run_shell_command", "000001_1"),
            ("run_shell_command", "000003_2"),
            ("read_file", "000003_3"),
        )
    )
    write, replace, todos = "write_file__000002_1", "replace__000002_2", "write_todos__000003_1"
    entries = [
        {"description": "first", "status": "in_progress"},
        {"description": "second", "status": "pending"},
    ]
    change = {
        "file_path": "README.md",
        "instruction": "Change it",
        "old_string": "A project",
        "new_string": "The project",
    }
    usage = Usage(input_tokens=2600, output_tokens=150, cache_read_tokens=3900)
    assert timeless(events) == [
        Text("I will look around first.\n\n"),
        Text("Then I make the files.\n"),
        ToolStart(
            listing,
            "run_shell_command",
            body({"command": "echo hello > a.txt; ls", "description": "Run a command"}),
        ),
        ToolEnd(listing, body("README.md\na.txt")),
        Text("Now write.\n"),
        ToolStart(write, "write_file", body({"file_path": "b.txt", "content": "line one\nline two\n"})),
        ToolStart(replace, "replace", body(change)),
        ToolEnd(write, body()),
        ToolEnd(replace, body()),
        Todo((TodoItem("first", TodoStatus.ACTIVE), TodoItem("second", TodoStatus.PENDING))),
        ToolStart(todos, "write_todos", body({"todos": entries})),
        ToolStart(
            failing,
            "run_shell_command",
            body({"command": "echo oops >&2; exit 3", "description": "Run a command"}),
        ),
        ToolStart(missing, "read_file", body({"file_path": "nothere.txt"})),
        ToolEnd(todos, body()),
        ToolEnd(failing, body("oops")),
        ToolEnd(missing, body("File not found."), is_error=True),
        Text("All done.\n\n"),
        Text("<response>DONE</response>\n"),
        Result(usage),
    ]
    assert report == AgentReport(Ended.OK, claim=True, text=f"All done.\n\n{TAG}", usage=usage)


def test_times() -> None:
    """Every event has the agent's timestamp."""
    events, _ = recorded("work")
    times = list(at(events))
    assert None not in times
    assert times[-1] == datetime(2026, 11, 15, 22, 49, 45, 268_000, tzinfo=UTC).timestamp()


def test_thinking_tokens_count_as_output() -> None:
    """The stream's output tokens leave out thinking; only the total includes it. Cached tokens are input."""
    stats = {"total_tokens": 1700, "input_tokens": 1000, "output_tokens": 100, "cached": 300}
    _, report = read(stream(said("Hi"), END | {"stats": stats}))
    assert report.usage == Usage(input_tokens=700, output_tokens=700, cache_read_tokens=300)


def test_cancelled_todos() -> None:
    """A cancelled entry leaves the list, a blocked one is still to do."""
    states = ["completed", "cancelled", "blocked"]
    todos = [{"description": state, "status": state} for state in states]
    events, _ = read(stream(called("write_todos", todos=todos)))
    assert events[0] == Todo(
        (TodoItem("completed", TodoStatus.DONE), TodoItem("blocked", TodoStatus.PENDING))
    )


def test_an_error_without_output() -> None:
    """If a failed tool has no output, its error is shown."""
    error = {"type": "invalid_tool_params", "message": "must have a path"}
    line = {"type": "tool_result", "tool_id": "1", "status": "error", "error": error}
    events, _ = read(stream(called(), line))
    assert events[-1] == ToolEnd("1", body("must have a path"), is_error=True)


def test_an_endless_line() -> None:
    """A line without an end is shown in pieces; the answer is complete."""
    events, report = read(stream(*(said("x" * 1000) for _ in range(40)), END))
    shown = [event.text for event in events if isinstance(event, Text)]
    assert max(map(len, shown)) < 20_000
    assert "".join(shown).replace("\n", "") == report.text == "x" * 40_000


def test_over_with_the_result() -> None:
    """The result ends it, whatever the process does then, and nothing earlier does."""
    parser = GEMINI.parser()
    parser.stdout(stream(said("Hi")))
    assert not parser.is_over
    parser.stdout(stream(END))
    assert parser.is_over


# ---- retries and limits ----

RETRIES = b"""\
Attempt 1 failed: You exceeded your current quota, please check your plan and billing details.
Please retry in 1.2s.
Suggested retry after 1s.. Retrying after 5712ms...
Attempt 2 failed with status 503. Retrying with backoff... _ApiError: {"error":{"code":503}}
    at throwErrorIfNotOK (chunk.js:267833:24) {
  status: 503
}
Attempt 3 failed: The model is overloaded. Please try again later.. Max attempts reached
"""


def test_retries() -> None:
    """They are reported only on stderr, and are not limits while the agent makes progress."""
    data = raw("retry")
    events, report = read(data, stderr=RETRIES)
    quota = (
        "You exceeded your current quota, please check your plan and billing details.\n"
        "Please retry in 1.2s.\nSuggested retry after 1s."
    )
    assert events[:3] == [Noise(RETRIES.decode()), Retry(quota, 1, seconds=5.712), Retry("status 503", 2)]
    assert report.ended is Ended.OK
    assert report.text == "Well then."


def test_the_daily_quota() -> None:
    """It resets at midnight in California."""
    events, report = recorded("daily_quota", exit=173)
    text = (
        "[API Error: You have exhausted your daily quota on this model.]\n"
        "Please wait and try again later. To increase your limits, request a quota increase through "
        "AI Studio, or switch to another /auth method"
    )
    midnight = datetime(2026, 11, 16, 8, 0, tzinfo=UTC).timestamp()
    assert timeless(events) == [Limited(LimitKind.USAGE, text, midnight), Result(Usage(), is_error=True)]
    assert report == AgentReport(Ended.LIMIT, retry_at=midnight, detail=text)


@pytest.mark.parametrize(
    ("name", "exit", "kind", "ended", "wait"),
    [
        ("current_quota", 173, LimitKind.USAGE, Ended.LIMIT, 400.5),
        ("quota_reset", 173, LimitKind.USAGE, Ended.LIMIT, 3723.0),
        ("rate", 173, LimitKind.RATE, Ended.LIMIT, None),
        ("overload", 247, LimitKind.OVERLOAD, Ended.LIMIT, None),
        ("no_quota", 173, LimitKind.CREDIT, Ended.AUTH, 7.5),
        ("401", 145, LimitKind.AUTH, Ended.AUTH, None),
        ("403", 147, LimitKind.AUTH, Ended.AUTH, None),
        ("bad_key", 144, LimitKind.AUTH, Ended.AUTH, None),
    ],
)
def test_limits(name: str, exit: int, kind: LimitKind, ended: Ended, wait: float | None) -> None:
    """Every kind, in the words of a real run."""
    events, report = recorded(name, exit=exit)
    limited, result = events
    assert isinstance(limited, Limited)
    assert (limited.kind, limited.retry_at) == (kind, None if wait is None else NOW + wait)
    assert timeless([result]) == [Result(Usage(), is_error=True)]
    assert report.ended is ended
    assert report.detail == limited.text


@pytest.mark.parametrize(
    ("exit", "kind"),
    [(173, LimitKind.RATE), (247, LimitKind.OVERLOAD), (145, LimitKind.AUTH), (146, LimitKind.CREDIT)],
)
def test_a_limit_by_the_exit_code(exit: int, kind: LimitKind) -> None:
    """It is the lower byte of the HTTP status, if the text does not say."""
    text = "[API Error: This model is currently experiencing high demand.]"
    events, report = read(stream(refused(text)), exit=exit)
    assert events == [AgentError(text), Result(Usage(), is_error=True), Limited(kind, text)]
    assert report.ended is kind.ended


def test_an_expired_key() -> None:
    """The API has an error name for it, whatever the text is."""
    error = {"code": 400, "message": "API key expired.", "details": [{"reason": "API_KEY_INVALID"}]}
    text = f"[API Error: {json.dumps({'error': error}, separators=(',', ':'))}]"
    _, report = read(stream(refused(text)), exit=144)
    assert report.ended is Ended.AUTH


def test_no_key() -> None:
    """Nothing on stdout, a message on stderr, and a special exit code."""
    stderr = b"When using Gemini API, you must specify the GEMINI_API_KEY environment variable.\n"
    events, report = read(b"", exit=41, stderr=stderr)
    text = stderr.decode().strip()
    assert events == [Noise(stderr.decode()), Limited(LimitKind.AUTH, text)]
    assert report == AgentReport(Ended.AUTH, detail=text)


LOOK_ALIKES = {
    "a file in a tool's output": stream(
        called(), answered("src/ratelimit.ts: rate limit exceeded, usage limit reached"), said("Hm."), END
    ),
    "the error of a tool": stream(
        called(),
        answered("rate limit", status="error", error={"type": "x", "message": PER_MODEL_QUOTA}),
        refused("[API Error: terminated]"),
    ),
    "the answer": stream(said("You have exhausted your daily quota. 429 Too many requests."), END),
    "an answer before a failure": stream(said("usage limit reached"), refused("[API Error: terminated]")),
    "a file in the failure": stream(refused("Cannot read src/ratelimit.ts")),
    "a bad request that quotes": stream(
        refused('[API Error: {"error":{"code":400,"message":"no function rate_limit"}}]')
    ),
    "a limit of tokens": stream(
        {
            "type": "error",
            "severity": "error",
            "message": "Model response was truncated because it exceeded the token limit.",
        },
        {"type": "result", "status": "error"},
    ),
    "an unknown line": stream({"type": "quota", "message": PER_MODEL_QUOTA}, refused("Nothing.")),
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
@pytest.mark.parametrize("exit", [0, 1])
def test_look_alikes(name: str, exit: int) -> None:
    """Text about limits counts only in the agent's own final error."""
    stderr = b"Error executing tool run_shell_command: rate limit reached, 401 Unauthorized\n"
    events, report = read(LOOK_ALIKES[name], exit=exit, stderr=stderr)
    assert not any(isinstance(event, Limited) for event in events)
    assert report.ended is (Ended.OK if name in ("a file in a tool's output", "the answer") else Ended.FAILED)


# ---- other ends ----


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty", "The model returned an empty response with no text or thoughts. "),
        ("thinking_only", "The model returned reasoning thoughts but no final response text. "),
    ],
)
def test_an_empty_answer(name: str, words: str) -> None:
    """The exit code is 0, the result is an error, and the tokens of all tries count."""
    events, report = recorded(name)
    usage = Usage(input_tokens=4000, output_tokens=400)
    problem, result = timeless(events)
    assert isinstance(problem, AgentError) and problem.text.startswith(words)
    assert result == Result(usage, is_error=True)
    assert report == AgentReport(Ended.EMPTY, usage=usage)


def test_an_empty_answer_after_a_tool() -> None:
    """It did something, but has no final message."""
    _, report = recorded("empty_after_tool")
    assert report == AgentReport(Ended.OK, usage=Usage(input_tokens=2000, output_tokens=200))


@pytest.mark.parametrize(
    ("name", "exit", "text", "detail"),
    [
        ("cut", 1, "I begin to say something", "[API Error: terminated]"),
        ("malformed", 1, "…", "[API Error: Unterminated string in JSON at position 32]"),
        ("404", 1, "", "[API Error: models/x is not found]"),
    ],
)
def test_failures(name: str, exit: int, text: str, detail: str) -> None:
    """The result reports a failure with its message."""
    events, report = recorded(name, exit=exit)
    answer = [Text(f"{text}\n")] if text else []
    assert timeless(events) == [*answer, AgentError(detail), Result(Usage(), is_error=True)]
    assert report == AgentReport(Ended.FAILED, text=text, detail=detail)


def test_too_many_turns() -> None:
    """The user's limit on turns makes it fail; its usage is known."""
    _, report = recorded("max_turns", exit=53)
    assert report.ended is Ended.FAILED
    assert report.detail.startswith("Reached max session turns for this session.")
    assert report.usage == Usage(input_tokens=2000, output_tokens=200)


def test_a_blocked_answer() -> None:
    """An answer withheld by the provider is not an empty one."""
    message = "The model response was blocked due to safety settings."
    line = {"type": "error", "severity": "error", "message": message}
    events, report = read(stream(line, {"type": "result", "status": "error"}))
    assert events == [AgentError(message), Result(Usage(), is_error=True)]
    assert (report.ended, report.detail) == (Ended.FAILED, message)


def test_a_warning_before_a_success() -> None:
    """A warning is shown, and the result counts."""
    line = {"type": "error", "severity": "warning", "message": "Loop detected, stopping execution"}
    events, report = read(stream(said("Again."), line, END))
    assert events[1] == AgentError("Loop detected, stopping execution")
    assert report.ended is Ended.OK


@pytest.mark.parametrize(
    ("exit", "ended", "detail"),
    [
        (Exit(code=0), Ended.FAILED, "exited without a result"),
        (Exit(signal=15), Ended.KILLED, "by signal 15 (SIGTERM)"),
    ],
)
def test_a_hang(exit: Exit, ended: Ended, detail: str) -> None:
    """Without a result it failed, whatever the exit code; its last line is shown."""
    events, report = recorded("hang", exit=exit)
    assert events == [Text("I begin to say something\n")]
    assert report == AgentReport(ended, text="I begin to say something", detail=detail)


def test_an_untrusted_folder() -> None:
    """The last line on stderr says why it did not even start."""
    stderr = b"\x1b[31mGemini CLI is not running in a trusted directory.\x1b[0m\n"
    _, report = read(b"", exit=55, stderr=stderr)
    assert report == AgentReport(Ended.FAILED, detail="Gemini CLI is not running in a trusted directory.")


# ---- permissions ----


@pytest.mark.parametrize("name", ["denied", "plan_mode"])
def test_all_writes_denied(name: str) -> None:
    """Tools without permission do not exist for it, or are denied by policy."""
    events, report = recorded(name)
    assert [event.is_error for event in events if isinstance(event, ToolEnd)] == [True, True, True]
    assert report.ended is Ended.DENIED
    assert '"permissions": "bypass"' in report.detail


def test_a_denied_command_with_an_edit() -> None:
    """A denial does not matter if something was written."""
    _, report = recorded("auto_edit")
    assert report.ended is Ended.OK


def test_a_denied_edit_with_a_command() -> None:
    """An agent that can run commands can write."""
    denial = {"type": "policy_violation", "message": "Tool execution denied by policy."}
    data = stream(
        *(called("write_file"), answered(status="error", error=denial)),
        *(called(id="2"), answered(id="2"), said("So be it."), END),
    )
    assert read(data)[1].ended is Ended.OK


def test_a_failed_edit_is_not_a_denial() -> None:
    """A tool that failed by itself was allowed to run."""
    error = {"type": "edit_no_occurrence_found", "message": "0 occurrences found"}
    data = stream(called("replace"), answered(status="error", error=error), said("Hm."), END)
    assert read(data)[1].ended is Ended.OK


# ---- claims ----

DECOYS = {
    "tool result": stream(called(), answered(TAG), said("Not yet."), END),
    "tool error": stream(
        called(), answered("", status="error", error={"type": "x", "message": TAG}), said("Hm."), END
    ),
    "tool input": stream(called(command=f"echo '{TAG}'"), answered(), said("Not yet."), END),
    "tool name": stream(called(TAG), answered(), said("Not yet."), END),
    "task list": stream(called("write_todos", todos=[{"description": TAG}]), answered(), END),
    "prompt echo": stream(said(TAG, role="user"), said("Not yet."), END),
    "earlier message": stream(said(TAG), called(), answered(), said("More to do."), END),
    "earlier message, nothing after it": stream(said(TAG), called(), answered(), END),
    "code fence": stream(said(f"Like this:\n```\n{TAG}\n```\n"), END),
    "quoted line": stream(said(f"> {TAG}\n"), END),
    "warning": stream({"type": "error", "severity": "warning", "message": TAG}, said("Hm."), END),
    "error message": stream(said("Hm."), refused(TAG)),
    "unknown event": stream({"type": "thought", "content": TAG}, said("Hm."), END),
    "session": stream({"type": "init", "session_id": TAG, "model": TAG}, said("Hm."), END),
    "no line of JSON": TAG.encode() + b"\n" + stream(said("Hm."), END),
    "two messages": stream(said("<response>"), called(), answered(), said("DONE</response>"), END),
}


@pytest.mark.parametrize("name", DECOYS)
def test_decoys(name: str) -> None:
    """Only the final message can contain the claim."""
    _, report = read(DECOYS[name])
    assert not report.claim


def test_decoys_of_a_real_run() -> None:
    """The tag in the prompt, thoughts, an earlier message, inputs, outputs, a fence and a quotation."""
    _, report = recorded("decoys")
    assert report.ended is Ended.OK
    assert report.text.endswith("I am not finished.")
    assert not report.claim


def test_the_tag_on_stderr() -> None:
    """Output on stderr is shown, and is not a claim."""
    events, report = read(stream(said("Hm."), END), stderr=f"{TAG}\n".encode())
    assert events[0] == Noise(f"{TAG}\n")
    assert not report.claim


@pytest.mark.parametrize(
    "lines",
    [
        (said(f"All done.\n{TAG}"),),
        (said("All done.\n<resp"), said("onse>DO"), said("NE</response>")),
        (said("Not yet."), called(), answered(), said(TAG)),
        ({"type": "thought"}, said(TAG)),
    ],
)
def test_claims(lines: tuple[dict[str, Any], ...]) -> None:
    """The tag in the final message is the claim, however many pieces it comes in."""
    _, report = read(stream(*lines, END))
    assert report.claim


# ---- unreadable lines ----


@pytest.mark.parametrize(
    "line", [b"{", b"null", b"Loaded cached credentials.", b'{"type":"thought"}', b'{"type":1}', b"\xff\xfe"]
)
def test_unknown_lines(line: bytes) -> None:
    """They are counted and shown, and the rest is read."""
    events, report = read(line + b"\n" + stream(said(TAG), END))
    assert isinstance(events[0], Unread)
    assert (report.ended, report.claim, report.unread) == (Ended.OK, True, 1)


@given(st.data())
def test_damaged_streams(data: st.DataObject) -> None:
    """A damaged stream is read to its end, and means the same however it is split."""
    name = data.draw(st.sampled_from(["work", "decoys", "daily_quota", "denied"]))
    whole = bytearray(raw(name))
    for _ in range(data.draw(st.integers(1, 5))):
        start = data.draw(st.integers(0, len(whole) - 1))
        whole[start : start + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=20))
    exit = data.draw(st.sampled_from([0, 1, 41, 173]))
    size = data.draw(st.integers(1, len(whole)))
    pieces = (bytes(whole[start : start + size]) for start in range(0, len(whole), size))
    assert read(*pieces, exit=exit) == read(bytes(whole), exit=exit)
