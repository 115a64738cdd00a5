"""Installs what a copy requires beyond the user's environment: with uv from its lock file, otherwise with pip."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ralph.environments.base import Copy, NotPrepared, ToolOutput, Tools, inside
from ralph.environments.python_installed import (
    PythonEnvironment,
    import_roots,
    leading_to,
    of_venv,
    programs_of,
    read,
    versions_of,
)
from ralph.environments.python_layer import make_layer
from ralph.environments.python_requirements import (
    differs_from_lock,
    in_use_among,
    is_in_use,
    listed_in,
    missing_from,
    project_at,
    requirements,
)
from ralph.environments.shared import digest, made_once

_TELLING = re.compile(r"error\b", re.IGNORECASE)
_EMPTY = re.compile(
    r"^(?:note|hint):|subprocess-exited-with-error|metadata-generation-failed|^error: subprocess"
)
"""Lines of pip about an error that say nothing about it."""

_PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")

SHARED = "ralph-shared.json"
"""A file in a shared environment: the copy that its entries lead to, and where it was made."""


class ToInstall(Struct, frozen=True):
    """The files that require something which the user's environment lacks.

    `is_changed`: they differ from the user's checkout. Otherwise its environment is only out of date.
    """

    files: tuple[str, ...]
    is_changed: bool


def to_install(copy: Copy, installed: PythonEnvironment) -> ToInstall | None:
    """What a copy needs beyond the user's environment; None if nothing."""
    projects = _projects(copy, installed)
    now, then = requirements(copy.top, projects), requirements(copy.origin, projects)
    changed = tuple(name for name, part in now.items() if then.get(name) != part)
    if changed:
        return ToInstall(changed, is_changed=True)
    behind = tuple(name for name in now if _is_behind(copy.top / name, installed))
    return ToInstall(behind, is_changed=False) if behind else None


def _is_behind(path: Path, installed: PythonEnvironment) -> bool:
    """Whether an environment lacks what a file requires: after a merge, the user's may be out of date."""
    versions = versions_of(installed)
    names = frozenset(versions)
    if path.name == "pyproject.toml":
        is_installed = project_at(path.parent).name in names
        return is_installed and bool(missing_from(path.parent, names, programs_of(installed)))
    if path.suffix == ".txt":
        text = read(path)
        return is_in_use(text, names) and any(each not in names for each in listed_in(text))
    is_by_uv = "uv = " in read(installed.prefix / "pyvenv.cfg")
    return path.name == "uv.lock" and is_by_uv and differs_from_lock(read(path), versions)


def _projects(copy: Copy, installed: PythonEnvironment) -> list[str]:
    """The directories of projects whose requirements count: the project, those above it, and what is installed."""
    project = Path(os.path.normpath(copy.project))
    above = [str(each) for each in (project, *project.parents)]
    return list(dict.fromkeys((*above, *installed_projects(copy, installed))))


def installed_projects(copy: Copy, installed: PythonEnvironment) -> list[str]:
    """The directories of the projects that an environment imports from the user's checkout."""
    found: dict[str, None] = {}
    for root in import_roots(copy, installed):
        relative = inside(root, copy.origin)
        for each in (relative, *relative.parents) if relative is not None else ():
            if any((copy.origin / each / name).is_file() for name in _PROJECT_FILES):
                found[str(each)] = None
                break
    return list(found)


def own_environment(
    copy: Copy, installed: PythonEnvironment, needed: ToInstall, tools: Tools
) -> tuple[Copy, PythonEnvironment]:
    """An environment with what the copy requires, shared by all copies that require the same.

    Returned with the copy as its entries see it: they lead to the copy that it was made in.
    """
    now = requirements(copy.top, _projects(copy, installed))
    key = digest(["python", str(installed.python), installed.version, json.dumps(now, sort_keys=True)])
    made = copy.own / "installed"

    def make() -> None:
        shutil.rmtree(made, ignore_errors=True)
        _install(copy, installed, needed, made, tools)
        (made / SHARED).write_text(json.dumps({"origin": str(copy.top), "built": str(made)}))

    shared = made_once(tools.cache, key, made, make)
    found = of_venv(shared)
    if found is None:
        raise NotPrepared(f"The environment in {shared} is damaged. Remove it.")
    origin = Path(json.loads((shared / SHARED).read_text())["origin"])
    return Copy(copy.top, origin, copy.project, copy.own), found


def is_shared(site: Path) -> bool:
    """Whether a directory with packages belongs to a shared environment."""
    return len(site.parents) > 2 and (site.parents[2] / SHARED).is_file()


def _install(copy: Copy, installed: PythonEnvironment, needed: ToInstall, target: Path, tools: Tools) -> None:
    where = next((each for each in (copy.directory, copy.top) if (each / "uv.lock").is_file()), None)
    uv = shutil.which("uv", path=tools.environment.get("PATH"))
    if where is not None and uv is not None:
        _sync(copy, installed, where, target, tools, uv)
    else:
        _pip(copy, installed, needed, target, tools, uv)


