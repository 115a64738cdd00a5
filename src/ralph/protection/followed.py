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
_SHEBANG = re.compile(r"#!\s*(?:/usr/bin/env\s+(?:-S\s+)?)?\S*?(?:ba|da|z|k)?sh\b")
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
    """`commands`: all command lines that are known to run. `scripts`: files with commands that were read.

    `runners`: names of the programs that run tests. `packaged`: names of scripts of a `package.json`,
    with the names that would run before and after them. `is_opaque`: one of them is for tests, but its runner is unknown.
    """

    commands: tuple[tuple[str, str], ...]
    scripts: frozenset[str]
    runners: frozenset[str]
    packaged: frozenset[str]
    is_opaque: bool


def followed(commands: Commands, files: Files) -> Followed:
    """Read commands and what they start, a few levels deep, from the files of a tree."""
    reading = _Reading(files)
    for command, directory in commands:
        reading.read(command, directory, 0)
    return Followed(
        tuple(reading.commands),
        frozenset(reading.scripts),
        frozenset(reading.runners),
        frozenset(reading.packaged),
        is_opaque=reading.has_test_script and reading.runners.isdisjoint(RUNNERS),
    )


class _Reading:
    def __init__(self, files: Files) -> None:
        self._files = files
        self.commands: dict[tuple[str, str], None] = {}
        self.scripts: set[str] = set()
        self.runners: set[str] = set()
        self.packaged: set[str] = set()
        self.has_test_script = False

    def read(self, text: str, directory: str, depth: int) -> None:
        if (text, directory) in self.commands:
            return
        self.commands[text, directory] = None
        for command in simple_commands(text, directory):
            if name := program_name([command.program, *command.args]):
                self.runners.add(name)
            if depth < MAX_DEPTH:
                for inner, where in (*self._of_script(command), *self._of_package(command)):
                    self.read(inner, where, depth + 1)

    def _of_script(self, command: SimpleCommand) -> Iterator[tuple[str, str]]:
        """The content of a shell script, which runs in the directory of the command that starts it."""
        directory = inside(command.directory)
        for word in {command.name if "/" in command.name else "", str(command.script)} - {""}:
            path = joined(directory, word)
            path = self._resolved(path) if path is not None else None
            text = self._files.text(path) if path is not None else None
            if path is None or text is None:
                continue
            self.scripts.add(path)
            if directory is not None and (command.program in _SHELLS or _SHEBANG.match(text)):
                yield text, directory

    def _resolved(self, path: str) -> str | None:
        """The file that a path leads to. Links on the way count as scripts, because another target is another file."""
        for _ in range(MAX_DEPTH):
            target = self._files.target(path)
            if not target:
                return path
            self.scripts.add(path)
            if target.startswith("/"):
                return None
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        return None

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
