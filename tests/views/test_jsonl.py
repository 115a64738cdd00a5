"""JSON lines: every line is a JSON object, whatever the agent prints."""

from __future__ import annotations

import io
import json
import random
import re
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Project
from ralph.agents.base import Reading
from ralph.agents.plain import PlainParser
from ralph.core import events
from ralph.core.events import AgentEnded, Event, RunEnded
from ralph.core.model import (
    Cause,
    Ended,
    Exit,
    FailAction,
    Feedback,
    Hold,
    HoldWhy,
    LimitKind,
    Outcome,
    Purpose,
    Ran,
    Stop,
    TodoStatus,
    Usage,
    Verdict,
)
from ralph.core.text import clean
from ralph.views.jsonl import KINDS, JsonLines
from ralph.views.writer import DirectWriter, ForgivingWriter

RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
PIECES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from(
            [b"\x1b[31m", b"\x1b]52;c;x\x07", b"\xe2\x80\xae", b"\xc2\x9b", b"\xed\xa0\x80", b"\n", b"\0"]
        ),
    ),
    max_size=12,
)


def lines_of(pieces: list[bytes], *, ended: bool = True) -> str:
    """The JSON lines for an agent that prints these pieces on stdout and stderr."""
    out = io.StringIO()
    tell = JsonLines(DirectWriter(out))
    parser = PlainParser(Reading())
    for piece in pieces:
        for event in (*parser.stdout(piece), *parser.stderr(piece)):
            tell(event)
    last, report = parser.finish(Exit(1))
    for event in last:
        tell(event)
    if ended:
        tell(AgentEnded(Purpose.WORK, Ran(0.0, report.ended, text=report.text, detail=report.detail)))
    return out.getvalue()


def events_with(text: str) -> list[Event]:
    """One event of each kind, with this text in every text field."""
    verdict = Verdict(text, green=False, reason=text, feedback=Feedback(FailAction.APPEND, text), log=text)
    return [
        events.Text(text),
        events.Noise(text),
        events.ToolStart(text, text, events.Body(json.dumps({text: text}).encode()), text),
        events.ToolEnd(text, events.Body(json.dumps([text]).encode())),
        events.Todo((events.TodoItem(text, TodoStatus.ACTIVE),)),
        events.AgentProgress(text),
        events.Result(Usage()),
        events.Limited(LimitKind.USAGE, text),
        events.Retry(text),
        events.AgentError(text),
        events.Unread(text, text),
        events.UsageReported(Usage()),
        events.RunStarted(text, text, text, text, (text, text), 3),
        events.IterationStarted(1, 3),
        events.AgentStarted(Purpose.WORK, (text, text), text, 5000),
        events.AgentEnded(Purpose.WORK, Ran(0.0, Ended.FAILED, text, text=text, detail=text, stream=text)),
        events.CheckStarted(text),
        events.CheckEnded(verdict, FailAction.APPEND, 0.5),
        events.ClaimLooked(text, found=False, unclaimed=text),
        events.Committed(1, text, text),
        events.Holding(Hold(HoldWhy.PAUSED)),
        events.Notice(text),
        events.TaskMoved(text, text, text, text, text),
        events.RunEnded(text, Stop(Cause.CONFIG, text, (text,)), 1, Usage(), 0.5),
    ]


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n")[:-1]]


@given(PIECES)
def test_every_line_is_an_object(pieces: list[bytes]) -> None:
    """With invalid UTF-8, NUL and split characters, the stream stays valid and holds the whole text, cleaned."""
    found = objects(lines_of(pieces))
    assert {line["event"] for line in found} <= {"text", "stderr", "agent_ended"}
    whole = clean(b"".join(pieces).decode(errors="replace"))
    assert found[-1]["ran"]["text"] == whole
    for kind in ("text", "stderr"):
        assert "".join(line["text"] for line in found if line["event"] == kind) == whole


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_in_random_pieces(seed: int) -> None:
    """A thousand agents per seed print random bytes: every line parses, and no text has a control character."""
    dice = random.Random(seed)
    for _ in range(1000):
        pieces = [dice.randbytes(dice.randrange(30)) for _ in range(dice.randrange(6))]
        shown = "".join(line["text"] for line in objects(lines_of(pieces, ended=False)))
        assert clean(shown) == shown