def _sync(copy: Copy, installed: PythonEnvironment, where: Path, target: Path, tools: Tools, uv: str) -> None:
    """Install from uv's lock file: the extras and groups that are installed in the user's environment too."""
    names, project = frozenset(versions_of(installed)), project_at(copy.origin / where.relative_to(copy.top))
    argv = [uv, "sync", "--frozen", "--python", str(installed.python)]
    argv += [word for extra in in_use_among(project.extras, names) for word in ("--extra", extra)]
    argv += [word for group in in_use_among(project.groups, names) for word in ("--group", group)]
    argv += ["--all-packages"] if project_at(where).is_workspace else []
    tools.tell("Dependencies have changed. Running uv sync --frozen for the copy.")
    variables = {"UV_PROJECT_ENVIRONMENT": str(target), "VIRTUAL_ENV": "", "UV_PYTHON_DOWNLOADS": "never"}
    _check("uv sync --frozen", tools.run(argv, where, variables))


def _pip(
    copy: Copy, installed: PythonEnvironment, needed: ToInstall, target: Path, tools: Tools, uv: str | None
) -> None:
    """Install what has changed on top of the user's environment."""
    make_layer(copy, installed, target, installed.prefix)
    words = _words(copy, installed, needed)
    if not words:
        return
    tools.tell("Dependencies have changed. Running pip install for the copy.")
    _check("pip install", tools.run([*_installer(installed, target, uv), *words], copy.directory))


def _words(copy: Copy, installed: PythonEnvironment, needed: ToInstall) -> list[str]:
    """What pip has to install: changed requirement files that the user has installed, and changed projects."""
    names, own = frozenset(versions_of(installed)), installed_projects(copy, installed)
    words: dict[tuple[str, ...], None] = {}
    for name in needed.files:
        path, then = copy.top / name, copy.origin / name
        if path.suffix in (".txt", ".in"):
            if is_in_use(read(then), names):
                words["-r", str(path)] = None
        elif path.name in _PROJECT_FILES:
            is_own = os.path.normpath(os.path.dirname(name)) in own
            words |= dict.fromkeys(_project_words(copy, path.parent, names, is_own=is_own))
    return [each for group in words for each in group]


def _project_words(
    copy: Copy, directory: Path, names: frozenset[str], *, is_own: bool
) -> Iterator[tuple[str, ...]]:
    """A project that is installed itself, or only what it requires, and the groups and extras that are installed."""
    project, then = project_at(directory), project_at(copy.origin / directory.relative_to(copy.top))
    if project.problem:
        raise NotPrepared(f"{directory / 'pyproject.toml'} cannot be read: {project.problem}.")
    extras = [name for name in in_use_among(then.extras, names) if name in project.extras]
    if is_own:
        yield "-e", str(directory) + (f"[{','.join(extras)}]" if extras else "")
    else:
        yield from ((each,) for each in project.requires)
        yield from ((each,) for name in extras for each in project.extras[name])
    for name in in_use_among(then.groups, names):
        yield from ((each,) for each in project.groups.get(name, []))


def _installer(installed: PythonEnvironment, target: Path, uv: str | None) -> list[str]:
    """The command that installs into the layer: pip of the environment or of its interpreter, or uv."""
    python = str(target / "bin" / "python")
    if any((site / "pip").is_dir() for site in installed.sites):
        return [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input"]
    if uv is not None:
        return [uv, "pip", "install", "-q", "--python", python]
    return [str(installed.python), "-m", "pip", "--python", python, "install", "-q", "--no-input"]


def build_into(copy: Copy, installed: PythonEnvironment, target: Path, tools: Tools) -> None:
    """Install the projects whose entries compile on import, as they are in the copy, into its layer."""
    entries = [entry for entry in leading_to(copy, installed) if entry.builds]
    if not entries:
        return
    uv = shutil.which("uv", path=tools.environment.get("PATH"))
    backends = {"scikit-build-core", "meson-python"} & frozenset(versions_of(installed))
    isolation = ["--no-build-isolation"] if backends else []
    tools.tell("The project's build backend compiles on import. Building it for the copy.")
    argv = [*_installer(installed, target, uv), "--no-deps", *isolation, str(copy.directory)]
    _check("pip install", tools.run(argv, copy.directory))


def _check(command: str, done: ToolOutput) -> None:
    if done.code == 0:
        return
    lines = [line.strip(" ╰─>│×") for line in done.output.splitlines()]
    telling = [line for line in lines if _TELLING.search(line) and not _EMPTY.search(line)]
    last = telling[-1] if telling else next((line for line in reversed(lines) if line), "no output")
    raise NotPrepared(
        f"{command} failed for the copy: {last[:300]}. Set ralph.setup to the command that installs it."
    )
