"""What a Python project requires: the parts of its files that decide what has to be installed."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from ralph.environments.base import entries_of, inside
from ralph.environments.python_installed import normal, read

LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "pylock.toml")
_WHOLE = (*LOCKS, "setup.py", "Pipfile")
_REQUIREMENTS = re.compile(r"(?:.*[-_.])?requirements(?:[-_.].*)?\.(?:txt|in)")
_INSTALLED_KEYS = (
    "dependencies",
    "optional-dependencies",
    "scripts",
    "gui-scripts",
    "entry-points",
    "dynamic",
    "name",
)
_TOOLS = ("uv", "poetry", "pdm", "flit", "setuptools")
_VERSION_FILE_KEYS = frozenset({"version_file", "version-file", "write_to", "build-hook-file"})


def requirements(top: Path, projects: Iterable[str]) -> dict[str, str]:
    """The files of these projects that say what to install, each with the part that does, by their relative paths."""
    return {
        os.path.relpath(path, top): part
        for project in projects
        for path in _files(top / project)
        if (part := _part(path, read(path)))
    }


def _files(directory: Path) -> Iterator[Path]:
    for each in (directory, directory / "requirements"):
        for entry in entries_of(each):
            path = Path(entry.path)
            is_known = entry.name in (*_WHOLE, "pyproject.toml", "setup.cfg") or _is_requirements(path)
            if is_known and path.is_file():
                yield path


def _is_requirements(path: Path) -> bool:
    if path.parent.name == "requirements":
        return path.suffix in (".txt", ".in")
    return _REQUIREMENTS.fullmatch(path.name) is not None


def _part(path: Path, text: str) -> str:
    if path.name == "pyproject.toml":
        return _of_pyproject(text)
    if path.name == "setup.cfg":
        return "\n".join(re.findall(r"(?ms)^\[(?:metadata|options[^\]]*)\].*?(?=^\[|\Z)", text))
    return text


def _of_pyproject(text: str) -> str:
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    project, tools = _table(data, "project"), _table(data, "tool")
    kept = {
        "project": {key: project[key] for key in _INSTALLED_KEYS if key in project},
        "build": data.get("build-system"),
        "groups": data.get("dependency-groups"),
        "tools": {name: tools[name] for name in _TOOLS if name in tools},
    }
    return json.dumps(kept, sort_keys=True, default=str) if any(kept.values()) else ""


class PythonProject(Struct, frozen=True):
    """A project's own requirements, also its extras and dependency groups, each with what it lists."""

    name: str
    requires: list[str]
    scripts: list[str]
    extras: dict[str, list[str]]
    groups: dict[str, list[str]]
    is_workspace: bool
    problem: str = ""


def project_at(directory: Path) -> PythonProject:
    """The project in a directory. What cannot be read counts as absent, with the problem."""
    text, problem = read(directory / "pyproject.toml"), ""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        data, problem = {}, str(error)
    uv = _table(_table(data, "tool"), "uv")
    project = _table(data, "project")
    extras = _table(project, "optional-dependencies")
    return PythonProject(
        normal(project["name"]) if isinstance(project.get("name"), str) else "",
        _strings(project.get("dependencies")),
        list(_table(project, "scripts")),
        {name: _strings(value) for name, value in extras.items()},
        {name: _strings(value) for name, value in _table(data, "dependency-groups").items()},
        "workspace" in uv,
        problem,
    )


def in_use_among(listed: dict[str, list[str]], names: frozenset[str]) -> list[str]:
    """The extras or groups that the user has installed: most of what they list is there."""
    found = []
    for name, requires in listed.items():
        required = [each for text in requires if (each := required_name(text))]
        if required and 2 * sum(each in names for each in required) >= len(required):
            found.append(name)
    return found


def missing_from(directory: Path, names: frozenset[str], programs: frozenset[str]) -> list[str]:
    """What a project requires, or has as a script, and the environment lacks."""
    project = project_at(directory)
    listed = [
        *project.requires,
        *(each for extra in in_use_among(project.extras, names) for each in project.extras[extra]),
        *(each for group in in_use_among(project.groups, names) for each in project.groups[group]),
    ]
    required = [each for text in listed if (each := required_name(text))]
    scripts = project.scripts if project.name in names else []
    return [each for each in required if each not in names] + [
        each for each in scripts if each not in programs
    ]


def listed_in(text: str) -> list[str]:
    """The names in a requirements file."""
    return [each for line in text.splitlines() if (each := required_name(line))]


def is_in_use(text: str, names: frozenset[str]) -> bool:
    """Whether most of what a requirements file lists is installed."""
    return bool(in_use_among({"": text.splitlines()}, names)) or not listed_in(text)


def required_name(text: str) -> str:
    """The normalised name of a requirement that holds everywhere; "" for options, paths, and those with a condition."""
    text = text.partition("#")[0].strip()
    match = re.match(r"[A-Za-z0-9][\w.-]*(?=\s*(?:$|[\[<>=!~@(,]))", text)
    return normal(match[0]) if match and ";" not in text else ""


_LOCKED = re.compile(
    r'^name = "([^"]+)"\nversion = "([^"]+)"\nsource = \{ (?:registry|git|url)', re.MULTILINE
)


def differs_from_lock(lock: str, versions: Mapping[str, str]) -> bool:
    """Whether an installed version is none of those in uv's lock file."""
    locked: dict[str, set[str]] = {}
    for name, version in _LOCKED.findall(lock):
        locked.setdefault(name, set()).add(version)
    return any(version not in locked.get(name, {version}) for name, version in versions.items())


def version_files(directory: Path) -> list[Path]:
    """The files that a build writes the version into, by the project's `pyproject.toml`."""
    try:
        data = tomllib.loads(read(directory / "pyproject.toml"))
    except (tomllib.TOMLDecodeError, RecursionError):
        return []
    found = (directory / value for value in _values(_table(data, "tool"), _VERSION_FILE_KEYS))
    return [path for path in found if path.suffix == ".py" and inside(path, directory) is not None]


def _values(value: Any, keys: frozenset[str]) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    for key, each in value.items():
        if key in keys and isinstance(each, str):
            yield each
        else:
            yield from _values(each, keys)


def _table(data: Any, key: str) -> dict[str, Any]:
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}


def _strings(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
