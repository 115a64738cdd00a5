"""Claude Code: its command line, and the meaning of its recorded streams."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.agent_support import TAG, WELL, Bench, Read, body, stream, timeless
from ralph.agents.base import AgentReport
from ralph.agents.claude import Claude
from ralph.agents.registry import AGENTS, announced_permissions, type_of
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
    Ended,
    Exit,
    LimitKind,
    Permissions,
    PromptVia,
    Purpose,
    TodoStatus,
    Usage,
)

STREAM = ["-p", "--output-format", "stream-json", "--verbose"]
WRITTEN = "File created successfully at: {} (file state is current in your context — no need to Read it back)"

CLAUDE = Bench("claude", 1794783600.0)
spec, argv, new_parser, read, raw = CLAUDE.spec, CLAUDE.argv, CLAUDE.parser, CLAUDE.read, CLAUDE.raw


def recorded(name: str, exit: Exit = WELL) -> Read:
    """A recorded stream without timestamps and without its session event."""
    events, report = read(raw(name), exit=exit)
    assert report.unread == 0
    return [event for event in timeless(events) if not isinstance(event, AgentProgress)], report


def bash(number: int, command: str, *, part: int = 1, inside: str = "") -> ToolStart:
    input = body({"command": command, "description": "Run a command"})
    return ToolStart(f"toolu_{number:06d}_{part}", "Bash", input, inside)


def ended(number: int, output: Any, *, part: int = 1, is_error: bool = False) -> ToolEnd:
    return ToolEnd(f"toolu_{number:06d}_{part}", body(output), is_error)


def asked(requests: int) -> Usage:
    """The usage of this number of answers of the scripted model."""
    return Usage(sum([0.006] * requests), 1000 * requests, 100 * requests)


def said(text: str, id: str = "msg_1", **more: Any) -> dict[str, Any]:
    return {
        "type": "assistant",
        "message": {"id": id, "content": [{"type": "text", "text": text}]},
        "parent_tool_use_id": None,
    } | more


RESULT: dict[str, Any] = {"subtype": "success", "is_error": False, "result": "", "type": "result"}


# ---- the command line ----


@pytest.mark.parametrize("purpose", Purpose)
def test_the_prompt_is_on_stdin_and_the_stream_is_structured(purpose: Purpose) -> None:
    """Both use a stream, as in text mode a limit looks like an answer. Only work keeps a session."""
    unkept = [] if purpose is Purpose.WORK else ["--no-session-persistence"]
    assert argv(spec(), purpose) == ["claude", *STREAM, *unkept, "--permission-mode", "acceptEdits"]
    assert argv(spec(*unkept), purpose).count("--no-session-persistence") == len(unkept)


@pytest.mark.parametrize(
    ("permissions", "words"),
    [
        (Permissions.EDIT, ["--permission-mode", "acceptEdits"]),
        (Permissions.BYPASS, ["--dangerously-skip-permissions"]),
        (Permissions.NONE, []),
    ],
)
def test_permissions(permissions: Permissions, words: list[str]) -> None:
    """The CLI's own flags set the permissions, before the user's flags."""
    agent = spec("--model", "opus", permissions=permissions)
    assert argv(agent) == ["claude", *STREAM, *words, "--model", "opus"]
    assert announced_permissions(agent) is permissions


@pytest.mark.parametrize(
    "flags", [("--permission-mode", "plan"), ("--permission-mode=plan",), ("--dangerously-skip-permissions",)]
)
def test_own_permission_flags_win(flags: tuple[str, ...]) -> None:
    """Ralph adds no permission flags if the user passes one, and announces none."""
    assert argv(spec(*flags)) == ["claude", *STREAM, *flags]
    assert announced_permissions(spec(*flags)) is None


def test_allowed_tools_are_not_a_permission_mode() -> None:
    """Tools that the user allows are added to what Ralph permits."""
    words = ["--permission-mode", "acceptEdits", "--allowedTools", "Bash"]
    assert argv(spec("--allowedTools", "Bash")) == ["claude", *STREAM, *words]


def test_a_prompt_as_argument() -> None:
    """It may start with a dash, and no flag before it consumes it."""
    words = argv(spec("--allowedTools", "Bash", via=PromptVia.ARGUMENT), prompt="- do it")
    assert words[-4:] == ["--allowedTools", "Bash", "--", "- do it"]


@pytest.mark.parametrize("command", ["claude", "/opt/bin/claude"])
def test_it_is_known_by_its_name(command: str) -> None:
    """The base name of the command decides."""
    assert (type_of(command), isinstance(AGENTS["claude"], Claude)) == ("claude", True)


# ---- recorded streams: work ----


def test_work() -> None:
    """Thinking, text and tools come in order, a tool's end has the id of its start, and the tag is a claim."""
    events, report = recorded("work")
    usage = Usage(0.019799999999999998, 3200, 340, 1000)
    assert events == [
        Text("First I look around.\n", thinking=True),
        Text("I look around.\n"),
        bash(1, "expr 40000 + 2718; exit 3"),
        ended(1, "Exit code 3\n42718", is_error=True),
        ToolStart("toolu_000002_1", "Write", body({"file_path": "hello.txt", "content": "one\ntwo\n"})),
        ended(2, WRITTEN.format("hello.txt")),
        Text("Now the second line.\n"),
        ToolStart(
            "toolu_000003_1",
            "Edit",
            body(
                {
                    "replace_all": False,
                    "file_path": "hello.txt",
                    "old_string": "two",
                    "new_string": "three",
                }
            ),
        ),
        ToolStart("toolu_000003_2", "Read", body({"file_path": "hello.txt"})),
        ended(
            3,
            "The file hello.txt has been updated successfully. "
            "(file state is current in your context — no need to Read it back)",
        ),
        ended(3, "1\tone\n2\tthree\n3\t", part=2),
        Text(f"All is done. {TAG}\n"),
        Result(usage),
    ]
    assert report == AgentReport(Ended.OK, True, f"All is done. {TAG}", usage)


