"""Codex: its command line, and the meaning of its recorded streams."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.agent_support import PROMPT, STREAMS, TAG, Bench, Read, body, stream
from ralph.agents.base import AgentReport
from ralph.agents.codex import Codex
from ralph.agents.registry import AGENTS, type_of
from ralph.core.events import (
    AgentError,
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
    AgentSpec,
    Ended,
    Exit,
    LimitKind,
    Permissions,
    PromptVia,
    Purpose,
    TodoStatus,
    Usage,
)

NOW = datetime(2026, 11, 15, 22, 47).timestamp()
CODEX = Bench("codex", NOW, PROMPT)
spec, argv, read, raw = CODEX.spec, CODEX.argv, CODEX.read, CODEX.raw


def recorded(name: str, *, exit: int = 0, stderr: bytes = b"", agent: AgentSpec | None = None) -> Read:
    events, report = read(raw(name), exit=exit, stderr=stderr, agent=agent)
    assert isinstance(events[0], AgentProgress | Noise)
    return [event for event in events if not isinstance(event, AgentProgress | Noise)], report


def item(kind: str, state: str = "completed", id: str = "item_0", **values: Any) -> dict[str, Any]:
    return {"type": f"item.{state}", "item": {"id": id, "type": kind, **values}}


def said(text: str) -> dict[str, Any]:
    return item("agent_message", text=text)


END = {"type": "turn.completed", "usage": {"input_tokens": 10, "output_tokens": 1}}


# ---- the command line ----


@pytest.mark.parametrize("purpose", Purpose)
def test_the_prompt_is_on_stdin_and_the_stream_is_structured(purpose: Purpose) -> None:
    """Work and commit messages use `--json`, which alone reports tokens and limits. Only work keeps a session."""
    unkept = [] if purpose is Purpose.WORK else ["--ephemeral"]
    words = ["exec", "--json", "--skip-git-repo-check", *unkept, "--sandbox", "workspace-write", "--", "-"]
    assert argv(spec(), purpose) == ["codex", *words]
    assert argv(spec(*unkept), purpose).count("--ephemeral") == len(unkept)


@pytest.mark.parametrize(
    ("permissions", "words"),
    [
        (Permissions.EDIT, ["--sandbox", "workspace-write"]),
        (Permissions.BYPASS, ["--dangerously-bypass-approvals-and-sandbox"]),
        (Permissions.NONE, []),
    ],
)
def test_permissions(permissions: Permissions, words: list[str]) -> None:
    """The CLI's own flags set the permissions."""
    started = argv(spec("-m", "gpt-5.5", permissions=permissions))
    assert started == ["codex", "exec", "--json", "--skip-git-repo-check", *words, "-m", "gpt-5.5", "--", "-"]


@pytest.mark.parametrize(
    "flags",
    [
        ("-s", "read-only"),
        ("--sandbox=danger-full-access",),
        ("--approve-for-me",),
        ("--yolo",),
        ("--dangerously-bypass-approvals-and-sandbox",),
        ("-c", 'sandbox_mode="workspace-write"'),
    ],
)
def test_own_permission_flags_win(flags: tuple[str, ...]) -> None:
    """Ralph adds no permission flags if the user passes one."""
    started = argv(spec(*flags))
    assert started == ["codex", "exec", "--json", "--skip-git-repo-check", *flags, "--", "-"]


def test_a_prompt_as_argument() -> None:
    """It is text, never a file to read, and may start with a dash."""
    started = argv(spec(via=PromptVia.ARGUMENT), prompt="- do it")
    assert started[-2:] == ["--", "- do it"]


def test_it_is_known_by_its_name() -> None:
    """The base name of the command decides."""
    assert isinstance(AGENTS[type_of("/opt/bin/codex")], Codex)


# ---- recorded streams ----


