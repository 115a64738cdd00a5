"""OpenCode: its command line, and the meaning of its streams.

The streams and the lines of the log were recorded with OpenCode 1.18.33.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.agent_support import STREAMS, TAG, WELL, Bench, Read, body, read_by
from ralph.agents.base import AgentReport, Reading
from ralph.agents.opencode import OpenCodeParser
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

NOW = 1_794_783_000.0
ONE_STEP = Usage(0.0, 1000, 100)

OPENCODE = Bench("opencode", NOW)
spec, argv = OPENCODE.spec, OPENCODE.argv


def read(data: bytes | str, exit: Exit = WELL, *, err: str = "", reading: Reading | None = None) -> Read:
    """All events of a process that prints `err` and then `data`."""
    parser = OpenCodeParser(reading or Reading(now=lambda: NOW))
    data = data.encode() if isinstance(data, str) else data
    return read_by(parser, [data], exit, stderr=err.encode())


def recorded(name: str, exit: Exit = WELL, *, err: str = "", reading: Reading | None = None) -> Read:
    return read(OPENCODE.raw(name), exit, err=err, reading=reading)


def logged(error: str) -> str:
    """The log line on stderr about a failed request."""
    return (
        'timestamp=2026-11-15T22:47:26.964Z level=ERROR run=231fa49a message="stream error" '
        "providerID=scripted modelID=scripted session.id=ses_e1e9b2871ffe7XbBvmK5wrs2e9 small=false "
        f'agent=build mode=primary error.error="AI_APICallError: {error}"\n'
    )


def line(type: str, **values: Any) -> str:
    return json.dumps({"type": type, "timestamp": NOW * 1000, "sessionID": "ses_1"} | values) + "\n"


def start() -> str:
    return line("step_start", part={"type": "step-start"})


def text(words: str) -> str:
    return line("text", part={"type": "text", "text": words})


def tool(name: str, input: Any = None, output: str = "", **state: Any) -> str:
    state = {"status": "completed", "input": input or {}, "output": output} | state
    return line("tool_use", part={"type": "tool", "tool": name, "callID": "call_1", "state": state})


def finish(reason: str = "stop", **part: Any) -> str:
    return line("step_finish", part={"type": "step-finish", "reason": reason} | part)


def refused(status: int, message: str, body: str = "", **headers: str) -> str:
    data = {"message": message, "statusCode": status, "responseHeaders": headers, "responseBody": body}
    return line("error", error={"name": "APIError", "data": data})


# ---- the command line ----

ALWAYS = ["--format", "json", "--thinking", "--print-logs", "--log-level", "ERROR"]


@pytest.mark.parametrize("purpose", Purpose)
@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (spec(), [*ALWAYS, "--auto"]),
        (spec(permissions=Permissions.BYPASS), [*ALWAYS, "--auto"]),
        (spec(permissions=Permissions.NONE), ALWAYS),
        (spec("-m", "a/b"), [*ALWAYS, "--auto", "-m", "a/b"]),
        (spec("--yolo"), [*ALWAYS, "--yolo"]),
        (spec("--auto=false"), [*ALWAYS, "--auto=false"]),
        (spec("--no-auto"), [*ALWAYS, "--no-auto"]),
        (spec("--log-level=WARN", "--thinking"), ["--format", "json", "--print-logs", "--auto"]),
    ],
    ids=["edit", "bypass", "none", "a model", "their yolo", "their auto", "their no-auto", "their options"],
)
def test_the_command_line(agent: AgentSpec, words: list[str], purpose: Purpose) -> None:
    """It always streams; the user's permissions win, and no option is passed twice."""
    rest = list(agent.flags) if "--thinking" in agent.flags else []
    started = argv(agent, purpose)
    assert started == ["opencode", "run", *words, *rest]


def test_a_prompt_as_an_argument_is_not_an_option() -> None:
    """If the user wants the prompt as an argument, it comes after two dashes."""
    started = argv(spec(via=PromptVia.ARGUMENT), prompt="--do it")
    assert started[-3:] == ["--auto", "--", "--do it"]


# ---- recorded streams ----


