"""Paths that programs in hidden places need: their own files, their packages, their interpreters."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from ralph.sandbox.base import Root

_TOOLCHAINS = (
    *(".asdf", ".bun/bin", ".bun/install/global", ".cargo/bin", ".deno/bin", ".ghcup", ".jenv", ".juliaup"),
    *(".local/bin", ".local/lib", ".local/pipx", ".local/share/claude", ".local/share/fnm"),
    *(
        ".local/share/mise",
        ".local/share/nvm",
        ".local/share/pipx",
        ".local/share/pnpm",
        ".local/share/uv/python",
        ".local/share/uv/tools",
    ),
    *(".nodenv", ".npm-global", ".nvm", ".pyenv", ".rbenv", ".rustup", ".sdkman", ".volta"),
)
"""Directories below a home where programs are installed. They contain no secrets."""

OF_SYSTEM = (os.path.realpath("/etc/resolv.conf"), "/run/current-system", "/run/wrappers")
"""Runtime files of the system that every program needs."""

_DISTRIBUTION = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/dev", "/proc", "/sys")

_GIT = (".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes")


def of_home(home: str, path: str) -> Iterator[str]:
    """Yield the paths below a home that every command can read: toolchains, directories on PATH, git settings."""
    for name in (*_TOOLCHAINS, *_GIT):
        yield os.path.join(home, name)
    for directory in path.split(":"):
        if os.path.isabs(directory) and not directory.startswith("/mnt/"):
            yield directory
            yield from _prefix(directory)


def of_ralph() -> Iterator[str]:
    """Yield the interpreter that starts commands and hooks inside, and Ralph's own code."""
    yield from {sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))}
    yield str(Path(__file__).parents[1])


def python(root: Root) -> str:
    """Return the Python that runs our scripts inside: ours, unless the system inside has its own."""
    has_ours = root is Root.OURS or (
        root is Root.IMAGE
        and sys.platform.startswith("linux")
        and not is_of_system(os.path.realpath(sys.executable))
    )
    return sys.executable if has_ours else "python3"


def is_of_system(path: str) -> bool:
    """Whether a path is installed by the distribution or exists on every system. Another system has its own."""
    if path in ("/", "/opt", "/usr/local", "/usr/local/bin", "/usr/local/lib"):
        return True
    return within(path, _DISTRIBUTION) and not within(path, ["/usr/local"])


def of_program(program: str, path: str) -> Iterator[str]:
    """Yield the paths that a program needs: the links to it, the package that contains it, its interpreter."""
    while os.path.islink(program):
        yield program
        program = os.path.normpath(os.path.join(os.path.dirname(program), os.readlink(program)))
    real = os.path.realpath(program)
    yield program
    yield _package(real)
    if interpreter := _interpreter(real, path):
        yield os.path.dirname(interpreter)
        yield os.path.dirname(os.path.realpath(interpreter))


def _prefix(directory: str) -> Iterator[str]:
    """Yield the rest of a virtual environment or npm prefix, given its bin directory."""
    above = os.path.dirname(directory.rstrip("/"))
    if os.path.exists(os.path.join(above, "pyvenv.cfg")) or os.path.basename(above) == "node_modules":
        yield above
    elif os.path.isdir(modules := os.path.join(above, "lib", "node_modules")):
        yield modules


def _package(real: str) -> str:
    """Return the outermost node_modules, or the file itself."""
    head, found, _ = real.partition("/node_modules/")
    return f"{head}/node_modules" if found else real


def _interpreter(program: str, path: str) -> str:
    try:
        with open(program, "rb") as file:
            line = file.readline(256)
    except OSError:
        return ""
    words = line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    return shutil.which(words[0], path=path) or "" if words else ""


def within(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in places)
