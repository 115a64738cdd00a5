"""Docker Sandbox: a small virtual machine for each project, which persists between commands and between runs.

Unverified: it needs Docker Desktop or `sbx` with a Docker account, and was tested only against a fake CLI. It uses
only what these pages document (read November 2026):
- `sbx`, the successor: docs.docker.com/reference/cli/sbx/ create, exec, ls, rm, stop, version, policy deny network;
  /ai/sandboxes/ usage, architecture (the workspace is passed through, not copied), workflows/automation
  ("run agent tasks with sbx exec").
- `docker sandbox` (Docker Desktop 4.58 and later, now deprecated): docs.docker.com/reference/cli/docker/sandbox/
  create, exec, run, ls, rm, stop, version, network proxy.

Create + exec + run: `create` creates the sandbox from Docker's own image, with the worktree and the login directory as
workspaces. `exec` sets it up (`plugin/sandbox/setup.sh`) and runs every command, because only `exec` passes stdin,
variables and a directory. `run SANDBOX -- --version` starts a stopped sandbox.

Quirks that matter here:
- `docker sandbox` copies files between machine and sandbox. A file that was copied once is not copied again when it
  changes outside. Such files are written through `exec`. After a pause, or if there is too much to write, the sandbox
  is stopped and started instead, which copies everything again. Changes inside arrive outside after two seconds.
- A signal to the client of `exec` does not reach the process inside. Each command has a mark in its environment, by
  which it and its descendants are found and signalled, and killed when it has exited.
- Names: `docker sandbox` accepts underscores, `sbx` does not.
- Every command of a run sees all workspaces, because the boundary is the virtual machine.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shlex
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from msgspec import Struct

from ralph.core.model import Exit, Network
from ralph.errors import RalphError
from ralph.files.paths import PLUGIN
from ralph.sandbox.base import (
    BackendOptions,
    Boundary,
    Mounts,
    Root,
    RunCommand,
    Sandbox,
    SandboxOutput,
    Tell,
    WrappedCommand,
)
from ralph.sandbox.outside import as_it_died, complaint, find_program, is_locked, locked
from ralph.sandbox.programs import within

SETTLE_SECONDS = 2.5
"""Seconds until files changed inside have arrived outside."""

PAUSE_SECONDS = 30.0
"""If files change outside after this many seconds, the run was paused."""

CLAUDE = "claude"
IMAGES = (CLAUDE, "codex", "gemini", "opencode")
"""Agents that Docker has images for. Any other agent uses the image for Claude Code."""

AUTH = ".dclaude_state"
MARK = "RALPH_COMMAND"
PREFIX = "ralph-"

_SHORT, _EXEC, _STOP, _START, _CREATE = 30.0, 60.0, 60.0, 120.0, 900.0
_MAX_WRITTEN = 384 << 10
_PIECE = 90_000
"""A single argument can have 128 KiB, all arguments together 1 MiB on macOS."""

_SETUP = (PLUGIN / "sandbox" / "setup.sh").read_text()
_TOO_OLD = "too old: Docker Desktop 4.58 or sbx is required"
_NOT_INSIDE = ("USER", "LOGNAME", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "NODE_USE_ENV_PROXY")
"""Variables for the user's identity and the network proxy, which differ inside."""

_SIGNAL = """
marked() { found=1; for file in /proc/[0-9]*/environ; do
  if grep -qzx -- "$2" "$file" 2>/dev/null; then
    pid=${file#/proc/}; kill "-$1" "${pid%/environ}" 2>/dev/null && found=0
  fi
done; return $found; }
if [ "$1" = KILL ]; then
  for turn in 1 2 3 4 5; do marked KILL "$2" || exit 0; sleep 0.1; done
  exit 1
fi
marked "$1" "$2"
for turn in 1 2 3 4 5 6 7 8; do sleep 0.5; marked 0 "$2" || exit 0; done
"""
"""Signals all processes with a mark and waits a while for them to exit."""

_OUTER = """
end() { trap '' TERM INT HUP; %s </dev/null >/dev/null 2>&1; wait "$child"; exit 143; }
trap end TERM INT HUP
exec 3<&0
"$@" <&3 3<&- &
child=$!
exec 3<&-
wait "$child"
"""
"""Runs outside, around the client, and passes termination signals on to the command inside."""

