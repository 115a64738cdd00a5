"""Ralph's side of the warden: start a command, read its output, stop it, get its exit status."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress

from msgspec import Struct

from ralph.core.model import Ended, Exit
from ralph.files.compiled import compiled
from ralph.files.unnamed import unnamed_file
from ralph.process import orphans, warden
from ralph.process.orphans import Orphans
from ralph.process.step import ANSWER_SECONDS, OutputReader, Step, Watch

_PIPE_BYTES = 1 << 18
_NULL_DEVICE = "/dev/null"

_DROPPED = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "PWD")
"""Inherited variables that make an agent refuse to start, believe that it runs inside another agent, or work in
the directory that Ralph was started from."""


class ProcessCommand(Struct, frozen=True):
    """A command to start. `directory` and `stdin` are open descriptors. Without stdin, it reads /dev/null.

    With `merged`, stdout and stderr are one stream, read as stdout.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    directory: int
    stdin: int | None = None
    merged: bool = False


class Wakeup:
    """Counts interrupting signals and wakes the waiting thread. There is one for the whole process."""

    def __init__(self) -> None:
        self.count = 0
        self.by = ""
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._reader

    def interrupt(self, by: str = "Ctrl-C") -> None:
        self.by = by
        self.count += 1
        self.wake()

    def wake(self) -> None:
        try:
            os.write(self._writer, b"!")
        except BlockingIOError:
            pass

    def drain(self) -> None:
        try:
            os.read(self._reader, 4096)
        except BlockingIOError:
            pass

    def wait(self, seconds: float) -> None:
        """Sleep until woken, for at most `seconds`."""
        if select.select([self._reader], [], [], seconds)[0]:
            self.drain()


def find_program(name: str, path: str, directory: int) -> tuple[str, str]:
    """Return the path of a program, and the problem if it cannot be started."""
    if "/" in name:
        return name, _problem(name, directory)
    for place in path.split(":"):
        candidate = f"{place or '.'}/{name}"
        if not _problem(candidate, directory):
            return candidate, ""
    return name, "command not found"


def _problem(path: str, directory: int) -> str:
    try:
        status = os.stat(path, dir_fd=directory)
    except OSError as error:
        return "no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    return "" if os.access(path, os.X_OK, dir_fd=directory) else "not executable"


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an agent or a check: ours without misleading variables, plus `extra`."""
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    return environment | dict(extra)


_PROGRAM = unnamed_file(compiled(warden))
"""A copy of the warden's program, so that an upgrade during a run does not change it."""


