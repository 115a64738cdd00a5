"""`ForkedRalph`: a Popen whose process is a fork of a server that has imported ralph (`fork_server`).

A real process is started instead if a variable differs that the interpreter reads at its start, or if
`RALPH_TEST_EXEC` is set.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import fork_server

RALPH = str(Path(sys.executable).parent / "ralph")

NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""Set for every process of the tests, so that a program edited twice in one second is not run from a stale cache."""

_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "TEXTUAL", "COLORTERM")
"""Variables that the interpreter and libraries read once, before or during the import of modules."""


def start_ralph(
    arguments: tuple[str, ...],
    cwd: Path,
    env: Mapping[str, str],
    stdin: int | IO[Any] = subprocess.DEVNULL,
    stdout: int | IO[Any] = subprocess.PIPE,
    stderr: int | IO[Any] = subprocess.PIPE,
    real_process: bool = False,
) -> subprocess.Popen[str]:
    """Start ralph, as a fork if that is as good as a separate process."""
    kind = subprocess.Popen if real_process or _needs_exec(env) else ForkedRalph
    return kind([RALPH, *arguments], cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, text=True)


def _needs_exec(env: Mapping[str, str]) -> bool:
    return bool(os.environ.get("RALPH_TEST_EXEC")) or any(
        name.startswith(_READ_AT_START) and env.get(name) != os.environ.get(name)
        for name in {*env, *os.environ}
    )


class ForkedRalph(subprocess.Popen[str]):
    """A child process of the server, which reports its exit status. Until then it exists at least as a zombie."""

    _pidfd: int | None = None
    _owner: _Server

    def _execute_child(self, *given: Any) -> None:
        """Called by Popen to start the process, with its arguments and the pipes it made."""
        argv, cwd, env, pipes = given[0], given[5], given[6], given[10:16]
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = pipes
        directory = os.open(cwd, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            environment = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
            message = ("start", argv[1:], environment, _umask())
            descriptors = (p2cread, c2pwrite, errwrite, directory)
            self._owner = _living_server()
            try:
                self.pid = self._owner.ask(message, descriptors)
            except (OSError, EOFError):  # a test killed the server a moment ago
                self._owner.kill()
                self._owner = _living_server()
                self.pid = self._owner.ask(message, descriptors)
        finally:
            os.close(directory)
        self._child_created = True
        if hasattr(os, "pidfd_open"):
            self._pidfd = os.pidfd_open(self.pid)
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode

    def _try_wait(self, flags: int) -> tuple[int, int]:
        """Like waitpid(2): return the PID and the status, or zeros while the process runs."""
        if flags == 0:
            self._wait_for_end()
        try:
            status = self._owner.ask(("poll", self.pid))
        except (OSError, EOFError):
            status = signal.SIGKILL  # whoever killed the server has killed its children too
        if status is None:
            return 0, 0
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        return self.pid, status

    def _wait_for_end(self) -> None:
        if self._pidfd is not None:
            waiter = select.poll()
            waiter.register(self._pidfd, select.POLLIN)
            waiter.poll()
        else:
            time.sleep(0.005)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_starting = threading.Lock()


class _Server:
    """A server for this process alone, which several threads can use at once."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("RALPH_", "GIT_"))}
        environment.pop(NO_BYTECODE, None)  # so that processes that are not forked start faster
        with theirs:
            words = [sys.executable, fork_server.__file__, str(theirs.fileno()), RALPH]
            self._process = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        atexit.register(self.kill)

    def ask(self, message: tuple[Any, ...], descriptors: tuple[int, ...] = ()) -> Any:
        with self._lock:
            fork_server.send(self._control, message, descriptors)
            answer = fork_server.receive(self._control)
        if answer is None:
            raise EOFError("the fork server is gone")
        return answer[0]

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait()


_servers: list[_Server] = []


def _living_server() -> _Server:
    """Return the newest server, or a new one if a test killed it, as a ralph without its warden kills all children."""
    with _starting:
        if not _servers or not _servers[-1].is_alive:
            _servers.append(_Server())
        return _servers[-1]
