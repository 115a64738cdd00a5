"""A checkout with a package, a copy of it, and virtual environments with the files that installers write."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ralph.environments import prepare, python
from ralph.environments.base import Copy, ToolOutput
from ralph.environments.python_installed import PythonEnvironment, of_venv

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
BASE = Path(sys.base_prefix) / "bin" / f"python{VERSION}"
ORIGINAL, CHANGED = "where = 'checkout'\n", "where = 'copy'\n"


@dataclass
class LocalTools:
    """Runs commands as they are, and remembers them."""

    copy: Copy
    cache: Path
    environment: Mapping[str, str]
    commands: list[list[str]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], directory: Path, variables: Mapping[str, str] = {}) -> ToolOutput:
        self.commands.append(list(argv))
        merged = {name: value for name, value in {**self.environment, **variables}.items() if value}
        done = subprocess.run(
            argv, cwd=directory, env=merged, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        return ToolOutput(done.returncode, done.stdout + done.stderr)

    def tell(self, text: str) -> None:
        self.told.append(text)


@dataclass
class Place:
    """A user's checkout and a copy of it: the package `demo` in `src` says where it was imported from."""

    origin: Path
    top: Path
    project: str = "."

    def __post_init__(self) -> None:
        for path, text in ((self.origin, ORIGINAL), (self.top, CHANGED)):
            package = path / self.project / "src" / "demo"
            package.mkdir(parents=True)
            (package / "__init__.py").write_text(text)
        self.venv = make_venv(self.origin / self.project / ".venv")

    @property
    def copy(self) -> Copy:
        return Copy(self.top, self.origin, self.project, self.top.parent / f"{self.top.name}.own")

    @property
    def site(self) -> Path:
        return site_of(self.venv)

    @property
    def source(self) -> Path:
        return self.origin / self.project / "src"

    @property
    def layer(self) -> Path:
        return self.top / self.project / ".venv"

    @property
    def installed(self) -> PythonEnvironment:
        return installed(self.venv)

    def environment(self, **more: str) -> dict[str, str]:
        path = os.pathsep.join([str(BASE.parent), "/usr/bin", "/bin"])
        return {"PATH": path, "HOME": str(self.origin), "PYTHONDONTWRITEBYTECODE": "1"} | more

    def tools(self, **more: str) -> LocalTools:
        return LocalTools(self.copy, self.top.parent / "cache", self.environment(**more))

    def prepare(self, **more: str) -> LocalTools:
        tools = self.tools(**more)
        self.copy.own.mkdir(exist_ok=True)
        python.prepare(self.copy, tools)
        return tools

    def where(
        self, program: str | Path = "", code: str = "import demo; print(demo.where)", **more: str
    ) -> str:
        """Where the copy imports the package from, as its commands do."""
        environment = prepare.variables(self.copy, self.environment(**more))
        return output([str(program or self.layer / "bin" / "python"), "-c", code], self.top, environment)


def output(argv: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(argv, cwd=directory, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def place(tmp_path: Path, name: str = "app", copy: str = "copy/app", project: str = ".") -> Place:
    return Place(tmp_path / name, tmp_path / copy, project)


def make_venv(path: Path) -> Path:
    """A virtual environment as `python -m venv --without-pip` makes it."""
    subprocess.run([BASE, "-m", "venv", "--without-pip", path], check=True)
    return path


def copy_venv(path: Path, target: Path) -> None:
    shutil.copytree(path, target, symlinks=True)


def site_of(venv: Path) -> Path:
    return venv / "lib" / f"python{VERSION}" / "site-packages"


def installed(venv: Path) -> PythonEnvironment:
    found = of_venv(venv)
    assert found is not None
    return found


def program(venv: Path, name: str, text: str) -> Path:
    path = venv / "bin" / name
    path.write_text(text)
    path.chmod(0o755)
    return path


# ---- the entries that installers write ----


def path_line(site: Path, source: Path, name: str = "__editable__.demo-1.0.pth") -> None:
    """As setuptools (src layout), uv_build, poetry and hatchling: a file with the path of the sources."""
    (site / name).write_text(f"{source}\n")


def finder(site: Path, source: Path) -> None:
    """As setuptools for a flat layout: a module with a finder that knows where the package lies."""
    (site / "__editable___demo_1_0_finder.py").write_text(
        f"MAPPING: dict[str, str] = {{'demo': {str(source / 'demo')!r}}}\n{_FINDER}"
    )
    (site / "__editable__.demo-1.0.pth").write_text(
        "import __editable___demo_1_0_finder; __editable___demo_1_0_finder.install()"
    )


_FINDER = """\
import sys
from importlib.machinery import PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path

class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, _path=None, _target=None):
        if fullname in MAPPING:
            init = Path(MAPPING[fullname], "__init__.py")
            return spec_from_file_location(fullname, init) if init.exists() else None

def install():
    sys.meta_path.append(_EditableFinder)
"""


def link(site: Path, source: Path) -> None:
    """As `flit install --symlink`: a link to the package."""
    (site / "demo").symlink_to(source / "demo")


def strict(site: Path, source: Path) -> None:
    """As setuptools in strict mode: a directory of links in `build`."""
    links = source.parent / "build" / "__editable__.demo-1.0-py3-none-any"
    (links / "demo").mkdir(parents=True)
    (links / "demo" / "__init__.py").symlink_to(source / "demo" / "__init__.py")
    path_line(site, links)


def relative(site: Path, source: Path) -> None:
    """A path relative to the directory with the packages."""
    (site / "demo.pth").write_text(os.path.relpath(source, site) + "\n")


def inserted(site: Path, source: Path) -> None:
    """A line of code that puts the sources at the front of the path."""
    (site / "demo.pth").write_text(f"import sys; sys.path.insert(0, {str(source)!r})\n")


def dist_info(site: Path, name: str, version: str = "1.0", **files: str) -> None:
    directory = site / f"{name}-{version}.dist-info"
    directory.mkdir()
    (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for each, text in files.items():
        (directory / each).write_text(text)


def direct_url(source: Path) -> str:
    return json.dumps({"dir_info": {"editable": True}, "url": f"file://{source}"})


ENTRIES = [path_line, finder, link, strict, relative, inserted]
