"""A plain container engine: docker or podman.

Tested with runc 1.1.5: podman 4.3.1 as root and rootless, Docker Engine 20.10.24 as root and as an ordinary user.

Every command gets its own container from one image, with the paths of its `Mounts` at the same place as outside. The
rest of its file system is the image, read-only, so the agent's program must be in the image or in a mounted path. It
has no capabilities and no new privileges, and runs under the user's own ID, so that files belong to the user.

Quirks that matter here:
- The client is not the container. It forwards TERM (`--sig-proxy`, to the init of `--init`), but KILL kills only the
  client. Every container therefore has labels and is removed by name after its command, by label when the run ends,
  and, if ralph was killed, when the next run starts. A lock in the run's state directory shows which runs are alive.
- podman has no daemon. Its containers are below the warden, which signals them itself, so TERM can arrive twice.
- `--env NAME` without a value takes the value from the client's environment, so no secret is on a command line.
- File ownership needs different options for an ordinary user: docker needs `--user`, rootless podman needs
  `--userns keep-id`, and in rootless docker root *is* the user.
- podman's `rm --force` sends TERM and waits ten seconds, unless the container has a shorter `--stop-timeout`.
- podman copies the covered files into a `--tmpfs` unless told not to. Its `rm` of a container that is just exiting can
  fail, and succeed a moment later.
- podman lets a command create user namespaces, with all privileges inside, and docker does not. We forbid it.
- 125 is the engine's own failure. A death by signal N is reported as 128 + N.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

from msgspec import Struct

from ralph.core.model import Exit, Network
from ralph.errors import RalphError
from ralph.sandbox import inside
from ralph.sandbox.base import (
    BackendOptions,
    Boundary,
    Mounts,
    Root,
    RunCommand,
    Sandbox,
    Tell,
    WrappedCommand,
)
from ralph.sandbox.outside import USUAL, as_it_died, complaint, find_program, is_locked, locked
from ralph.sandbox.programs import within
from ralph.sandbox.proxy import opened_proxy
from ralph.sandbox.seccomp import without_namespaces

IMAGE = "docker/sandbox-templates:claude-code"
"""Docker's own image for Claude Code. It has git, node and python."""

ENGINES = ("docker", "podman")
RUN, STATE, OWNER = "ralph.run", "ralph.state", "ralph.owner"
"""Labels: the run, its state directory, and the machine and account that own it."""

_SECONDS = 30.0
_REMOVE_SECONDS = 60.0
_TRIES, _BETWEEN = 4, 0.5
_LOCK, _EMPTY, _CALLS = "container.lock", "empty", "seccomp.json"
_SOCKET, _FIRST = "/run/ralph/proxy.sock", "/run/ralph/inside.py"
_START = 'cd "$0" && exec "$@"'
"""For a missing program, podman's init exits with 1 and a shell with 127. Also, docker creates `--workdir` before it
mounts the private directories, which then get the permissions of that directory: only root could write there."""

_PRIVATE = ("/tmp", "/var/tmp", "/run")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_OF_PODMAN = "{{.Host.Security.Rootless}} {{.Host.Security.SECCOMPProfilePath}}"
_CLIENT = ("DOCKER_", "CONTAINER", "XDG_", "DBUS_SESSION_BUS_ADDRESS", "HOME", "PATH", "TMPDIR", "LANG")
"""Variables that the client itself needs. They are not passed inside unless the command has them."""


class Engine(Struct, frozen=True):
    """An engine that works here.

    `users`: options that make files belong to the user. `calls`: a seccomp profile, "" for the engine's own.
    """

    program: str
    is_podman: bool
    users: tuple[str, ...]
    path: str
    calls: str = ""