def test_a_stream_with_everything() -> None:
    """Thinking, text, tools, task lists and the result, with the times and ids of the stream."""
    events, report = recorded("work")
    assert events == [
        AgentProgress("session ses_e1e9c5263ffeGFWw2hZu1fCuKK"),
        Text(f"The tag {TAG} is for the end.\n", thinking=True, at=1794782770.78),
        Text(f"I will look first. {TAG}\n", at=1794782770.78),
        started(
            "call_000002_1", "bash", 1794782770.763, command=f"echo '{TAG}'", description="Run a command"
        ),
        ended("call_000002_1", f"{TAG}\n", 1794782770.869),
        Todo((TodoItem("write", TodoStatus.ACTIVE), TodoItem("check", TodoStatus.PENDING))),
        started("call_000003_1", "todowrite", 1794782771.175, todos=todos("in_progress", "pending")),
        ended("call_000003_1", json.dumps(todos("in_progress", "pending"), indent=2), 1794782771.185),
        started(
            "call_000003_2",
            "write",
            1794782771.195,
            filePath="ratelimit.ts",
            content="// usage limit reached\ntwo\n",
        ),
        ended("call_000003_2", "Wrote file successfully.", 1794782771.23),
        started(
            "call_000004_1", "edit", 1794782771.636, filePath="ratelimit.ts", oldString="two", newString="2"
        ),
        ended("call_000004_1", "Edit applied successfully.", 1794782771.65),
        started(
            "call_000005_1",
            "bash",
            1794782771.855,
            command="cat ratelimit.ts; exit 3",
            description="Run a command",
        ),
        ended("call_000005_1", "// usage limit reached\n2\n", 1794782771.932, is_error=True),
        started("call_000006_1", "read", 1794782772.113, filePath="missing.txt"),
        ended(
            "call_000006_1", "File not found: /home/dev/project/missing.txt", 1794782772.119, is_error=True
        ),
        Todo((TodoItem("write", TodoStatus.DONE), TodoItem("check", TodoStatus.DONE))),
        started("call_000007_1", "todowrite", 1794782772.339, todos=todos("completed", "completed")),
        ended("call_000007_1", json.dumps(todos("completed", "completed"), indent=2), 1794782772.341),
        Text(f"All is written.\n\n{TAG}\n", at=1794782772.494),
        Result(Usage(0.0, 6700, 610, 400), at=1794782772.54),
    ]
    assert report == AgentReport(Ended.OK, True, f"All is written.\n\n{TAG}\n", Usage(0.0, 6700, 610, 400))


def started(id: str, name: str, at: float, **input: Any) -> ToolStart:
    return ToolStart(id, name, body(input), at=at)


def ended(id: str, output: str, at: float, *, is_error: bool = False) -> ToolEnd:
    return ToolEnd(id, body(output), is_error, at)


def todos(*statuses: str) -> list[dict[str, str]]:
    return [
        {"content": content, "status": status, "priority": "medium"}
        for content, status in zip(("write", "check"), statuses, strict=True)
    ]


def test_a_subagent_speaks_for_itself() -> None:
    """A subagent's text is the result of a tool, and not a claim."""
    events, report = recorded("task")
    words = f"<task_result>\nSeen from inside. {TAG}\n</task_result>"
    assert [event.output.text for event in events if isinstance(event, ToolEnd)] == [
        f'<task id="ses_e1e9c353bffe4Fq3x9qgHTeMD7" state="completed">\n{words}\n</task>'
    ]
    assert report == AgentReport(
        Ended.OK, False, "The subagent says that it is done.\n", Usage(0.0, 2000, 200)
    )


def test_a_rejected_write_ends_it() -> None:
    """Without --auto a write that needs approval is rejected, and the process stops there: denied."""
    asked = "\x1b[93m\x1b[1m! \x1b[0mpermission requested: edit (hello.txt); auto-rejecting\n"
    reading = Reading(spec=spec(permissions=Permissions.NONE))
    events, report = recorded("rejected", err=asked, reading=reading)
    assert events == [
        Noise(asked),
        AgentProgress("session ses_e1e9c2d33ffeTpzZOArYOtJ80e"),
        Text("I will write.\n", at=1794782779.584),
        started("call_000002_1", "write", 1794782779.576, filePath="hello.txt", content="one\n"),
        ended(
            "call_000002_1",
            "The user rejected permission to use this specific tool call.",
            1794782779.588,
            is_error=True,
        ),
        Result(ONE_STEP, at=1794782779.626),
    ]
    advice = 'was denied (write): set "agent": {"permissions": "edit"}, or allow these tools in "flags"'
    assert report == AgentReport(
        Ended.DENIED, usage=ONE_STEP, detail=f"every change the agent tried {advice}"
    )


