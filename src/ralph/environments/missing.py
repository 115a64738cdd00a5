"""Recognises in the output of a failed command that a program or a dependency was not found in a copy of a project."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Collection, Iterable

from msgspec import Struct

from ralph.core.command_output import CommandOutput
from ralph.environments.installing import CARGO, GO, MAVEN, NODE, PYTHON, Installer, installers

_READ = 200_000
"""How many characters at the start and at the end of the output are looked at."""

_WIDEST = 1_000

_NOT_FOUND = (126, 127)
"""Exit codes of a shell that could not start a program."""


class CopyKind(Struct, frozen=True):
    """Where a command ran: its name for people, and what to do so that the next one finds what it needs."""

    name: str
    advice: str


_SETUP = "set ralph.setup to the command that installs what the project needs"
WORKTREE = CopyKind("this worktree", _SETUP)
CLEAN_COPY = CopyKind("this clean copy", _SETUP)


class MissingDependency(Struct, frozen=True):
    """What was not found: a program, a module or a package.

    `paths`: files of the project that would provide it. `ecosystem`: "" if unknown. `is_certain`: whether the exit code
    says so too.
    """

    what: str
    ecosystem: str = ""
    paths: tuple[str, ...] = ()
    module: str = ""
    is_certain: bool = False


def explained(found: MissingDependency, files: Collection[str], where: CopyKind, directory: str = ".") -> str:
    """One sentence, without its full stop, on what is missing and how to get it; "" if the project has it itself.

    `files`: all files of the repository, also those that were removed meanwhile. `directory`: the project in it.
    """
    return "" if is_own(found, files) else sentence(found, installers(files, directory), where)


def sentence(found: MissingDependency, known: Iterable[Installer], where: CopyKind) -> str:
    example = _example(found, list(known))
    advice = where.advice + (f', for example "{example}"' if example else "")
    if found.is_certain:
        copied = "It has the files that git knows and what is installed in your checkout"
        return f"{found.what} was not found in {where.name}. {copied}; {advice}"
    return (
        f"{found.what} was not found in {where.name}, which has the files that git knows and what is installed in your checkout."
        f" If the project depends on it, {advice}"
    )


def _example(found: MissingDependency, known: list[Installer]) -> str:
    """The command that would install it. Whose program it is may be unknown: then the first one of the project."""
    fitting = [each.command for each in known if each.ecosystem == found.ecosystem]
    if found.ecosystem:
        return fitting[0] if fitting else ""
    return known[0].command if known else ""


# ---- what is missing ----


def look(code: int, output: CommandOutput) -> MissingDependency | None:
    """What the output of a command that failed says is missing."""
    text = _telling_lines(output.head[:_READ] + (output.tail or output.head[_READ:])[-_READ:])
    return _program(code, text) or _module(text)


_MARKS = (
    *("not found", "No such", "no such", "bad interpreter", "cannot execute", "Failed to spawn"),
    *("No module named", "Cannot find", "no required module", "cannot find module", "no matching package"),
    *("can't find crate", "Could not resolve dependencies", "missing packages"),
)
"""Each line that is recognised below contains one of these."""


def _telling_lines(text: str) -> str:
    """The lines that may say that something is missing, without very long ones: the patterns take their time there."""
    lines = (line.rstrip() for line in text.splitlines() if 0 < len(line) <= _WIDEST)
    return "\n".join(line for line in lines if any(mark in line for mark in _MARKS))


_NAME = r"[\w@%+./~-]+"
_SHELL = r"^(?:\S*/)?\w{0,2}sh: (?:line )?(?:\d+: )?"
_LINE = r"^\S+: (?:line )?\d+: "
_PROGRAMS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        # dash, bash, busybox, and scripts that they run
        rf"(?:{_SHELL}|{_LINE})({_NAME}): (?:command )?not found$",
        rf"{_LINE}({_NAME}): (?:\S+: bad interpreter|cannot execute): .*$",
        # zsh, bundler
        rf"^[\w./-]+:(?:\d+:)? command not found: ({_NAME})$",
        # env, timeout, nice, xargs, make
        rf"^(?:\S*/)?env: (?:can't execute )?['‘\"]?({_NAME})['’\"]?: No such file or directory$",
        rf"^(?:\S*/)?\w+: failed to run command ['‘]({_NAME})['’]: No such file or directory$",
        rf"^(?:\S*/)?(?:nice|nohup|xargs|make(?:\[\d+\])?): ['‘]?({_NAME})['’]?: No such file or directory$",
        # uv, poetry, pdm
        rf"^error: Failed to spawn: `?({_NAME})`?$",
        rf"^Command not found: ({_NAME})$",
        rf"^\[PdmUsageError\]: Command '({_NAME})' is not found in your PATH\.?$",
    )
)
_NO_FILE = re.compile(
    rf"{_LINE}(?:\.: )?(?:cannot open )?({_NAME}): No such file(?: or directory)?$", re.MULTILINE
)
"""A program, or a file that a script reads: the exit code says which one, and no project has files in a `.venv`."""

_SUBCOMMAND = re.compile(r"^error: no such (?:sub)?command: `([\w-]+)`", re.MULTILINE)

_TOOLCHAINS = frozenset(
    {
        *("git", "make", "sh", "bash", "docker", "podman", "sudo", "curl", "wget", "uv", "poetry", "pdm"),
        *("pipenv", "python3", "node", "npm", "npx", "pnpm", "yarn", "bun", "deno", "go", "cargo", "rustc"),
        *("java", "javac", "mvn", "gradle", "ruby", "bundle", "php", "composer"),
    }
)
"""Programs of the machine. No setup command of a project installs them, and a copy lacks them no more than a checkout."""

_OF_PYTHON = frozenset(
    {
        *("python", "pip", "pytest", "py.test", "tox", "nox", "ruff", "mypy", "pyright", "black", "flake8"),
        *("pylint", "isort", "coverage", "bandit", "pre-commit", "django-admin", "ty"),
    }
)
_OF_NODE = frozenset(
    {
        *("jest", "vitest", "mocha", "ava", "tsc", "tsx", "ts-node", "eslint", "prettier", "vite", "webpack"),
        *("next", "nyc", "c8", "playwright", "cypress", "biome", "turbo", "rollup", "esbuild"),
    }
)


def _program(code: int, text: str) -> MissingDependency | None:
    """The last program that a shell or another launcher did not find."""
    matches = [match for pattern in _PROGRAMS for match in pattern.finditer(text)]
    files = _NO_FILE.finditer(text)
    matches += [match for match in files if code in _NOT_FOUND or "venv/" in match[1]]
    if matches:
        name = max(matches, key=lambda match: match.start())[1]
        if name in _TOOLCHAINS:
            return None
        return MissingDependency(name, _owner(name), _as_path(name), is_certain=code in _NOT_FOUND)
    if found := _SUBCOMMAND.search(text):
        return MissingDependency(f"cargo {found[1]}", CARGO)
    return None


def _owner(program: str) -> str:
    if "node_modules/" in program:
        return NODE
    name = posixpath.basename(program)
    if name in _OF_PYTHON or "venv/" in program:
        return PYTHON
    return NODE if name in _OF_NODE else ""


def _as_path(program: str) -> tuple[str, ...]:
    """The path of a program in the project. A bare name is searched on PATH."""
    return (posixpath.normpath(program),) if "/" in program else ()


# ---- modules ----

_PYTHON = re.compile(
    r"^(?:E\s+)?(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)'?$"
    r"|^\S*python[\d.]*: No module named ([\w.]+)$"
    r"|^(?:ImportError|ERROR): Error importing plugin \"[^\"\n]+\": No module named '([\w.]+)'$"
    r"|^\S*python[\d.]*: Error while finding module specification for .*\(ModuleNotFoundError: No module named '([\w.]+)'\)",
    re.MULTILINE,
)
_NODE = re.compile(
    r"^\s*(?:Uncaught )?(?:\w*Error(?: \[\w+\])?: )?Cannot find (?:module|package) '([\w@#.:/~-]+)'"
    r"|^\S+: error TS2307: Cannot find module '([\w@#.:/~-]+)'"
    r"|^npm (?:error|ERR!) npx \w+ due to missing packages and no YES option: \[\"(@?[\w./-]+)",
    re.MULTILINE,
)
_GO = re.compile(
    r"^(?:\S+: )?(?:no required module provides package|cannot find module providing package) ([\w./~+-]+)",
    re.MULTILINE,
)
_CARGO = re.compile(
    r"^\s*error: no matching package named `([\w-]+)` found"
    r"|^error(?:\[E\d+\])?: can't find crate for `([\w-]+)`",
    re.MULTILINE,
)
_MAVEN = re.compile(r"^\[ERROR\].*\bCould not resolve dependencies\b", re.MULTILINE)

_NODE_BUILTINS = frozenset(
    {
        *("assert", "buffer", "child_process", "cluster", "console", "crypto", "dns", "events", "fs", "http"),
        *(
            "http2",
            "https",
            "module",
            "net",
            "os",
            "path",
            "perf_hooks",
            "process",
            "querystring",
            "readline",
        ),
        *("repl", "stream", "string_decoder", "timers", "tls", "tty", "url", "util", "v8", "vm", "zlib"),
    }
)


def _module(text: str) -> MissingDependency | None:
    """The first module or package that an interpreter or a build tool did not find."""
    if name := _first(_PYTHON, text):
        return _python_module(name)
    if name := _first(_NODE, text):
        return _node_package(name)
    if name := _first(_GO, text):
        return MissingDependency(f"The Go package {name}", GO, module=name)
    if name := _first(_CARGO, text):
        is_toolchain = name in ("std", "core", "alloc", "test", "proc_macro")
        return None if is_toolchain else MissingDependency(f"The crate {name}", CARGO, module=name)
    return MissingDependency("A dependency of the Maven project", MAVEN) if _MAVEN.search(text) else None


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return next(filter(None, found.groups()), "") if found else ""


def _python_module(name: str) -> MissingDependency | None:
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return None
    return MissingDependency(f"The Python module {top}", PYTHON, module=top)


def _node_package(name: str) -> MissingDependency | None:
    """The package that a module is imported from. Paths and aliases lead to files of the project."""
    inside = name.rpartition("node_modules/")[2]
    if inside == name and (name.startswith((".", "/", "#", "~", "@/", "node:", "file:")) or "\\" in name):
        return None
    parts = inside.split("/")
    package = "/".join(parts[:2]) if inside.startswith("@") else parts[0]
    if package in _NODE_BUILTINS:
        return None
    return MissingDependency(f"The Node package {package}", NODE, module=package)


# ---- the project's own files ----

_PYTHON_SOURCES = (".py", ".pyi", ".pyx", ".so")
_PYTHON_ROOTS = ("", "src", "lib", "python")
"""Where a directory without `__init__.py` counts as a package."""


def is_own(found: MissingDependency, files: Collection[str]) -> bool:
    """Whether the project itself has, or had, what was not found: then nothing has to be installed."""
    if any(path in files for path in found.paths):
        return True
    if not found.module:
        return False
    if found.ecosystem == PYTHON:
        return _is_own_python(found.module, files)
    if found.ecosystem == NODE:
        return _has_directory(found.module.rpartition("/")[2], files, "package.json")
    if found.ecosystem == CARGO:
        names = (found.module, found.module.replace("_", "-"))
        return any(_has_directory(name, files, "Cargo.toml") for name in names)
    return _is_own_go(found.module, files)


def _has_directory(name: str, files: Collection[str], file: str) -> bool:
    return any(f"/{path}".endswith(f"/{name}/{file}") for path in files)


def _is_own_python(module: str, files: Collection[str]) -> bool:
    sources = [path for path in files if path.endswith(_PYTHON_SOURCES)]
    packages = {posixpath.dirname(path) for path in sources if posixpath.basename(path) == "__init__.py"}
    return any(_is_importable(module, path, packages - {""}) for path in sources)


def _is_importable(module: str, path: str, packages: Collection[str]) -> bool:
    """Whether a file is a module of this name or part of it, in a directory that is not a package itself."""
    parts = path.split("/")
    for depth, part in enumerate(parts):
        above, here = "/".join(parts[:depth]), "/".join(parts[: depth + 1])
        is_module = here == path or here in packages or above in _PYTHON_ROOTS
        if part.partition(".")[0] == module and is_module and above not in packages:
            return True
    return False


def _is_own_go(package: str, files: Collection[str]) -> bool:
    """Whether the end of a package's path is a directory of the project with Go files."""
    directories = {posixpath.dirname(path) for path in files if path.endswith(".go")} - {""}
    return any(f"/{package}".endswith(f"/{directory}") for directory in directories)
