"""The lines of a failed command's output that show what failed."""

from __future__ import annotations

import re

MAX_LINES = 5
MAX_WIDTH = 160
_TAIL = 20_000

_FAILURE = re.compile(
    r"\b(?:fail(?:ed|s|ing)?|failures?|errors?|error\[\w+\]|fatal|panicked|not ok|undefined|cannot)\b"
    r"|\w(?:Error|Exception)\b|[✗✘×]|^E  |^\s*\d+\) \S",
    re.IGNORECASE,
)
_SUCCESS = re.compile(
    r"^\s*(?:[✓✔√]|ok\s|(?:--- )?PASS\b).*|^(?!.*FAILED).*(?:\bPASSED\b.*|\.\.\. ok$)|\b(?:0|no) (?:fail\w*|errors?)\b"
)
"""What reports a success, even if a test is named after a failure."""


def failing_lines(output: str) -> tuple[str, ...]:
    """The last few lines that name a failure; without any, the last few lines."""
    lines = [line.rstrip() for line in output[-_TAIL:].splitlines() if line.strip()]
    found = [line for line in lines if _FAILURE.search(_SUCCESS.sub("", line))] or lines
    return tuple(line[:MAX_WIDTH] for line in found[-MAX_LINES:])
