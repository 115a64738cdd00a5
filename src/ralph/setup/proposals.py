"""Propose guardrails from the tools that a repository already uses."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ralph.errors import RalphError
from ralph.files.textfile import read_text

MAX_BYTES = 1 << 20

PURPOSES = ("lint", "typecheck", "check", "test", "build")
"""Quick ones first."""

Proposal = tuple[str, str]
"""A purpose, one of PURPOSES, and a command."""


def proposed_guardrails(directory: Path) -> tuple[str, ...]:
    """Return commands that make good guardrails. Purposes covered by the Makefile are not proposed twice."""
    made = list(_makefile(directory))
    covered = {purpose for purpose, _ in made}
    others = (
        proposal
        for kind in (_package_json, _python, _others)
        for proposal in kind(directory)
        if proposal[0] not in covered
    )
    found = sorted([*made, *others], key=lambda proposal: PURPOSES.index(proposal[0]))
    return tuple(dict.fromkeys(command for _, command in found))


# ---- make ----

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_RULE = re.compile(r"^([^\s#:=][^#:=]*?)\s*::?(?!=)", re.MULTILINE)


def _makefile(directory: Path) -> Iterator[Proposal]:
    text = next((text for name in _MAKEFILES if (text := _text(directory / name))), "")
    targets = {target for rule in _RULE.findall(text) for target in rule.split()}
    if {"lint", "test"} <= targets:
        targets -= {"check"}  # by convention, lint and test in one
    return ((purpose, f"make {purpose}") for purpose in PURPOSES if purpose in targets)


# ---- JavaScript ----

_SCRIPTS = {
    "lint": ("lint",),
    "typecheck": ("typecheck", "type-check", "check-types"),
    "test": ("test",),
    "build": ("build",),
}
_RUNNERS = {
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lock": "bun",
    "bun.lockb": "bun",
    "package-lock.json": "npm",
}
_NEVER_ENDS = re.compile(r"--watch(All)?\b(?!=false)|react-scripts test")
_PLACEHOLDER = "no test specified"


def _package_json(directory: Path) -> Iterator[Proposal]:
    package = _json(directory / "package.json")
    scripts = _table(package, "scripts")
    runner = _javascript_runner(directory, package)
    for purpose, names in _SCRIPTS.items():
        script = next((name for name in names if name in scripts), None)
        if script is None or _is_useless(str(scripts[script])):
            continue
        is_short = script == "test" and runner != "bun"  # `bun test` is bun's own test runner
        yield purpose, f"{runner} test" if is_short else f"{runner} run {script}"


def _is_useless(script: str) -> bool:
    return _PLACEHOLDER in script or bool(_NEVER_ENDS.search(script)) or not script.strip()


def _javascript_runner(directory: Path, package: Mapping[str, Any]) -> str:
    named = str(package.get("packageManager", "")).partition("@")[0]
    if named in _RUNNERS.values():
        return named
    return next((runner for lock, runner in _RUNNERS.items() if (directory / lock).is_file()), "npm")


# ---- Python ----

_PYTHON_FILES = {
    "ruff": ("ruff.toml", ".ruff.toml"),
    "mypy": ("mypy.ini", ".mypy.ini"),
    "pytest": ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
}


def _python(directory: Path) -> Iterator[Proposal]:
    project = _toml(directory / "pyproject.toml")
    tools, named = _table(project, "tool"), _dependencies(project)

    def is_used(tool: str) -> bool:
        files = any((directory / name).is_file() for name in _PYTHON_FILES[tool])
        return tool in tools or tool in named or files

    runner = _python_runner(directory, tools)
    if is_used("ruff"):
        yield "lint", f"{runner}ruff check"
    if is_used("mypy"):
        mypy = _table(tools, "mypy")
        knows_files = any(key in mypy for key in ("files", "packages", "modules"))
        yield "typecheck", f"{runner}mypy" if knows_files else f"{runner}mypy ."
    if is_used("pytest"):
        yield "test", f"{runner}pytest"


def _python_runner(directory: Path, tools: Mapping[str, Any]) -> str:
    for runner in ("uv", "poetry", "pdm"):
        if (directory / f"{runner}.lock").is_file() or runner in tools:
            return f"{runner} run "
    return ""


def _dependencies(project: Mapping[str, Any]) -> set[str]:
    """Return the names of all dependencies of a project, in all groups."""
    core, poetry = _table(project, "project"), _table(_table(project, "tool"), "poetry")
    groups = [
        core.get("dependencies"),
        *_table(core, "optional-dependencies").values(),
        *_table(project, "dependency-groups").values(),
        list(_table(poetry, "dependencies")),
        list(_table(poetry, "dev-dependencies")),
        *(list(_table(group, "dependencies")) for group in _table(poetry, "group").values()),
    ]
    words = [word for group in groups if isinstance(group, list) for word in group if isinstance(word, str)]
    return {name[0].lower() for word in words if (name := re.match(r"[A-Za-z0-9._-]+", word))}


# ---- the others ----


_BY_FILE = {
    "Cargo.toml": (("lint", "cargo clippy"), ("test", "cargo test")),
    "go.mod": (("lint", "go vet ./..."), ("test", "go test ./...")),
}
_WRAPPERS = {"mvnw": "verify", "gradlew": "check"}


def _others(directory: Path) -> Iterator[Proposal]:
    for name, proposals in _BY_FILE.items():
        if (directory / name).is_file():
            yield from proposals
    for name, task in _WRAPPERS.items():
        if (path := directory / name).is_file():
            shell = "" if os.access(path, os.X_OK) else "sh "
            yield "test", f"{shell}./{name} {task}"


# ---- files with unknown content ----


def _text(path: Path) -> str:
    try:
        return read_text(str(path), most=MAX_BYTES, what="file")
    except RalphError:
        return ""


def _json(path: Path) -> Mapping[str, Any]:
    try:
        values = json.loads(_text(path) or "{}")
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_text(path))
    except (ValueError, RecursionError):
        return {}


def _table(values: object, key: str) -> Mapping[str, Any]:
    found = values.get(key) if isinstance(values, dict) else None
    return found if isinstance(found, dict) else {}
