"""Recognise the lines with which compilers, linters and test runners report a failure."""

from __future__ import annotations

import re
from enum import IntEnum

_MAX_READ = 1000
"""How much of a long line is looked at."""


class FailureSign(IntEnum):
    """What a line says about a failure: nothing, a word for one, or the report of a known tool."""

    NONE = 0
    WORD = 1
    REPORT = 2


_PASSED = re.compile(
    r"""\s*[✓✔√]                                               # mocha, jest, vitest, node, bats
      | \s*ok\b | \s*(?:---\ )?PASS\b | ===\                   # TAP, go, jest
      | \s*\(pass\) | \s*Passed[ !]                            # bun, dotnet
      | \[\s*(?:OK|RUN|PASSED)\s*\]                            # googletest
      | (?!.*\bFAILED\b).*\bPASSED\b                           # pytest, Gradle
      | .*\.{3}\ (?:ok|ignored|skipped\b.*|expected\ failure)(?:\ \([^()]*\))?$  # unittest, cargo, deno
      | .*\.{3}\s+Passed\s | .*'\ passed\ \(                   # ctest, XCTest
      | \S+\ [.sxX]+(?:\s+\[\s*\d+%\])?$                       # pytest, one character per test
      | \s*not\ ok\b.*\#\s*(?:TODO|SKIP)\b | \s*\#\ Subtest:   # TAP
      | =+\ (?:FAILURES|ERRORS)\ =+$ | \s*failures:$           # headings
    """,
    re.VERBOSE,
)
"""Lines that report a success, even of a test that is named after a failure, or nothing."""

_NONE_FAILED = re.compile(
    r"\b(?:0|no|without(?: any)?) (?:tests? )?(?:fail\w*|errors?)\b|\b(?:fail\w*|errors?)\b[\"']?\s*[:=]?\s*0(?=\s*(?:[,;|)\]}]|\.?$))",
    re.IGNORECASE,
)
"""Parts of a line that count no failure."""

_REPORT = re.compile(
    r"""\s*(?:FAILED|FAIL)\b                                   # pytest, unittest, jest, vitest, go
      | \[gw\d+\]\ \[\s*\d+%\]\ (?:FAILED|ERROR)\b             # pytest -n
      | \S+\ (?=[.sxX]*[FE])[.sxXFE]+(?:\s+\[\s*\d+%\])?$      # pytest, one character per test
      | E\s{2,}\S | INTERNALERROR> | ERROR\s(?:\S+::|\S+\.py\b|collecting\b|at\ )
      | ERROR:\s\S+\s\(                                        # unittest
      | \s*---\ FAIL\b | panic:\s | \S+\.go:\d+:\d+:\s         # go
      | \s*not\ ok\b | \s*(?:\#|ℹ)\ fail\ [1-9]                # TAP, node
      | \s*[✗✘✕✖×❌] | \s*\(fail\)\s | \s*●\ (?!Console\b)\S    # jest, vitest, node, eslint, bats, bun
      | error(?:\[\w+\])?:\s | \S*make(?:\[\d+\])?:\ \*\*\*    # cargo, make
      | \s*\d+:\d+\s+error\s                                   # eslint
      | \S+:\d+:\d+:\ (?:[A-Z]+\d{3,5}:?|[CEFW]:)\s | [A-Z]{1,4}\d{3,4}\ (?:\[\*\]\ )?\S  # ruff, RuboCop
      | \[\s*FAILED\s*\] | \S+:\d+:\ Failure$                  # googletest
      | \[ERROR\]\s+\S                                         # Maven
      | FAILURE: | B(?:UILD|uild)\ FAILED\b | e:\ \S+:         # Gradle, dotnet
      | FAILURES!$ | \s*Failed\ asserting\b | \s*Failed\ \S+\ \[  # PHPUnit, dotnet
      | \s*Failure/Error: | rspec\ \./                         # RSpec
      | \s*(?:Caused\ by:\ |Uncaught\ )?[\w.]*\w(?:Error|Exception)(?::\s|\ \[|\ at\ |$)  # the end of a traceback
    """,
    re.VERBOSE,
)
"""The start of a line that reports a failure."""

_MARKS = (
    *("fail", "error", "exception", "panicked", "fatal", "undefined", "cannot", "timed out", "not found"),
    *("no such file", "permission denied", "segmentation fault", "core dumped", "***", *"✗✘✕✖❌"),
)
"""Any line with a match of the two patterns below contains one of these, ignoring case; finding them is fast."""

_REPORT_WITHIN = re.compile(
    r"""\b(?:FAILED|ERROR)\s+\[\s*\d+%\]$                      # pytest -v
      | :\d+:\ \w*(?:Error|Exception|Failed)$                  # pytest
      | \.{3}\ (?:FAILED|FAIL|ERROR)\b                         # unittest, cargo, deno
      | \bpanicked\ at\b                                       # cargo
      | [:)]\ (?:fatal\ )?error(?:\ \w+)?:\s | \ -\ error\ TS\d  # gcc, clang, javac, mypy, dotnet, tsc
      | \bundefined\ reference\ to\b                           # ld
      | \*{3}(?:Failed|Timeout|Exception|Not\ Run)\b           # ctest
      | \ FAILED$ | '\ failed\ \(                              # Gradle, XCTest
      | <<<\ (?:FAILURE|ERROR)! | \bBUILD\ FAILURE\b           # Maven
      | \b[1-9]\d*\ (?:tests?\ )?(?:failed|failing|failures?|errors?)\b  # totals
      | \b(?:[Ff]ailures|[Ee]rrors|[Ff]ailed)\s*[:=]\s*[1-9]
    """,
    re.VERBOSE,
)

_WORD = re.compile(
    r"\b(?:fail(?:ed|s|ing|ures?)?|errors?|fatal|panicked|undefined|cannot|timed out|not found"
    r"|no such file|permission denied|segmentation fault|core dumped)\b"
    r"|(?-i:\w(?:Error|Exception))\b|[✗✘✕✖❌]",
    re.IGNORECASE,
)
_DETAIL = re.compile(
    r"\s*\d+\) \S|\s+\w+_test\.go:\d+: |\s*(?:expected|received|actual|got|left|right)\b.{0,20}?[:=]",
    re.IGNORECASE,
)
"""The start of a line below a failure: the number and name of the test, or a value."""

_HARMLESS = re.compile(r"\[(?:INFO|WARNING|DEBUG)\]|(?:\S+ )?warning\b|\S+ note:", re.IGNORECASE)
"""The start of a line that mentions errors without reporting one."""


def failure_sign(line: str) -> FailureSign:
    """Whether a line of output names a failure."""
    line = line[:_MAX_READ].rstrip()
    if _PASSED.match(line):
        return FailureSign.NONE
    folded = line.lower()
    is_marked = any(mark in folded for mark in _MARKS)
    if is_marked:
        line = _NONE_FAILED.sub("", line)
    if _REPORT.match(line) or (is_marked and _REPORT_WITHIN.search(line)):
        return FailureSign.REPORT
    if _DETAIL.match(line) or (is_marked and _WORD.search(line) and not _HARMLESS.match(line)):
        return FailureSign.WORD
    return FailureSign.NONE
