"""The packages of a checkout, which package manager installs them together, and whether that is the same in a copy."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from ralph.environments.base import Copy, directories
from ralph.environments.copying import text_of

SKIPPED = frozenset({"node_modules", ".yarn", ".venv", "venv", "target", "__pycache__"})
"""Directories that hold no packages of a project."""

LOCKS = {
    "package-lock.json": "npm",
    "npm-shrinkwrap.json": "npm",
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lock": "bun",
    "bun.lockb": "bun",
}

PLUG_AND_PLAY = (".pnp.cjs", ".pnp.js")

_MARKS = {
    ".package-lock.json": "npm",
    ".modules.yaml": "pnpm",
    ".yarn-state.yml": "berry",
    ".yarn-integrity": "yarn",
}
"""What a package manager leaves in node_modules."""

_DEPENDENCIES = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")

_INSTALLED_BY = (
    *_DEPENDENCIES,
    *("name", "bin", "workspaces", "overrides", "resolutions", "pnpm", "packageManager", "dependenciesMeta"),
    *(
        "trustedDependencies",
        "patchedDependencies",
        "catalog",
        "catalogs",
        "installConfig",
        "bundleDependencies",
    ),
)
"""The keys of a package.json that decide what is installed."""

_CONFIGURATION = (
    *(
        ".npmrc",
        "pnpm-workspace.yaml",
        ".pnpmfile.cjs",
        ".pnpmfile.mjs",
        ".yarnrc",
        ".yarnrc.yml",
        "bunfig.toml",
    ),
    *("patches", ".yarn/patches", ".yarn/releases", ".yarn/plugins"),
)
"""Files and directories next to a lock file that also decide what is installed."""

_LIFECYCLE = {"preinstall", "install", "postinstall", "prepare", "preprepare", "postprepare", "prepublish"}


class Installation(Struct, frozen=True):
    """Packages that one command installs. `packages` are their directories, the root's first."""

    directory: Path
    packages: tuple[Path, ...]


def packages(copy: Copy) -> Iterator[Path]:
    """The directories of the copy with a package.json, from above."""
    for directory in directories(copy.top, SKIPPED):
        if directory.name not in SKIPPED and (directory / "package.json").is_file():
            yield directory.relative_to(copy.top)


def roots(copy: Copy) -> list[Installation]:
    """The packages of the copy by what installs them. Workspaces without a lock file belong to the package above."""
    found: dict[Path, list[Path]] = {}
    owner: dict[Path, Path] = {}
    for package in packages(copy):
        above = next((owner[each] for each in package.parents if each in owner), None)
        if above is None or _has_lock(copy, package) or not _has_workspaces(copy, above):
            above = package
        owner[package] = above
        found.setdefault(above, []).append(package)
    return [Installation(directory, tuple(members)) for directory, members in found.items()]


def _has_lock(copy: Copy, package: Path) -> bool:
    return any((top / package / name).is_file() for top in (copy.top, copy.origin) for name in LOCKS)


def _has_workspaces(copy: Copy, package: Path) -> bool:
    directory = copy.top / package
    return "workspaces" in manifest(directory) or (directory / "pnpm-workspace.yaml").is_file()


def is_installed(copy: Copy, root: Installation) -> bool:
    """Whether the user's checkout has installed packages."""
    return has_modules(copy.origin, root) or is_plug_and_play(copy.origin / root.directory)


def has_modules(top: Path, root: Installation) -> bool:
    """Whether a checkout has a node_modules for these packages."""
    return any(os.path.lexists(top / package / "node_modules") for package in root.packages)


def is_plug_and_play(directory: Path) -> bool:
    return any((directory / name).exists() for name in PLUG_AND_PLAY)


def lock_of(directory: Path) -> str:
    """The name of the lock file of a directory, "" without one."""
    return next((name for name in LOCKS if (directory / name).is_file()), "")


def manager_of(copy: Copy, root: Installation) -> str:
    """The package manager: npm, pnpm, yarn (classic), berry (yarn 2 and later) or bun."""
    directory = copy.top / root.directory
    lock = lock_of(directory)
    if not lock:
        return _manager_without_lock(copy, root)
    if LOCKS[lock] == "yarn" and "\n__metadata:" in text_of(directory / lock):
        return "berry"
    return LOCKS[lock]


def _manager_without_lock(copy: Copy, root: Installation) -> str:
    name, _, version = str(manifest(copy.top / root.directory).get("packageManager", "")).partition("@")
    if name in ("npm", "pnpm", "bun"):
        return name
    if name == "yarn":
        return "yarn" if version.startswith("1.") else "berry"
    modules = copy.origin / root.directory / "node_modules"
    return next((manager for mark, manager in _MARKS.items() if (modules / mark).exists()), "npm")


def manifest(directory: Path) -> dict[str, Any]:
    """The package.json of a directory; empty if it cannot be read."""
    try:
        found = json.loads((directory / "package.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_changed(copy: Copy, root: Installation) -> bool:
    """Whether the copy needs other packages than the user's checkout has."""
    return installs(copy.top, copy.top, root) != installs(copy.origin, copy.top, root)


def installs(top: Path, named_in: Path, root: Installation) -> list[bytes]:
    """Everything that decides what an installation gives, of the configuration files that `named_in` has."""
    directory, lock = top / root.directory, lock_of(top / root.directory)
    wanted = {str(package): _deciding(manifest(top / package)) for package in root.packages}
    found = [json.dumps(wanted, sort_keys=True).encode(), lock.encode()]
    found += [(directory / lock).read_bytes()] if lock else []
    for name in _CONFIGURATION:
        path = named_in / root.directory / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                relative = file.relative_to(named_in)
                found += [str(relative).encode(), _bytes(top / relative)]
    return found


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _deciding(package: dict[str, Any]) -> dict[str, Any]:
    return {key: package[key] for key in _INSTALLED_BY if key in package}


def dependencies(package: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The names and versions of all dependencies in a package.json."""
    for key in (*_DEPENDENCIES, "overrides", "resolutions"):
        section = package.get(key)
        for name, version in section.items() if isinstance(section, dict) else ():
            if isinstance(version, str):
                yield name, version


def runs_project_code(copy: Copy, root: Installation) -> bool:
    """Whether an installation depends on more files of the project than the lock file and its like."""
    for package in root.packages:
        found = manifest(copy.top / package)
        if _LIFECYCLE & set(found.get("scripts") or ()) or "dependenciesMeta" in found:
            return True
        if any(version.startswith(("file:", "portal:", ".", "/")) for _, version in dependencies(found)):
            return True
    return False