@given(PIECES)
def test_output_is_harmless_on_a_terminal(pieces: list[bytes]) -> None:
    """No line has a control character, neither in the text nor in the agent's result."""
    assert not RAW.search(lines_of(pieces))


EVIL = "\x1b]0;t\x07\u009b31m\u202e\u2066\x7f"


@pytest.mark.parametrize("event", events_with(EVIL), ids=lambda event: type(event).__name__)
def test_no_text_of_an_event_has_a_control_character(event: Event) -> None:
    """Raw or decoded, a JSON stream cannot affect a terminal, whichever field holds the text."""
    out = io.StringIO()
    JsonLines(DirectWriter(out))(event)
    assert not RAW.search(out.getvalue()) and "\\u" not in out.getvalue()


def test_every_event_has_its_kind() -> None:
    """Every event has a name, and no two share one."""
    assert set(KINDS) == set(get_args(Event))
    assert len(set(KINDS.values())) == len(KINDS)


def test_every_kind_is_tested_for_control_characters() -> None:
    """The list of events above is complete."""
    assert {type(event) for event in events_with("")} == set(KINDS)


def test_the_kinds_are_fixed() -> None:
    """The names that programs rely on; more may be added, none removed."""
    assert set(KINDS.values()) >= {
        "agent_ended",
        "agent_started",
        "check_ended",
        "check_started",
        "claim",
        "committed",
        "holding",
        "iteration_started",
        "notice",
        "run_ended",
        "run_started",
        "stderr",
        "text",
    }


@pytest.mark.parametrize(
    ("cause", "outcome", "code"),
    [
        (Cause.PROVED, Outcome.COMPLETE, 0),
        (Cause.ITERATIONS, Outcome.LIMIT, 1),
        (Cause.CONFIG, Outcome.FATAL, 2),
        (Cause.LIMIT_WAIT, Outcome.WAITING, 3),
        (Cause.SIGNAL, Outcome.INTERRUPTED, 130),
    ],
)
def test_the_last_line_has_outcome_and_exit_code(cause: Cause, outcome: Outcome, code: int) -> None:
    """The last line holds everything that the exit code says."""
    out = io.StringIO()
    JsonLines(DirectWriter(out))(RunEnded("id", Stop(cause, "why", ("note",)), 3, Usage(0.5, 10, 20), 1.5))
    (end,) = objects(out.getvalue())
    assert (end["event"], end["outcome"], end["exit_code"], end["iterations"], end["stop"]) == (
        "run_ended",
        outcome,
        code,
        3,
        {"cause": cause, "reason": "why", "notes": ["note"], "tree": "", "tests": []},
    )


def test_a_commit_has_all_its_facts() -> None:
    """The event of a commit has its iteration, its id and its full message."""
    out = io.StringIO()
    JsonLines(DirectWriter(out))(events.Committed(2, "0123abcd" * 5, "Subject\n\nBody.\n"))
    (line,) = objects(out.getvalue())
    assert {key: value for key, value in line.items() if key != "at"} == {
        "event": "committed",
        "iteration": 2,
        "commit": "0123abcd" * 5,
        "message": "Subject\n\nBody.\n",
    }


def test_a_closed_stream_stops_nothing() -> None:
    """A reader that goes away causes no error."""
    out = io.StringIO()
    tell = JsonLines(ForgivingWriter(out))
    out.close()
    for _ in range(2):
        tell(events.Notice("nobody reads this"))
    assert out.closed


def test_a_real_run_prints_nothing_else_on_stdout(project: Project) -> None:
    """With random bytes from agent and guardrail, stdout is JSON lines and stderr is empty."""
    project.agent(
        "head -c 20000 /dev/urandom; head -c 20000 /dev/urandom >&2; exit 1",
        guardrails=[{"command": "head -c 20000 /dev/urandom; false"}],
    )
    result = project.run("run", "-p", "x", "-m", "2", "--json")
    assert (result.code, result.err) == (1, "")
    found = objects(result.out)
    assert {line["event"] for line in found} <= set(KINDS.values())
    assert [line["event"] for line in found][-1] == "run_ended"