def test_times_and_session() -> None:
    """Each event has the time from the stream; the session and the model come first."""
    events, _ = read(raw("work"))
    first, *rest = events
    assert isinstance(first, AgentProgress)
    assert first.text.startswith("session ") and first.text.endswith(", claude-opus-5-5")
    times = [event.at for event in rest if isinstance(event, Text | ToolStart | ToolEnd)]
    known = [time for time in times if time is not None]
    assert len(known) == len(times) == 12
    assert known == sorted(known)


def test_a_stop_hook_that_blocks() -> None:
    """Its reason is shown, so that people see why the agent continues. Earlier text is no longer a claim."""
    reason = "Stop hook feedback:\nThis iteration cannot end yet."
    blocked = {"type": "user", "message": {"content": [{"type": "text", "text": reason}]}}
    other = {"type": "user", "message": {"content": [{"type": "text", "text": "Something else."}]}}
    lines = said(f"Done. {TAG}"), blocked, other, said("Not yet.", "msg_2"), RESULT
    events, report = read(stream(*lines))
    assert [event for event in events if isinstance(event, AgentProgress)] == [AgentProgress(reason)]
    assert (report.ended, report.claim, report.unread) == (Ended.OK, False, 0)


def test_an_agent_inside_the_agent() -> None:
    """A subagent's tools are marked as such, its tag is not a claim, and its tokens count."""
    events, report = recorded("subagent")
    agent, inner = events[1], events[2]
    assert isinstance(agent, ToolStart) and (agent.name, agent.inside) == ("Agent", "")
    assert inner == bash(2, "wc -w notes.md", inside=agent.id)
    assert events[3] == ended(2, "2 notes.md")
    back = events[4]
    assert isinstance(back, ToolEnd) and back.id == agent.id and f"Two words. {TAG}" in back.output.text
    assert events[5:] == [Text("It says that there are two words.\n"), Result(asked(4))]
    assert report == AgentReport(Ended.OK, False, "It says that there are two words.", asked(4))


PENDING, ACTIVE, DONE = TodoStatus.PENDING, TodoStatus.ACTIVE, TodoStatus.DONE


