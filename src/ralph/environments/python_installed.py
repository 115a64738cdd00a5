"""An installed Python environment, and what in it leads to the sources of a project."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ralph.environments.base import Copy, directories, entries_of, inside

RECORD = "ralph-layer.json"
"""A file in a layer: the directories with packages that it reads besides its own."""

SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", ".tox", ".nox"})

_PROBE_SECONDS = 20.0
_PROBE = """
import json, site, sys, sysconfig
sites = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
scripts = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", "posix_user")]
print(json.dumps([sys.prefix, sys.executable, sites, scripts, "%d.%d" % sys.version_info[:2]]))
"""
_IMPORTED = re.compile(r"^import\s+([\w.]+)", re.MULTILINE)
_BUILDERS = ("scikit_build_core", "ScikitBuildRedirectingFinder", "MesonpyMetaFinder", "mesonpy")
"""Names in the finder of a build backend that compiles on import. It comes before all other finders."""


class PythonEnvironment(Struct, frozen=True):
    """An environment: its prefix, base interpreter, directories with packages and with scripts, Python version."""

    prefix: Path
    python: Path
    sites: tuple[Path, ...]
    scripts: tuple[Path, ...]
    version: str
    skipped: frozenset[str] = frozenset()

    @property
    def is_venv(self) -> bool:
        return (self.prefix / "pyvenv.cfg").is_file()


class Lead(Struct, frozen=True):
    """A file or a link in a directory with packages that leads to sources outside of it.

    `builds`: its finder compiles them on import, so the file cannot be re-pointed.
    """

    path: Path
    builds: bool = False

    @property
    def name(self) -> str:
        return self.path.name


# ---- finding environments ----


def venvs_in(top: Path) -> list[Path]:
    """The virtual environments in a checkout."""
    return [each for each in directories(top, SKIPPED) if (each / "pyvenv.cfg").is_file()]


def linked_venvs(top: Path, project: str) -> list[Path]:
    """The links to virtual environments in the project's directory and at the top."""
    return [
        Path(entry.path)
        for directory in dict.fromkeys((Path(os.path.normpath(top / project)), top))
        for entry in entries_of(directory)
        if entry.is_symlink() and os.path.isfile(os.path.join(entry.path, "pyvenv.cfg"))
    ]


def in_use(copy: Copy, environment: Mapping[str, str]) -> list[PythonEnvironment]:
    """The environments that commands in the user's checkout use: those in it, the active one, and that on the PATH."""
    found: dict[Path, PythonEnvironment] = {}
    for prefix in [*venvs_in(copy.origin), *linked_venvs(copy.origin, copy.project)]:
        if (each := of_venv(prefix)) is not None:
            found[prefix] = each
    for each in outside(environment):
        if inside(each.prefix, copy.origin) is None:
            found.setdefault(each.prefix, each)
    return list(found.values())


def outside(environment: Mapping[str, str]) -> Iterator[PythonEnvironment]:
    """The active environment, and those of the interpreters on the PATH."""
    if active := environment.get("VIRTUAL_ENV"):
        found = of_venv(Path(active))
        if found is not None:
            yield found
    path = environment.get("PATH", os.defpath)
    programs = filter(None, (shutil.which(name, path=path) for name in ("python3", "python")))
    for directory, program in {Path(each).parent: each for each in programs}.items():
        found = of_venv(directory.parent) or probed(program, tuple(sorted(environment.items())))
        if found is not None:
            yield replace(found, scripts=tuple(dict.fromkeys((*found.scripts, directory))))