_ELSEWHERE = 'mkdir -p "$0" && cd "$0" && exec "$@"'
_WRITE = """
count=$1; shift
while [ "$count" -gt 0 ]; do rm -f -- "$1"; shift; count=$((count - 1)); done
[ $# -eq 0 ] || printf %s "$@" | base64 -d | tar -xzpf - -C / --unlink-first
"""

Tree = dict[str, tuple[int, int]]


class Cli(Struct, frozen=True):
    """The command line that manages sandboxes here."""

    words: tuple[str, ...]
    is_sbx: bool

    @property
    def title(self) -> str:
        return "sbx" if self.is_sbx else "docker sandbox"

    def __call__(self, *words: str) -> tuple[str, ...]:
        return (*self.words, *words)


class Known(Struct, frozen=True):
    """A sandbox that the CLI lists."""

    name: str
    is_running: bool
    workspaces: tuple[str, ...]


class DockerSandbox(Struct, frozen=True):
    """`agent`: the agent whose image to use, if Docker has one. `auth`: the login directory outside the sandbox, by
    default `~/.dclaude_state`.
    """

    agent: str = ""
    auth: str = ""
    settle: float = SETTLE_SECONDS
    name: str = "docker-sandbox"
    root: Root = Root.MACHINE

    def problem(self, run: RunCommand) -> str:
        found = _cli(run)
        return found if isinstance(found, str) else ""

    @contextmanager
    def opened(self, boundary: Boundary, run: RunCommand, tell: Tell) -> Iterator[Sandbox]:
        cli = _cli(run)
        if isinstance(cli, str):
            raise RalphError(
                f"Docker Sandbox cannot be used: {cli}.", "Run `ralph doctor --sandbox` for details."
            )
        if cli.is_sbx and boundary.network is Network.ALLOW_LIST:
            raise RalphError(
                "sbx cannot apply an allow-list to a single sandbox: its policy applies to all of them.",
                "Set the list with `sbx policy` and set sandbox.network to open, or use another sandbox.",
            )
        auth = self.auth or os.path.join(os.path.realpath(Path.home()), AUTH)
        prepare_login(auth)
        agent = self.agent if self.agent in IMAGES else CLAUDE
        name = sandbox_name(cli, boundary, agent)
        with locked(_lock(auth, name), f"Another ralph process is using the sandbox {name}."):
            machine = Machine(cli, name, boundary, auth, self.settle, run, tell)
            machine.open(agent)
            tell(f"Using sandbox {name}. Its login is stored in {auth}.")
            try:
                yield machine
            finally:
                machine.close()