def test_tasks_that_change_one_by_one() -> None:
    """The task tools change one entry each; every change reports the whole list."""
    events, _ = recorded("tasks")
    assert [event for event in events if isinstance(event, Todo)] == [
        Todo((TodoItem("Write the file", PENDING),)),
        Todo((TodoItem("Write the file", PENDING), TodoItem("Check it", PENDING))),
        Todo((TodoItem("Write the file", ACTIVE), TodoItem("Check it", PENDING))),
        Todo((TodoItem("Write the file", DONE), TodoItem("Check it", PENDING))),
        Todo((TodoItem("Write the file", DONE),)),
    ]


def test_a_list_that_is_written_as_a_whole() -> None:
    """TodoWrite sends the current list."""
    events, _ = recorded("todos")
    assert events[0] == Todo((TodoItem("Write the file", ACTIVE), TodoItem("Check it", PENDING)))


def test_a_task_in_the_background() -> None:
    """It continues after its result: cost and tokens are those of both turns, and the claim of the first is gone."""
    events, report = recorded("background")
    assert [event for event in events if isinstance(event, Text | Result)] == [
        Text(f"It runs. {TAG}\n"),
        Result(asked(2)),
        Text("Now it is over.\n"),
        Result(asked(3)),
    ]
    assert report == AgentReport(Ended.OK, False, "Now it is over.", asked(3))


def test_it_is_over_with_each_result() -> None:
    """After a result it should exit soon, unless it continues."""
    parser, states = new_parser(), []
    for line in raw("background").splitlines(keepends=True):
        parser.stdout(line)
        states.append(parser.is_over)
    changes = [after for before, after in pairwise([False, *states]) if before != after]
    assert changes == [True, False, True]


def test_a_second_turn_that_is_killed_is_not_a_success() -> None:
    """The result of the first turn does not count for the second."""
    head = raw("background").partition(b"Now it is over.")[0].rpartition(b"\n")[0]
    data = head + b"\n" + stream(said("And now", "msg_9"))
    assert read(data, exit=Exit(signal=9))[1].ended is Ended.KILLED


# ---- refusals ----


def test_a_usage_limit_with_its_reset() -> None:
    """A subscriber's limit has a structured event with the reset time."""
    events, report = recorded("usage_limit_subscriber", Exit(1))
    words = "You've hit your 5-hour limit · resets 1:01am (UTC)"
    assert events == [
        Limited(LimitKind.USAGE, words, 1794790860.0),
        Result(Usage(), is_error=True),
    ]
    assert report == AgentReport(Ended.LIMIT, retry_at=1794790860.0, detail=words)


def test_a_usage_limit_without_a_structured_event() -> None:
    """Without the structured event the same reset time is read from the text."""
    lines = [line for line in raw("usage_limit_subscriber").splitlines() if b"resetsAt" not in line]
    _, report = read(b"\n".join(lines), exit=Exit(1))
    assert (report.ended, report.retry_at) == (Ended.LIMIT, 1794790860.0)


REJECTED = "API Error: Request rejected (429) · "
LATER = (
    "This is a server-side issue, usually temporary — try again in a moment. "
    "If it persists, check your inference gateway (127.0.0.1:8080)."
)


@pytest.mark.parametrize(
    ("name", "kind", "ended", "words"),
    [
        (
            "usage_limit",
            LimitKind.RATE,
            Ended.LIMIT,
            f"{REJECTED}This request would exceed your account's rate limit. Please try again later.",
        ),
        (
            "rate",
            LimitKind.RATE,
            Ended.LIMIT,
            f"{REJECTED}Number of request tokens has exceeded your per-minute rate limit",
        ),
        ("overload", LimitKind.OVERLOAD, Ended.LIMIT, f"API Error: 529 Overloaded. {LATER}"),
        ("auth", LimitKind.AUTH, Ended.AUTH, "Invalid API key · Fix external API key"),
        ("not_logged_in", LimitKind.AUTH, Ended.AUTH, "Not logged in · Please run /login"),
        ("credit", LimitKind.CREDIT, Ended.AUTH, "Credit balance is too low"),
    ],
)
def test_a_refusal_has_its_kind(name: str, kind: LimitKind, ended: Ended, words: str) -> None:
    """Ralph waits for limits that pass; a missing key or credit ends the run."""
    events, report = recorded(name, Exit(1))
    assert events[-2:] == [Limited(kind, words), Result(Usage(), is_error=True)]
    assert report == AgentReport(ended, detail=words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("server_error", f"API Error: 500 Internal server error. {LATER}"),
        ("bad_request", "API Error: 400 messages: at least one message is required"),
        (
            "cut_forever",
            "API Error: Connection to the API was lost (ECONNRESET). This is usually temporary — try again.",
        ),
    ],
)
def test_a_failure_that_is_not_a_refusal(name: str, words: str) -> None:
    """An error is reported once, and the iteration fails with its message."""
    events, report = recorded(name, Exit(1))
    assert events[-2:] == [AgentError(words), Result(Usage(), is_error=True)]
    assert report == AgentReport(Ended.FAILED, detail=words)


