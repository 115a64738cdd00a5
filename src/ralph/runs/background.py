"""The process that drives a run: its signals, and moving to the background."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ralph.process.client import Wakeup


@contextmanager
def signals() -> Iterator[Wakeup]:
    """The first signal stops the run after the current step, the second stops it immediately.

    A signal that the caller ignores (nohup) stays ignored. After the run all signals are ignored, so that none can
    change an exit code that is already decided.
    """
    wakeup = Wakeup()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    caught = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    for number in caught:
        signal.signal(number, lambda number, _: wakeup.interrupt(_name(number)))
    try:
        yield wakeup
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_IGN)


def _name(number: int) -> str:
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def detach(output: Path) -> Callable[[], None] | None:
    """Fork, and continue in the background.

    The child gets a function to call once it owns the run. The parent waits for that call and gets None.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    if os.fork():
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        return None
    os.close(reader)
    os.setsid()
    null = os.open("/dev/null", os.O_RDONLY)
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target)
    return lambda: os.close(writer)