class Machine:
    """One sandbox, while a run uses it."""

    def __init__(
        self, cli: Cli, name: str, boundary: Boundary, auth: str, settle: float, run: RunCommand, tell: Tell
    ) -> None:
        self._cli, self._name, self._boundary, self._auth = cli, name, boundary, auth
        self._settle = 0.0 if cli.is_sbx else settle
        self._run, self._tell = run, tell
        self._lock = threading.RLock()
        self._numbers = count(1)
        self._workspaces = (*dict.fromkeys([*boundary.writable, auth]),)
        self._read = (*dict.fromkeys([*boundary.read_only, str(PLUGIN)]),)
        self._is_stopped = False
        self._tree: Tree = {}
        self._seen_at = time.monotonic()

    # ---- the machine ----

    def open(self, agent: str) -> None:
        every = {each.name: each for each in _listed(self._cli, self._run)}
        known = every.pop(self._name, None)
        self._stop_abandoned(every.values())
        if known is not None and self._is_fit(known):
            self._restart()
        else:
            if known is not None:
                self._must(*self._removal(), seconds=_STOP)
            self._create(agent)
        self._limit_network()
        self._must(
            "exec", "-u", "root", self._name, "bash", "-c", _SETUP, "setup.sh", self._auth, seconds=_EXEC
        )
        self._remember()

    def close(self) -> None:
        """Stop the sandbox. It is kept for the next run."""
        with self._lock:
            done = self._run(self._cli("stop", self._name), _STOP)
        if done.code != 0:
            self._tell(
                f"Could not stop the sandbox {self._name} ({complaint(done)}). It may still be running."
            )

    def _stop_abandoned(self, others: Iterable[Known]) -> None:
        """Stop sandboxes whose ralph was killed, and everything that runs in them."""
        for each in others:
            lock = _lock(self._auth, each.name)
            if each.is_running and lock.exists() and not is_locked(lock):
                self._run(self._cli("stop", each.name), _STOP)

    def _is_fit(self, known: Known) -> bool:
        """Whether a sandbox has all workspaces of this run. Raises RalphError if it belongs to another project."""
        if not known.workspaces:
            return True
        has = {path.removesuffix(":ro") for path in known.workspaces}
        if self._workspaces[0] not in has:
            raise RalphError(
                f"The sandbox {self._name} belongs to another directory: {', '.join(sorted(has))}.",
                f"If it is not needed, remove it: {' '.join(self._cli('rm', self._name))}",
            )
        return has >= {*self._workspaces, *self._read}

    def _create(self, agent: str) -> None:
        boundary = self._boundary
        paths = [*self._workspaces, *(f"{path}:ro" for path in self._read)]
        if odd := [path for path in paths if ":" in path.removesuffix(":ro")]:
            raise RalphError(
                f"{odd[0]}: Docker Sandbox does not support a colon in a path.", "Use another sandbox."
            )
        memory = ("--memory", f"{boundary.memory_mb}m") if boundary.memory_mb and self._cli.is_sbx else ()
        if boundary.processes or (boundary.memory_mb and not memory):
            self._tell(f"{self._cli.title} ignores sandbox.processes. Only sbx supports sandbox.memoryMb.")
        done = self._run(self._cli("create", "--name", self._name, *memory, agent, *paths), _CREATE)
        is_there = self._name in {each.name for each in _listed(self._cli, self._run)}
        if done.code == 0 and is_there:
            return
        if is_there:
            self._run(self._cli(*self._removal()), _STOP)
        why = complaint(done) if done.code != 0 else "it does not exist afterwards"
        raise RalphError(
            f"Cannot create the sandbox {self._name}: {why}.", f"Try `{self._cli.title} create` by hand."
        )

    def _removal(self) -> tuple[str, ...]:
        return ("rm", "--force", self._name) if self._cli.is_sbx else ("rm", self._name)

    def _limit_network(self) -> None:
        boundary = self._boundary
        if boundary.network is Network.OPEN:
            return
        if self._cli.is_sbx:
            self._must("policy", "deny", "network", "--sandbox", self._name, "**", seconds=_SHORT)
        else:
            hosts = [word for host in boundary.hosts for word in ("--allow-host", host)]
            self._must("network", "proxy", self._name, "--policy", "deny", *hosts, seconds=_SHORT)

    def _restart(self) -> None:
        """Stop and start the sandbox. This copies outside changes again and kills everything inside."""
        self._must("stop", self._name, seconds=_STOP)
        if not self._cli.is_sbx:  # with sbx, `exec` starts it
            self._must("run", self._name, "--", "--version", seconds=_START)
        self._is_stopped = False

    def _must(self, *words: str, seconds: float) -> SandboxOutput:
        done = self._run(self._cli(*words), seconds)
        if done.code != 0:
            raise RalphError(
                f"`{self._cli.title} {words[0]}` failed for the sandbox {self._name}: {complaint(done)}.",
                "Run `ralph doctor --sandbox docker` for details, or use another sandbox.",
            )
        return done

    # ---- commands ----

    def wrap(self, argv: Sequence[str], environment: Mapping[str, str], mounts: Mounts) -> WrappedCommand:
        self._check_hidden(mounts)
        with self._lock:
            given = [word for word in argv[1:] if word in mounts.read_only and os.path.isfile(word)]
            self._bring([path for path in given if not self._has(path)])
            mark = f"{self._boundary.run}-{os.getpid()}-{next(self._numbers)}"
        file = self._variables_file(mark)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
            stream.writelines(f"{line}\n" for line in self._variables(environment, mark))
        program = argv[0] if not os.path.isabs(argv[0]) or self._has(argv[0]) else os.path.basename(argv[0])
        inner = [program, *argv[1:]]
        where: tuple[str, ...] = ("-w", mounts.directory)
        if not self._has(mounts.directory):
            self._check_empty(mounts.directory)
            where, inner = (), ["bash", "-c", _ELSEWHERE, mounts.directory, *inner]
        words = self._cli("exec", "-i", *where, "--env-file", file, self._name, *inner)
        outer = _OUTER % shlex.join(self._signalled("TERM", mark))
        return WrappedCommand(("/bin/sh", "-c", outer, "sh", *words), dict(os.environ), mark)

    def after(self, exit: Exit, wrapped: WrappedCommand) -> Exit:
        with self._lock:
            with suppress(FileNotFoundError):
                os.unlink(self._variables_file(wrapped.mark))
            self._end(wrapped.mark)
            if self._settle:
                time.sleep(self._settle)
            self._remember()
        return as_it_died(exit)

    def _end(self, mark: str) -> None:
        """Kill the leftover processes of a command. If they cannot be reached, stop the whole machine."""
        if self._run(self._signalled("KILL", mark), _EXEC).code == 0:
            return
        done = self._run(self._cli("stop", self._name), _STOP)
        self._is_stopped = True
        if done.code != 0:
            self._tell(
                f"The sandbox {self._name} does not respond ({complaint(done)}). Processes may still be running in it."
            )

    def _signalled(self, signal: str, mark: str) -> tuple[str, ...]:
        words = ("exec", "-u", "root", self._name, "bash", "-c", _SIGNAL, "signal", signal, f"{MARK}={mark}")
        return self._cli(*words)

    def _variables_file(self, mark: str) -> str:
        return os.path.join(self._boundary.state, f"{re.sub('[^A-Za-z0-9.-]', '_', mark)}.env")

    def _variables(self, environment: Mapping[str, str], mark: str) -> Iterator[str]:
        for name, value in sorted(environment.items()):
            is_place = value.startswith("/") and not self._has(value)
            if "\n" not in value and not is_place and name.upper() not in _NOT_INSIDE:
                yield f"{name}={value}"
        yield f"{MARK}={mark}"

    def _has(self, path: str) -> bool:
        return within(path, (*self._workspaces, *self._read))

    def _check_hidden(self, mounts: Mounts) -> None:
        if seen := [path for path in mounts.hidden if self._has(path)]:
            raise RalphError(
                f"{seen[0]} cannot be hidden: Docker Sandbox always shows a whole workspace.",
                "Remove it from sandbox.hidden, or use another sandbox.",
            )

    def _check_empty(self, directory: str) -> None:
        with suppress(OSError):
            if os.listdir(directory):
                raise RalphError(
                    f"{directory} is needed, but is not part of the sandbox {self._name}.",
                    "Docker Sandbox cannot add directories after creation. Use another sandbox.",
                )

    # ---- files ----

    def _bring(self, more: Sequence[str]) -> None:
        """Copy changes made outside since the last command into the sandbox."""
        if self._is_stopped:
            self._restart()
        now = self._watched()
        changed = [path for path, seen in now.items() if self._tree.get(path, seen) != seen]
        gone = [path for path in self._tree if path not in now]
        is_new = now.keys() - self._tree.keys()
        if time.monotonic() - self._seen_at > PAUSE_SECONDS and (changed or gone or is_new):
            self._restart()
            changed, gone = [], []
        if changed or gone:
            self._write(changed, gone)
        if more:
            self._write(more, (), "-u", "root")  # in directories that only root can create there
        self._tree = now

    def _write(self, paths: Sequence[str], gone: Sequence[str], *user: str) -> None:
        """Write files through `exec`, or restart if there is too much. As another user, make them readable for all."""
        packed = _packed(paths, _readable if user else None)
        text = base64.b64encode(packed).decode() if paths and _size(paths) < 8 * _MAX_WRITTEN else ""
        is_little = bool(text or not paths) and len(text) + sum(map(len, gone)) < _MAX_WRITTEN
        if not is_little:
            self._restart()
            return
        pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
        words = (self._name, "bash", "-c", _WRITE, "write", str(len(gone)), *gone, *pieces)
        if self._run(self._cli("exec", *user, *words), _EXEC).code != 0:
            self._restart()

    def _remember(self) -> None:
        self._tree, self._seen_at = self._watched(), time.monotonic()

    def _watched(self) -> Tree:
        return {} if self._cli.is_sbx else _tree(self._boundary.writable)