def test_work() -> None:
    """Thinking, text, edits, commands and the final message, with cached tokens counted separately."""
    events, report = recorded("work")
    added, changed = ([{"path": "/home/dev/work/a.txt", "kind": kind}] for kind in ("add", "update"))
    usage = Usage(input_tokens=1800, output_tokens=125, cache_read_tokens=4200)
    assert events == [
        Text("**Planning** the file\n", thinking=True),
        Text("I will make a file.\n"),
        ToolStart("item_2", "apply_patch", body(added)),
        ToolEnd("item_2", body("")),
        ToolStart("item_3", "shell", body("/bin/bash -lc 'cat a.txt'")),
        ToolEnd("item_3", body("one\ntwo\n")),
        ToolStart("item_4", "apply_patch", body(changed)),
        ToolEnd("item_4", body("")),
        ToolStart("item_5", "shell", body("/bin/bash -lc 'grep -c missing a.txt; exit 3'")),
        ToolEnd("item_5", body("0\n"), is_error=True),
        Text(f"All is done.\n\n{TAG}\n"),
        Result(usage),
    ]
    assert report == AgentReport(Ended.OK, claim=True, text=f"All is done.\n\n{TAG}", usage=usage)


def test_a_task_list() -> None:
    """The list is reported when it changes, but not again at the end; no entry is marked as active."""
    events, report = recorded("todo")
    write, test = "Write the file", "Test it"
    assert [event for event in events if isinstance(event, Todo)] == [
        Todo((TodoItem(write, TodoStatus.PENDING), TodoItem(test, TodoStatus.PENDING))),
        Todo((TodoItem(write, TodoStatus.DONE), TodoItem(test, TodoStatus.PENDING))),
    ]
    assert report.text == "Half of it is done."


def test_tools_of_an_mcp_server() -> None:
    """A tool has its server's name; a failed one shows its error."""
    events, report = recorded("mcp")
    assert events[:-2] == [
        ToolStart("item_0", "notes.look_up", body({"name": "plan"})),
        ToolEnd("item_0", body([{"type": "text", "text": "note: plan"}])),
        ToolStart("item_1", "notes.look_up", body({"name": "bad"})),
        ToolEnd("item_1", body([{"type": "text", "text": "note: bad"}]), is_error=True),
    ]
    assert report.ended is Ended.OK


def test_an_mcp_server_that_does_not_answer() -> None:
    """Without a result there is an error to show."""
    failed: dict[str, Any] = {"result": None, "error": {"message": "timed out"}, "status": "failed"}
    events, _ = read(stream(item("mcp_tool_call", server="notes", tool="look_up", arguments={}, **failed)))
    assert events == [
        ToolStart("item_0", "notes.look_up", body({})),
        ToolEnd("item_0", body({"message": "timed out"}), is_error=True),
    ]


def test_a_subagent() -> None:
    """A warning is shown as a problem and is not a failure; a subagent is a tool."""
    events, report = recorded("subagent")
    assert events[:3] == [
        AgentError(
            "Model metadata for `gpt-5.1` not found. Defaulting to fallback metadata; "
            "this can degrade performance and cause issues."
        ),
        Text("A helper does it.\n"),
        ToolStart("item_2", "spawn_agent", body("Say hello")),
    ]
    assert report.ended is Ended.OK


def test_retries_that_help() -> None:
    """An answer after a retry is a success; the cause of the retry is not a limit."""
    events, report = recorded("retry")
    assert events[0] == Retry("rate limit exceeded: Rate limit reached. Please try again in 1s.", 1, 5)
    assert report == AgentReport(
        Ended.OK, claim=True, text=TAG, usage=Usage(input_tokens=1000, output_tokens=100)
    )


def test_no_network() -> None:
    """Waiting for the network is an endless retry without a result."""
    events, report = recorded("no_network", exit=1)
    why = "waiting for network (Connection failed: error sending request)"
    assert events == [Retry(why), Retry(why)]
    assert report.ended is Ended.FAILED


# ---- limits ----


def test_a_usage_limit_until_today() -> None:
    """The refusal is reported once, with the reset time; the text is from the real Codex."""
    events, report = recorded("usage_limit", exit=1)
    reset = datetime(2026, 11, 15, 22, 57).timestamp()
    refused, result = events
    assert isinstance(refused, Limited)
    assert (refused.kind, refused.retry_at) == (LimitKind.USAGE, reset)
    assert refused.text.startswith("You’ve hit your usage limit. Upgrade to Pro")
    assert result == Result(Usage(), is_error=True)
    assert (report.ended, report.retry_at, report.detail) == (Ended.LIMIT, reset, refused.text)


