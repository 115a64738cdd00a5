"""Follows the commands of checks into what they start: shell scripts, links, scripts of a `package.json`."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from ralph.protection.protect import TEST_SCRIPT, inside, joined, simple_commands
from ralph.protection.runners import RUNNERS, PackageManager, find_program, leading_options, program_name
from ralph.shell.command import SimpleCommand

MAX_DEPTH = 3
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", ".", "source"})
_SHEBANG = re.compile(r"#!\s*(?:/usr/bin/env\s+(?:-S\s+)?)?(?:\S*/)?(?:bash|dash|zsh|ksh|sh)\b")
_LIKE_CHECK = re.compile(
    r"(?:^|[/_.-])(?:run|all|pre)?[_.-]?(?:tests?|checks?|verify|validate|specs?|ci|lint|qa|e2e|smoke|acceptance)(?:$|[/_.-])",
    re.IGNORECASE,
)
_ALIASES = {"t": "test", "tst": "test"}

Commands = Sequence[tuple[str, str]]
"""Command lines, each with its directory relative to the root of the repository."""


class Files(Protocol):
    """The files of a tree."""

    @property
    def paths(self) -> Collection[str]: ...

    def text(self, path: str) -> str | None:
        """The content of a regular file; None if there is none with this name, or if it is not text."""

    def target(self, path: str) -> str:
        """The target of a symbolic link; "" otherwise."""


class Followed(Struct, frozen=True):
    """`commands`: all command lines that are known to run. `checks`: scripts that check the work.

    `runners`: names of the programs that run tests. `packaged`: names of scripts of a `package.json`, with the names
    that would run before and after them. `is_opaque`: one of them is for tests, but its runner is unknown.
    """

    commands: tuple[tuple[str, str], ...]
    checks: frozenset[str]
    runners: frozenset[str]
    packaged: frozenset[str]
    is_opaque: bool


def followed(commands: Commands, files: Files) -> Followed:
    """Read commands and what they start, a few levels deep, from the files of a tree."""
    reading = _Reading(files)
    for command, directory in commands:
        reading.read(command, directory)
    return Followed(
        tuple(reading.commands),
        frozenset(reading.checks),
        frozenset(reading.runners),
        frozenset(reading.packaged),
        is_opaque=reading.has_test_script and reading.runners.isdisjoint(RUNNERS),
    )


class _Reading:
    """`checks`: scripts named like checks, run with a word like `test`, with a test runner in them, or run by a check.

    Any other script that a command runs may be the work itself: `sh greet.sh | grep Hello`.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self.commands: dict[tuple[str, str], bool] = {}
        self.checks: set[str] = set()
        self.runners: set[str] = set()
        self.packaged: set[str] = set()
        self.has_test_script = False

    def read(self, text: str, directory: str, depth: int = 0, *, in_check: bool = False) -> bool:
        """Read a command line, and say whether it runs tests. `in_check`: it is part of a check script."""
        if (text, directory) in self.commands:
            return self.commands[text, directory]
        self.commands[text, directory] = has_runner = False
        for command in simple_commands(text, directory):
            if name := program_name([command.program, *command.args]):
                self.runners.add(name)
                has_runner = has_runner or name in RUNNERS
            if depth < MAX_DEPTH:
                has_runner = self._read_script(command, depth, in_check=in_check) or has_runner
                for inner, where in self._of_package(command):
                    has_runner = self.read(inner, where, depth + 1, in_check=in_check) or has_runner
        self.commands[text, directory] = has_runner
        return has_runner

    def _read_script(self, command: SimpleCommand, depth: int, *, in_check: bool) -> bool:
        """Read the shell script that a command runs, in the command's directory, and say whether it runs tests."""
        directory = inside(command.directory)
        has_runner = False
        for word in {command.name if "/" in command.name else "", str(command.script)} - {""}:
            names = self._names(joined(directory, word))
            text = self._files.text(names[-1]) if names else None
            if text is None:
                continue
            is_check = in_check or any(map(_is_like_check, names)) or _is_told_to_test(command)
            if directory is not None and (command.program in _SHELLS or _SHEBANG.match(text)):
                runs_tests = self.read(text, directory, depth + 1, in_check=is_check)
                has_runner, is_check = has_runner or runs_tests, is_check or runs_tests
            if is_check:
                self.checks.update(names)
        return has_runner

    def _names(self, path: str | None) -> list[str]:
        """The path and, if it is a link, its target inside the repository, last; empty if the target is unknown."""
        names: list[str] = []
        while path is not None and path not in names and len(names) <= MAX_DEPTH:
            names.append(path)
            target = self._files.target(path)
            if not target:
                return names
            here = posixpath.dirname(path)
            path = None if target.startswith("/") else posixpath.normpath(posixpath.join(here, target))
        return []

    def _of_package(self, command: SimpleCommand) -> Iterator[tuple[str, str]]:
        """A script of a `package.json`, with those before and after it."""
        program, rest = find_program([command.program, *command.args])
        directory = inside(command.directory)
        if not isinstance(program, PackageManager):
            return
        found, words = leading_options(rest, program.options)
        for name, value in found:
            directory = joined(directory, value) if name in program.options.moves else directory
        if words[:1] in (["run"], ["run-script"]):
            words = leading_options(words[1:], program.options)[1]
        if directory is None or not words:
            return
        scripts = self._scripts_in(posixpath.normpath(posixpath.join(directory, "package.json")))
        name = _ALIASES.get(words[0], words[0])
        if name not in scripts:
            return
        self.has_test_script = self.has_test_script or bool(TEST_SCRIPT.fullmatch(name))
        for each in (f"pre{name}", name, f"post{name}"):
            self.packaged.add(each)
            if isinstance(text := scripts.get(each), str):
                yield text, directory

    def _scripts_in(self, path: str) -> dict[str, object]:
        try:
            values = json.loads(self._files.text(path) or "{}")
        except ValueError:
            return {}
        scripts = values.get("scripts") if isinstance(values, dict) else None
        return scripts if isinstance(scripts, dict) else {}


def _is_like_check(path: str) -> bool:
    return bool(_LIKE_CHECK.search(path))


def _is_told_to_test(command: SimpleCommand) -> bool:
    """Whether a word tells a script to test: `python manage.py test`, `./dev check`."""
    return any(word in ("test", "tests", "check", "verify") for word in command.args)
