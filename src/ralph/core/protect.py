"""Which files the verification of a task is made of: the scripts and the tests that its commands run.

Whoever may change these can make any work look done. Only the command line is looked at, by what is well known of
programs. What a script or a Makefile starts in turn does not show: then all that is called a test by custom counts.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ralph.core.programs import (
    CUSTOMIZE,
    RUNNERS,
    TESTS_BY_CUSTOM,
    Interpreter,
    PackageManager,
    Runner,
    Takes,
    Wrapper,
    find_program,
    leading_options,
)
from ralph.core.shell import joined, simple_commands

MAX_DEPTH = 5
"""How often a command may hand another one to a shell: `sh -c "…"`."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_TEST_SCRIPT = re.compile(r"t|tst|test(?:[:_.-].*)?")
_TEST_DIRECTORY = re.compile(
    r"(?:.*[_-])?(?:tests?|testing|specs?|e2e|acceptance)(?:[_-].*)?|t", re.IGNORECASE
)
_PART_OF_FILE = re.compile(r"::.*|(?::\d+)+$|/?\.\.\.$", re.DOTALL)
_LOOKS_LIKE_PATH = re.compile(r"/|\.\w{1,5}$")
_SOURCES_FOLLOW = ("related", "--findRelatedTests")


@dataclass(frozen=True, slots=True)
class Protection:
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
        executed.update(_of_shell(command, joined(".", working_dir), files, MAX_DEPTH))
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


def _of_shell(command: str, directory: str | None, files: _Files, depth: int) -> Iterator[str]:
    for simple in simple_commands(command, directory) if depth else ():
        yield from _of_command(list(simple.words), simple.directory, files, depth)


def _of_command(words: list[str], directory: str | None, files: _Files, depth: int) -> Iterator[str]:
    """What one simple command executes: its program, and what that is told to run."""
    while words:
        if _ASSIGNMENT.match(words[0]):
            del words[0]
            continue
        program, rest = find_program(words)
        if "/" in words[0]:
            named = files.named(directory, words[0])
            files.is_indirect = files.is_indirect or (bool(named) and program is None)
            yield from named
        match program:
            case Wrapper():
                directory, words = _unwrapped(program, rest, directory)
            case PackageManager():
                directory, words = _package_script(program, rest, directory)
                files.is_indirect = files.is_indirect or not words
            case Interpreter():
                words, code = _interpreted(program, rest)
                if code is not None:
                    yield from _of_shell(code, directory, files, depth - 1)
                elif words:
                    files.forbid_module(words[0])
                else:
                    scripts = list(_of_script(program, rest, directory, files))
                    files.is_indirect = files.is_indirect or bool(scripts)
                    yield from scripts
            case Runner():
                yield from _of_runner(program, rest, directory, files)
                return
            case None:
                return


def _unwrapped(program: Wrapper, rest: list[str], directory: str | None) -> tuple[str | None, list[str]]:
    """The command that a wrapper runs, and where."""
    found, words = leading_options(rest, program.options)
    for name, value in found:
        if name in program.options.moves:
            directory = joined(directory, value)
    words = words[program.skips :]
    is_file = program.is_python and words and words[0].endswith(".py")
    return directory, ["python", *words] if is_file else words


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


def _interpreted(program: Interpreter, rest: list[str]) -> tuple[list[str], str | None]:
    """The module that is run, as a command; or the code that a shell is given."""
    found, words = leading_options(rest, program.options)
    names = [name for name, _ in found]
    if any(re.fullmatch(program.module, name) for name in names):
        return words, None
    if program.is_shell and any(re.fullmatch(program.code, name) for name in names):
        return [], "".join(words[:1])
    return [], None


def _of_script(program: Interpreter, rest: list[str], directory: str | None, files: _Files) -> Iterator[str]:
    found, words = leading_options(rest, program.options)
    for name, value in found:
        if re.fullmatch(program.code, name) or re.fullmatch(program.dry, name):
            return
        if name in program.options.runs:
            yield from files.named(directory, value)
            return
    if words:
        yield from files.named(directory, words[0])


# ---- test runners ----


def _of_runner(program: Runner, rest: list[str], directory: str | None, files: _Files) -> Iterator[str]:
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


def _named_tests(program: Runner, words: list[str], directory: str, files: _Files) -> list[str] | None:
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


def _tests_at(program: Runner, word: str, directory: str, files: _Files) -> list[str]:
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


def _of_name(program: Runner, parts: list[str], directory: str, files: _Files) -> list[str]:
    """`tests.test_login.TestLogin`: the module, or the package, that the name begins with."""
    for length in range(len(parts), 0, -1):
        path = "/".join(parts[:length])
        if found := files.named(directory, f"{path}.py") or _tests_at(program, path, directory, files):
            return found
    return []
