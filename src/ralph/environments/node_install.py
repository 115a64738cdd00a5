"""Installs packages in a copy whose dependencies differ from the user's checkout, once for each content of a lock file."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from ralph.environments.base import Copy, NotPrepared, ToolOutput, Tools
from ralph.environments.copying import bring
from ralph.environments.node_links import repoint_modules
from ralph.environments.node_packages import (
    LOCKS,
    Installation,
    installs,
    is_plug_and_play,
    lock_of,
    manager_of,
    runs_project_code,
)
from ralph.environments.shared import digest, made_once

CACHES = (".cache", ".vite", ".vite-temp")
"""What tools keep in node_modules and make again: a copy starts without it."""


YARN_STATE = Path(".yarn/install-state.gz")
"""What Yarn 2 and later need to run a script."""


class InstallCommands(Struct, frozen=True):
    """A command that installs exactly what the lock file says, and one without a lock file.

    `cache`: where its cache is in the home directory, and the variables that move it.
    """

    frozen: str
    unlocked: str
    cache: tuple[str, ...]


MANAGERS = {
    "npm": InstallCommands(
        "npm ci --prefer-offline --no-audit --no-fund",
        "npm install --no-save --no-package-lock --prefer-offline --no-audit --no-fund",
        (".npm", "npm_config_cache"),
    ),
    "pnpm": InstallCommands(
        "pnpm install --frozen-lockfile --prefer-offline",
        "pnpm install --no-lockfile --prefer-offline",
        (".local/share/pnpm", "npm_config_store_dir", "pnpm_config_store_dir"),
    ),
    "yarn": InstallCommands(
        "yarn install --frozen-lockfile --prefer-offline --non-interactive",
        "yarn install --no-lockfile --prefer-offline --non-interactive",
        (".cache/yarn", "YARN_CACHE_FOLDER"),
    ),
    "berry": InstallCommands(
        "yarn install --immutable", "yarn install --no-immutable", (".yarn/berry", "YARN_GLOBAL_FOLDER")
    ),
    "bun": InstallCommands(
        "bun install --frozen-lockfile",
        "bun install --no-save",
        (".bun/install/cache", "BUN_INSTALL_CACHE_DIR"),
    ),
}

_NO_GIT_HOOKS = {"HUSKY": "0", "LEFTHOOK": "0", "SKIP_INSTALL_SIMPLE_GIT_HOOKS": "1"}
"""A `prepare` script must not change the configuration of the user's repository, which a worktree shares."""

_QUIET = {"CI": "true", "YARN_ENABLE_TELEMETRY": "0", "YARN_NM_MODE": "classic", "NO_COLOR": "1"}


_OPTION = re.compile(r"NODE_ENV$|(?:npm_config|pnpm_config|yarn|bun)_", re.IGNORECASE)

_REASONS = (
    (re.compile(r"npm err(?:or|!) (?!code |errno |syscall |path |\d+ *$)\S", re.IGNORECASE), 0),
    (re.compile(r".*ERR_PNPM_|error\b"), 0),
    (re.compile(r".*\bYN(?!0000)\d{4}:"), -1),
)
"""The lines of npm, pnpm, bun and Yarn that say what failed, and whether the first or the last of them does."""


def install(copy: Copy, tools: Tools, root: Installation) -> None:
    """Give the copy what its own package.json and lock file say."""
    name = manager_of(copy, root)
    if name == "berry" and is_plug_and_play(copy.origin / root.directory):
        _run(copy, tools, root, name)
        return
    made = copy.own / "node"
    shutil.rmtree(made, ignore_errors=True)
    if lock_of(copy.top / root.directory) and not runs_project_code(copy, root):
        key = digest(
            [
                "node",
                str(copy.origin),
                name,
                *_versions(copy, tools, name),
                *_options(tools),
                *_content(copy, root),
            ]
        )
        made = made_once(tools.cache, key, made, lambda: _make(copy, tools, root, name, made))
    else:
        _make(copy, tools, root, name, made)
    for package in root.packages:
        if (made / package / "node_modules").is_dir():
            bring_modules(copy, tools, package, made / package / "node_modules")
    state = root.directory / YARN_STATE
    if (made / state).is_file():
        bring(copy, tools, made / state, state)


