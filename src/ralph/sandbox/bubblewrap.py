"""bubblewrap (Linux). Tested with 0.8.0, as root and as an ordinary user.

A command gets its own namespaces for users, processes, IPC, host name and, unless it is open, the network. It has no
capabilities and sees a read-only system with its own /proc, /dev and /tmp. Homes, runtime directories and everything
else that belongs to users are covered by empty directories, in which only the paths of its `Mounts` appear.

Quirks that matter here:
- `--proc` leaves /proc/sys writable for root, and its `core_pattern` is a way out, so all of /proc is read-only.
- If a signal kills the outer process, the inner ones die at once (`--die-with-parent`). The outer process therefore
  ignores TERM, and the first program inside (`inside.py`) does not. The init of the namespace reacts only to KILL.
- `--die-with-parent` alone is not enough when ralph is killed, but the warden kills the tree anyway.
- It reports a death by signal N as exit code 128 + N.
- Sockets on a read-only mount still accept connections, so listening sockets in visible places are covered.
- A mount below a writable directory could be moved away together with its parent. Mounts are therefore placed only
  directly in a directory that is itself a mount and so cannot be moved.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ralph.core.model import Exit, Network
from ralph.errors import RalphError
from ralph.files.compiled import compiled
from ralph.sandbox import inside
from ralph.sandbox.base import (
    PEOPLES,
    BackendOptions,
    Boundary,
    Mounts,
    Root,
    RunCommand,
    Sandbox,
    Tell,
    WrappedCommand,
)
from ralph.sandbox.outside import as_it_died, find_program
from ralph.sandbox.proxy import opened_proxy

_TRY_SECONDS = 10.0

_NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_LIFE = ("--die-with-parent", "--new-session", "--cap-drop", "ALL")
_USERS: tuple[tuple[str, ...], ...] = (("--unshare-user", "--disable-userns"), ("--unshare-user",))
"""Best first. If even root cannot create a user namespace, root runs without one."""

_DEAF = 'trap "" TERM INT HUP; exec "$0" "$@"'

_FIRST = compiled(inside)
"""A copy of the first program inside, so that an upgrade during a run does not change it."""

_SECRETS = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d"),
    *("/etc/ssl/private", "/etc/letsencrypt", "/etc/wireguard", "/etc/krb5.keytab", "/etc/kubernetes"),
    *("/etc/rancher", "/etc/docker", "/etc/NetworkManager/system-connections", "/var/lib/docker"),
    *("/var/lib/kubelet", "/var/lib/containerd", "/var/spool/cron", "/var/mail", "/var/spool/mail"),
)
_HOST_KEYS = "/etc/ssh"

FIRST, SOCKET = "/run/ralph/inside.pyc", "/run/ralph/proxy.sock"
"""Paths of that program and of the proxy's socket, as seen from inside."""


class Bubblewrap:
    name = "bubblewrap"
    root = Root.OURS

    def problem(self, run: RunCommand) -> str:
        if not sys.platform.startswith("linux"):
            return "Linux only"
        if not (program := find_program("bwrap")):
            return "bwrap is not installed (on Debian, Ubuntu and Fedora: package bubblewrap)"
        return "" if _users(program, run) is not None else _words(_attempt(program, _USERS[-1], run))

    @contextmanager
    def opened(self, boundary: Boundary, run: RunCommand, tell: Tell) -> Iterator[Sandbox]:
        program = find_program("bwrap")
        users = _users(program, run) if program else None
        if users is None:
            raise RalphError(
                f"bubblewrap cannot be used: {self.problem(run)}.",
                "Run `ralph doctor --sandbox` for details.",
            )
        with ExitStack() as stack:
            socket = ""
            if boundary.network is Network.ALLOW_LIST:
                socket = stack.enter_context(opened_proxy(boundary.state, boundary.hosts, tell))
            if boundary.processes and os.geteuid() == 0:
                tell("sandbox.processes has no effect for root: Linux does not limit root's processes.")
            first = os.path.join(boundary.state, os.path.basename(FIRST))
            Path(first).write_bytes(_FIRST)
            yield Bubble(program, users, boundary, first, socket)


