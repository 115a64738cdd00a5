"""What a Python project requires: the parts of its files that decide what has to be installed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from ralph.environments.base import directories, inside
from ralph.environments.python_installed import SKIPPED, normal, read

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


def requirements(top: Path) -> dict[str, str]:
    """The files of a checkout that say what to install, each with the part that does, by their relative paths."""
    return {str(path.relative_to(top)): part for path in _files(top) if (part := _part(path, read(path)))}


def _files(top: Path) -> Iterator[Path]:
    for directory in directories(top, SKIPPED):
        if (directory / "pyvenv.cfg").is_file():
            continue
        for path in sorted(directory.iterdir()):
            is_known = path.name in (*_WHOLE, "pyproject.toml", "setup.cfg") or _is_requirements(path)
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
    except tomllib.TOMLDecodeError:
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
    """A project's own requirements: its extras and dependency groups, each with the names it lists."""

    extras: dict[str, list[str]]
    groups: dict[str, list[str]]
    is_package: bool
    is_workspace: bool


def project_at(directory: Path) -> PythonProject:
    """The project in a directory. What cannot be read counts as absent."""
    text = read(directory / "pyproject.toml")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        data = {}
    uv = _table(_table(data, "tool"), "uv")
    extras = _table(_table(data, "project"), "optional-dependencies")
    return PythonProject(
        {name: _strings(value) for name, value in extras.items()},
        {name: _strings(value) for name, value in _table(data, "dependency-groups").items()},
        "build-system" in data or "project" in data or (directory / "setup.py").is_file(),
        "workspace" in uv,
    )


def installed_among(listed: dict[str, list[str]], names: frozenset[str]) -> list[str]:
    """The extras or groups of which everything is installed."""
    return [
        name
        for name, requires in listed.items()
        if requires and {normal(re.split(r"[^\w.-]", each.strip())[0]) for each in requires} <= names
    ]


def version_files(directory: Path) -> list[Path]:
    """The files that a build writes the version into, by the project's `pyproject.toml`."""
    try:
        data = tomllib.loads(read(directory / "pyproject.toml"))
    except tomllib.TOMLDecodeError:
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