# ---- before a run ----


def _cli(run: RunCommand) -> Cli | str:
    """Return the CLI that works here, or why there is none."""
    problems = []
    for name, more in (("sbx", ()), ("docker", ("sandbox",))):
        if not (program := find_program(name)):
            problems.append(f"{name} is not installed")
            continue
        cli = Cli((program, *more), is_sbx=name == "sbx")
        problem = _tried(cli, run)
        if not problem:
            return cli
        problems.append(f"{cli.title}: {problem}")
    return "; ".join(problems)


def _tried(cli: Cli, run: RunCommand) -> str:
    version = run(cli("version"), _SHORT)
    if version.code != 0:
        return complaint(version)
    if b"--env-file" not in run(cli("exec", "--help"), _SHORT).out:
        return _TOO_OLD
    try:
        _listed(cli, run)
    except RalphError as error:
        return error.message.rstrip(".")
    return ""


def _listed(cli: Cli, run: RunCommand) -> list[Known]:
    """Return all existing sandboxes."""
    done = run(cli("ls", "--json"), _SHORT)
    if done.code != 0:
        raise RalphError(
            f"`{cli.title} ls` failed: {complaint(done)}.",
            "Check that it is running and that you are signed in.",
        )
    try:
        read = json.loads(done.out)
        rows = (
            read if isinstance(read, list) else next(v for v in read.values() if isinstance(v, list | None))
        )
        return [_known(row) for row in rows or []]
    except (ValueError, AttributeError, KeyError, TypeError, StopIteration):
        raise RalphError(
            f"Cannot parse the output of `{cli.title} ls --json`.", "Check that it is up to date."
        ) from None