@pytest.mark.parametrize(
    ("name", "why", "seconds"), [("retry", "overloaded (529)", 0.586), ("cut", "unknown", 0.589)]
)
def test_a_retry_that_succeeds(name: str, why: str, seconds: float) -> None:
    """Problems that the CLI fixes by itself are reported and are not failures."""
    events, report = recorded(name)
    assert events == [Retry(why, 1, 10, seconds), Text("found again\n"), Result(asked(1))]
    assert report == AgentReport(Ended.OK, False, "found again", asked(1))


def test_a_rejected_key_is_not_retried_ten_times() -> None:
    """The second rejection in a row is final: the process is not needed any more."""
    parser = new_parser()
    *lines, second, third, fourth = raw("auth_retries").splitlines(keepends=True)
    for line in lines:
        parser.stdout(line)
    assert not parser.is_refused
    words = "API key or login rejected: authentication_failed (401)"
    assert parser.stdout(second) == [Limited(LimitKind.AUTH, words)]
    assert parser.is_refused and not parser.is_over
    _, report = parser.finish(Exit(code=143, ended=Ended.OK))
    assert (report.ended, report.detail) == (Ended.AUTH, words)
    assert third and fourth, "without Ralph it continued"


def test_a_token_that_is_renewed() -> None:
    """One rejection may be an expired token: the CLI renews it and continues."""
    events, report = recorded("auth_renewed")
    assert isinstance(events[0], Retry)
    assert (events[1:], report.ended) == ([Text("found again\n"), Result(asked(1))], Ended.OK)


LOOK_ALIKES = [
    "src/ratelimit.ts",
    "rate limit",
    "You've hit your usage limit · resets 1am (UTC)",
    "429",
    "401",
]


@pytest.mark.parametrize("words", LOOK_ALIKES)
def test_what_only_looks_like_a_limit(words: str) -> None:
    """Text from the model and its tools is never a limit, even if the process fails afterwards."""
    tool = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": words}}
    output = {"type": "tool_result", "tool_use_id": "t", "content": words, "is_error": True}
    data = stream(
        said(words),
        {"type": "assistant", "message": {"id": "msg_1", "content": [tool]}},
        {"type": "user", "message": {"role": "user", "content": [output]}},
        said(words, "msg_2"),
    )
    failed = RESULT | {"is_error": True, "subtype": "error_max_turns", "errors": ["Reached maximum turns"]}
    for end, exit, expected in (
        ([RESULT | {"result": words}], Exit(0), Ended.OK),
        ([failed], Exit(1), Ended.FAILED),
        ([], Exit(1), Ended.FAILED),
        ([], Exit(signal=9), Ended.KILLED),
    ):
        events, report = read(data + stream(*end), exit=exit)
        assert report.ended is expected
        assert not any(isinstance(event, Limited) for event in events)


def test_a_warning_about_a_window_is_not_a_limit() -> None:
    """Only a rejected window is a limit, and only until it is allowed again."""
    info: dict[str, Any] = {"resetsAt": 1794790860, "rateLimitType": "five_hour"}
    warned = {"type": "rate_limit_event", "rate_limit_info": info | {"status": "allowed_warning"}}
    rejected = {"type": "rate_limit_event", "rate_limit_info": info | {"status": "rejected"}}
    failed = RESULT | {"is_error": True, "result": "API Error: 500 Internal server error"}
    assert read(stream(warned, failed), exit=Exit(1))[1].ended is Ended.FAILED
    assert read(stream(rejected, warned, failed), exit=Exit(1))[1].ended is Ended.FAILED
    assert read(stream(rejected, failed), exit=Exit(1))[1].retry_at == 1794790860.0


