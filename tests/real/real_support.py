"""The real agent CLIs, installed once from npm at pinned versions and run against a scripted model server.

pytestmark = REAL

def test_it(tmp_path):
    with ModelServer(parse(SCRIPT)) as server:
        env = environment("claude", tmp_path / "home", server)
        subprocess.run([installed("claude"), …], env=env)
    assert "…" in server.turns()[-1].said()
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from conftest import Project, Result
from ralph.modelserver.clients import clients
from ralph.modelserver.script import ModelScript, parse
from ralph.modelserver.server import ModelServer

PACKAGES = {
    "claude": ("@anthropic-ai/claude-code", "2.1.325"),
    "codex": ("@openai/codex", "0.166.0"),
    "gemini": ("@google/gemini-cli", "0.61.0"),
    "opencode": ("opencode-ai", "1.18.33"),
}
NAMES = tuple(PACKAGES)
DONE = "<response>DONE</response>"

REAL = [
    pytest.mark.real,
    pytest.mark.timeout(600),  # the first test installs the agent
]
"""The marks of a module that needs real agents: `pytestmark = REAL`."""


def installed(name: str) -> Path:
    """Return the executable of an agent, installing it into the cache first if necessary."""
    package, version = PACKAGES[name]
    cache = Path(os.environ.get("RALPH_AGENT_CACHE") or Path.home() / ".cache" / "ralph-agents")
    place = cache / f"{name}-{version}"
    if not (place / ".complete").exists():
        cache.mkdir(parents=True, exist_ok=True)
        with open(cache / f"{name}-{version}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (place / ".complete").exists():
                _install(f"{package}@{version}", place)
    return place / "node_modules" / ".bin" / name


def _install(package: str, place: Path) -> None:
    npm = shutil.which("npm") or _missing("npm is not installed")
    shutil.rmtree(place, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
    try:
        command = [npm, "install", "--prefix", str(scratch), "--no-fund", "--no-audit", package]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500)
        if done.returncode:
            _missing(f"npm could not install {package}: {done.stderr[-500:]}")
        (scratch / ".complete").touch()
        scratch.rename(place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _missing(what: str) -> NoReturn:
    """Fail the test in CI, and skip it elsewhere."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def environment(name: str, home: Path, server: ModelServer, *, subscription: bool = False) -> dict[str, str]:
    """The environment of an agent: a private home with its settings, a dummy key, the server, a short PATH.

    Connections beyond loopback go to a proxy that does not exist. With `subscription`, claude gets a
    subscriber's token instead of an API key, so that it reports its usage windows.
    """
    scratch = home / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    node = shutil.which("node") or _missing("node is not installed")
    path = [str(installed(name).parent), str(Path(node).parent), "/usr/bin", "/bin"]
    nowhere = "http://127.0.0.1:9"
    common = {
        "HOME": str(home),
        "TMPDIR": str(scratch),
        "PATH": ":".join(dict.fromkeys(path)),
        "LANG": "C.UTF-8",
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "NO_PROXY": "127.0.0.1,localhost",
    }
    client = clients(server.url)[name]
    if client.file:
        file = home / client.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(client.content)
    return common | client.env | (_SUBSCRIPTION if subscription else {})


