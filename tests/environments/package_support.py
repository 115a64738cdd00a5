"""Real Python projects, installed by real package managers, and agents that break or fix them.

The package managers and what they download are kept in a cache directory, filled on first use.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import debian
from conftest import Project, Result
from work_support import Site, external, task

ROOT = Path(__file__).parents[2]
PYTHON = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"

NETWORK = [pytest.mark.slow, pytest.mark.timeout(400)]
"""The marks of a module that installs from the package registry."""

TOOLS = {
    "uv": "uv==0.13.8",
    "pip": "pip==26.3",
    "poetry": "poetry==2.5.1",
    "pdm": "pdm==2.29.3 unearth<0.19 hishel<2",
    "flit": "flit==4.2.0",
}

WORKS = (
    "def answer():\n    return 42\n\n\ndef main():\n"
    "    print(__file__)\n    raise SystemExit(answer() != 42)\n"
)
BROKEN = 'raise RuntimeError("broken")\n'
TEST = "from demo import answer\n\n\ndef test_answer():\n    assert answer() == 42\n"
LOCATED = (
    "from pathlib import Path\n\nimport demo\n\n\ndef test_it_is_here():\n"
    "    assert Path(demo.__file__).resolve().is_relative_to(Path.cwd().resolve())\n"
)
"""A test that sees which copy is imported."""


def cache() -> Path:
    return Path(os.environ.get("RALPH_PYTHON_CACHE") or Path.home() / ".cache" / "ralph-python")


def tool(name: str) -> Path:
    """A directory with the program of a package manager alone, installed on first use."""
    place = cache() / TOOLS[name].partition(" ")[0]
    if not (place / ".complete").exists():
        cache().mkdir(parents=True, exist_ok=True)
        with open(f"{place}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (place / ".complete").exists():
                _install(TOOLS[name], place)
    return place / "program"


def _install(requirements: str, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([PYTHON, "-m", "venv", place], check=True)
    argv = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--upgrade", *requirements.split()]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if done.returncode:
        debian.missing(f"{requirements} could not be installed: {done.stderr[-500:]}")
    (place / "program").mkdir()
    name = requirements.partition("==")[0]
    (place / "program" / name).symlink_to(place / "bin" / name)
    (place / ".complete").touch()


def hashes(*places: Path) -> dict[str, str]:
    """Every file, link and directory below these places, each with the hash of its content."""
    found = {}
    for place in places:
        for path in sorted(place.rglob("*")):
            if path.is_symlink():
                found[str(path)] = f"-> {path.readlink()}"
            elif path.is_file():
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
            else:
                found[str(path)] = "directory"
    return found


@dataclass(frozen=True)
class Package:
    """A project: its files, the script that installs it into the user's checkout, and how it is checked.

    `code`: the file that an agent changes. `below`: where in the repository the project lies.
    """

    files: Mapping[str, str]
    install: str
    tools: Sequence[str] = ("uv",)
    check: str = ".venv/bin/pytest -q"
    code: str = "src/demo/__init__.py"
    below: str = "."
    setup: str = ""


@dataclass
class Checkout:
    """A package in a user's checkout."""

    site: Site
    package: Package
    before: dict[str, str] = field(default_factory=dict)

    @property
    def top(self) -> Path:
        return self.site.project.path

    @property
    def path(self) -> Path:
        return self.top / self.package.below

    @property
    def code(self) -> Path:
        return self.path / self.package.code

    def shell(self, script: str, **env: str) -> str:
        """Run a script in the checkout as its user, and return what it prints."""
        argv = ["/bin/sh", "-ec", script]
        done = subprocess.run(
            argv,
            cwd=self.path,
            env=self.site.project.env | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def commit(self, files: Mapping[str, str], message: str = "Change") -> None:
        write(self.path, files)
        self.site.project.git("add", "-A")
        self.site.project.git("commit", "-q", "--allow-empty", "-m", message)

    @property
    def environments(self) -> tuple[Path, ...]:
        return (self.path / ".venv", self.top.parent / "outer")

    def remember(self) -> None:
        """Remember every byte of the user's environments, in the checkout and next to it."""
        self.before = hashes(*self.environments)

    def is_untouched(self) -> bool:
        """Whether the user's environments are as remembered; prints what is not."""
        now = hashes(*self.environments)
        changed = sorted({name for name, _ in self.before.items() ^ now.items()})
        print("\n".join(changed[:20]))
        return bool(now) and not changed

    def activate(self, venv: Path) -> None:
        """Activate an environment, as its `activate` script does."""
        env = self.site.project.extra_env
        env |= {"VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:{env['PATH']}"}

    # ---- an agent's work ----

    def work(self, change: str, check: str = "", *, iterations: int = 1, **more: Any) -> Result:
        """Run `ralph work` on a task whose coder runs this script and claims to be done. `more`: settings of `ralph`."""
        package = self.package
        off = {name: {"enabled": False} for name in ("reviewer", "tester", "qa")}
        agent = self.site._script("agent.sh", f"{change}\necho '<promise>CODED</promise>'")
        ralph = {"agents": off, "setup": package.setup}
        self._settings({"agent": {"command": agent}, "ralph": ralph | more})
        spec = external(check or package.check)
        project = Project(self.path, self.site.project.home, self.site.project.extra_env)
        tasks = Site(project).tasks
        id = f"T-{len(tasks.all()) + 1}"
        tasks.add([task(id, coder=replace(spec, max_iterations=iterations))])
        return project.run("work", "--task", id, timeout=300)

    def run(self, change: str, check: str = "") -> Result:
        """Run `ralph run` with a guardrail in a clean copy, and an agent that runs this script."""
        package = self.package
        agent = self.site._script("agent.sh", f"{change}\necho '<response>DONE</response>'")
        self._settings(
            {
                "agent": {"command": agent},
                "guardrails": [{"command": check or package.check, "clean": True}],
                "maximumIterations": 1,
                "ralph": {"setup": package.setup},
            }
        )
        project = Project(self.path, self.site.project.home, self.site.project.extra_env)
        return project.run("run", "-p", "x", timeout=300)

    def _settings(self, values: Mapping[str, Any]) -> None:
        Project(self.path, self.site.project.home).settings(**values)

    def is_merged(self, code: str, path: str = "") -> bool:
        name = os.path.normpath(os.path.join(self.package.below, path or self.package.code))
        return self.site.project.git("show", f"main:{name}") == code


def writes(path: str, text: str) -> str:
    """A script that writes a file."""
    return f"cat > '{path}' <<'END_OF_FILE'\n{text}END_OF_FILE"


def write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def checkout(project: Project, package: Package, code: str = WORKS) -> Checkout:
    """A repository with a package, installed as its user would do it."""
    path = [str(tool(name)) for name in package.tools]
    project.extra_env |= {
        "PATH": os.pathsep.join([*path, str(PYTHON.parent), "/usr/bin", "/bin"]),
        "PY": str(PYTHON),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_REQUIRE_VIRTUALENV": "1",
        "UV_CACHE_DIR": str(cache() / "uv"),
        "PIP_CACHE_DIR": str(cache() / "pip"),
        "POETRY_CACHE_DIR": str(cache() / "poetry"),
        "POETRY_VIRTUALENVS_IN_PROJECT": "1",
        "FLIT_ROOT_INSTALL": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    for name in ("VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"):
        project.extra_env[name] = ""
    directory = project.path / package.below
    directory.mkdir(parents=True, exist_ok=True)
    made = Checkout(Site(project), package)
    write(
        project.path,
        {".gitignore": "__pycache__/\n.ralph/\n.venv/\n*.egg-info/\n.pytest_cache/\nbuild/\n.pdm-python\n"},
    )
    write(directory, package.files)
    if not made.code.exists():
        write(directory, {package.code: WORKS})
    project.git("init", "-q", "-b", "main")
    project.git("config", "user.name", "Ada")
    project.git("config", "user.email", "ada@localhost")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "First")
    made.shell(package.install)
    made.code.write_text(code)
    made.commit({}, "Installed")
    made.remember()
    return made