def test_a_limit_on_stderr() -> None:
    """Without a stream, the last line on stderr is all that is known."""
    events, report = read(b"", exit=Exit(1), stderr=b"Invalid API key\n")
    assert events == [Noise("Invalid API key\n"), Limited(LimitKind.AUTH, "Invalid API key")]
    assert report.ended is Ended.AUTH


# ---- other ends ----


def test_denied() -> None:
    """Without permissions every write is refused, and the message names the setting to change."""
    events, report = recorded("denied")
    refused = (
        "Claude requested permissions to write to /home/dev/project/a.txt, but you haven't granted it yet."
    )
    assert events[1] == ended(1, refused, is_error=True)
    assert (report.ended, report.text) == (Ended.DENIED, "I may not write anything.")
    assert report.detail == (
        "every change the agent tried was denied (Write, Bash): "
        'set "agent": {"permissions": "bypass"}, or allow these tools in "flags"'
    )


@pytest.mark.parametrize(
    ("name", "expected"), [("denied_command", Ended.DENIED), ("denied_some", Ended.OK), ("work", Ended.OK)]
)
def test_denied_only_if_nothing_was_changed(name: str, expected: Ended) -> None:
    """Reading is not a change; a command that moved a file is one."""
    assert recorded(name)[1].ended is expected


def test_a_commit_message_needs_no_permission() -> None:
    """A request for text alone does not depend on permissions."""
    parser = new_parser(purpose=Purpose.MESSAGE)
    parser.stdout(raw("denied"))
    _, report = parser.finish(Exit(0))
    assert (report.ended, report.text) == (Ended.OK, "I may not write anything.")


def test_empty() -> None:
    """An empty success is not an answer, and its cost counts."""
    assert recorded("empty") == ([Result(asked(2))], AgentReport(Ended.EMPTY, usage=asked(2)))


@pytest.mark.parametrize(
    ("name", "words", "usage"),
    [
        ("max_turns", "Reached maximum number of turns (1)", Usage(0.006, 1000, 100)),
        ("budget", "Reached maximum budget ($0.1)", Usage(0.5, 100_000, 5000)),
    ],
)
def test_its_own_limits(name: str, words: str, usage: Usage) -> None:
    """The CLI's own limits end it without an answer; tokens and cost are still reported."""
    events, report = recorded(name, Exit(1))
    assert events[-1] == Result(usage, is_error=True)
    assert report == AgentReport(Ended.FAILED, usage=usage, detail=words)


def test_interrupted_by_someone_else() -> None:
    """Its exit code is 0, but its result says otherwise."""
    events, report = recorded("interrupted", Exit(0))
    assert events[-1] == Result(asked(1), is_error=True)
    assert (report.ended, report.text) == (Ended.FAILED, "")


@pytest.mark.parametrize(
    ("exit", "expected", "detail"),
    [
        (Exit(143), Ended.FAILED, "exited without a result"),
        (Exit(signal=9), Ended.KILLED, "by signal 9 (SIGKILL)"),
        (Exit(0), Ended.FAILED, "exited without a result"),
    ],
)
@pytest.mark.parametrize("name", ["hang", "terminated"])
def test_a_stream_without_a_result(name: str, exit: Exit, expected: Ended, detail: str) -> None:
    """Without a result it failed, whatever the exit code; usage so far is known."""
    events, report = recorded(name, exit)
    assert not any(isinstance(event, Result) for event in events)
    assert report == AgentReport(expected, usage=Usage(0.0, 1000), detail=detail)


def test_a_wrong_flag() -> None:
    """The only output is an error on stderr."""
    words = b"error: unknown option '--no-auto-compact'\n"
    _, report = read(b"", exit=Exit(1), stderr=words)
    assert report == AgentReport(Ended.FAILED, detail=words.decode().strip())


# ---- tokens ----


def answered(id: str, input: int, parent: str | None = None) -> dict[str, Any]:
    block = {"type": "text", "text": "x"}
    message = {"id": id, "content": [block], "usage": {"input_tokens": input, "output_tokens": 1}}
    return {"type": "assistant", "message": message, "parent_tool_use_id": parent}


