"""Which files the verification of a task is made of: the scripts and the tests that its commands run.

Whoever may change these can make any work look done. Only the command is read, by what is well known of programs. What a script or a Makefile starts in turn does not show: then all that is called a test by custom counts.
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
"""Stands for the root of the repository, wherever that is: no command can name it."""
_TEST_SCRIPT = re.compile(r"t|tst|test(?:[:_.-].*)?")
_TEST_DIRECTORY = re.compile(
    r"(?:.*[_-])?(?:tests?|testing|specs?|e2e|acceptance)(?:[_-].*)?|t", re.IGNORECASE
)
_PART_OF_FILE = re.compile(r"::.*|(?::\d+)+$|/?\.\.\.$", re.DOTALL)
_LOOKS_LIKE_PATH = re.compile(r"/|\.\w{1,5}$")
_SOURCES_FOLLOW = ("related", "--findRelatedTests")


class Protection(Struct, frozen=True):
    """Globs of tracked files that must stay as they are, each of one file; and names that must stay unused.

    `executed`: programs, scripts and tests that are run. `by_custom`: what is called a test, where a script decides
    which are run. `absent`: names that no new file may have, nor a directory above it.
    """

    executed: tuple[str, ...] = ()
    by_custom: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def protection(commands: Iterable[tuple[str, str]], tracked: Collection[str]) -> Protection:
    """What must not be touched for these commands to tell the truth.

    Each command has the directory that it is run in; `tracked`: all files of the repository, from the same root.
    """
    files = _Files(tracked)
    executed: set[str] = set()
    for command, working_dir in commands:
        for each in simple_commands(command, working_dir):
            executed.update(_of_command(each, files))
        files.newcomers.update(CUSTOMIZE)
    by_custom = files.called(TESTS_BY_CUSTOM, ".") if files.is_indirect else []
    if files.is_indirect:
        files.newcomers.update(RUNNERS["pytest"].always)
    return Protection(_escaped(executed), _escaped(by_custom), tuple(sorted(files.newcomers)))


def tests_among(paths: Iterable[str]) -> list[str]:
    """Files that are called tests by custom."""
    return [path for path in paths if any(_is_called(path, name) for name in TESTS_BY_CUSTOM)]


def _escaped(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(re.sub(r"([*?[])", r"[\1]", path) for path in sorted(paths))


class _Files:
    """The tracked files, by what a command line may call them, and what else commands were seen to do."""

    def __init__(self, tracked: Collection[str]) -> None:
        self._tracked = frozenset(tracked)
        self.newcomers: set[str] = set()
        self.is_indirect = False

    def forbid_module(self, name: str) -> None:
        """A new module of this name would be run in the place of the installed one."""
        module = name.partition(".")[0]
        if not any(module in path.removesuffix(".py").split("/") for path in self._tracked):
            self.newcomers.update((module, f"{module}.py"))

    def named(self, directory: str | None, word: str) -> list[str]:
        """The file that a word means, or those that match it as a glob of the shell."""
        path = joined(directory, word)
        if path is None or path in self._tracked or not re.search(r"[*?]", path):
            return [path] if path in self._tracked else []
        pattern = re.compile(_as_regex(path), re.DOTALL)
        return [each for each in self._tracked if pattern.fullmatch(each)]

    def below(self, directory: str) -> list[str]:
        prefix = "" if directory == "." else f"{directory}/"
        return [path for path in self._tracked if path.startswith(prefix)]

    def called(self, names: Sequence[str], directory: str) -> list[str]:
        """Files below a directory with such a name, or in a directory with such a name."""
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
    """All that it runs, as far as that can be read; strings in code of other languages are not followed."""
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
    """A directory from the root of the repository, None if it lies elsewhere or nobody knows where."""
    return None if directory is None or not is_under(directory, _ROOT) else directory[len(_ROOT) + 1 :] or "."


def joined(directory: str | None, path: str) -> str | None:
    """A path from the root of the repository, None where only running the command would tell."""
    if path.startswith("/"):
        return inside(normal(path))
    if directory is None or not path or not MARKS.isdisjoint(path):
        return None
    return posixpath.normpath(posixpath.join(directory, path))


def _of_command(command: SimpleCommand, files: _Files) -> Iterator[str]:
    """What one simple command executes: its program, and what that is told to run."""
    directory = inside(command.directory)
    program, rest = find_program([command.program, *command.args])
    if "/" in command.name:
        named = files.named(directory, command.name)
        files.is_indirect = files.is_indirect or (bool(named) and program is None)
        yield from named
    if isinstance(program, PackageManager):
        directory, words = _package_script(program, rest, directory)
        files.is_indirect = files.is_indirect or not words
        program, rest = find_program(words) if words else (None, [])
    if isinstance(program, TestRunner):
        yield from _of_runner(program, rest, directory, files)
    elif command.module:
        files.forbid_module(command.module)
    elif scripts := files.named(directory, command.script):
        files.is_indirect = True
        yield from scripts


def _package_script(
    program: PackageManager, rest: list[str], directory: str | None
) -> tuple[str | None, list[str]]:
    """`npm test` and the like run tests; `yarn jest` is jest. What other scripts do does not show here."""
    found, words = leading_options(rest, program.options)
    for name, value in found:
        if name in program.options.moves:
            directory = joined(directory, value)
    if words and words[0] in ("run", "run-script"):
        words = leading_options(words[1:], program.options)[1]
    if not words:
        return directory, []
    if _TEST_SCRIPT.fullmatch(words[0]):
        return directory, ["jest", *words[1:]]
    return directory, words if words[0] in RUNNERS else []


# ---- test runners ----


def _of_runner(program: TestRunner, rest: list[str], directory: str | None, files: _Files) -> Iterator[str]:
    """The tests that are named, else those that are called so by custom; and what the runner reads besides."""
    files.newcomers.update(program.always, program.beside)
    files.is_indirect = files.is_indirect or program.is_indirect
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
    for name in program.beside:
        yield from files.named(directory, name)
    tests = _named_tests(program, words, directory, files)
    yield from files.called(program.tests, directory) if tests is None else tests


def _named_tests(program: TestRunner, words: list[str], directory: str, files: _Files) -> list[str] | None:
    """The tests that the arguments name; None if they name none."""
    if program.takes is Takes.OTHER or any(word in _SOURCES_FOLLOW for word in words):
        return None
    found: list[str] = []
    is_named = False
    for word in words:
        part = _PART_OF_FILE.sub("", word) or "."
        tests = _tests_at(program, part, directory, files)
        if not tests and program.takes is Takes.FILTERS:
            tests = [path for path in files.called(program.tests, directory) if word in path]
        found += tests
        is_named = is_named or bool(tests) or bool(_LOOKS_LIKE_PATH.search(part))
    return found if is_named else None


def _tests_at(program: TestRunner, word: str, directory: str, files: _Files) -> list[str]:
    """A file, or a directory: all of one for tests, of any other what is called a test."""
    if named := files.named(directory, word):
        return named
    path = joined(directory, word)
    if path is not None and files.below(path):
        is_for_tests = any(_TEST_DIRECTORY.fullmatch(part.strip("_")) for part in path.split("/"))
        return files.below(path) if is_for_tests else files.called(program.tests, path)
    if program.takes is Takes.NAMES and "." in word and "/" not in word:
        return _of_name(program, word.split("."), directory, files)
    return []


def _of_name(program: TestRunner, parts: list[str], directory: str, files: _Files) -> list[str]:
    """`tests.test_login.TestLogin`: the module, or the package, that the name begins with."""
    for length in range(len(parts), 0, -1):
        path = "/".join(parts[:length])
        if found := files.named(directory, f"{path}.py") or _tests_at(program, path, directory, files):
            return found
    return []
