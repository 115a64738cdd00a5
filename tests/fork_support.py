"""`ForkedRalph`: a Popen whose process is a fork of a server that has imported ralph (`fork_server`).

What a fork cannot be, a real process is: one with other variables that the interpreter reads when it starts, and
every one where `RALPH_TEST_EXEC` is set.
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
"""Set for all that tests start: a program that is edited twice in one second must not be run as it was before."""

_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "TEXTUAL", "COLORTERM")
"""Variables that the interpreter and the libraries look at once, before or while modules are loaded."""


def start_ralph(
    arguments: tuple[str, ...],
    cwd: Path,
    env: Mapping[str, str],
    stdin: int | IO[Any] = subprocess.DEVNULL,
    stdout: int | IO[Any] = subprocess.PIPE,
    stderr: int | IO[Any] = subprocess.PIPE,
    real_process: bool = False,
) -> subprocess.Popen[str]:
    """Start ralph: a fork where that is as good as a process of its own."""
    kind = subprocess.Popen if real_process or _needs_exec(env) else ForkedRalph
    return kind([RALPH, *arguments], cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, text=True)


def _needs_exec(env: Mapping[str, str]) -> bool:
    return bool(os.environ.get("RALPH_TEST_EXEC")) or any(
        name.startswith(_READ_AT_START) and env.get(name) != os.environ.get(name)
        for name in {*env, *os.environ}
    )


class ForkedRalph(subprocess.Popen[str]):
    """The process is a child of the server: that is asked how it ended. Until then it is there, if only as a zombie."""

    _pidfd: int | None = None
    _owner: _Server

    def _execute_child(self, *given: Any) -> None:
        """What Popen calls in order to start the process, with everything that it was given and the pipes it made."""
        argv, cwd, env, pipes = given[0], given[5], given[6], given[10:16]
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = pipes
        directory = os.open(cwd, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            environment = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
            message = ("start", argv[1:], environment, _umask())
            self._owner = _living_server()
            self.pid = self._owner.ask(message, (p2cread, c2pwrite, errwrite, directory))
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
        """As waitpid(2): the number and the status, or zeros where it still runs."""
        if flags == 0:
            self._wait_for_end()
        try:
            status = self._owner.ask(("poll", self.pid))
        except (OSError, EOFError):
            status = signal.SIGKILL  # whoever has ended the server has ended what is below it
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
    """A server, for this process alone. Threads may ask at once."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("RALPH_", "GIT_"))}
        environment.pop(NO_BYTECODE, None)  # those that are not forked start faster then
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
    """The newest; another one where a test has ended it, as a ralph that loses its warden ends all its children."""
    with _starting:
        if not _servers or not _servers[-1].is_alive:
            _servers.append(_Server())
        return _servers[-1]