def test_a_usage_limit_for_several_days() -> None:
    """A later reset has a date."""
    _, report = recorded("usage_limit_far", exit=1)
    reset = datetime(2026, 11, 20, 13, 53).timestamp()
    assert (report.ended, report.retry_at) == (Ended.LIMIT, reset)


@pytest.mark.parametrize(
    ("name", "kind", "ended", "retry_at"),
    [
        ("429", LimitKind.RATE, Ended.LIMIT, None),
        ("rate", LimitKind.RATE, Ended.LIMIT, NOW + 1.5),
        ("503", LimitKind.OVERLOAD, Ended.LIMIT, None),
        ("500", LimitKind.OVERLOAD, Ended.LIMIT, None),
        ("quota", LimitKind.CREDIT, Ended.AUTH, None),
        ("no_plan", LimitKind.CREDIT, Ended.AUTH, None),
        ("401", LimitKind.AUTH, Ended.AUTH, None),
        ("no_key", LimitKind.AUTH, Ended.AUTH, None),
    ],
)
def test_limits(name: str, kind: LimitKind, ended: Ended, retry_at: float | None) -> None:
    """Every kind of refusal that the real Codex reports, in its own words."""
    events, report = recorded(name, exit=1)
    limits = [event for event in events if isinstance(event, Limited)]
    assert [(limit.kind, limit.retry_at) for limit in limits] == [(kind, retry_at)]
    assert (report.ended, report.claim) == (ended, False)


@pytest.mark.parametrize(
    "words",
    [
        "You hit your spend cap set by the owner of your workspace.",
        "Your workspace is out of credits. Add credits to continue using Codex.",
    ],
)
def test_credit_in_other_words(words: str) -> None:
    """A problem that only a workspace owner can fix is not waited for; these messages are in the binary."""
    _, report = read(stream({"type": "error", "message": words}, failed(words)), exit=1)
    assert report.ended is Ended.AUTH


def failed(words: str) -> dict[str, Any]:
    return {"type": "turn.failed", "error": {"message": words}}


def test_a_bad_request_that_names_a_file() -> None:
    """`rate_limit.ts` in an error message is not a limit."""
    events, report = recorded("400", exit=1)
    assert [type(event) for event in events] == [AgentError, Result]
    assert report.ended is Ended.FAILED
    assert "The rate_limit.ts file is too long." in report.detail


@pytest.mark.parametrize(
    "words", ["ratelimit.ts", "rate limit exceeded", "You've hit your usage limit", "429 Too Many Requests"]
)
def test_look_alikes(words: str) -> None:
    """Text from tools and the model is never a limit, even if the turn fails afterwards."""
    lines = (
        item(
            "command_execution", command=f"cat {words}", aggregated_output=words, exit_code=1, status="failed"
        ),
        item("reasoning", text=words),
        said(words),
    )
    for last in (END, failed("the stream was lost")):
        events, report = read(stream(*lines, last), exit=last is not END)
        assert not [event for event in events if isinstance(event, Limited)]
        assert report.ended is (Ended.OK if last is END else Ended.FAILED)


# ---- how it ends ----


def test_a_cut_connection() -> None:
    """A stream that is cut repeatedly fails, with Codex's own message."""
    events, report = recorded("cut", exit=1)
    why = (
        "stream disconnected before completion: Transport error: network error: error decoding response body"
    )
    assert events == [
        *(Retry(why, attempt, 5) for attempt in range(1, 6)),
        AgentError(why),
        Result(Usage(), is_error=True),
    ]
    assert report == AgentReport(Ended.FAILED, detail=why)


def test_an_empty_answer() -> None:
    """A turn without a message and without a tool is empty."""
    events, report = recorded("empty")
    usage = Usage(input_tokens=1000, output_tokens=100)
    assert (events, report) == ([Result(usage)], AgentReport(Ended.EMPTY, usage=usage))