class Container(Struct, frozen=True):
    image: str = IMAGE
    name: str = "container"
    root: Root = Root.IMAGE

    def problem(self, run: RunCommand) -> str:
        found = self._engine(run)
        return found if isinstance(found, str) else ""

    @contextmanager
    def opened(self, boundary: Boundary, run: RunCommand, tell: Tell) -> Iterator[Sandbox]:
        engine = self._engine(run)
        if isinstance(engine, str):
            raise RalphError(
                f"Containers cannot be used: {engine}.", "Run `ralph doctor --sandbox` for details."
            )
        with ExitStack() as stack:
            stack.enter_context(
                locked(
                    Path(boundary.state, _LOCK),
                    "Another ralph process is already driving this run in containers.",
                )
            )
            Path(boundary.state, _EMPTY).mkdir(mode=0o555, exist_ok=True)
            Path(boundary.state, _CALLS).write_text(engine.calls)
            _remove_stale(engine, boundary.state, run)
            socket = ""
            if boundary.network is Network.ALLOW_LIST:
                self._check_forwarder(engine, run)
                socket = stack.enter_context(opened_proxy(boundary.state, boundary.hosts, tell))
                Path(boundary.state, os.path.basename(_FIRST)).write_text(_SOURCE)
            box = Box(engine, self.image, boundary, socket, run, tell)
            try:
                yield box
            finally:
                box.remove_all()

    def _engine(self, run: RunCommand) -> Engine | str:
        """Return the first engine that works and has the image, or why there is none."""
        problems = []
        for name in ENGINES:
            if not (program := find_program(name)):
                problems.append(f"{name} is not installed")
                continue
            found = self._tried(program, run)
            if isinstance(found, Engine):
                return found
            problems.append(f"{name}: {found}")
        return "; ".join(problems)

    def _tried(self, program: str, run: RunCommand) -> Engine | str:
        version = run((program, "--version"), _SECONDS)
        if version.code != 0:
            return complaint(version)
        is_podman = b"podman" in version.out.lower()
        field = _OF_PODMAN if is_podman else "{{json .SecurityOptions}}"
        info = run((program, "info", "--format", field), _SECONDS)
        if info.code != 0:
            return complaint(info)
        is_rootless = b"true" in info.out if is_podman else b"rootless" in info.out
        image = run((program, "image", "inspect", "--format", "{{json .Config.Env}}", self.image), _SECONDS)
        if image.code != 0:
            return f"the image {self.image} is missing (get it with `{os.path.basename(program)} pull {self.image}`)"
        calls = without_namespaces(info.out.decode(errors="replace").partition(" ")[2].strip())
        users = _users(is_podman, is_rootless)
        alone = ("run", "--rm", "--pull", "never", "--network", "none", *users, "--entrypoint", "/bin/sh")
        if (tried := run((program, *alone, self.image, "-c", "exit 0"), _SECONDS)).code != 0:
            return f"cannot start a container: {complaint(tried)}"
        return Engine(program, is_podman, users, _path_in(image.out), calls if is_podman else "")

    def _check_forwarder(self, engine: Engine, run: RunCommand) -> None:
        """Check that an allow-list can work: a program inside the container forwards to the proxy."""
        if not sys.platform.startswith("linux"):
            raise RalphError(
                "Containers support an allow-list only on Linux: elsewhere they cannot reach the proxy.",
                "Set sandbox.network to open or off, or use another sandbox.",
            )
        words = ("run", "--rm", "--pull", "never", "--network", "none", "--entrypoint", "python3", self.image)
        if run((engine.program, *words, "-I", "-S", "-c", "import socket, threading"), _SECONDS).code != 0:
            raise RalphError(
                f"The image {self.image} has no python3, which an allow-list needs.",
                "Use another image, or set sandbox.network to open or off.",
            )


_SOURCE = Path(inside.__file__).read_text()
"""A copy, so that an upgrade during a run does not change it."""


