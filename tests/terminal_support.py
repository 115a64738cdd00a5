"""ralph in a real terminal: its prompts, the answers typed, and the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyte

from conftest import RALPH, Project

COLUMNS, LINES = 110, 90

_TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""

CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """A terminal high enough that nothing scrolls away."""

    def __init__(self, project: Project, arguments: tuple[str, ...], stdout: int | None = None) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _TAKE_TERMINAL, RALPH, *arguments],
            cwd=project.path,
            env=project.env | {"TERM": "xterm", "COLUMNS": "", "LINES": "", "INPUTRC": "/dev/null"},
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._answered = -1

    @property
    def screen(self) -> str:
        """The text on the screen, without trailing blanks and empty lines."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    def colour_of(self, text: str) -> str:
        """The colour at the start of a text."""
        lines = self._screen.display
        line = next(number for number, each in enumerate(lines) if text in each)
        return str(self._screen.buffer[line][lines[line].index(text)].fg)

    def expect(self, prompt: str) -> None:
        """Wait until a line below the last answer ends with this prompt, with the cursor after it."""
        deadline = time.monotonic() + 20
        while not (self._screen.cursor.y > self._answered and self._line.rstrip().endswith(prompt)):
            assert self._read(deadline - time.monotonic()), f"no {prompt!r} on the screen:\n{self.screen}"

    def answer(self, prompt: str, text: str) -> None:
        self.expect(prompt)
        self._answered = self._screen.cursor.y
        self.type(f"{text}\r")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode(errors="surrogateescape"))

    def finish(self) -> int:
        """Wait for the process to exit and return its exit code."""
        deadline = time.monotonic() + 20
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(max(1.0, deadline - time.monotonic()))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    @property
    def _line(self) -> str:
        return str(self._screen.display[self._screen.cursor.y])

    def _read(self, seconds: float) -> bool:
        if seconds <= 0 or not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other end is closed
            return False
        self._stream.feed(data)
        return bool(data)


@contextmanager
def terminal(project: Project, *arguments: str, stdout: int | None = None) -> Iterator[Terminal]:
    found = Terminal(project, arguments, stdout)
    try:
        yield found
    finally:
        found.close()
