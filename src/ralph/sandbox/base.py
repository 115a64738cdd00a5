"""What a sandbox backend has to do. A new one is one file and one line in `registry.py`.

Three moments:
- Before a run, and for `ralph doctor`: `problem` says why the backend cannot be used on this machine. It is asked with
  a `Run` to try things out; nothing here starts a process itself.
- Once per ralph process that drives a run: `opened` is a context. On entering, it removes what a killed ralph has
  left of this run or of any other, and makes what lives as long as the run: a proxy, a container. If that cannot be
  done it raises RalphError, and the run does not begin: a backend never lets a command out because it failed. Leaving
  removes it all.
- For each command: `wrap` turns it into one that the warden can start outside and that does its work inside. The
  warden's signals (TERM to every process that it sees, later KILL) must reach the inner process, stdin and the two
  output pipes are inherited, and the wrapper's exit ends the step. `after` is called with what `wrap` gave when it has
  ended and before anything looks at the files: there leftovers inside are ended, files that are copied are waited
  for, and the exit is told as the inner process had it.

A command sees a `Room`: what is not named there is up to the backend, but never writable, and never somebody's secret.
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
"""Directories that belong to people, not to the system; some systems have links there."""


class Root(Enum):
    """Whose system a command sees. Unless it is ours, the room names what of Ralph and of the agent is needed there."""

    OURS = "this machine's, read-only"
    IMAGE = "that of an image, on this machine's kernel"
    MACHINE = "that of a machine of its own"


class SandboxOutput(Struct, frozen=True):
    """What a short command of the backend itself did. `code` is None if it could not be started or was ended."""

    code: int | None
    out: bytes
    err: str


RunCommand = Callable[[Sequence[str], float], SandboxOutput]
"""(command line, seconds) -> what it did. It runs outside, under the warden."""

Tell = Callable[[str], None]
"""Say something to those who watch the run; may be called from any thread."""


class Boundary(Struct, frozen=True):
    """What is the same for every command of a run.

    `state`: a directory for the backend's own files, out of reach for what runs inside. `writable`: the trees that some
    command of the run may write to, the worktree first. `read_only`: those that every command may read besides, for
    backends that must know it before. `hosts`: "name" (ports 443 and 80, public addresses only) or "name:port" (that
    port, at any address but link-local ones). 0 is no limit.
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
    """What one command finds. Every path is absolute and resolved, and is the same inside as outside.

    `directory`: where it starts. What is in none of the lists is hidden if it belongs to people (homes, runtime and
    temporary directories, this user's sockets), else it can be read. Of two that contain each other the inner one
    counts. `copied`: (file or directory of ours, where it appears), writable: a copy that nobody reads again, or what is a
    link outside.
    """

    directory: str
    writable: tuple[str, ...]
    read_only: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    copied: tuple[tuple[str, str], ...] = ()


class WrappedCommand(Struct, frozen=True):
    """What the warden is to start instead; `mark`: what the backend knows it by."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    mark: str = ""


class Sandbox(Protocol):
    """An opened backend: wraps the commands of one run."""

    def wrap(self, argv: Sequence[str], environment: Mapping[str, str], mounts: Mounts) -> WrappedCommand: ...

    def after(self, exit: Exit, wrapped: WrappedCommand) -> Exit: ...


class BackendOptions(Struct, frozen=True):
    """What a run says to its backend. `image`: of containers, "" for the usual one. `agent`: whose machine it is, and
    `home`, in which its login is kept.
    """

    image: str = ""
    agent: str = ""
    home: str = ""


class Backend(Protocol):
    """One way to run a command so that it can do no harm. `name` is what the user says."""

    @property
    def name(self) -> str: ...

    @property
    def root(self) -> Root: ...

    def problem(self, run: RunCommand) -> str:
        """Why it cannot be used here, in words; "" if it can."""

    def opened(self, boundary: Boundary, run: RunCommand, tell: Tell) -> AbstractContextManager[Sandbox]: ...