_SUBSCRIPTION = {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-test-local", "ANTHROPIC_API_KEY": ""}


@dataclass(frozen=True)
class Ended:
    """The exit code and output of an agent; the code is None if it timed out."""

    code: int | None
    out: str
    err: str


def run_directly(
    name: str,
    work: Path,
    env: dict[str, str],
    prompt: str,
    *,
    flags: Sequence[str] = (),
    seconds: float = 60.0,
) -> Ended:
    """Run an agent without ralph and kill its process group after a timeout."""
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile("w+") as stdin:
        stdin.write(prompt)
        stdin.seek(0)
        process = subprocess.Popen(
            [str(installed(name)), *clients("")[name].argv[1:], *flags],
            cwd=work,
            env=env,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    code: int | None
    try:
        out, err = process.communicate(timeout=seconds)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        code = None
    return Ended(code, out, err)


# ---- driven by ralph ----


@dataclass
class Lonely(Project):
    """A project whose environment has only the variables that its agent needs."""

    name: str = ""
    alone: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        return self.alone | {"RALPH_STATE_DIR": str(self.home.path), "NO_COLOR": "1"}

    def configure(self, **settings: Any) -> None:
        """Configure the agent with all permissions and one iteration, unless `settings` says otherwise."""
        agent = {"command": self.name, "permissions": "bypass", "flags": _FLAGS.get(self.name, [])}
        agent |= settings.pop("agent", {})
        self.settings(**({"agent": agent, "maximumIterations": 1, "snapshots": False} | settings))

    def living(self) -> set[int]:
        """All processes with this project's home: ralph, the agent and their children."""
        mark = f"HOME={self.alone['HOME']}\0".encode()
        return {
            int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if mark in _bytes(path)
        }

    def runs(self, *argv: str) -> bool:
        """Whether one of these processes runs this command."""
        words = "".join(f"{word}\0" for word in argv).encode()
        return any(_bytes(Path(f"/proc/{pid}/cmdline")) == words for pid in self.living())


_FLAGS = {"gemini": ["-m", "gemini-2.5-pro"]}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def turns(*each: dict[str, Any]) -> ModelScript:
    """A model script that refuses requests after its last turn."""
    return parse(json.dumps({"turns": each, "then": "error"}))


TOOLS: dict[str, tuple[str, str, str]] = {
    "claude": ("Write", "file_path", "Bash"),
    "codex": ("apply_patch", "", "exec_command"),
    "gemini": ("write_file", "file_path", "run_shell_command"),
    "opencode": ("write", "filePath", "bash"),
}
"""The names of its tools that write a file (with the path argument) and run a command."""


def attempts(name: str, file: Path) -> list[dict[str, Any]]:
    """Turns of an agent that tries to write a file, then to run a command that leaves another file."""
    writer, path, shell = TOOLS[name]
    patch = "*** Begin Patch\n*** Add File: a.txt\n+one\n*** End Patch"
    written = {path: "a.txt", "content": "one\n"} if path else patch
    command = {"cmd" if name == "codex" else "command": f"touch {file}", "description": "Leave a file"}
    calls = [{"name": writer, "input": written}, {"name": shell, "input": command}]
    return [{"tools": [{"call": call}]} for call in calls]


@contextmanager
def driven(
    name: str, repository: Project, script: ModelScript, *, subscription: bool = False, **settings: Any
) -> Iterator[tuple[Lonely, ModelServer]]:
    """The repository, configured for a real agent; afterwards no process may be left."""
    with ModelServer(script) as server:
        home = repository.home.path.parent / "home"
        alone = environment(name, home, server, subscription=subscription)
        lonely = Lonely(repository.path, repository.home, name=name, alone=alone)
        lonely.git("config", "user.name", "Test")
        lonely.git("config", "user.email", "test@localhost")
        lonely.configure(**settings)
        yield lonely, server
        assert not lonely.living()


@contextmanager
def started(project: Project) -> Iterator[subprocess.Popen[str]]:
    """Start ralph, and kill it at the end even if the test fails."""
    process = project.start("run", "-p", "x")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def hears(process: subprocess.Popen[str], words: str) -> bool:
    """Whether ralph prints these words before it exits."""
    assert process.stderr is not None
    return any(words in line for line in process.stderr)


def ends(result: Result) -> list[str]:
    """How each agent process ended."""
    return [line["ran"]["ended"] for line in result.lines() if line["event"] == "agent_ended"]


def limits(result: Result) -> list[dict[str, Any]]:
    """The event of each usage limit."""
    return [line for line in result.lines() if line["event"] == "limit"]


def assert_gone(file: Path) -> None:
    """Check that the process whose PID is in this file no longer exists."""
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)