def test_a_hang() -> None:
    """A stream that stops without a result is not over, and not a success whatever its exit code is."""
    parser = CODEX.parser()
    parser.stdout(raw("hang"))
    assert not parser.is_over
    _, report = parser.finish(Exit(signal=15, ended=Ended.IDLE))
    assert (report.ended, report.claim) == (Ended.KILLED, False)
    assert recorded("hang")[1].ended is Ended.FAILED


def test_over_with_the_result() -> None:
    """The result is known before the process exits; another turn withdraws it."""
    parser = CODEX.parser()
    parser.stdout(stream({"type": "turn.started"}, said("It is done.")))
    assert not parser.is_over
    parser.stdout(stream(END))
    assert parser.is_over
    parser.stdout(stream({"type": "turn.started"}))
    assert not parser.is_over
    assert parser.finish(Exit(code=0))[1].ended is Ended.FAILED


def test_tokens_of_two_turns_are_not_added() -> None:
    """Each turn reports the tokens of the whole thread."""
    more = {"input_tokens": 30, "cached_input_tokens": 20, "cache_write_input_tokens": 4, "output_tokens": 3}
    _, report = read(stream(said("one"), END, {"type": "turn.started"}, said("two"), END | {"usage": more}))
    expected = Usage(input_tokens=6, output_tokens=3, cache_read_tokens=20, cache_write_tokens=4)
    assert (report.usage, report.text) == (expected, "two")


def test_a_flag_that_codex_does_not_know() -> None:
    """If it only prints to stderr, the line with the error is the reason, not the last line."""
    words = b"error: unexpected argument '--full-auto' found\n\nFor more information, try '--help'.\n"
    _, report = read(b"", exit=2, stderr=words)
    assert (report.ended, report.detail) == (Ended.FAILED, "error: unexpected argument '--full-auto' found")


# ---- denied ----

REJECTED = (
    b"2026-11-15T22:46:29.485878Z ERROR codex_core::tools::router: error=patch rejected: "
    b"writing is blocked by read-only sandbox; rejected by user approval settings\n"
)
NONE = spec(permissions=Permissions.NONE)


def test_a_rejected_patch() -> None:
    """Codex reports a rejected patch only on stderr; the advice names the setting."""
    _, report = recorded("denied", stderr=REJECTED, agent=NONE)
    assert report.ended is Ended.DENIED
    assert '"permissions": "edit"' in report.detail


def test_a_command_in_a_read_only_sandbox() -> None:
    """Its exit code is 0, and its output shows what happened."""
    assert recorded("denied_command", agent=NONE)[1].ended is Ended.DENIED
    assert recorded("denied_command")[1].ended is Ended.OK


def test_a_patch_outside_the_project() -> None:
    """With permission to edit, the advice is to bypass."""
    _, report = recorded("denied_outside", stderr=REJECTED)
    assert report.ended is Ended.DENIED
    assert '"permissions": "bypass"' in report.detail


@pytest.mark.parametrize(
    "worked",
    [
        item("file_change", changes=[{"path": "/a", "kind": "add"}], status="completed"),
        item("command_execution", command="make", aggregated_output="", exit_code=0, status="completed"),
    ],
)
def test_not_everything_was_denied(worked: dict[str, Any]) -> None:
    """One successful write, or a command that may have written something, means it was not denied."""
    assert read(stream(worked, said("Done in part."), END), stderr=REJECTED)[1].ended is Ended.OK


# ---- claims ----


def shell(command: str, output: str) -> Sequence[dict[str, Any]]:
    values: dict[str, Any] = {
        "command": command,
        "aggregated_output": output,
        "exit_code": 0,
        "status": "completed",
    }
    return (item("command_execution", "started", **values), item("command_execution", **values))


