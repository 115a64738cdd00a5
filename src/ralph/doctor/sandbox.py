"""`ralph doctor --sandbox`: test what a sandbox protects on this machine.

The test sets up a scene in a temporary directory: a home directory with fake credentials, a repository with a
worktree, sockets, a state directory. The probes that run inside the sandbox are in `sandbox/probing.py`. Whether a file
was written is checked from outside.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ralph.core.model import AgentSpec, Ended, Flow, Network, Plan, PromptSource, SandboxSpec
from ralph.errors import RalphError
from ralph.files.paths import real
from ralph.loop.confinement import ConfinedRun, opened_confinement, runner
from ralph.process.client import Wakeup, Warden, child_environment, output_of
from ralph.runs.sandbox_choice import HOW_TO_GET_ONE
from ralph.sandbox import probing
from ralph.sandbox.base import Root
from ralph.sandbox.docker_sandbox import AUTH
from ralph.sandbox.programs import python
from ralph.sandbox.registry import DIRECT, all_backends, canonical, find, none_here
from ralph.scm.repository import find_repository
from ralph.store.files import opened_directory

SECONDS = 120.0
DENIED, ALLOWED = "denied", "allowed"
_PROGRAM = "probing.py"

Seen = dict[str, tuple[bool | None, str]]
"""The results by probe name: whether the attempt succeeded (None: could not be tried), and what was observed."""


class Probe(Struct, frozen=True):
    """One attempt, with its expected and its actual result."""

    name: str
    tried: str
    expected: str
    seen: str
    ok: bool


class ProbeResult(Struct, frozen=True):
    """What a backend protects on this machine. `others` says why other backends are not available."""

    backend: str = field(name="rung")
    probes: tuple[Probe, ...]
    others: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        return all(probe.ok for probe in self.probes)


_TRIED = {
    "worktree": "write in the worktree",
    "commit": "git commit in the worktree",
    "login": "read the agent's own login",
    "checkout": "write to the main checkout",
    "hooks": "write a git hook of the main repository",
    "config": "change the git config of the main repository",
    "home": "leave a file in the home directory",
    "etc": "write to /etc",
    "usr": "write to /usr",
    "tmp": "leave a file in the host's /tmp",
    "state": "write to Ralph's journal",
    "ssh": "read an SSH key",
    "clouds": "read cloud credentials",
    "forges": "read git, GitHub and npm credentials",
    "browser": "read browser data",
    "other agents": "read the login of other agents",
    "journal": "read Ralph's journal",
    "passwords": "read the system's passwords",
    "environment": "find a secret in the environment",
    "proc environ": "see other processes or their environment",
    "signal": "signal a process outside",
    "ptrace": "trace a process outside",
    "devices": "open disks, memory or kernel devices",
    "mknod": "create a device file",
    "proc sys": "change kernel settings (/proc/sys)",
    "sys": "change devices and cgroups (/sys)",
    "docker": "connect to docker.sock",
    "ssh agent": "connect to the ssh-agent",
    "mount": "mount a file system",
    "user namespace": "create a user namespace",
    "no network": "network off: connect to anything",
    "address": "allow-list: connect to anything without the proxy",
    "proxy: other host": "allow-list: connect to a host that is not on the list",
    "proxy: address": "allow-list: connect to an IP address",
    "proxy: metadata": "allow-list: connect to a cloud metadata service",
    "proxy: other port": "allow-list: connect to another port",
    "proxy: allowed host": "allow-list: connect to a host on the list",
}
_MAY = {"worktree", "commit", "login", "proxy: allowed host"}
_OF_KERNEL = {"passwords", "devices", "mknod", "proc sys", "sys", "docker", "mount", "user namespace"}
"""Not tested in a virtual machine, which has its own kernel; nor is its allow-list."""


def prove(name: str | None, image: str, wakeup: Wakeup) -> ProbeResult:
    """Test a backend, or the best one available here. `image` is the image for containers, "" for the default."""
    backends, name = all_backends(image), canonical(name) if name else None
    with opened_directory(str(Path.cwd())) as directory, Warden(wakeup) as warden:
        run = runner(warden, directory)
        problems = {each: backend.problem(run) for each, backend in backends.items() if backend is not DIRECT}
        if name is None:
            name = next((each for each, problem in problems.items() if not problem), "")
            if not name:
                raise none_here(problems, HOW_TO_GET_ONE)
    root, usable = find(name, backends).root, [each for each, problem in problems.items() if not problem]
    hint = f"Available here: {', '.join(usable) or 'none'}."
    if name == DIRECT.name:
        raise RalphError("direct is not a sandbox: it protects nothing.", hint)
    if problems[name]:
        raise RalphError(f"The sandbox {name} is not available here: {problems[name]}.", hint)
    others = tuple(f"{each}: {problem}" for each, problem in problems.items() if problem)
    with Scene.made(wakeup) as scene:
        spec = SandboxSpec(name, Network.OFF, image=image)
        seen = scene.attempt(spec, root)
        if root is not Root.MACHINE:
            spec = replace(spec, network=Network.ALLOW_LIST, hosts=(f"localhost:{scene.port}",))
            seen |= scene.attempt(spec, root)
    return ProbeResult(name, tuple(_probe(each, seen.get(each)) for each in _tried(root)), others)


def _tried(root: Root) -> Iterator[str]:
    for name in _TRIED:
        is_own = name in _OF_KERNEL or _TRIED[name].startswith("allow-list")
        if not (is_own and root is Root.MACHINE):
            yield name


def _probe(name: str, seen: tuple[bool | None, str] | None) -> Probe:
    expected = ALLOWED if name in _MAY else DENIED
    came, text = seen or (None, "")
    if came is None:
        return Probe(name, _TRIED[name], expected, f"could not be tried: {text}".removesuffix(": "), ok=False)
    word = ALLOWED if came else DENIED
    return Probe(name, _TRIED[name], expected, f"{word}: {text}" if text else word, word == expected)


class Scene(Struct, frozen=True):
    """The files, sockets and processes that the probes try to reach."""

    place: Path
    secret: str
    wakeup: Wakeup
    port: int

    @classmethod
    @contextmanager
    def made(cls, wakeup: Wakeup) -> Iterator[Scene]:
        with ExitStack() as stack:
            place = real(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ralph-doctor-"))))
            port = stack.enter_context(_listening(socket.AF_INET, ("127.0.0.1", 0)))
            scene = cls(place, secrets.token_hex(16), wakeup, port)
            scene._plant()
            for name in ("ssh-agent.sock", "docker.sock"):
                stack.enter_context(_listening(socket.AF_UNIX, str(place / name)))
            stack.enter_context(scene._neighbour())
            yield scene
            scene._clean()

    @property
    def worktree(self) -> Path:
        return self.place / "state" / "worktrees" / "task"

    def _variables(self) -> dict[str, str]:
        """The environment of the user who owns the scene."""
        return child_environment({}) | {
            "HOME": str(self.place / "home"),
            "SSH_AUTH_SOCK": str(self.place / "ssh-agent.sock"),
            "DOCKER_HOST": f"unix://{self.place / 'docker.sock'}",
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "GITHUB_TOKEN": self.secret,
            "OPENAI_API_KEY": self.secret,
        }

    def _reads(self) -> dict[str, list[str]]:
        home = self.place / "home"
        names = {
            "ssh": [".ssh/id_ed25519"],
            "clouds": [
                ".aws/credentials",
                ".config/gcloud/credentials.db",
                ".kube/config",
                ".docker/config.json",
            ],
            "forges": [".config/gh/hosts.yml", ".netrc", ".git-credentials", ".npmrc"],
            "browser": [".mozilla/firefox/x/logins.json", ".config/google-chrome/Default/Login Data"],
            "other agents": [".codex/auth.json", ".gemini/oauth_creds.json"],
        }
        return {key: [str(home / name) for name in each] for key, each in names.items()}

    def _writes(self) -> dict[str, str]:
        main = self.place / "home" / "project"
        own = f"ralph-doctor-{self.secret[:8]}"
        return {
            "checkout": str(main / "planted"),
            "hooks": str(main / ".git" / "hooks" / "post-checkout"),
            "config": str(main / ".git" / "config"),
            "home": str(self.place / "home" / "planted"),
            "etc": f"/etc/{own}",
            "usr": f"/usr/{own}",
            "tmp": f"/tmp/{own}",
            "state": str(self.place / "state" / "ralph.db"),
        }

    def _plant(self) -> None:
        logins = [self._login(root) for root in (Root.OURS, Root.MACHINE)]
        for path in (*logins, *(Path(path) for paths in self._reads().values() for path in paths)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("its own" if path in logins else self.secret)
        main = self.place / "home" / "project"
        (self.place / "state" / "worktrees").mkdir(parents=True)
        (self.place / "state" / "ralph.db").write_text(self.secret)
        identity = ("-c", "user.name=Ralph", "-c", "user.email=ralph@localhost")
        for words in (
            ("init", "-q", str(main)),
            (*identity, "-C", str(main), "commit", "-q", "--allow-empty", "-m", "Begin"),
            ("-C", str(main), "worktree", "add", "-q", "-b", "task", str(self.worktree)),
            ("-C", str(main), "config", "user.name", "Ralph"),
            ("-C", str(main), "config", "user.email", "ralph@localhost"),
        ):
            self._git(*words)
        (self.worktree / _PROGRAM).write_text(Path(probing.__file__).read_text())

    def _login(self, root: Root) -> Path:
        home = self.place / "home"
        return (home / AUTH if root is Root.MACHINE else home) / ".claude" / ".credentials.json"

    @contextmanager
    def _neighbour(self) -> Iterator[None]:
        """Run another process with a secret in its environment."""
        is_over = threading.Event()

        def live() -> None:
            with opened_directory(str(self.place)) as directory, Warden(Wakeup()) as warden:
                output_of(
                    warden,
                    ["sleep", str(SECONDS)],
                    directory,
                    self._variables(),
                    watch=lambda seconds, idle: Ended.INTERRUPTED if is_over.is_set() else None,
                )

        thread = threading.Thread(target=live)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _git(self, *words: str) -> None:
        environment = {k: v for k, v in child_environment({}).items() if not k.startswith("GIT_")}
        with opened_directory(str(self.place)) as directory, Warden(self.wakeup) as warden:
            done = output_of(warden, ["git", *words], directory, environment)
        if done.exit.code != 0:
            raise RalphError(f"git {words[0]}: {done.problem or done.err.decode(errors='replace').strip()}")

    def attempt(self, spec: SandboxSpec, root: Root) -> Seen:
        """Run all probes once. The files outside count more than the probes' own reports."""
        before = {name: _content(path) for name, path in self._writes().items()}
        out = self._run(spec, root)
        found: Seen = {}
        for line in out.splitlines():
            name, came, text = json.loads(line)
            found[name] = came, text.replace(f"{self.place}/", "")
        for name, path in self._writes().items():
            is_written = _content(path) != before[name]
            came, text = found.get(name, (None, ""))
            if came is not None:
                found[name] = is_written, "no effect outside" if came and not is_written else text
        return found

    def _run(self, spec: SandboxSpec, root: Root) -> str:
        program, arguments = python(root), json.dumps(self._arguments(spec.network, root))
        argv = [program, "-I", "-S", str(self.worktree / _PROGRAM), arguments]
        agent = AgentSpec("claude", "claude", program)
        plan = Plan("doctor", Flow.RUN, str(self.worktree), (agent,), PromptSource(), sandbox=spec)
        streams = self.place / "state" / "runs" / f"doctor-{spec.network}"
        streams.mkdir(parents=True)
        confined = ConfinedRun(
            plan, find_repository(self.worktree), self.place / "state", streams, self._variables()
        )
        with (
            opened_directory(plan.directory) as directory,
            Warden(self.wakeup) as warden,
            opened_confinement(confined, warden, directory) as confinement,
        ):
            inside = confinement.agent(agent, argv, self._variables(), None)
            done = output_of(warden, inside.argv, directory, inside.environment, watch=self._watch)
            confinement.after(done.exit, inside)
        if done.exit.code != 0:
            raise RalphError(f"The probes failed to run: {done.err.decode(errors='replace').strip()[-500:]}")
        return done.out.decode(errors="replace")

    def _watch(self, seconds: float, idle: float) -> Ended | None:
        if self.wakeup.count:
            return Ended.INTERRUPTED
        return Ended.TIMEOUT if seconds > SECONDS else None

    def _arguments(self, network: Network, root: Root) -> dict[str, Any]:
        passwords = _content("/etc/shadow") or b""
        return {
            "worktree": str(self.worktree),
            "login": str(self._login(root)),
            "writes": self._writes(),
            "reads": self._reads() | {"journal": [str(self.place / "state" / "ralph.db")]},
            "passwords": hashlib.sha256(self.secret.encode() + passwords).hexdigest() if passwords else "",
            "secret": [
                self.secret[:16],
                self.secret[16:],
            ],  # in two parts, so that the whole secret appears nowhere
            "pid": os.getpid(),
            "settings": ["/sys/kernel/mm/transparent_hugepage/enabled", "/sys/fs/cgroup/cgroup.procs"],
            "docker": ["/run/docker.sock", "/var/run/docker.sock", str(self.place / "docker.sock")],
            "ssh_agent": str(self.place / "ssh-agent.sock"),
            "network": network,
            "port": self.port,
        }

    def _clean(self) -> None:
        """Remove the files that a probe left outside if the backend failed."""
        for name in ("etc", "usr", "tmp"):
            with suppress(OSError):
                os.unlink(self._writes()[name])


def _content(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


@contextmanager
def _listening(family: socket.AddressFamily, address: Any) -> Iterator[int]:
    """Listen on an address and accept connections; yield the port, 0 for a Unix socket."""
    with socket.socket(family) as listener:
        listener.bind(address)
        listener.listen(16)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    listener.accept()[0].close()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1] if family == socket.AF_INET else 0
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
