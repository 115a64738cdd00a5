"""The process that drives a run: its signals, and going on in the background."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ralph.process.client import Wakeup


@contextmanager
def signals() -> Iterator[Wakeup]:
    """The first signal asks the run to stop after the operation in hand, the second ends it now.

    A signal that the caller ignores (nohup) stays ignored; after the run all of them do, so that none can
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
    """Go on in the background.

    The process that goes on gets a function to call when the run is its own; the one that was called
    waits for that and gets None.
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