def _known(row: Mapping[str, object]) -> Known:
    spaces = row.get("workspaces") or row.get("workspace") or ()
    paths = [spaces] if isinstance(spaces, str) else spaces if isinstance(spaces, list) else ()
    is_running = str(row.get("status", "running")).lower() not in ("stopped", "exited", "created")
    return Known(str(row["name"]), is_running, tuple(str(path) for path in paths))


def sandbox_name(cli: Cli, boundary: Boundary, agent: str = CLAUDE) -> str:
    """Return the name of the project's sandbox, which also depends on the agent's image and the network setting."""
    name = PREFIX + re.sub(r"[^A-Za-z0-9._-]", "_", boundary.writable[0])
    if agent != CLAUDE:
        name += f"-{agent}"
    if boundary.network is not Network.OPEN:
        hosts = hashlib.sha256("\n".join(boundary.hosts).encode()).hexdigest()[:8]
        name += f"-{boundary.network}" + (f"-{hosts}" if boundary.hosts else "")
    return name.replace("_", "-") if cli.is_sbx else name


def prepare_login(auth: str) -> None:
    """Create the login directory with a valid JSON file, because Claude does not start with an empty one."""
    place = Path(auth)
    (place / ".claude").mkdir(mode=0o700, parents=True, exist_ok=True)
    file = place / ".claude.json"
    try:
        json.loads(file.read_text())
    except FileNotFoundError:
        pass
    except ValueError:
        if file.stat().st_size:
            os.replace(file, place / ".claude.json.broken")
    else:
        return
    file.write_text("{}\n")
    file.chmod(0o600)


def _lock(auth: str, name: str) -> Path:
    return Path(f"{auth}.locks", name)  # next to the login directory, whose contents can be changed inside


def _tree(places: Sequence[str]) -> Tree:
    """Return the modification time and size of each file."""
    found: Tree = {}
    waiting = list(places)
    while waiting:
        path = waiting.pop()
        with suppress(OSError):
            if not os.path.isdir(path) or os.path.islink(path):
                status = os.lstat(path)
                found[path] = status.st_mtime_ns, status.st_size
                continue
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                        continue
                    with suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        found[entry.path] = status.st_mtime_ns, status.st_size
    return found


def _size(paths: Sequence[str]) -> int:
    total = 0
    for path in paths:
        with suppress(OSError):
            total += os.lstat(path).st_size
    return total


def _readable(file: tarfile.TarInfo) -> tarfile.TarInfo:
    """Make a file readable for any user inside. Only files that the agent may read are packed."""
    file.mode |= 0o444
    return file


def _packed(
    paths: Sequence[str], change: Callable[[tarfile.TarInfo], tarfile.TarInfo] | None = None
) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for path in paths:
            with suppress(OSError):
                archive.add(path, recursive=False, filter=change)
    return file.getvalue()


def backend(options: BackendOptions) -> DockerSandbox:
    return DockerSandbox(options.agent, os.path.join(options.home, AUTH) if options.home else "")