def test_writes_that_rules_forbid() -> None:
    """If one of the user's rules denies all writes, the advice names the file with the rules."""
    _, report = recorded("forbidden")
    assert report == AgentReport(
        Ended.DENIED,
        text="I was not allowed to.\n",
        usage=Usage(0.0, 3000, 300),
        detail='every change the agent tried was denied: see "permission" in its opencode.json',
    )


def test_one_write_that_was_allowed_is_enough() -> None:
    """An agent that has changed something was not denied."""
    rejected = tool(
        "write", status="error", error="The user rejected permission to use this specific tool call."
    )
    stream = start() + tool("edit") + rejected + finish("tool-calls")
    assert read(stream)[1].ended is Ended.OK


def test_a_failed_write_was_not_denied() -> None:
    """An error that is not a refusal does not count as one."""
    failed = tool("write", status="error", error="EACCES: permission denied, open '/home/dev/x'")
    assert read(start() + failed + finish("tool-calls") + start() + finish())[1].ended is Ended.OK


def test_an_empty_answer() -> None:
    """A step without text is a result, but an empty one."""
    events, report = recorded("empty")
    assert events == [
        AgentProgress("session ses_e1e9c1041ffe4SntavhnHzyzuU"),
        Result(ONE_STEP, at=1794782787.279),
    ]
    assert report == AgentReport(Ended.EMPTY, usage=ONE_STEP)


def test_a_failure() -> None:
    """An error that is not a limit fails the iteration with its message, whatever the exit code."""
    events, report = recorded("failed", err=logged("bad thing"))
    assert events == [
        Noise("bad thing\n"),
        AgentError("bad thing"),
        Result(Usage(), is_error=True, at=1794782791.411),
    ]
    assert report == AgentReport(Ended.FAILED, detail="bad thing")


def test_an_unknown_model() -> None:
    """The stream does not show what is wrong, but the log does, and so does Ralph."""
    error = "Model not found: nope/nope. Did you mean: standardcompute?"
    log = (
        "timestamp=2026-11-15T22:47:42.124Z level=ERROR run=33a5c2d7 message=failed ref=err_4f4f929b "
        f'error="ProviderModelNotFoundError: {error}" cause="ProviderModelNotFoundError: {error}\\n"\n'
    )
    events, report = recorded("no_model", Exit(1), err=log)
    assert events == [
        Noise(f"{error}\n"),
        AgentError(error),
        Result(Usage(), is_error=True, at=1794782862.124),
    ]
    assert report == AgentReport(Ended.FAILED, detail=error)


def test_a_stream_that_was_cut_is_retried() -> None:
    """The text of the first try is not reported; the second one counts."""
    events, report = recorded("cut")
    assert events == [
        AgentProgress("session ses_e1e9bdc62ffe1K8m99cpmKoymi"),
        Text(f"Now it went well. {TAG}\n", at=1794782802.523),
        Result(ONE_STEP, at=1794782802.549),
    ]
    assert report == AgentReport(Ended.OK, True, f"Now it went well. {TAG}\n", ONE_STEP)


@pytest.mark.parametrize(
    ("exit", "report"),
    [
        (Exit(None, signal=9), AgentReport(Ended.KILLED, detail="by signal 9 (SIGKILL)")),
        (Exit(0), AgentReport(Ended.FAILED, detail="exited without a result")),
        (Exit(None, signal=15, ended=Ended.IDLE), AgentReport(Ended.KILLED, detail="by signal 15 (SIGTERM)")),
    ],
    ids=["killed", "exit 0", "ended by Ralph"],
)
def test_a_hang_has_no_result(exit: Exit, report: AgentReport) -> None:
    """A stream without a last step is not a success, even with exit 0."""
    events, found = recorded("hang", exit)
    assert (events, found) == ([AgentProgress("session ses_e1e9bc7c6ffeobOKlGlJyFXf0N")], report)


# ---- limits ----


def test_a_usage_window_that_is_used_up() -> None:
    """It would wait for hours in silence. From the log Ralph knows the limit and its reset time."""
    words = "The usage limit has been reached. It will reset in 2 hours 5 minutes."
    parser = OpenCodeParser(Reading(now=lambda: NOW))
    events = parser.stderr(logged(words).encode())
    assert (events, parser.is_over) == ([Limited(LimitKind.USAGE, words, NOW + 7500)], True)
    _, report = parser.finish(Exit(None, signal=15, ended=Ended.OK))
    assert report == AgentReport(Ended.LIMIT, retry_at=NOW + 7500, detail=words)


