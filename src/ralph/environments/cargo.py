"""Cargo: the registry is shared; build output goes to the copy, or next to it if it is configured elsewhere."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ralph.environments.base import Copy, Tools, directories, inside
from ralph.environments.copying import bring_ignored, text_of

name = "Cargo"
sources: Sequence[str] = (".rs",)

_SKIPPED = frozenset({"node_modules", "target", "vendor", ".venv", "venv"})
_CONFIGURATION = (Path(".cargo/config.toml"), Path(".cargo/config"))

_OUTPUT = {
    "target-dir": ("CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"),
    "build-dir": ("CARGO_BUILD_BUILD_DIR",),
}
"""The settings in `[build]` for output, with the variables that have precedence."""

_FLAGS = ("RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTDOCFLAGS", "RUSTC_WRAPPER")


def detect(copy: Copy, environment: Mapping[str, str]) -> bool:
    """Whether the copy has a package or workspace."""
    return any(_places(copy))


def _places(copy: Copy) -> Iterator[Path]:
    for directory in directories(copy.top, _SKIPPED):
        if (directory / "Cargo.toml").is_file():
            yield directory.relative_to(copy.top)


def prepare(copy: Copy, tools: Tools) -> None:
    """Copy what git ignores: configuration and vendored packages."""
    for place in dict.fromkeys((Path(), Path(copy.project), *_places(copy))):
        for file in _CONFIGURATION:
            bring_ignored(copy, tools, place / file)
        bring_ignored(copy, tools, place / "vendor")


def variables(copy: Copy, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Output directories outside the copy become its own; flags lead to the copy."""
    found = {
        key: copy.repointed(environment[key]) for key in _FLAGS if copy.leads_back(environment.get(key, ""))
    }
    for setting, names in _OUTPUT.items():
        output = _output(copy, environment, setting, names)
        if output is not None and inside(output, copy.top) is None:
            found[names[0]] = str(copy.own / f"cargo-{setting}")
    return found


def _output(copy: Copy, environment: Mapping[str, str], setting: str, names: Sequence[str]) -> str | None:
    """Where output goes, seen from the copy; None if nothing says so, or it goes by the path of the workspace."""
    chosen = next((environment[name] for name in names if environment.get(name)), None)
    if chosen is not None:
        return None if "{workspace-" in chosen else os.path.normpath(copy.directory / chosen)
    for file in _configuration_files(copy, environment):
        build = _toml(file).get("build")
        value = build.get(setting) if isinstance(build, dict) else None
        if isinstance(value, str):
            return None if "{workspace-" in value else os.path.normpath(file.parent.parent / value)
    return None


def _configuration_files(copy: Copy, environment: Mapping[str, str]) -> Iterator[Path]:
    """The files that Cargo reads in the copy, the one with the highest precedence first."""
    for directory in (copy.directory, *copy.directory.parents):
        yield from (directory / file for file in reversed(_CONFIGURATION))
    yield from (_home(environment) / name for name in ("config", "config.toml"))


def _home(environment: Mapping[str, str]) -> Path:
    home = environment.get("HOME") or os.path.expanduser("~")
    return Path(environment.get("CARGO_HOME") or Path(home) / ".cargo")


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text_of(file))
    except tomllib.TOMLDecodeError:
        return {}


def describe(copy: Copy, environment: Mapping[str, str]) -> str:
    return "the registry is shared; every copy has its own build output"


def leads_out(copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
    """Packages and settings with a path in the user's checkout."""
    files = [copy.top / place / "Cargo.toml" for place in _places(copy)]
    files += _configuration_files(copy, environment)
    return [
        f"{inside(file, copy.top) or file} has {path}"
        for file in dict.fromkeys(files)
        for path in _texts(_toml(file))
        if os.path.isabs(path) and inside(path, copy.origin) is not None and inside(path, copy.top) is None
    ]


def _texts(value: Any) -> Iterator[str]:
    """All texts in a TOML value, without the output directories, which are variables in a copy."""
    if isinstance(value, str):
        yield value.removeprefix("file://")
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in _OUTPUT:
                yield from _texts(each)


def reads(copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
    """The registry and the repositories of dependencies."""
    return [str(_home(environment) / name) for name in ("registry", "git")]
