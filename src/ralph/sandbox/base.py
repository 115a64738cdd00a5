"""The interface of a sandbox backend. A new one is one file and one line in `registry.py`.

A backend is used at three points:
- Before a run and for `ralph doctor`, `problem` says why the backend cannot be used on this machine. It gets a
  `RunCommand` for trying things out, because a backend never starts a process itself.
- Once per ralph process that drives a run, `opened` is entered as a context manager. It removes leftovers of killed
  ralphs, of this run or any other, and creates what lasts as long as the run: a proxy, a container. If that fails, it
  raises RalphError and the run does not start: a failing backend never lets a command run unsandboxed. Leaving the
  context removes everything again.
- For each command, `wrap` returns a command that the warden can start outside and that does its work inside. The
  warden's signals (TERM to every process that it sees, later KILL) must reach the inner process, stdin and the two
  output pipes are inherited, and the step is over when the wrapper exits. `after` is then called with the result of
  `wrap`, before anything reads the files. It kills leftover processes inside, waits for copied files, and translates
  the exit status into that of the inner process.

A command sees the paths in its `Mounts`. The rest is up to the backend, but never writable and never a user's secret.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Protocol

from msgspec import Struct

from ralph.core.model import Exit, Network

_NAMED = ("/home", "/root", "/run", "/tmp", "/var/tmp", "/mnt", "/media")
PEOPLES = (*dict.fromkeys((*_NAMED, *map(os.path.realpath, _NAMED))),)
"""Directories that belong to users, not to the system. On some systems they are links."""


class Root(Enum):
    """The system that a command sees. In another system, `Mounts` adds the files of Ralph and the agent."""

    OURS = "this machine, read-only"
    IMAGE = "an image on this machine's kernel"
    MACHINE = "a separate machine"


class SandboxOutput(Struct, frozen=True):
    """Result of a short command of the backend itself. `code` is None if it could not start or timed out."""

    code: int | None
    out: bytes
    err: str


RunCommand = Callable[[Sequence[str], float], SandboxOutput]
"""(command line, timeout in seconds) -> result. The command runs outside, under the warden."""

Tell = Callable[[str], None]
"""Reports a message about the run. It can be called from any thread."""


class Boundary(Struct, frozen=True):
    """Settings that are the same for every command of a run.

    `state`: a directory for the backend's own files, out of reach from inside. `writable`: the trees that any command
    of the run can write to, the worktree first. `read_only`: trees that every command can read besides, for backends
    that must know them in advance. `hosts`: "name" (ports 443 and 80, public addresses only) or "name:port" (that port,
    at any address except link-local ones). For `memory_mb` and `processes`, 0 means no limit.
    """

    run: str
    state: str
    writable: tuple[str, ...]
    network: Network = Network.OPEN
    hosts: tuple[str, ...] = ()
    memory_mb: int = 0
    processes: int = 0
    read_only: tuple[str, ...] = ()


class Mounts(Struct, frozen=True):
    """The paths that one command sees. Every path is absolute and resolved, and is the same inside and outside.

    `directory`: the working directory. Paths in none of the lists are hidden if they belong to users (homes, runtime
    and temporary directories, this user's sockets), otherwise they are readable. If one path contains another, the
    inner one wins. `copied`: pairs of our file or directory and the path where it appears, writable. It is a throwaway
    copy, or the target of what is a link outside.
    """

    directory: str
    writable: tuple[str, ...]
    read_only: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    copied: tuple[tuple[str, str], ...] = ()


class WrappedCommand(Struct, frozen=True):
    """The command that the warden starts instead. `mark` identifies it to the backend."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    mark: str = ""


class Sandbox(Protocol):
    """An opened backend: wraps the commands of one run."""

    def wrap(self, argv: Sequence[str], environment: Mapping[str, str], mounts: Mounts) -> WrappedCommand: ...

    def after(self, exit: Exit, wrapped: WrappedCommand) -> Exit: ...


class BackendOptions(Struct, frozen=True):
    """Options of a run for its backend. `image`: the container image, "" for the default. `agent`: the agent that the
    machine is for. `home`: the directory that keeps its login.
    """

    image: str = ""
    agent: str = ""
    home: str = ""


class Backend(Protocol):
    """One way to run a command in isolation. `name` is the name that the user enters."""

    @property
    def name(self) -> str: ...

    @property
    def root(self) -> Root: ...

    def problem(self, run: RunCommand) -> str:
        """Return why the backend cannot be used here, or "" if it can."""

    def opened(self, boundary: Boundary, run: RunCommand, tell: Tell) -> AbstractContextManager[Sandbox]: ...