def test_credit_that_is_used_up() -> None:
    """The same for credit, which does not come back by waiting."""
    words = "You exceeded your current quota, please check your plan and billing details."
    events, report = read("", Exit(None, signal=15, ended=Ended.OK), err=logged(words))
    assert (events, report) == ([Limited(LimitKind.CREDIT, words)], AgentReport(Ended.AUTH, detail=words))


def test_a_rate_limit_that_does_not_pass() -> None:
    """It retries by itself, which is reported; in the end the stream has the status and the time to wait."""
    words = "Rate limit reached for requests"
    events, report = recorded("rate", Exit(1), err=logged(words) * 6)
    assert events == [
        *(Retry(words, attempt, 5) for attempt in range(1, 7)),
        Limited(LimitKind.RATE, words, 1794782853.051),
        Result(Usage(), is_error=True, at=1794782852.051),
    ]
    assert report == AgentReport(Ended.LIMIT, retry_at=1794782853.051, detail=words)


def test_an_overload_that_passes() -> None:
    """Once the provider answers, the earlier refusal is forgotten."""
    words = "The server is overloaded"
    events, report = recorded("overload", err=logged(words))
    assert events == [
        Retry(words, 1, 5),
        AgentProgress("session ses_e1e9b011fffepzlmTWm5b6aJvZ"),
        Text("Back again.\n", at=1794782859.132),
        Result(ONE_STEP, at=1794782859.187),
    ]
    assert report == AgentReport(Ended.OK, text="Back again.\n", usage=ONE_STEP)


def test_a_long_silence_after_a_refusal_is_a_limit() -> None:
    """It waits for a `retry-after` in silence; after a while this counts as a result."""
    now = [NOW]
    parser = OpenCodeParser(Reading(now=lambda: now[0]))
    parser.stderr(logged("Too Many Requests").encode())
    now[0] += 60
    assert not parser.is_over
    now[0] += 60
    assert parser.is_over
    assert parser.finish(Exit(None, signal=15, ended=Ended.OK))[1] == AgentReport(
        Ended.LIMIT, detail="Too Many Requests"
    )
    parser.stdout(start().encode())
    assert not parser.is_over


def test_a_subagent_that_was_refused_is_waited_for() -> None:
    """The stream is silent while a subagent works, so its refusal does not turn silence into a limit."""
    now = [NOW]
    parser = OpenCodeParser(Reading(now=lambda: now[0]))
    log = logged("Too Many Requests").replace("agent=build mode=primary", "agent=general mode=subagent")
    assert parser.stderr(log.encode()) == [Retry("Too Many Requests", 1, 5)]
    now[0] += 600
    assert not parser.is_over
    assert parser.finish(Exit(None, signal=9))[1].ended is Ended.KILLED


@pytest.mark.parametrize(
    ("name", "kind", "words", "at"),
    [
        ("auth", LimitKind.AUTH, "Incorrect API key provided: test-local.", 1794782794.296),
        ("credit", LimitKind.CREDIT, "Insufficient credits", 1794782797.314),
    ],
)
@pytest.mark.parametrize("log_first", [True, False])
def test_a_refusal_is_reported_once(
    name: str, kind: LimitKind, words: str, at: float, log_first: bool
) -> None:
    """Log and stream report the same refusal, in any order; both of these need a person."""
    parser = OpenCodeParser(Reading(now=lambda: NOW))
    stream = (STREAMS / f"opencode_{name}.ndjson").read_bytes()
    if log_first:
        events = [*parser.stderr(logged(words).encode()), *parser.stdout(stream)]
    else:
        events = [*parser.stdout(stream), *parser.stderr(logged(words).encode())]
    told = [event for event in events if not isinstance(event, Noise)]
    assert told == [Limited(kind, words), Result(Usage(), is_error=True, at=at)]
    assert parser.finish(Exit(1))[1] == AgentReport(Ended.AUTH, detail=words)


