"""Agents that print plain text: pieces of bytes become text, events and a report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.agents.base import MAX_TEXT, AgentReport, Ends, LineText, Reading
from ralph.agents.plain import PlainParser
from ralph.core import prompt
from ralph.core.events import AgentEvent, Noise, Text
from ralph.core.model import ClaimRule, Ended, Exit, Purpose, Usage

TAG = b"<response>DONE</response>"
WELL = Exit(0)
PIECES = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from(
            [
                b"\n",
                b"\r\n",
                TAG,
                TAG[:7],
                TAG[7:],
                b"```",
                b"> ",
                b"`",
                "漢".encode(),
                "🙂".encode()[:2],
                b"\xff",
                b"\x1b[32m",
                b"\x1b]0;t\x07",
                b"\r",
            ]
        ),
    ),
    max_size=20,
)


def cut(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The same bytes in several pieces."""
    places = sorted({min(place, len(data)) for place in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


def play(
    pieces: Sequence[bytes], exit: Exit = WELL, prompt: str = ""
) -> tuple[list[AgentEvent], AgentReport]:
    parser = PlainParser(Reading(prompt=prompt))
    events = [event for piece in pieces for event in parser.stdout(piece)]
    last, report = parser.finish(exit)
    return [*events, *last], report


# ---- bytes into lines ----


@given(PIECES, st.lists(st.integers(0, 400), max_size=10))
def test_no_byte_is_lost_between_pieces(parts: list[bytes], cuts: list[int]) -> None:
    """However the bytes are split, the text is the same as when decoded at once."""
    data = b"".join(parts)
    lines = LineText()
    text = "".join([lines.feed(piece) for piece in cut(data, cuts)]) + lines.finish()
    assert text == data.decode(errors="replace")


def test_text_comes_in_whole_lines() -> None:
    """A line is held back until it is complete; the last one comes at the end."""
    lines = LineText()
    assert [lines.feed(b"one\ntw"), lines.feed(b"o"), lines.feed(b"\nthree"), lines.finish()] == [
        "one\n",
        "",
        "two\n",
        "three",
    ]


def test_an_endless_line_is_not_held_back() -> None:
    """A line without an end is passed on in pieces, so that memory stays bounded."""
    lines = LineText()
    let_go = sum(len(lines.feed(b"x" * 1000)) for _ in range(100))
    assert 100_000 - let_go < MAX_TEXT
    assert let_go + len(lines.finish()) == 100_000


# ---- the start and the end of an answer ----


def test_a_short_answer_is_kept_whole() -> None:
    """A text that fits is kept as it is."""
    ends = Ends()
    for piece in ("a" * MAX_TEXT, "b" * (MAX_TEXT - 1)):
        ends.add(piece)
    assert ends.text == "a" * MAX_TEXT + "b" * (MAX_TEXT - 1)


def test_a_long_answer_keeps_its_start_and_end() -> None:
    """The start and the end of a long answer are kept, and the gap is marked."""
    ends = Ends()
    ends.add("a" * MAX_TEXT)
    for _ in range(1000):
        ends.add("m" * 1000)
    ends.add("z" * MAX_TEXT)
    assert ends.text == "a" * MAX_TEXT + "\n[...]\n" + "z" * MAX_TEXT


# ---- the parser ----


@given(PIECES, st.lists(st.integers(0, 400), max_size=10))
def test_how_output_is_split_does_not_matter(parts: list[bytes], cuts: list[int]) -> None:
    """The report and the text shown depend only on the bytes, not on how they arrive."""
    data = b"".join(parts)
    events, report = play(cut(data, cuts))
    whole_events, whole_report = play([data])
    assert (shown(events), report) == (shown(whole_events), whole_report)


def shown(events: Sequence[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text | Noise))


def test_how_a_long_line_is_split_does_not_matter() -> None:
    """A tag followed by a lot of text on the same line is found for every split, or for none."""
    line = b"x" * 16_000 + b" " + TAG + b" " + b"y" * 14_000 + b"\n"
    cuts: list[list[int]] = [[], [10_000, 25_000], [15_000], [5_000, 10_000, 15_000, 20_000, 25_000]]
    assert len({play(cut(line, places))[1].claim for places in cuts}) == 1


def test_stderr_is_shown_and_never_a_claim() -> None:
    """A tag on stderr is noise; the last line on stderr explains a failure."""
    parser = PlainParser(Reading())
    events = [*parser.stdout(b"working\n"), *parser.stderr(TAG + b"\nno "), *parser.stderr(b"network\n")]
    last, report = parser.finish(Exit(1))
    assert [*events, *last] == [
        Text("working\n"),
        Noise(TAG.decode() + "\n"),
        Noise("no network\n"),
    ]
    assert report == AgentReport(Ended.FAILED, claim=False, text="working\n", detail="no network")


@pytest.mark.parametrize(
    ("output", "exit", "ended"),
    [
        (b"text", Exit(0), Ended.OK),
        (b"", Exit(0), Ended.EMPTY),
        (b" \n\t\n", Exit(0), Ended.EMPTY),
        (b"text", Exit(3), Ended.FAILED),
        (b"", Exit(3), Ended.FAILED),
        (b"text", Exit(None, signal=9), Ended.KILLED),
    ],
)
def test_the_exit_decides_the_result(output: bytes, exit: Exit, ended: Ended) -> None:
    """Exit code 0 with an answer is a success, without one it is empty; the rest failed or was killed."""
    assert play([output], exit)[1].ended is ended


@pytest.mark.parametrize(
    ("number", "words"),
    [(9, "by signal 9 (SIGKILL)"), (15, "by signal 15 (SIGTERM)"), (63, "by signal 63 (unknown)")],
)
def test_a_signal_is_named(number: int, words: str) -> None:
    """The report of a killed agent names the signal, not the last line on stderr."""
    parser = PlainParser(Reading())
    parser.stderr(b"out of memory?\n")
    assert parser.finish(Exit(None, signal=number))[1] == AgentReport(Ended.KILLED, detail=words)


@pytest.mark.parametrize(
    ("output", "text", "unclaimed"),
    [
        (b"<response>\x1b[1mDONE\x1b[0m</response>\n", "<response>DONE</response>\n", ""),
        (b"\x1b[2m> " + TAG + b"\x1b[0m\n", "> <response>DONE</response>\n", "in a quotation"),
        (b"\x1b]0;title\x07" + TAG + b"\r\n", "<response>DONE</response>\n", ""),
    ],
    ids=["a claim in colours", "a quotation in colours", "a title before a claim"],
)
def test_escapes_are_not_part_of_the_answer(output: bytes, text: str, unclaimed: str) -> None:
    """The text shown, kept and searched for a claim is the same, without escapes."""
    events, report = play([output])
    expected = AgentReport(Ended.OK, claim=not unclaimed, text=text, unclaimed=unclaimed)
    assert (events, report) == ([Text(text)], expected)


@pytest.mark.parametrize("code", [0, 1])
def test_why_a_tag_does_not_count_is_reported_for_work_only(code: int) -> None:
    """However the process ends, but not for a commit message or a verdict."""
    reports = []
    for purpose in (Purpose.WORK, Purpose.MESSAGE):
        parser = PlainParser(Reading(purpose=purpose))
        parser.stdout(b"`" + TAG + b"`\n")
        reports.append(parser.finish(Exit(code))[1].unclaimed)
    assert reports == ["in backticks", ""]


@pytest.mark.parametrize("strict", [False, True])
def test_an_echoed_prompt_is_not_a_claim(strict: bool) -> None:
    """An agent that prints its whole prompt has repeated the instruction, in one piece or byte by byte."""
    rule = ClaimRule(strict=strict)
    echo = f"Fix it.\n\n{prompt.instruction(rule)}"
    for pieces in ([echo.encode()], [bytes([each]) for each in echo.encode()]):
        parser = PlainParser(Reading(claim=rule, prompt=echo))
        for piece in pieces:
            parser.stdout(piece)
        report = parser.finish(WELL)[1]
        assert (report.claim, report.unclaimed) == (False, "in a sentence that repeats the prompt")


def test_the_reason_of_a_failure_is_short() -> None:
    """Only the last line on stderr is reported, and at most 500 characters of it."""
    parser = PlainParser(Reading())
    parser.stderr(b"first\n" + b"x" * 2000 + b"\n\n")
    assert parser.finish(Exit(1))[1].detail == "x" * 500


def test_the_repeated_prompt_is_not_a_claim() -> None:
    """The parser knows the prompt, so an agent that prints it claims nothing; its own tag still counts."""
    prompt = f"Fix the bug and then print {TAG.decode()} alone."
    echo = prompt.encode() + b"\n"
    assert (play([echo], prompt=prompt)[1].claim, play([echo, TAG], prompt=prompt)[1].claim) == (False, True)


def test_plain_text_has_no_usage() -> None:
    """An agent without structured output reports no usage."""
    assert PlainParser(Reading()).usage == Usage()


def test_a_tag_after_a_huge_line_is_found() -> None:
    """Five megabytes on one line do not hide the claim after them."""
    chunk = b"x" * (1 << 16)
    assert play([*[chunk] * 80, b"\n", TAG])[1].claim


# ---- limits ----

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("out", "err", "code", "ended", "wait"),
    [
        ("", "You've hit your usage limit. Try again in 2 hours.", 1, Ended.LIMIT, 7200.0),
        ("", "429 Too Many Requests", 1, Ended.LIMIT, None),
        ("Working\nUsage limit reached, try again in 90s", "", 1, Ended.LIMIT, 90.0),
        ("Invalid API key · Please run /login", "", 1, Ended.AUTH, None),
        ("I read about rate limits: too many requests", "", 1, Ended.FAILED, None),
        ("See ratelimit.ts", "ENOENT: src/rate_limit.ts", 1, Ended.FAILED, None),
        ("You've hit your usage limit. Try again in 2 hours.", "", 0, Ended.OK, None),
        ("You've hit your usage limit. Try again in 2 hours.\nall tests pass", "", 1, Ended.FAILED, None),
    ],
)
def test_a_limit_in_the_last_lines(out: str, err: str, code: int, ended: Ended, wait: float | None) -> None:
    """An agent that failed by itself may report a limit in its last lines; nothing else counts."""
    parser = PlainParser(Reading(now=lambda: NOW))
    parser.stdout(f"{out}\n".encode())
    parser.stderr(f"{err}\n".encode())
    _, report = parser.finish(Exit(code=code))
    assert (report.ended, report.retry_at and report.retry_at - NOW) == (ended, wait)
