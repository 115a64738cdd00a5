"""Node: a copy gets its own node_modules, whose links lead to the packages of the copy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ralph.environments.base import Copy, Tools, inside, repointed_list
from ralph.environments.copying import bring, bring_ignored, has_link, is_ignored, text_of
from ralph.environments.node_install import YARN_STATE, bring_modules, install
from ralph.environments.node_links import links_outside, locations, repoint_plug_and_play
from ralph.environments.node_packages import (
    LOCKS,
    PLUG_AND_PLAY,
    Installation,
    dependencies,
    has_modules,
    is_changed,
    is_installed,
    is_plug_and_play,
    manifest,
    packages,
    roots,
)

name = "Node"
sources: Sequence[str] = (".js", ".cjs", ".mjs", ".jsx", ".ts", ".cts", ".mts", ".tsx", ".vue", ".svelte")

_YARN_PARTS = ("cache", "unplugged", "install-state.gz", "build-state.yml")
"""What Yarn needs in `.yarn` and git usually ignores."""

_CONFIGURATION = (".npmrc", ".yarnrc", ".yarnrc.yml", "bunfig.toml", "pnpm-workspace.yaml", ".pnpmfile.cjs")

_PATHS = (
    *("NODE_OPTIONS", "INIT_CWD", "PROJECT_CWD", "npm_config_prefix", "npm_config_local_prefix"),
    *("npm_package_json", "npm_config_userconfig"),
)
"""Variables with paths in them."""


def detect(copy: Copy, environment: Mapping[str, str]) -> bool:
    """Whether a package of the copy has installed packages or a lock file in the user's checkout."""
    wanted = ("node_modules", *PLUG_AND_PLAY, *LOCKS)
    return any((copy.origin / package / each).exists() for package in packages(copy) for each in wanted)


def prepare(copy: Copy, tools: Tools) -> None:
    """Copy what the user's checkout has installed, or install if the copy needs something else."""
    for root in roots(copy):
        for lock in LOCKS:
            bring_ignored(copy, tools, root.directory / lock)
        if not is_installed(copy, root):
            continue
        if _is_fresh(copy, root) and is_changed(copy, root):
            install(copy, tools, root)
            continue
        for package in root.packages:
            _copy_modules(copy, tools, package)
        _copy_plug_and_play(copy, tools, root.directory)
    for extra in _other_modules(copy):
        _copy_modules(copy, tools, extra)


def _is_fresh(copy: Copy, root: Installation) -> bool:
    """Whether nothing has been installed in the copy yet."""
    state = copy.top / root.directory / YARN_STATE
    return not has_modules(copy.top, root) and not state.exists()


def _copy_modules(copy: Copy, tools: Tools, package: Path) -> None:
    source, relative = copy.origin / package / "node_modules", package / "node_modules"
    if source.is_dir() and not os.path.lexists(copy.top / relative) and not has_link(copy, relative):
        bring_modules(copy, tools, package, source)


def _other_modules(copy: Copy) -> Iterator[Path]:
    """The top directory and the project, if they have a node_modules but no package.json."""
    for directory in dict.fromkeys((Path(), Path(copy.project))):
        if not (copy.top / directory / "package.json").exists() and (copy.top / directory).is_dir():
            yield directory


def _copy_plug_and_play(copy: Copy, tools: Tools, package: Path) -> None:
    """Copy what Yarn needs and git ignores. Archives outside the project are found again from the copy."""
    was, becomes = copy.origin / package, copy.top / package

    def adapt(file: Path) -> None:
        repoint_plug_and_play(copy, file, was, becomes)

    for name in (*PLUG_AND_PLAY, ".pnp.data.json"):
        source, relative = was / name, package / name
        if source.is_file() and not os.path.lexists(becomes / name) and is_ignored(copy, tools, relative):
            bring(copy, tools, source, relative, adapt=adapt)
    bring_ignored(copy, tools, package / ".pnp.loader.mjs")
    for name in _YARN_PARTS:
        bring_ignored(copy, tools, package / ".yarn" / name)


def variables(copy: Copy, environment: Mapping[str, str]) -> Mapping[str, str]:
    """NODE_PATH, NODE_OPTIONS, the commands of packages in PATH, and what npm has set if it started Ralph."""
    found = {key: copy.repointed(environment[key]) for key in _PATHS if key in environment}
    if "NODE_PATH" in environment:
        found["NODE_PATH"] = repointed_list(copy, environment["NODE_PATH"])
    if "PATH" in environment:
        found["PATH"] = os.pathsep.join(
            copy.moved(path) if "node_modules" in Path(path).parts else path
            for path in environment["PATH"].split(os.pathsep)
        )
    return {key: value for key, value in found.items() if value != environment[key]}


def describe(copy: Copy, environment: Mapping[str, str]) -> str:
    return "node_modules is copied, and its links lead to the copy"


def leads_out(copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
    """Links, search paths, dependencies and configuration that lead to the user's checkout."""
    return [*_links(copy), *_search_paths(copy, environment), *_dependencies(copy), *_configuration(copy)]


def _links(copy: Copy) -> Iterator[str]:
    for package in dict.fromkeys((*packages(copy), *_other_modules(copy))):
        for link, real in links_outside(copy, copy.top / package / "node_modules"):
            if inside(real, copy.origin) is not None:
                yield f"{link.relative_to(copy.top)} leads to {real}"


def _search_paths(copy: Copy, environment: Mapping[str, str]) -> Iterator[str]:
    changed = variables(copy, environment)
    for path in changed.get("NODE_PATH", environment.get("NODE_PATH", "")).split(os.pathsep):
        if path and inside(path, copy.origin) is not None and inside(path, copy.top) is None:
            yield f"NODE_PATH has {path}"


def _dependencies(copy: Copy) -> Iterator[str]:
    for package in packages(copy):
        for name, version in dependencies(manifest(copy.top / package)):
            path = re.sub(r"^(?:file|link|portal):(?://)?", "", version)
            if os.path.isabs(path) and inside(path, copy.origin) is not None:
                yield f"{package / 'package.json'} has {name} from {path}"


def _configuration(copy: Copy) -> Iterator[str]:
    for root in roots(copy):
        for name in _CONFIGURATION:
            if copy.leads_back(text_of(copy.top / root.directory / name)):
                yield f"{root.directory / name} names {copy.origin}"
        yield from _plug_and_play(copy, root)


def _plug_and_play(copy: Copy, root: Installation) -> Iterator[str]:
    for path in _archives(copy, root):
        if inside(path, copy.origin) is not None:
            yield f"{root.directory / PLUG_AND_PLAY[0]} leads to {path}"


def _archives(copy: Copy, root: Installation) -> list[str]:
    """The directories and archives outside the copy that Plug'n'Play leads to."""
    directory = copy.top / root.directory
    if not is_plug_and_play(directory):
        return []
    found = [path for name in PLUG_AND_PLAY for path in locations(directory / name)]
    return [path for path in dict.fromkeys(found) if inside(path, copy.top) is None]


def reads(copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
    """The global stores that packages of the copy lie in: pnpm's, if it is virtual, and Yarn's archives."""
    found = set()
    for root in roots(copy):
        found |= {
            re.sub(r"(?<=/)[^/]+\.zip(?:/.*)?$", "", path).rstrip("/") for path in _archives(copy, root)
        }
        modules = copy.top / root.directory / "node_modules"
        state = re.search(r'"?virtualStoreDir"?: *"?([^",\n]+)', text_of(modules / ".modules.yaml"))
        if state and inside(modules / state[1], copy.top) is None:
            found.add(os.path.normpath(modules / state[1]))
    return sorted(found)