@pytest.mark.parametrize(
    ("error", "kind", "retry_at"),
    [
        (refused(429, "Slow down"), LimitKind.RATE, None),
        (refused(429, "Slow down", **{"retry-after": "30"}), LimitKind.RATE, NOW + 30),
        (refused(429, "No", '{"error": {"type": "insufficient_quota"}}'), LimitKind.CREDIT, None),
        (refused(429, "Weekly usage limit reached. Resets in 3 days."), LimitKind.USAGE, NOW + 3 * 86400),
        (refused(503, "Try later"), LimitKind.OVERLOAD, None),
        (refused(529, "Overloaded"), LimitKind.OVERLOAD, None),
        (refused(403, "Forbidden"), LimitKind.AUTH, None),
        (refused(400, "Your credit balance is too low"), LimitKind.CREDIT, None),
        (line("error", error={"name": "ProviderAuthError", "data": {"message": "?"}}), LimitKind.AUTH, None),
    ],
)
def test_what_a_refusal_means(error: str, kind: LimitKind, retry_at: float | None) -> None:
    """The status counts, and the wording if it is more precise."""
    events, report = read(error, Exit(1))
    limited = events[0]
    assert isinstance(limited, Limited)
    assert (limited.kind, limited.retry_at, report.ended) == (kind, retry_at, kind.ended)