def test_tokens_are_known_before_the_result() -> None:
    """A message is counted once, however many events it has and whatever comes in between."""
    parser = new_parser()
    lines = [answered("a", 10), answered("s", 5, "t1"), answered("a", 10), answered("u", 7, "t2")]
    lines += [answered("s", 5, "t1"), answered("b", 20)]
    parser.stdout(stream(*lines))
    assert parser.usage == Usage(0.0, 42, 4)


def test_usage_is_the_same_object_until_it_changes() -> None:
    """Observers check by identity whether the usage has changed."""
    parser = new_parser()
    parser.stdout(stream(answered("a", 10)))
    known = parser.usage
    parser.stdout(stream(answered("a", 10)))
    assert parser.usage is known


def test_results_of_an_older_version() -> None:
    """Without tokens per model, those of each result are added; cost is cumulative."""
    first = RESULT | {"usage": {"input_tokens": 10, "output_tokens": 2}, "total_cost_usd": 0.5}
    second = RESULT | {"usage": {"input_tokens": 5, "output_tokens": 1}, "total_cost_usd": 0.75}
    assert read(stream(first, second))[1].usage == Usage(0.75, 15, 3)


# ---- unknown lines ----


@pytest.mark.parametrize(
    "line",
    [
        b"Debugger attached.",
        b"{",
        b"[]",
        b"null",
        b'{"type": "no_such_thing"}',
        b'{"type": 3}',
        b'{"subtype": "success"}',
        b'{"type": "assistant", "message": {"content": [{"text": "no type"}]}}',
        b'{"type": "result", "is_error": "perhaps"}',
        b"\xff\xfe",
    ],
)
def test_an_unknown_line_is_counted(line: bytes) -> None:
    """It is shown in verbose mode, and the rest of the stream is read."""
    events, report = read(line + b"\n" + raw("work"))
    first = events[0]
    assert isinstance(first, Unread)
    assert first.line == line.decode(errors="replace")[:200]
    assert (report.unread, report.ended, report.claim) == (1, Ended.OK, True)


@given(st.lists(st.integers(0, 20_000), max_size=12))
@settings(max_examples=50, deadline=None)
def test_how_the_stream_is_split_does_not_matter(cuts: list[int]) -> None:
    """Events and report depend only on the bytes, not on how they arrive."""
    data = raw("decoys")
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    assert read(*(data[start:end] for start, end in pairwise(places))) == read(data)


# ---- claims ----


def test_decoys_of_a_real_session() -> None:
    """The tag in thinking, before tools, in their input and output, in a quotation and in a fence is not a claim."""
    _, report = recorded("decoys")
    assert (report.ended, report.claim, report.text.count(TAG)) == (Ended.OK, False, 2)


def test_blocks_of_one_message_belong_together() -> None:
    """A message in several events is one message, and the next one starts from scratch."""
    data = stream(said("All is ", "m1"), said(f"done. {TAG}", "m1"), RESULT)
    assert read(data)[1] == AgentReport(Ended.OK, True, f"All is done. {TAG}")
    data = stream(said(TAG, "m1"), said("No, wait.", "m2"), RESULT)
    assert read(data)[1] == AgentReport(Ended.OK, False, "No, wait.")


def test_a_message_with_only_thinking_withdraws_the_claim() -> None:
    """The last message counts, even if it is empty."""
    thinking = {
        "type": "assistant",
        "message": {"id": "m2", "content": [{"type": "thinking", "thinking": "hm"}]},
    }
    assert not read(stream(said(TAG, "m1"), thinking, RESULT))[1].claim


def test_a_subagents_text_is_not_a_claim() -> None:
    """Its text is shown but is not the agent's."""
    events, report = read(stream(said("I ask.", "m1"), said(TAG, "s1", parent_tool_use_id="t"), RESULT))
    assert Text(f"{TAG}\n") in events
    assert (report.claim, report.text) == (False, "I ask.")


def test_the_result_has_the_last_word() -> None:
    """If a message could not be read, the result still has the final one."""
    broken = b'{"type":"assistant","message":{"content":3}}\n'
    data = stream(said(TAG, "m1")) + broken + stream(RESULT | {"result": "No, wait."})
    assert read(data)[1] == AgentReport(Ended.OK, False, "No, wait.", unread=1)