def of_venv(prefix: Path) -> PythonEnvironment | None:
    """The virtual environment at a prefix, read without running it; None if there is none."""
    try:
        lines = (prefix / "pyvenv.cfg").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    values = {key.strip().lower(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
    sites = sorted(prefix.glob("lib/python3*/site-packages"))
    if not sites or not values.get("home"):
        return None
    version = sites[0].parent.name.removeprefix("python")
    python = next(
        (
            each
            for name in (f"python{version}", "python3", "python")
            if (each := Path(values["home"], name)).exists()
        ),
        Path(values["home"], "python3"),
    )
    more, skipped = _recorded(prefix)
    return PythonEnvironment(prefix, python, (sites[0], *more), (prefix / "bin",), version, skipped)


def _recorded(prefix: Path) -> tuple[tuple[Path, ...], frozenset[str]]:
    """The directories that a layer reads besides its own, and the entries in them that it skips."""
    try:
        record = json.loads((prefix / RECORD).read_text())
        return tuple(Path(each) for each in record["sites"]), frozenset(record["skipped"])
    except (OSError, ValueError, KeyError, TypeError):
        return (), frozenset()


@cache
def probed(program: str, environment: tuple[tuple[str, str], ...]) -> PythonEnvironment | None:
    """The environment of an interpreter that is not a virtual environment; None if it does not answer.

    Packages of the user (`pip install --user`) are part of it.
    """
    try:
        done = subprocess.run(
            [program, "-c", _PROBE],
            cwd="/",
            env=dict(environment),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_SECONDS,
            check=True,
        )
        prefix, python, sites, scripts, version = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return PythonEnvironment(
        Path(prefix),
        Path(python),
        tuple(Path(each) for each in sites if os.path.isdir(each)),
        tuple(Path(each) for each in scripts if each and os.path.isdir(each)),
        version,
    )


# ---- what leads to a project ----


def leading_to(copy: Copy, installed: PythonEnvironment) -> list[Lead]:
    """The entries of an environment that lead into the user's checkout."""
    entries = (entry for site in installed.sites for entry in _leading(copy, installed, site))
    return [entry for entry in entries if str(entry.path) not in installed.skipped]


def _leading(copy: Copy, installed: PythonEnvironment, site: Path) -> Iterator[Lead]:
    try:
        entries = list(os.scandir(site))
    except OSError:
        return
    for each in entries:
        path = Path(each.path)
        if each.path in installed.skipped:
            continue
        if each.is_symlink():
            if _is_source(copy, installed, os.path.join(site, os.readlink(path))):
                yield Lead(path)
        elif each.name.endswith((".pth", ".egg-link")):
            yield from _of_path_file(copy, installed, path)


def _of_path_file(copy: Copy, installed: PythonEnvironment, path: Path) -> Iterator[Lead]:
    """The entry of a `.pth` file, and of the modules that it imports."""
    text = read(path)
    finders = [path.with_name(f"{name}.py") for name in _IMPORTED.findall(text)]
    leading = [finder for finder in finders if finder.is_file() and leads_back(copy, read(finder))]
    builds = any(name in read(finder) for finder in leading for name in _BUILDERS)
    if builds:
        yield Lead(path, builds=True)
        return
    for finder in leading:
        yield Lead(finder)
    if leading or any(
        leads_back(copy, line) if target is None else _is_source(copy, installed, target)
        for line, target in lines_of(path, text)
    ):
        yield Lead(path)


_LITERAL = re.compile(r"""(?P<quote>['"])(?P<path>/[^'"\\\n]*)(?P=quote)""")


def repointed(copy: Copy, text: str) -> str:
    """A text with the paths of the user's checkout led to the copy, also strings with a path through a link to it."""
    return _LITERAL.sub(
        lambda found: found["quote"] + copy.moved(found["path"]) + found["quote"], copy.repointed(text)
    )


def leads_back(copy: Copy, text: str) -> bool:
    literals = (found["path"] for found in _LITERAL.finditer(text))
    return copy.leads_back(text) or any(inside(path, copy.origin) is not None for path in literals)


def lines_of(path: Path, text: str) -> list[tuple[str, str | None]]:
    """The lines of a `.pth` file, each with the path that it adds; None if it adds none."""
    return [
        (line, os.path.normpath(os.path.join(path.parent, line)) if _is_path(line) else None)
        for line in map(str.rstrip, text.splitlines())
    ]


def _is_path(line: str) -> bool:
    return bool(line.strip()) and "\0" not in line and not line.startswith(("#", "import ", "import\t"))


def _is_source(copy: Copy, installed: PythonEnvironment, target: str) -> bool:
    """Whether a path lies in the user's checkout, but not in the environment itself."""
    return inside(target, copy.origin) is not None and inside(target, installed.prefix) is None


def read(path: Path) -> str:
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""


def import_roots(copy: Copy, installed: PythonEnvironment) -> list[Path]:
    """The directories in the user's checkout that an environment imports from."""
    found: dict[Path, None] = {}
    for entry in leading_to(copy, installed):
        if entry.path.is_symlink():
            found[Path(os.path.realpath(entry.path))] = None
            continue
        text = read(entry.path)
        for _, target in lines_of(entry.path, text) if entry.name.endswith(".pth") else []:
            if target is not None and inside(target, copy.origin) is not None:
                found[Path(target)] = None
        for origin in dict.fromkeys((str(copy.origin), os.path.realpath(copy.origin))):
            for match in re.finditer(rf"{re.escape(origin)}(?![\w.-])[^'\"\n\r:;,)]*", text):
                found[Path(match[0].strip())] = None
    return [each for each in found if each.exists()]


def versions_of(installed: PythonEnvironment) -> dict[str, str]:
    """The installed distributions by their normalised names, with their versions."""
    found: dict[str, str] = {}
    for site in installed.sites:
        for entry in os.scandir(site) if site.is_dir() else ():
            stem, ending = os.path.splitext(entry.name)
            if ending in (".dist-info", ".egg-info"):
                name, _, version = stem.partition("-")
                found.setdefault(normal(name), version)
    return found


def programs_of(installed: PythonEnvironment) -> frozenset[str]:
    """The names of the programs of an environment."""
    return frozenset(each.name for directory in installed.scripts for each in entries_of(directory))


def normal(name: str) -> str:
    """A distribution's name, normalised."""
    return re.sub(r"[-_.]+", "-", name).lower()
