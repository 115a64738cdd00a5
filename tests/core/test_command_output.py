"""Shortening the output of a command: what is shown of it, within the limit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.core.command_output import CommandOutput, Gap, ShownOutput, shorten
from ralph.core.failures import FailureSign, failure_sign

LOGS = Path(__file__).parent / "outputs"
HEADING = "[Failures in the omitted part:]\n"
MARK = re.compile(r"^\[\.\.\. ([\d,]+) (line|character)s? omitted \.\.\.\]\n", re.MULTILINE)

texts = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="["), max_size=2000),
    st.lists(
        st.sampled_from(["", "ok", "test_a PASSED", "FAILED test_b", "E   assert 1", "an error", "x" * 300]),
        max_size=400,
    ).map("\n".join),
)
limits = st.one_of(st.integers(1, 30), st.integers(1, 3000))


def shown(text: str, limit: int) -> str:
    found = shorten(CommandOutput(text), limit)
    assert found.is_cut
    return found.text


def parts(text: str) -> tuple[str, str, re.Match[str], str]:
    """The failure lines, the head, the mark and the tail."""
    block = ""
    if text.startswith(HEADING):
        block, _, text = text.removeprefix(HEADING).partition("\n\n")
        block += "\n"
    mark = MARK.search(text)
    assert mark
    return block, text[: mark.start()], mark, text[mark.end() :]


def numbered(first: int, last: int) -> str:
    return "".join(f"line {number}\n" for number in range(first, last + 1))


# ---- what fits ----


@given(texts, limits)
def test_output_that_fits_is_unchanged(text: str, limit: int) -> None:
    """It is cut only if it is longer than the limit, and a limit of 0 shows everything."""
    assert shorten(CommandOutput(text), 0) == ShownOutput(text, is_cut=False)
    found = shorten(CommandOutput(text), limit)
    assert found.is_cut == (len(text) > limit)
    assert found.is_cut or found.text == text


@given(texts, texts, st.sampled_from([None, Gap(3, 100), Gap(0, 7)]), limits)
def test_the_limit_is_never_exceeded(head: str, tail: str, gap: Gap | None, limit: int) -> None:
    """Heading, failure lines, head, mark and tail together stay within the limit, with and without a gap."""
    output = CommandOutput(head, tail, gap) if gap else CommandOutput(head)
    assert len(shorten(output, limit).text) <= limit


# ---- what is shown of long output ----


def test_the_end_is_the_larger_part() -> None:
    """A quarter of the space is for the head, the rest for the tail, both of whole lines."""
    text = shown(numbered(1, 1000), 400)
    assert text == numbered(1, 9) + "[... 958 lines omitted ...]\n" + numbered(968, 1000)


@given(texts.filter(lambda text: len(text) > 100), st.integers(100, 3000))
def test_head_and_tail_are_the_start_and_the_end(text: str, limit: int) -> None:
    """The head is a prefix, the tail a suffix at least as long, and the mark counts exactly what is between."""
    if len(text) <= limit:
        return
    _, head, mark, tail = parts(shown(text, limit))
    count = int(mark[1].replace(",", ""))
    if mark[2] == "line":
        assert text.startswith(head) and text.endswith(tail) and len(tail) >= len(head)
        assert text[len(head) : len(text) - len(tail)].count("\n") == count
    else:
        head = head if text.startswith(head) and len(head) + count + len(tail) == len(text) else head[:-1]
        assert text.startswith(head) and text.endswith(tail) and len(tail) >= len(head)
        assert len(head) + count + len(tail) == len(text)


@given(st.lists(st.sampled_from(["ok", "a longer line", "E   assert 1", "FAILED"]), min_size=200), limits)
def test_lines_are_not_cut(lines: list[str], limit: int) -> None:
    """Where lines are short, only whole ones are shown, if there is room for the mark."""
    text = "".join(f"{line}\n" for line in lines)
    if 150 <= limit < len(text):
        _, head, mark, tail = parts(shown(text, limit))
        assert mark[2] == "line" and tail.split("\n")[0] in lines
        assert head == "" or head.endswith("\n")


def test_one_line_is_missing() -> None:
    """The mark has the singular."""
    assert (
        shown("a" * 50 + "\n" + "b" * 200 + "\n" + "c" * 140 + "\n", 350).count("[... 1 line omitted ...]\n")
        == 1
    )


def test_a_huge_line_is_cut_inside() -> None:
    """Then the mark counts characters."""
    text = shown("a" * 500_000 + "z" * 500_000, 1000)
    assert text == "a" * 210 + "\n[... 999,040 characters omitted ...]\n" + "z" * 750


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (1, "0"),
        (13, "8901234567890"),
        (40, "12345678\n[...]\n6789012345678901234567890"),
        (79, "[... 957 characters omitted ...]\n8901234567890123456789012345678901234567890"),
    ],
)
def test_without_room_for_everything(limit: int, text: str) -> None:
    """The end matters most, then the head, then the count."""
    assert shown("1234567890" * 100, limit) == text


# ---- failure lines from the omitted part ----


def test_failures_come_first() -> None:
    """The lines that name a failure are listed before the head, in their order."""
    text = numbered(1, 400) + "FAILED a\nmiddle\nFAILED b\n" + numbered(401, 800)
    assert shown(text, 1000).startswith(f"{HEADING}FAILED a\nFAILED b\n\nline 1\n")


failing = st.sampled_from(
    ["FAILED a", "not ok 2 - b", "E   assert 1", "x.c:1:1: error: c", "cannot do d", "✗ e"]
)


@given(
    st.lists(failing, max_size=5), st.lists(st.sampled_from(["ok 1", "", "a line"]), max_size=300), st.data()
)
def test_every_failure_is_shown_once(failures: list[str], others: list[str], data: st.DataObject) -> None:
    """Failure lines that fit a quarter of the limit are all shown: first, or in the head or tail, but not twice."""
    lines = list(others)
    for line in failures:
        lines.insert(data.draw(st.integers(0, len(lines))), line)
    text = "".join(f"{line}\n" for line in lines)
    found = shorten(CommandOutput(text), 600)
    if found.is_cut:
        block, head, _, tail = parts(found.text)
        assert set(failures) <= {*block.splitlines(), *head.splitlines(), *tail.splitlines()}
        assert set(block.splitlines()).isdisjoint({*head.splitlines(), *tail.splitlines()})
        assert len(set(block.splitlines())) == len(block.splitlines())


def test_hundreds_of_failures() -> None:
    """The first ones are listed, reports of tools before other lines, and the others are counted."""
    failures = "".join(f"cannot {n}\nFAILED {n}\n" for n in range(1, 301))
    block = parts(shown(numbered(1, 100) + failures + numbered(101, 300), 1000))[0]
    listed = [f"FAILED {n}" for n in range(1, 21)]
    assert block.splitlines() == [*listed, "[... 580 more ...]"]


def test_long_failure_lines_are_cut_if_they_do_not_fit() -> None:
    """One of them does not take the place of all others."""
    text = numbered(1, 100) + "FAILED " + "a" * 2000 + "\nFAILED b\n" + numbered(101, 300)
    assert parts(shown(text, 2000))[0].splitlines() == ["FAILED " + "a" * 191 + "…", "FAILED b"]
    assert "FAILED" not in shown(text, 200)


# ---- output of which only the start and the end were kept ----


def test_the_gap_counts_too() -> None:
    """Lines that were never kept are among the omitted ones."""
    output = CommandOutput(numbered(1, 500), numbered(9_501, 10_000), Gap(9000, 100_000))
    _, head, mark, tail = parts(shorten(output, 400).text)
    assert head + tail == numbered(1, 8) + numbered(9_971, 10_000)
    assert mark[0] == "[... 9,962 lines omitted ...]\n"


def test_without_a_limit_everything_kept_is_shown() -> None:
    """Only what is missing is marked."""
    for limit in (0, 10_000):
        shown = shorten(CommandOutput("a\n", "b\n", Gap(7, 50)), limit)
        assert shown == ShownOutput("a\n[... 7 lines omitted ...]\nb\n", is_cut=True)
    inside = CommandOutput("aa", "bb\nc", Gap(0, 50))
    assert shorten(inside, 0).text == "aa\n[... 50 characters omitted ...]\nbb\nc"


@given(st.text("AB\n", max_size=300), st.text("CD\n", max_size=300), st.integers(1, 400))
def test_nothing_is_joined_across_the_gap(head: str, tail: str, limit: int) -> None:
    """No text continues from one side of the gap to the other."""
    found = shorten(CommandOutput(head, tail, Gap(0, 50)), limit).text
    assert not re.search(r"[AB][CD]", found)


# ---- recorded logs ----


@pytest.mark.parametrize(
    ("log", "wanted"),
    [
        (
            "pytest.log",
            [
                "test_prices.py::test_total[117] FAILED                                   [ 29%]",
                ">       assert total([count] * 3, discount) == 3 * count",
                "E       assert 341 == (3 * 117)",
                "FAILED test_prices.py::test_total[117] - assert 341 == (3 * 117)",
            ],
        ),
        (
            "cargo.log",
            [
                "test tests::parse_error_case_180 ... FAILED",
                "assertion `left == right` failed",
                "  left: 181",
                " right: 180",
            ],
        ),
        ("node.log", ["    not ok 8 - handles error 7 of group 4", "      expected: 7", "      actual: 8"]),
    ],
)
@pytest.mark.parametrize("limit", [2000, 5000])
def test_the_failure_in_a_long_log_is_shown(log: str, wanted: list[str], limit: int) -> None:
    """One of hundreds of tests fails: its name and the reason are shown, and the totals at the end."""
    text = (LOGS / log).read_text()
    found = shown(text, limit)
    assert [line for line in wanted if line not in found.splitlines()] == []
    assert found.endswith(text[-300:])
    assert len(found) > limit * 0.9


@pytest.mark.parametrize("log", ["pytest.log", "cargo.log", "node.log"])
def test_passing_tests_are_not_failures(log: str) -> None:
    """In a recorded log, no line of a passing test is taken for a failure, though many are named after one."""
    lines = (LOGS / log).read_text().splitlines()
    passing = re.compile(r".* PASSED +\[|test .* \.\.\. ok$|\s*ok \d|\s*# Subtest")
    found = [line for line in lines if passing.match(line)]
    assert len(found) > 350
    assert [line for line in found if failure_sign(line) is not FailureSign.NONE] == []