class Box:
    """The containers of one run."""

    def __init__(
        self, engine: Engine, image: str, boundary: Boundary, socket: str, run: RunCommand, tell: Tell
    ) -> None:
        self._engine, self._image, self._boundary, self._socket = engine, image, boundary, socket
        self._run, self._tell = run, tell
        self._numbers = count(1)
        self._lock = threading.Lock()

    def wrap(self, argv: Sequence[str], environment: Mapping[str, str], mounts: Mounts) -> WrappedCommand:
        name = (
            f"ralph-{re.sub('[^A-Za-z0-9_.-]', '-', self._boundary.run)}-{os.getpid()}-{next(self._numbers)}"
        )
        mounted, own = _Mounts(mounts, environment.get("HOME", "")), _client_variables()
        first = ("python3", "-I", "-S", _FIRST, "0", "0", _SOCKET, "--") if self._socket else ()
        words = [
            *(self._engine.program, "run", "--rm", "--pull", "never", "--name", name, "--stop-timeout", "0"),
            *("--interactive", "--init", "--read-only"),
            *_labels(self._boundary),
            *self._boundary_options(),
            *self._mounted(mounted),
            *self._proxy_options(),
            *_variables(environment, own),
            *("--env", f"PATH={mounted.path(environment.get('PATH', ''), self._engine.path)}"),
            *("--entrypoint", "/bin/sh", self._image, "-c", _START, mounts.directory),
            *(*first, mounted.program(argv[0]), *argv[1:]),
        ]
        return WrappedCommand(words, {**environment, **own, "PATH": os.environ.get("PATH", USUAL)}, name)

    def after(self, exit: Exit, wrapped: WrappedCommand) -> Exit:
        """Remove the container in any case, because the client may have exited without it."""
        self._remove([wrapped.mark])
        return as_it_died(exit)

    def remove_all(self) -> None:
        """Remove all containers that are left of the run."""
        found = _listed(
            self._engine, (f"label={RUN}={self._boundary.run}", f"label={OWNER}={owner()}"), self._run
        )
        if found is None:
            self._tell(
                "The container engine does not respond. Leftover containers are removed when the next run starts."
            )
        elif found:
            self._remove([identity for identity, _ in found])

    def _remove(self, names: Sequence[str]) -> None:
        with self._lock:
            done = _removed(self._engine, names, self._run)
        if done:
            self._tell(f"Could not remove a container ({done}). It is removed when the next run starts.")

    def _boundary_options(self) -> Iterator[str]:
        boundary = self._boundary
        yield from ("--cap-drop", "ALL", "--security-opt", "no-new-privileges", *self._engine.users)
        if self._engine.calls:
            yield from ("--security-opt", f"seccomp={os.path.join(boundary.state, _CALLS)}")
        if os.path.exists("/sys/fs/selinux/enforce"):
            yield from ("--security-opt", "label=disable")  # otherwise mounted files could not be read
        if boundary.network is not Network.OPEN:
            yield from ("--network", "none")
        if self._engine.is_podman:
            yield "--http-proxy=false"
        if boundary.memory_mb:
            yield from ("--memory", f"{boundary.memory_mb}m", "--memory-swap", f"{boundary.memory_mb}m")
        if boundary.processes:
            yield from ("--pids-limit", str(boundary.processes))

    def _mounted(self, mounts: _Mounts) -> Iterator[str]:
        more = ",notmpcopyup" if self._engine.is_podman else ""
        for place in mounts.private:
            yield from ("--tmpfs", f"{place}:rw,exec,nosuid,nodev,mode=1777{more}")
        yield from mounts.bound(os.path.join(self._boundary.state, _EMPTY))

    def _proxy_options(self) -> Iterator[str]:
        if self._socket:
            yield from _bound(self._socket, _SOCKET)
            yield from _bound(
                os.path.join(self._boundary.state, os.path.basename(_FIRST)), _FIRST, "readonly"
            )


class _Mounts:
    """The paths of `Mounts` as they appear in a container."""

    def __init__(self, mounts: Mounts, home: str) -> None:
        kinds = dict.fromkeys(mounts.read_only, "readonly") | dict.fromkeys(mounts.writable, "")
        sources = {target: source for source, target in mounts.copied}
        kinds |= dict.fromkeys(sources, "")
        self._kinds = {path: kind for path, kind in kinds.items() if os.path.exists(sources.get(path, path))}
        self._sources = sources
        self._hidden = [path for path in mounts.hidden if os.path.exists(path) and self.has(path)]
        private = dict.fromkeys((*_PRIVATE, *([home] if home not in ("", "/") else [])))
        self.private = [place for place in private if place not in self._kinds]

    def has(self, path: str) -> bool:
        return within(path, self._kinds)

    def program(self, name: str) -> str:
        """Return the program's path if it is mounted, otherwise its name, to be found in the image."""
        return name if not os.path.isabs(name) or self.has(name) else os.path.basename(name)

    def path(self, outside: str, of_image: str) -> str:
        mounted = [place for place in outside.split(":") if place and self.has(place)]
        return ":".join([*mounted, of_image])

    def bound(self, empty: str) -> Iterator[str]:
        for path in sorted(self._kinds, key=lambda path: path.count("/")):
            yield from _bound(self._sources.get(path, path), path, self._kinds[path])
        for path in self._hidden:
            yield from _bound(empty if os.path.isdir(path) else "/dev/null", path, "readonly")


