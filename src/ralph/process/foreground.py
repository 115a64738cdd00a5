"""The one command that runs without a warden: an interactive agent in the user's terminal.

It owns the terminal, so it stays in Ralph's session and process group, and Ctrl-C goes to the agent. Processes that
it leaves behind are left alone, as if the user had started it directly. Terminal modes are restored afterwards.
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
    """Run the program at a path with our own stdin, stdout and stderr, and return its exit code."""
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
    """Ignore signals that the terminal sends to the agent anyway, and forward those sent to Ralph alone."""

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
