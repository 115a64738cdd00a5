"""The few lines of a failed command's output that show what failed, for the console and the journal."""

from __future__ import annotations

from ralph.core.command_output import CommandOutput
from ralph.core.failures import FailureSign, failure_sign

MAX_LINES = 5
MAX_WIDTH = 160
_TAIL = 100_000


def failing_lines(output: CommandOutput) -> tuple[str, ...]:
    """The last lines that name a failure, reports of tools first; without any, the last few lines."""
    text = (output.tail if output.gap else output.head)[-_TAIL:]
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    signs = [failure_sign(line) for line in lines]
    named = [number for number, sign in enumerate(signs) if sign is not FailureSign.NONE]
    chosen = sorted(named, key=lambda number: (signs[number], number))[-MAX_LINES:]
    found = [lines[number] for number in sorted(chosen)] or lines[-MAX_LINES:]
    return tuple(line[:MAX_WIDTH] for line in found)