def _bound(source: str, target: str, *more: str) -> Iterator[str]:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(
        ["type=bind", f"source={source}", f"target={target}", *filter(None, more)]
    )
    yield from ("--mount", text.getvalue())


def _labels(boundary: Boundary) -> Iterator[str]:
    for key, value in ((RUN, boundary.run), (STATE, boundary.state), (OWNER, owner())):
        yield from ("--label", f"{key}={value}")


def owner() -> str:
    """Return this account on this machine, because an engine can serve several of both."""
    return f"{os.getuid()}@{os.uname().nodename}"


def _users(is_podman: bool, is_rootless: bool) -> tuple[str, ...]:
    number = f"{os.getuid()}:{os.getgid()}"
    if not is_rootless:
        return ("--user", number)
    return ("--userns", "keep-id", "--user", number) if is_podman else ("--user", "0:0")


def _path_in(variables: bytes) -> str:
    with suppress(ValueError, TypeError):
        for each in json.loads(variables) or []:
            if str(each).startswith("PATH="):
                return str(each)[5:]
    return _PATH


def _variables(environment: Mapping[str, str], own: Mapping[str, str]) -> Iterator[str]:
    """Yield --env options by name only, except for variables that the client has with another value, such as HOME."""
    for name, value in sorted(environment.items()):
        if name != "PATH":
            yield from ("--env", name if own.get(name, value) == value else f"{name}={value}")


def _client_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_CLIENT)}


# ---- leftovers of runs ----


def _remove_stale(engine: Engine, state: str, run: RunCommand) -> None:
    """Remove the containers of killed ralphs, of this run or any other."""
    found = _listed(engine, (f"label={OWNER}={owner()}",), run)
    if found is None:
        raise RalphError(
            "The container engine cannot list its containers.", "Run `ralph doctor --sandbox` for details."
        )
    stale = [
        name
        for name, labels in found
        if (of := labels.get(STATE)) and (of == state or not is_locked(Path(of, _LOCK)))
    ]
    if stale and (problem := _removed(engine, stale, run)):
        raise RalphError(
            f"Cannot remove containers of a killed run: {problem}.",
            f"Remove them: {os.path.basename(engine.program)} rm --force {' '.join(stale)}",
        )


def _listed(
    engine: Engine, filters: Iterable[str], run: RunCommand
) -> list[tuple[str, dict[str, str]]] | None:
    """Return the containers with their labels, or None if the engine does not respond."""
    chosen = [word for each in filters for word in ("--filter", each)]
    listed = run((engine.program, "ps", "--all", "--quiet", "--no-trunc", *chosen), _SECONDS)
    if listed.code != 0:
        return None
    names = [
        name for name in listed.out.decode(errors="replace").split() if re.fullmatch("[0-9a-f]{12,64}", name)
    ]
    if not names:
        return []
    words = (engine.program, "container", "inspect", "--format", "{{.Id}} {{json .Config.Labels}}", *names)
    found = []
    for line in run(words, _SECONDS).out.decode(errors="replace").splitlines():
        name, _, labels = line.partition(" ")
        with suppress(ValueError):
            read = json.loads(labels)
            if isinstance(read, dict):
                found.append((name, {str(key): str(value) for key, value in read.items()}))
    return found


def _removed(engine: Engine, names: Sequence[str], run: RunCommand) -> str:
    """Remove containers, running or not. Return the problem, or "" if they are gone."""
    for turn in range(_TRIES):
        if turn:
            time.sleep(_BETWEEN)
        done = run((engine.program, "rm", "--force", "--volumes", *names), _REMOVE_SECONDS)
        if done.code == 0:
            return ""
        if done.code is None:
            break
        left = run((engine.program, "container", "inspect", "--format", "{{.Id}}", *names), _SECONDS)
        if left.code is not None and not left.out.split():
            return ""
    return complaint(done)


def backend(options: BackendOptions) -> Container:
    return Container(options.image or IMAGE)