def bring_modules(copy: Copy, tools: Tools, package: Path, source: Path) -> None:
    """Copy a node_modules that names the user's checkout, and lead it to the copy."""
    relative = package / "node_modules"

    def adapt(made: Path) -> None:
        repoint_modules(copy, made, copy.origin / relative)

    bring(copy, tools, source, relative, skipped=CACHES, adapt=adapt)


def _make(copy: Copy, tools: Tools, root: Installation, name: str, made: Path) -> None:
    """Install in the copy, then move the result away: its files may be hard links to a cache of the user.

    What is moved away names the user's checkout, as if it had been installed there.
    """
    made.mkdir(parents=True)
    manifests = {file: file.read_bytes() for file in _files(copy, root.packages, ["package.json"])}
    locks = set(_files(copy, [root.directory], LOCKS))
    try:
        _run(copy, tools, root, name)
    except NotPrepared:
        for package in root.packages:
            shutil.rmtree(copy.top / package / "node_modules", ignore_errors=True)
        raise
    for file in set(_files(copy, [root.directory], LOCKS)) - locks:
        file.unlink()
    for file, data in manifests.items():  # Yarn formats them
        if file.read_bytes() != data:
            file.write_bytes(data)
    _move(copy.top, made, root.directory / YARN_STATE)
    back = Copy(top=copy.origin, origin=copy.top, project=copy.project, own=copy.own)
    for package in root.packages:
        modules = package / "node_modules"
        if _move(copy.top, made, modules):
            repoint_modules(back, made / modules, copy.top / modules)


def _files(copy: Copy, directories: Iterable[Path], names: Iterable[str]) -> list[Path]:
    paths = (copy.top / directory / name for directory in directories for name in names)
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def _move(top: Path, made: Path, relative: Path) -> bool:
    if not os.path.lexists(top / relative) or (top / relative).is_symlink():
        return False
    (made / relative).parent.mkdir(parents=True, exist_ok=True)
    shutil.move(top / relative, made / relative)
    return True


def _run(copy: Copy, tools: Tools, root: Installation, name: str) -> None:
    manager, directory = MANAGERS[name], copy.top / root.directory
    command = manager.frozen if lock_of(directory) else manager.unlocked
    tools.tell(f"Dependencies differ from those in your checkout: running `{command}` in the copy")
    variables = _NO_GIT_HOOKS | _QUIET | _cache(copy, tools, manager)
    done = tools.run(shlex.split(command), directory, variables)
    if done.code != 0:
        raise NotPrepared(f"`{command}` failed in a copy of the project ({_reason(done)}); set ralph.setup")


def _cache(copy: Copy, tools: Tools, manager: InstallCommands) -> dict[str, str]:
    """A cache next to the copy if the command cannot write to the user's."""
    usual, *names = manager.cache
    if any(name in tools.environment for name in names):
        return {}
    test = 'mkdir -p "$HOME/$1" && [ -w "$HOME/$1" ]'
    if tools.run(["sh", "-c", test, "sh", usual], copy.top).code == 0:
        return {}
    return dict.fromkeys(names, str(copy.own / "packages"))


def _reason(done: ToolOutput) -> str:
    """The line of the output that says what failed, else the last one."""
    lines = [line.strip() for line in done.output.splitlines() if any(map(str.isalpha, line))]
    if not lines:
        return "not started" if done.code is None else f"exit code {done.code}"
    for pattern, at in _REASONS:
        if found := [line for line in lines if pattern.match(line)]:
            return found[at][:300]
    return lines[-1][:300]


def _versions(copy: Copy, tools: Tools, name: str) -> list[str]:
    programs = ("node", "yarn" if name == "berry" else name)
    return [tools.run([program, "--version"], copy.top).output.strip() for program in programs]


def _content(copy: Copy, root: Installation) -> list[bytes]:
    return [os.fsencode(root.directory), *installs(copy.top, copy.top, root)]


def _options(tools: Tools) -> list[str]:
    """The variables that change what is installed."""
    return sorted(f"{key}={value}" for key, value in tools.environment.items() if _OPTION.match(key))