LOOK_ALIKES = {
    "a tool's input": tool("write", {"filePath": "ratelimit.ts", "content": "usage limit reached"}),
    "a tool's output": tool("bash", output="429 Too Many Requests: rate limit, usage limit reached"),
    "a tool's error": tool("read", status="error", error="rate limit exceeded: src/ratelimit.ts"),
    "the answer": text("I have fixed the rate limit. Usage limit reached is now an error. 401 Unauthorized"),
    "thinking": line("reasoning", part={"text": "You've hit your usage limit"}),
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
@pytest.mark.parametrize("code", [0, 1])
def test_a_limit_in_the_work_is_not_a_limit(name: str, code: int) -> None:
    """Only the agent's own errors report limits, whatever the exit code."""
    stream = LOOK_ALIKES[name]
    events, report = read(start() + stream + finish("tool-calls") + start() + finish(), Exit(code))
    assert not [event for event in events if isinstance(event, Limited)]
    assert report.ended is (Ended.EMPTY if name == "thinking" else Ended.OK)


@pytest.mark.parametrize(
    "words",
    ["Cannot read src/ratelimit.ts", "bad thing", "Unexpected server error", "socket hang up"],
)
def test_other_errors_are_not_limits(words: str) -> None:
    """A failure that only names a file with such words is a plain failure."""
    assert read(refused(400, words), Exit(1), err=logged(words))[1] == AgentReport(Ended.FAILED, detail=words)


def test_a_limit_on_the_session_title_does_not_matter() -> None:
    """A refused side call changes nothing."""
    log = logged("Usage limit reached").replace("small=false", "small=true")
    events, report = read(start() + text("Well.") + finish(), err=log)
    assert (events[0], report.ended) == (Noise(log), Ended.OK)


# ---- claims ----

SAID = text(f"It is done. {TAG}")
DECOYS = {
    "a tool's result": start() + tool("bash", output=TAG) + finish("tool-calls"),
    "a tool's input": start() + tool("write", {"content": TAG}) + finish("tool-calls"),
    "a tool's error": start() + tool("read", status="error", error=TAG) + finish("tool-calls"),
    "a subagent": start()
    + tool("task", output=f"<task_result>\n{TAG}\n</task_result>")
    + finish("tool-calls"),
    "thinking": start() + line("reasoning", part={"text": TAG}),
    "the prompt repeated": start() + text(f"You want me to say {TAG} at the end of it all."),
    "an earlier message": start()
    + SAID
    + tool("bash")
    + finish("tool-calls")
    + start()
    + text("More to do."),
    "an earlier step": start() + SAID + finish("unknown") + start() + text("More to do."),
    "a code fence": start() + text(f"```\n{TAG}\n```"),
    "a quoted line": start() + text(f"> {TAG}"),
    "a denial": start() + text(f"I cannot say {TAG} yet."),
    "an error": start() + text("Hm.") + refused(400, TAG),
    "an unknown event": start() + line("praise", part={"text": TAG}, text=TAG),
    "an unknown part": start() + line("step_start", part={"type": "text", "text": TAG}),
    "no JSON": start() + f"{TAG}\n",
    "stderr": start() + text("Hm."),
    "the log": start() + text("Hm."),
}


@pytest.mark.parametrize("name", DECOYS)
def test_only_the_final_message_claims(name: str) -> None:
    """A tag anywhere but in the last assistant message is not a claim."""
    err = {"stderr": f"{TAG}\n", "the log": logged(TAG)}.get(name, "")
    reading = Reading(prompt=f"Do it all. You want me to say {TAG} at the end of it all.", now=lambda: NOW)
    _, report = read(DECOYS[name] + finish(), err=err, reading=reading)
    assert not report.claim


@pytest.mark.parametrize("name", DECOYS)
def test_a_true_claim_after_a_decoy(name: str) -> None:
    """No decoy hides the true claim."""
    _, report = read(DECOYS[name] + finish("tool-calls") + start() + SAID + finish())
    assert (report.ended, report.claim, report.text) == (Ended.OK, True, f"It is done. {TAG}\n")


def test_a_message_of_several_texts() -> None:
    """Each text of a message is a separate line, so that a quotation ends with its text."""
    _, report = read(start() + text("> quoted") + text(TAG) + finish())
    assert (report.claim, report.text) == (True, f"> quoted\n{TAG}\n")


# ---- other behaviour ----


def test_usage_grows_with_every_step() -> None:
    """Tokens and cost are per step; thinking is output."""
    tokens = {"total": 99, "input": 10, "output": 5, "reasoning": 2, "cache": {"read": 30, "write": 4}}
    step = finish("tool-calls", tokens=tokens, cost=0.25)
    parser = OpenCodeParser(Reading())
    parser.stdout(step.encode())
    assert parser.usage == Usage(0.25, 10, 7, 30, 4)
    parser.stdout(step.encode())
    assert parser.usage == Usage(0.5, 20, 14, 60, 8)


def test_it_is_over_with_its_last_step() -> None:
    """A step that ends with tool calls is not the last one; one that follows a result withdraws it."""
    parser = OpenCodeParser(Reading())
    states = []
    for piece in (start(), tool("bash"), finish("tool-calls"), start(), finish(), start(), finish("length")):
        parser.stdout(piece.encode())
        states.append(parser.is_over)
    assert states == [False, False, False, False, True, False, True]


def test_a_step_with_tools_is_not_the_last_one() -> None:
    """Some providers report `stop` after tool calls; the agent continues anyway."""
    parser = OpenCodeParser(Reading())
    parser.stdout((start() + tool("bash") + finish("stop")).encode())
    assert not parser.is_over


def test_a_tool_of_the_provider_is_part_of_the_answer() -> None:
    """A search by the provider itself needs no further step."""
    search = {"tool": "web_search", "callID": "call_1", "metadata": {"providerExecuted": True}}
    found = line("tool_use", part=search | {"state": {"status": "completed"}})
    assert read(start() + found + SAID + finish("stop"))[1].claim


def test_a_cancelled_task_leaves_the_list() -> None:
    """The list shows what is to do and what is done."""
    todos = [{"content": "one", "status": "cancelled"}, {"content": "two", "status": "odd"}, "three"]
    events, _ = read(tool("todowrite", {"todos": todos}))
    assert events[0] == Todo((TodoItem("two", TodoStatus.PENDING),))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"no JSON\n", "JSON is malformed: invalid character (byte 4)"),
        (b'{"type":"praise"}\n', "unknown type 'praise'"),
        (b"{}\n", "Object missing required field `type`"),
        (
            b'{"type":"text","part":{"text":"\xff"}}\n',
            "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        ),
        (b'{"type":"error","error":"words"}\n', "Expected `object`, got `str` - at `$.error`"),
        (b'{"type":"step_finish","part":{"tok\n', "Input data was truncated"),
    ],
)
def test_an_unreadable_line_does_not_end_the_stream(data: bytes, why: str) -> None:
    """It is counted and shown; the rest is still read."""
    events, report = read(data + (start() + SAID + finish()).encode())
    assert isinstance(events[0], Unread) and events[0].why == why
    assert (report.ended, report.claim, report.unread) == (Ended.OK, True, 1)


@pytest.mark.parametrize("path", sorted(STREAMS.glob("opencode_*.ndjson")), ids=lambda path: path.stem)
def test_how_a_stream_is_split_does_not_matter(path: Path) -> None:
    """A stream that arrives byte by byte means the same."""
    data = path.read_bytes()
    pieces = (bytes([byte]) for byte in data)
    assert read_by(OpenCodeParser(Reading()), pieces, WELL) == read(data, reading=Reading())
