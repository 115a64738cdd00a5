"""The one command that runs without a warden: an agent that a person talks to, in the person's own terminal.

It keeps the terminal, so it stays in ralph's session and group, and ralph is as good as not there: Ctrl-C is the
agent's. What it leaves behind is the person's, as if the person had started it. A terminal that it has left in a bad
state is put back.
"""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from ralph.process import orphans, warden

_TERMINAL = 0


def run_in_terminal(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start a program by its path with our own stdin, stdout and stderr, wait for its end, return its exit code."""
    pids: list[int] = []
    with _terminal_kept(), _signals_passed_on(pids):
        with orphans.starting:
            pid = os.posix_spawn(
                argv[0], list(argv), dict(environment), setsigmask=(), setsigdef=warden.DEFAULTED
            )
        pids.append(pid)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code


@contextmanager
def _signals_passed_on(pids: Sequence[int]) -> Iterator[None]:
    """The terminal tells the agent what is typed; what is sent to ralph alone goes to the agent."""

    def pass_on(number: int, frame: object) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    before |= {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _terminal_kept() -> Iterator[None]:
    try:
        modes = termios.tcgetattr(_TERMINAL)
    except termios.error:
        yield
        return
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(_TERMINAL, termios.TCSADRAIN, modes)
