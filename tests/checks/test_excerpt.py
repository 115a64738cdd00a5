"""Which lines of a failed command's output are shown."""

from __future__ import annotations

import pytest

from ralph.checks.excerpt import MAX_LINES, MAX_WIDTH, failing_lines
from ralph.core.command_output import CommandOutput, Gap

PYTEST = """\
..F.                                                                     [100%]
=================================== FAILURES ===================================
    def test_greeting():
>       assert greet("Ada") == "Hello, Ada!"
E       AssertionError: assert 'Hello, Ada' == 'Hello, Ada!'
test_greet.py:5: AssertionError
=========================== short test summary info ============================
FAILED test_greet.py::test_greeting - AssertionError: assert 'Hello, Ada' == ...
1 failed, 3 passed in 0.02s
"""


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("", ()),
        ("\n \n", ()),
        ("expected: 1\ngot: 2\n", ("expected: 1", "got: 2")),
        ("a\nx.ts(3,1): error TS2304: no 'y'.\nb\n", ("x.ts(3,1): error TS2304: no 'y'.",)),
        ("ok 1 - a\nnot ok 2 - b\n# tests 2\n", ("not ok 2 - b",)),
        (PYTEST, tuple(PYTEST.splitlines()[n] for n in (4, 5, 7, 8))),
        (
            "  ✓ handles errors\nok 2 - cannot parse\nPASS src/errors.test.js\n0 failures, no errors\n"
            "test parse_error ... ok\ntest_errors.py::test_error PASSED [ 50%]\n"
            "test_errors.py::test_b FAILED [100%]\n1 failed, 0 errors\n",
            ("test_errors.py::test_b FAILED [100%]", "1 failed, 0 errors"),
        ),
        ("  1 failing\n\n  1) gt\n       orders majors:\n", ("  1 failing", "  1) gt")),
        ("test parse_error ... ok\n", ("test parse_error ... ok",)),
        ("\n".join(map(str, range(20))), ("15", "16", "17", "18", "19")),
    ],
)
def test_lines_that_name_a_failure(output: str, shown: tuple[str, ...]) -> None:
    """They are shown, or the last lines if no line names one."""
    assert failing_lines(CommandOutput(output)) == shown


def test_it_is_bounded() -> None:
    """However much a command prints, a few lines of bounded length are kept."""
    lines = failing_lines(CommandOutput("error: " + "x" * 10_000 + "\n" + "error\n" * 100_000))
    assert len(lines) == MAX_LINES and max(map(len, lines)) <= MAX_WIDTH


def test_reports_of_tools_come_before_other_lines() -> None:
    """Application output with the word "error" does not crowd out the failed test, even far from the end."""
    output = "--- FAIL: TestA (0.00s)\n" + "retry after error\n" * 2000 + "FAIL\n"
    retries = ("retry after error",) * 3
    assert failing_lines(CommandOutput(output)) == ("--- FAIL: TestA (0.00s)", *retries, "FAIL")


def test_the_end_of_very_long_output_counts() -> None:
    """If the middle was not kept, the failures at the end are shown."""
    output = CommandOutput("not ok 1\n", "not ok 900\n1..1000\n", Gap(800, 9000))
    assert failing_lines(output) == ("not ok 900",)
