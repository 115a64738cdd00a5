"""Finds the files that verify a task: the scripts and tests that its commands run.

Anyone who can change these files can make any work look done. Only the command line is read, using what is known about
common programs. What a script or a Makefile starts in turn is not visible, so in that case every file that is named
like a test by convention counts.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from ralph.protection.runners import (
    CUSTOMIZE,
    RUNNERS,
    TESTS_BY_CUSTOM,
    PackageManager,
    Takes,
    TestRunner,
    find_program,
    leading_options,
)
from ralph.shell.command import SimpleCommand
from ralph.shell.context import ShellContext
from ralph.shell.parser import Unreadable
from ralph.shell.paths import is_under, normal
from ralph.shell.reader import read
from ralph.shell.words import MARKS, UNKNOWN

_ROOT = "/\0repository"
"""Placeholder for the root of the repository. No command can name it."""
TEST_SCRIPT = re.compile(r"t|tst|test(?:[:_.-].*)?")
TEST_DIRECTORY = re.compile(
    r"(?:.*[_-])?(?:tests?|testing|specs?|e2e|acceptance)(?:[_-].*)?|t", re.IGNORECASE
)
_PART_OF_FILE = re.compile(r"::.*|(?::\d+)+$|/?\.\.\.$", re.DOTALL)
_LOOKS_LIKE_PATH = re.compile(r"/|\.\w{1,5}$")
_SOURCING = (".", "source")
_SOURCES_FOLLOW = ("related", "--findRelatedTests")


class Protection(Struct, frozen=True):
    """Globs of tracked files that must not change, one per file, and names that must stay unused.

    `executed`: programs, scripts and tests that the commands run. `by_custom`: files named like tests, if a script
    decides which tests run. `absent`: names that no new file and no directory above it is allowed to have.
    """

    executed: tuple[str, ...] = ()
    by_custom: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


class VerifyingFiles(Struct, frozen=True):
    """The same as a `Protection`, as paths instead of globs.

    `scripts`: those of the executed files that are programs. `has_recipes`: another program than these decides which
    commands run, such as make.
    """

    executed: frozenset[str]
    by_custom: frozenset[str]
    absent: frozenset[str]
    scripts: frozenset[str]
    has_recipes: bool


def protection(commands: Iterable[tuple[str, str]], tracked: Collection[str]) -> Protection:
    """Return the files that must not change for these commands to be trusted.

    Each command comes with its working directory. `tracked` lists all files of the repository, relative to the
    same root.
    """
    found = verifying_files(commands, tracked)
    return Protection(_escaped(found.executed), _escaped(found.by_custom), tuple(sorted(found.absent)))


def verifying_files(
    commands: Iterable[tuple[str, str]], tracked: Collection[str], read: Collection[str] = ()
) -> VerifyingFiles:
    """Like `protection`. `read`: names of package scripts whose content is among the commands."""
    files = _Files(tracked, read)
    executed: set[str] = set()
    for command, working_dir in commands:
        for each in simple_commands(command, working_dir):
            executed.update(_of_command(each, files))
        files.newcomers.update(CUSTOMIZE)
    by_custom = files.called(TESTS_BY_CUSTOM, ".") if files.is_indirect else []
    if files.is_indirect:
        files.newcomers.update(RUNNERS["pytest"].always)
    return VerifyingFiles(
        frozenset(executed),
        frozenset(by_custom),
        frozenset(files.newcomers),
        frozenset(files.scripts),
        files.has_recipes,
    )


def tests_among(paths: Iterable[str]) -> list[str]:
    """Return the files that are named like tests by convention."""
    return [path for path in paths if any(_is_called(path, name) for name in TESTS_BY_CUSTOM)]


def _escaped(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(re.sub(r"([*?[])", r"[\1]", path) for path in sorted(paths))


class _Files:
    """Looks up tracked files by the names that a command line uses, and records other findings."""

    def __init__(self, tracked: Collection[str], read: Collection[str] = ()) -> None:
        self._tracked = frozenset(tracked)
        self.read = frozenset(read)
        self.newcomers: set[str] = set()
        self.scripts: set[str] = set()
        self.has_recipes = False

    @property
    def is_indirect(self) -> bool:
        """Whether a script decides which tests run."""
        return self.has_recipes or bool(self.scripts)

    def forbid_module(self, name: str) -> None:
        """Forbid a new module of this name, which would run instead of the installed one."""
        module = name.partition(".")[0]
        if not any(module in path.removesuffix(".py").split("/") for path in self._tracked):
            self.newcomers.update((module, f"{module}.py"))

    def forbid_sourced(self, directory: str | None, word: str) -> None:
        """Forbid a new file that the command would read its settings from. A virtual environment is made by others."""
        path = joined(directory, word)
        name = posixpath.basename(path or "")
        if name and name != "activate":
            self.newcomers.add(name)

    def named(self, directory: str | None, word: str) -> list[str]:
        """Return the file that a word names, or the files that match it as a shell glob."""
        path = joined(directory, word)
        if path is None or path in self._tracked or not re.search(r"[*?]", path):
            return [path] if path in self._tracked else []
        pattern = re.compile(_as_regex(path), re.DOTALL)
        return [each for each in self._tracked if pattern.fullmatch(each)]

    def below(self, directory: str) -> list[str]:
        prefix = "" if directory == "." else f"{directory}/"
        return [path for path in self._tracked if path.startswith(prefix)]

    def called(self, names: Sequence[str], directory: str) -> list[str]:
        """Return the files below a directory that have one of these names, or are in a directory that has one."""
        return [path for path in self.below(directory) if any(_is_called(path, name) for name in names)]


def _as_regex(glob: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", re.sub(r"(\*\*/)+", "**/", glob))
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(known.get(part) or re.escape(part) for part in parts)


def _is_called(path: str, name: str) -> bool:
    if name.endswith("/"):
        return f"/{name}" in f"/{path}"
    return fnmatchcase(posixpath.basename(path), name)


# ---- commands ----


def simple_commands(command: str, working_dir: str = ".") -> list[SimpleCommand]:
    """Return the commands that a command line runs, as far as it can be parsed.

    Strings in code of other languages are not followed.
    """
    found: list[SimpleCommand] = []
    context = ShellContext(
        normal(posixpath.join(_ROOT, working_dir)), "/\0home", _ROOT, env={"OLDPWD": UNKNOWN}
    )
    try:
        read(command, context, found.append)
    except Unreadable:
        pass
    return [each for each in found if not each.is_guess and not each.name.startswith("\0")]


def inside(directory: str | None) -> str | None:
    """Return a directory relative to the root of the repository, or None if it is outside or unknown."""
    return None if directory is None or not is_under(directory, _ROOT) else directory[len(_ROOT) + 1 :] or "."


def joined(directory: str | None, path: str) -> str | None:
    """Return a path relative to the root of the repository, or None if only running the command would reveal it."""
    if path.startswith("/"):
        return inside(normal(path))
    if directory is None or not path or not MARKS.isdisjoint(path):
        return None
    return posixpath.normpath(posixpath.join(directory, path))


def without_part(word: str) -> str:
    """Return the path in a word that names a part of a file: `tests/test_a.py::test_x`, `a_test.go:12`."""
    return _PART_OF_FILE.sub("", word)


def _of_command(command: SimpleCommand, files: _Files) -> Iterator[str]:
    """Return the files that one simple command executes: its program, and the files that the program runs."""
    directory = inside(command.directory)
    program, rest = find_program([command.program, *command.args])
    if "/" in command.name:
        named = files.named(directory, command.name)
        if program is None:
            files.scripts.update(named)
        yield from named
    if isinstance(program, PackageManager):
        directory, words = _package_script(program, rest, directory)
        files.has_recipes = files.has_recipes or not (words or files.read.intersection(rest))
        program, rest = find_program(words) if words else (None, [])
    if isinstance(program, TestRunner):
        yield from _of_runner(program, rest, directory, files)
    elif command.module:
        files.forbid_module(command.module)
    elif scripts := files.named(directory, command.script):
        files.scripts.update(scripts)
        yield from scripts
    elif command.name in _SOURCING:
        files.forbid_sourced(directory, command.script)


def _package_script(
    program: PackageManager, rest: list[str], directory: str | None
) -> tuple[str | None, list[str]]:
    """Return the directory and command of a package script: `npm test` runs tests, `yarn jest` is jest.

    The command is empty for other scripts, whose content is not visible here.
    """
    found, words = leading_options(rest, program.options)
    for name, value in found:
        if name in program.options.moves:
            directory = joined(directory, value)
    if words and words[0] in ("run", "run-script"):
        words = leading_options(words[1:], program.options)[1]
    if not words:
        return directory, []
    if TEST_SCRIPT.fullmatch(words[0]):
        return directory, ["jest", *words[1:]]
    return directory, words if words[0] in RUNNERS else []


# ---- test runners ----


def _of_runner(program: TestRunner, rest: list[str], directory: str | None, files: _Files) -> Iterator[str]:
    """Return the tests that are named, or all conventional ones if none is, and the runner's own files."""
    files.newcomers.update(program.always, program.configs)
    files.has_recipes = files.has_recipes or program.is_indirect
    words: list[str] = []
    while rest:
        found, rest = leading_options(rest, program.options)
        for name, value in found:
            if name in program.options.moves:
                directory = joined(directory, value)
            elif name in program.options.runs:
                yield from files.named(directory, value)
        words += [name for name, _ in found if name in _SOURCES_FOLLOW] + rest[:1]
        rest = rest[1:]
    if directory is None:
        return
    yield from files.called(program.always, directory)
    for name in program.configs:
        yield from files.named(directory, name)
    tests = _named_tests(program, words, directory, files)
    yield from files.called(program.tests, directory) if tests is None else tests