class Bubble:
    """The bubblewrap sandbox of one run."""

    def __init__(
        self, program: str, users: Sequence[str], boundary: Boundary, first: str, socket: str
    ) -> None:
        self._program = program
        self._users = users
        self._boundary = boundary
        self._first = first
        self._socket = socket

    def wrap(self, argv: Sequence[str], environment: Mapping[str, str], mounts: Mounts) -> WrappedCommand:
        boundary = self._boundary
        network = () if boundary.network is Network.OPEN else ("--unshare-net",)
        limits = str(boundary.memory_mb), str(boundary.processes), SOCKET if self._socket else ""
        first = (sys.executable, "-I", "-S", FIRST, *limits, "--", *argv)
        options = (*self._users, *_NAMESPACES, *network, *_LIFE, *_system(), *self._mounts(mounts))
        words = (self._program, *options, "--chdir", mounts.directory, "--", *first)
        return WrappedCommand(("/bin/sh", "-c", _DEAF, *words), environment)

    def after(self, exit: Exit, wrapped: WrappedCommand) -> Exit:
        return as_it_died(exit)

    def _mounts(self, mounts: Mounts) -> Iterator[str]:
        """Yield the mount options, outer directories before inner ones, so that the inner ones win."""
        kinds = dict.fromkeys(mounts.read_only, "--ro-bind")
        kinds |= dict.fromkeys(mounts.writable, "--bind")
        hidden = {*_people(), *mounts.hidden, *(_SECRETS if os.geteuid() == 0 else ()), *_host_keys()}
        kinds |= {path: "" for path in hidden if path not in kinds or path in mounts.hidden}
        sources = {target: source for source, target in mounts.copied}
        kinds |= dict.fromkeys(sources, "--bind")
        kinds |= {path: "" for path in _sockets() if not _is_seen_to(path, kinds)}
        for path in sorted(kinds, key=lambda path: path.count("/") if path != "/" else 0):
            source = sources.get(path, path)
            if not os.path.lexists(source) or (not kinds[path] and os.path.islink(path)):
                continue
            if kinds[path]:
                yield from (kinds[path], source, path)
            else:
                yield from ("--tmpfs", path) if os.path.isdir(path) else ("--ro-bind", "/dev/null", path)
        yield from ("--ro-bind", self._first, FIRST)
        if self._socket:
            yield from ("--bind", self._socket, SOCKET)


def _users(program: str, run: RunCommand) -> tuple[str, ...] | None:
    """Return the best user namespace options that work on this machine, or None if none does."""
    for words in (*_USERS, *([()] if os.geteuid() == 0 else [])):
        if _attempt(program, words, run) == "":
            return words
    return None


def _attempt(program: str, users: Sequence[str], run: RunCommand) -> str:
    done = run((program, *users, *_NAMESPACES, *_LIFE, *_system(), "--", "/bin/true"), _TRY_SECONDS)
    return "" if done.code == 0 else done.err.strip() or "bwrap timed out"


_FORBIDDEN = ("uid map", "namespace", "clone", "Operation not permitted")
_SWITCHES = (
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),  # Ubuntu 24.04
    ("kernel.unprivileged_userns_clone", "0", "1"),  # older Debian
    ("user.max_user_namespaces", "0", "15000"),
)
"""Kernel settings that forbid namespaces: the setting, its forbidding value, a value that allows them."""


def _words(error: str) -> str:
    first = (error or "it does not work on this machine").splitlines()[0]
    if not any(words in error for words in _FORBIDDEN):
        return first
    switch = next((f"{name}={better}" for name, worse, better in _SWITCHES if _setting(name) == worse), "")
    how = f"; to allow it: sudo sysctl -w {switch}" if switch else ""
    return f"this system does not let users create namespaces ({first}){how}"


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", *name.split(".")).read_text().strip()
    except OSError:
        return ""


def _system() -> tuple[str, ...]:
    return ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc")


def _people() -> Iterable[str]:
    """Return the directories that belong to users, including this user's home."""
    yield from PEOPLES
    homes = [os.environ.get("HOME", "")]
    with suppress(KeyError):  # a user without an account entry
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    yield from (os.path.realpath(home) for home in homes if home not in ("", "/"))


def _host_keys() -> Iterator[str]:
    if os.geteuid() == 0 and os.path.isdir(_HOST_KEYS):
        yield from (f"{_HOST_KEYS}/{name}" for name in os.listdir(_HOST_KEYS) if name.endswith("_key"))


def _sockets() -> Iterator[str]:
    """Return the paths of all Unix sockets that have one."""
    try:
        lines = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return
    for line in lines:
        *_, name = line.split(None, 7)
        if name.startswith("/"):
            yield os.path.realpath(name)


def _is_seen_to(path: str, kinds: Mapping[str, str]) -> bool:
    """Whether a path is hidden anyway, or in a directory where the command can create its own sockets."""
    while path != "/":
        path = os.path.dirname(path)
        if path in kinds:
            return kinds[path] != "--ro-bind"
    return False


def backend(options: BackendOptions) -> Bubblewrap:
    return Bubblewrap()