class Warden:
    """A running warden. Use it as a context manager: leaving it kills the warden's process tree and the warden."""

    def __init__(self, wakeup: Wakeup, lock: int | None = None) -> None:
        self._wakeup = wakeup
        self._lock = lock
        self._spared: Callable[[], Sequence[int]] = tuple
        self._keeps = False
        self._orphans = Orphans()
        self._start()

    def __enter__(self) -> Warden:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Tell the warden to kill its process tree and exit, and wait for it."""
        self._control.close()
        if not orphans.forget(self._pid, patience=warden.LIVE_GRACE + 2) or self._orphans.adopted:
            self._orphans.sweep()

    def _start(self) -> None:
        warden.become_subreaper()
        orphans.note_strangers()
        ours, theirs = socket.socketpair()
        ours.settimeout(ANSWER_SECONDS)
        self._control, self._received = ours, b""
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_DUP2, _PROGRAM, warden.PROGRAM_FD),
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), warden.CONTROL_FD),
            (os.POSIX_SPAWN_OPEN, 1, _NULL_DEVICE, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, _NULL_DEVICE, os.O_WRONLY, 0),
        ]
        arguments = [sys.executable, "-I", "-S", f"/dev/fd/{warden.PROGRAM_FD}"]
        lock = None
        if self._lock is not None:
            lock = fcntl.fcntl(self._lock, fcntl.F_DUPFD_CLOEXEC, 10)
            actions.append((os.POSIX_SPAWN_DUP2, lock, warden.LOCK_FD))
            arguments.append("lock")
        with orphans.starting:
            self._pid = os.posix_spawn(
                sys.executable,
                arguments,
                {},
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=warden.DEFAULTED,
            )
            orphans.wardens.add(self._pid)
        theirs.close()
        if lock is not None:
            os.close(lock)

    # ---- one command ----

    def run(self, command: ProcessCommand, reader: OutputReader, watch: Watch) -> Exit:
        """Start the command and wait until it and every process it started is gone."""
        if any("\0" in word for word in command.argv) or any(
            not name or "\0" in name or "=" in name for name in command.environment
        ):
            return Exit(error=errno.EINVAL)
        out, out_end = _wide_pipe()
        err, err_end = (None, out_end) if command.merged else _wide_pipe()
        stdin = command.stdin if command.stdin is not None else os.open(_NULL_DEVICE, os.O_RDONLY)
        sent = self._send_command(command, [stdin, out_end, err_end, command.directory])
        for descriptor in {out_end, err_end} | ({stdin} if command.stdin is None else set()):
            os.close(descriptor)
        readers: dict[int, Callable[[bytes], None]] = {out: reader.stdout}
        if err is not None:
            readers[err] = reader.stderr
        try:
            step = Step(self, readers, watch)
            return step.until_swept() if sent else step.lost()
        finally:
            for descriptor in readers:
                os.close(descriptor)

    def _send_command(self, command: ProcessCommand, descriptors: list[int]) -> bool:
        argv = [os.fsencode(argument) for argument in command.argv]
        environment = [
            os.fsencode(f"{name}={value}") for name, value in command.environment.items() if "\0" not in value
        ]
        keep = b"keep" if self._keeps else b""
        message = warden.pack(b"run", keep, str(len(argv)).encode(), *argv, *environment)
        try:
            sent = socket.send_fds(self._control, [message], descriptors)
            self._control.sendall(message[sent:])
        except OSError:
            return False
        return True

    def keep(self, spared: Callable[[], Sequence[int]]) -> None:
        """From now on, the leftover processes of a command that exits keep running until `sweep` is called.

        When a command has to be stopped or its warden is lost, every process that it started is killed with it,
        except `spared`.
        """
        self._keeps, self._spared = True, spared

    def leftovers(self) -> int:
        """Return how many process trees are left over from earlier commands."""
        self._send(b"count")
        answer = self._answer(b"children", self._spared)
        return (int(answer[0]) if answer else 0) + self._orphans.count()

    def sweep(self, spare: Sequence[int] = ()) -> None:
        """Kill all leftover processes except these."""
        self._send(b"sweep", *_numbers(spare))
        self._answer(b"swept", lambda: spare)
        if self._orphans.adopted:
            self._orphans.sweep(spare)

    def _answer(self, verb: bytes, spared: Callable[[], Sequence[int]]) -> list[bytes] | None:
        """Return the warden's answer, or None if it was replaced and all its processes but `spared` were killed."""
        deadline = time.monotonic() + warden.LEFTOVER_GRACE + warden.GIVE_UP + ANSWER_SECONDS
        while time.monotonic() < deadline:
            if not select.select([self._control], [], [], 1.0)[0]:
                continue
            messages = self.receive()
            if messages is None:
                break
            for found, *fields in messages:
                if found == verb:
                    return fields
        self.replace(spared())
        return None

    def end(self, grace: float) -> None:
        self._send(b"end", str(grace).encode(), *_numbers(self._spared()))

    def ping(self) -> None:
        self._send(b"ping")

    def _send(self, *fields: bytes) -> None:
        try:
            self._control.sendall(warden.pack(*fields))
        except OSError:
            pass

    def receive(self) -> list[list[bytes]] | None:
        """Return the messages that have arrived, or None if the warden is gone."""
        try:
            data = self._control.recv(65536)
        except OSError:
            data = b""
        if not data:
            return None
        self._received += data
        messages = []
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                break
            messages.append(self._received[4:end].split(b"\0"))
            self._received = self._received[end:]
        return messages

    def lost(self, main: int) -> int:
        """Replace a lost warden and kill the command `main`, but no spared process. Returns the number of passes."""
        return self.replace(self._spared(), main)

    def replace(self, spare: Sequence[int] = (), main: int = 0) -> int:
        """Kill the warden, sweep the processes it leaves to us except `spare`, and start another.

        Returns the number of passes of the sweep.
        """
        orphans.kill(self._pid)
        self._control.close()
        orphans.forget(self._pid, patience=ANSWER_SECONDS)
        passes = self._orphans.sweep(spare, main)
        self._start()
        if self._orphans.adopted:
            self._send(b"inherit", *_numbers(self._orphans.adopted))
        return passes

    def fileno(self) -> int:
        return self._control.fileno()

    @property
    def wakeup(self) -> Wakeup:
        return self._wakeup

    def heed(self, wakeup: Wakeup) -> None:
        """From now on, react to these signals while a command runs."""
        self._wakeup = wakeup


def _numbers(pids: Iterable[int]) -> Iterator[bytes]:
    return (str(pid).encode() for pid in pids)


class _Collected:
    """Collects the output of a command, at most `most` bytes of its stdout."""

    def __init__(self, most: int | None) -> None:
        self.out = b""
        self.err = b""
        self._most = most

    @property
    def is_full(self) -> bool:
        return self._most is not None and len(self.out) >= self._most

    def stdout(self, data: bytes) -> None:
        self.out += data if self._most is None else data[: self._most - len(self.out)]

    def stderr(self, data: bytes) -> None:
        self.err += data


class ProcessOutput(Struct, frozen=True):
    """Result of a short command. `problem` says why it could not start, `is_cut` that its output was cut off."""

    exit: Exit
    out: bytes
    err: bytes
    problem: str = ""
    is_cut: bool = False


def _wide_pipe() -> tuple[int, int]:
    """Return a pipe with a larger buffer than usual, which triples the speed of reading a flood of output."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # the kernel limits the total size of a user's pipes
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return reader, writer


def output_of(
    owner: Warden,
    argv: Sequence[str],
    directory: int,
    environment: Mapping[str, str],
    stdin: bytes = b"",
    watch: Watch = lambda seconds, idle: None,
    most: int | None = None,
) -> ProcessOutput:
    """Run a short command of Ralph itself and collect its output. It is stopped after `most` bytes."""
    program, problem = find_program(argv[0], environment.get("PATH", os.defpath), directory)
    if problem:
        return ProcessOutput(Exit(error=errno.ENOENT), b"", b"", f"{argv[0]}: {problem}")
    collected = _Collected(most)

    def watched(seconds: float, idle: float) -> Ended | None:
        return Ended.OK if collected.is_full else watch(seconds, idle)

    with _file_with(stdin) if stdin else nullcontext() as given:
        exit = owner.run(
            ProcessCommand([program, *argv[1:]], environment, directory, given), collected, watched
        )
    return ProcessOutput(exit, collected.out, collected.err, is_cut=collected.is_full)


@contextmanager
def _file_with(data: bytes) -> Iterator[int]:
    descriptor = unnamed_file(data)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