DECOYS = {
    "tool result": stream(*shell("cat notes", TAG), said("I have read it."), END),
    "tool input": stream(*shell(f"echo {TAG} > x", ""), said("I have written it."), END),
    "patch": stream(item("file_change", changes=[{"path": TAG, "kind": "add"}]), said("Written."), END),
    "reasoning": stream(item("reasoning", text=TAG), said("I continue."), END),
    "prompt echo": stream(said(f"You said: {PROMPT}"), END),
    "earlier message": stream(said(TAG), *shell("ls", ""), said("There is more to do."), END),
    "message before a tool": stream(said(TAG), *shell("ls", ""), END),
    "code fence": stream(said(f"```\n{TAG}\n```"), END),
    "quoted line": stream(said(f"> {TAG}"), END),
    "inline code": stream(said(f"I will say `{TAG}` later."), END),
    "error": stream(said("I try."), {"type": "error", "message": TAG}, failed(TAG)),
    "retry": stream(said("I try."), {"type": "error", "message": f"Reconnecting... 1/5 ({TAG})"}, END),
    "warning": stream(said("I try."), item("error", message=TAG), END),
    "task list": stream(said("A plan."), item("todo_list", items=[{"text": TAG, "completed": True}]), END),
    "unknown event": stream(said("I try."), {"type": "item.plan.delta", "delta": TAG}, END),
    "unknown item": stream(said("I try."), item("user_message", text=TAG), END),
    "unfinished message": stream(item("agent_message", "started", text=TAG), said("I try."), END),
    "no JSON": TAG.encode() + b"\n" + stream(said("I try."), END),
    "subagent": stream(item("collab_tool_call", tool="wait", prompt=TAG), said("I wait."), END),
}


@pytest.mark.parametrize("name", DECOYS)
def test_decoys(name: str) -> None:
    """The tag anywhere but in the final message is not a claim."""
    assert not read(DECOYS[name])[1].claim


def test_decoys_of_a_real_run() -> None:
    """The real Codex reads a file with the tag, echoes it, thinks it and quotes it: no claim and no limit."""
    events, report = recorded("decoys")
    assert (report.ended, report.claim) == (Ended.OK, False)
    assert not [event for event in events if isinstance(event, Limited)]


def test_the_tag_on_stderr() -> None:
    """Output on stderr is noise."""
    events, report = read(stream(said("I try."), END), stderr=f"{TAG}\n".encode())
    assert (events[0], report.claim) == (Noise(f"{TAG}\n"), False)


@pytest.mark.parametrize(
    "lines",
    [
        (said(TAG), END),
        (said("More."), *shell("ls", ""), said(f"Done.\n{TAG}"), END),
        (said(TAG), item("reasoning", text="That was it."), item("todo_list", items=[]), END),
    ],
)
def test_claims(lines: tuple[dict[str, Any], ...]) -> None:
    """The tag in the final message is a claim."""
    assert read(stream(*lines))[1].claim


# ---- unreadable lines ----


@pytest.mark.parametrize(
    "line",
    [
        b"no JSON",
        b'{"type":"something.new"}',
        b'{"type":"item.completed","item":{"id":"item_9","type":"something_new"}}',
        b'{"type":"item.completed"}',
        b'{"type":"item.completed","item":{"type":"agent_message","text":7}}',
        b'{"type":"turn.completed","usage":{"input_tokens":"many"}}',
        b"\xff\xfe",
    ],
)
def test_unknown_lines(line: bytes) -> None:
    """They are counted and shown, and the rest is still read."""
    events, report = read(line + b"\n" + stream(said(TAG), END))
    assert isinstance(events[0], Unread)
    assert (report.unread, report.claim, report.ended) == (1, True, Ended.OK)


RECORDED = b"".join(path.read_bytes() for path in sorted(STREAMS.glob("codex_*.ndjson")))


@given(st.data())
def test_damaged_streams(data: st.DataObject) -> None:
    """A damaged stream is read to its end, and means the same however it is split."""
    start = data.draw(st.integers(0, len(RECORDED)))
    end = data.draw(st.integers(start, min(len(RECORDED), start + 200)))
    damaged = RECORDED[:start] + data.draw(st.binary(max_size=20)) + RECORDED[end:]
    cut = data.draw(st.integers(0, len(damaged)))
    assert read(damaged[:cut], damaged[cut:], agent=NONE) == read(damaged, agent=NONE)