def _named_tests(program: TestRunner, words: list[str], directory: str, files: _Files) -> list[str] | None:
    """Return the tests that the arguments name, or None if they name none."""
    if program.takes is Takes.OTHER or any(word in _SOURCES_FOLLOW for word in words):
        return None
    found: list[str] = []
    is_named = False
    for word in words:
        part = without_part(word) or "."
        tests = _tests_at(program, part, directory, files)
        if not tests and program.takes is Takes.FILTERS:
            tests = [path for path in files.called(program.tests, directory) if word in path]
        found += tests
        is_named = is_named or bool(tests) or bool(_LOOKS_LIKE_PATH.search(part))
    return found if is_named else None


def _tests_at(program: TestRunner, word: str, directory: str, files: _Files) -> list[str]:
    """Return the tests at a path: the file, everything in a test directory, or the tests in any other directory."""
    if named := files.named(directory, word):
        return named
    path = joined(directory, word)
    if path is not None and files.below(path):
        is_for_tests = any(TEST_DIRECTORY.fullmatch(part.strip("_")) for part in path.split("/"))
        return files.below(path) if is_for_tests else files.called(program.tests, path)
    if program.takes is Takes.NAMES and "." in word and "/" not in word:
        return _of_name(program, word.split("."), directory, files)
    return []


def _of_name(program: TestRunner, parts: list[str], directory: str, files: _Files) -> list[str]:
    """Return the module or package that a dotted name starts with, as in `tests.test_login.TestLogin`."""
    for length in range(len(parts), 0, -1):
        path = "/".join(parts[:length])
        if found := files.named(directory, f"{path}.py") or _tests_at(program, path, directory, files):
            return found
    return []
