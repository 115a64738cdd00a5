"""Which files of a changed tree have to be as they were, so that the tests of the old tree run on the new work.

Nothing is read or run here: the trees come as lists of paths with their texts, and the result says what to put back and
what to remove in a copy, and which commands to run there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache

from msgspec import Struct
from msgspec.structs import replace

from ralph.protection.configuration import TestKeys, directory_of, keys_of, with_old_keys
from ralph.protection.followed import Files, Followed, followed
from ralph.protection.protect import (
    TEST_DIRECTORY,
    VerifyingFiles,
    inside,
    joined,
    simple_commands,
    tests_among,
    verifying_files,
    without_part,
)
from ralph.protection.runners import CUSTOMIZE, RUNNERS, Takes

_RECIPES = {
    name: runner.configs for name, runner in RUNNERS.items() if runner.takes is Takes.OTHER and runner.configs
}
"""By program: files without which it cannot run at all, so the first one is needed."""

_OF_RUNNERS = frozenset(name for runner in RUNNERS.values() for name in (*runner.always, *runner.configs))
_CUSTOMIZE = frozenset((*CUSTOMIZE, *(name.removesuffix(".py") for name in CUSTOMIZE)))
_SETUP = ("jest.setup.*", "vitest.setup.*", "setupTests.*")
"""Files that JavaScript runners are commonly told to load first."""

_PYTHON_MODULES = ("pytest", "_pytest", "unittest", "nose2", "tox", "nox", "coverage")


class TreeChange(Struct, frozen=True):
    """The two trees, the paths that differ, and the new path of each renamed file by its old one.

    `environment`: changed files of the installed environment, which is in neither tree.
    """

    old: Files
    new: Files
    paths: tuple[str, ...]
    renamed: Mapping[str, str] = {}
    environment: tuple[str, ...] = ()


class ProtectRules(Struct, frozen=True):
    """`globs`: the protected files; None: those that the commands execute. `allowed`: globs of files that may change.

    `project`: the directory that globs and commands are relative to, inside the repository. Globs may also be
    relative to the top of the repository.
    """

    globs: tuple[str, ...] | None = None
    allowed: tuple[str, ...] = ()
    project: str = "."


class SecondLook(Struct, frozen=True):
    """What to do in a copy of the new tree, and which of the commands to run there, by their index.

    `put_back`: paths whose old version is used; `edited`: paths with the text to use, which has the old test keys.
    `changed`: the tests and the configuration that have changed, for people. `environment`: those of them that are files
    of the installed environment.
    """

    put_back: tuple[str, ...] = ()
    edited: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()
    commands: tuple[int, ...] = ()
    changed: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


def second_look(commands: Sequence[str], change: TreeChange, rules: ProtectRules) -> SecondLook:
    """Find out which of these commands have to run with the old tests, and what that takes."""
    if not (change.paths or change.environment):
        return SecondLook()
    put_back: set[str] = set()
    edited: dict[str, str] = {}
    removed: set[str] = set()
    changed: set[str] = set()
    environment: set[str] = set()
    again: list[int] = []
    for number, command in enumerate(commands):
        one = _OneCommand((command, rules.project), change, rules)
        if not one.tests or not one.is_touched:
            continue
        again.append(number)
        put_back |= one.put_back
        edited |= one.edited
        changed |= one.put_back | one.edited.keys() | one.unwanted | one.environment
        environment |= one.environment
        removed |= one.removed
    kept = put_back | edited.keys()
    return SecondLook(
        tuple(sorted(put_back)),
        tuple(sorted((path, text) for path, text in edited.items() if path not in put_back)),
        tuple(sorted(removed - kept)),
        tuple(again),
        tuple(sorted(changed)),
        tuple(sorted(environment)),
    )


def may_run_tests(commands: Iterable[str], files: Files, project: str = ".") -> bool:
    """Whether any of the commands may execute tests, as far as these files show. Their list is not needed."""
    found = followed([(command, project) for command in commands], files)
    if found.checks or not found.runners.isdisjoint(RUNNERS):
        return True
    return verifying_files(found.commands, (), found.packaged).has_recipes


def changed_tests(commands: Iterable[str], paths: Collection[str], project: str = ".") -> list[str]:
    """Those of the changed paths that are tests, by their names or because the commands execute them."""
    found = verifying_files([(command, project) for command in commands], paths)
    return sorted({*tests_among(paths), *found.executed, *found.by_custom})


class _OneCommand:
    """The tests of one command, and what of them has changed."""

    def __init__(self, command: tuple[str, str], change: TreeChange, rules: ProtectRules) -> None:
        self._change, self._rules = change, rules
        self._command = command
        self._old, self._new = frozenset(change.old.paths), frozenset(change.new.paths)
        self._texts: dict[str, str | None] = {}
        self._followed: Followed = followed([command], change.old)
        self._found: VerifyingFiles = self._verifying(self._old)

    def _verifying(self, paths: frozenset[str]) -> VerifyingFiles:
        """What verifies the work. A script that is the work itself does not, and its tests are unknown."""
        found = verifying_files(self._followed.commands, paths, self._followed.packaged)
        checks = found.scripts & self._followed.checks
        is_indirect = found.has_recipes or bool(checks) or self._followed.is_opaque
        return replace(
            found,
            executed=found.executed - (found.scripts - checks - set(tests_among(found.scripts))),
            by_custom=frozenset(tests_among(paths)) if is_indirect else frozenset(),
            has_recipes=is_indirect,
        )

    @property
    def is_touched(self) -> bool:
        return bool(self.put_back or self.edited or self.unwanted or self.environment)

    @cached_property
    def environment(self) -> frozenset[str]:
        """Changed files of the environment that may not change."""
        return frozenset(path for path in self._change.environment if not self._is_allowed(path))

    @cached_property
    def tests(self) -> frozenset[str]:
        """The old files that count, without what only configures them. Empty if the command executes none."""
        found = self._found
        executed = found.executed | found.by_custom
        if not executed:
            return frozenset()
        if self._rules.globs is not None:
            return frozenset(path for path in self._old if self._is_among(path, self._rules.globs))
        return executed | (self._followed.checks & self._old) | self._support(executed)

    def _support(self, executed: Collection[str]) -> frozenset[str]:
        """What lies next to tests in a directory for tests: helpers, data."""
        roots = {root for path in executed if (root := _test_root(path))}
        return frozenset(path for path in self._old if any(path.startswith(f"{root}/") for root in roots))

    @cached_property
    def put_back(self) -> frozenset[str]:
        """Old files, changed or deleted, of which the whole old version is used."""
        candidates = (path for path in self._change.paths if path in self._old and not self._is_allowed(path))
        return frozenset(path for path in candidates if self._is_whole(path))

    def _is_whole(self, path: str) -> bool:
        if self._is_partial(path):
            return self._with_old_keys(path) is None
        return path in self.tests or (self._is_configuration(path) and self._reaches_tests(path))

    @cached_property
    def edited(self) -> dict[str, str]:
        """Files in the new tree, with the text to use, of which only the test keys are put back."""
        found: dict[str, str] = {}
        for path in self._change.paths:
            is_first = path not in self._old and self._is_first_recipe(path)
            if path in self._new and not is_first and not self._is_allowed(path) and self._is_partial(path):
                text = self._with_old_keys(path)
                if text is not None and text != self._change.new.text(path):
                    found[path] = text
        return found

    @cached_property
    def unwanted(self) -> frozenset[str]:
        """New files that configure the runner of old tests, or run instead of it."""
        return frozenset(
            path
            for path in self._change.paths
            if path not in self._old and not self._is_allowed(path) and self._is_unwanted(path)
        )

    def _is_unwanted(self, path: str) -> bool:
        if self._is_first_recipe(path):
            return False
        if self._is_partial(path):
            return self._with_old_keys(path) is None
        if self._is_configuration(path) and self._reaches_tests(path):
            return True
        return self._is_shadow(path) or self._is_package(path)

    @cached_property
    def removed(self) -> frozenset[str]:
        """What must not be in the copy: unwanted files, and new tests that need something removed."""
        return self.unwanted | frozenset(
            path for path in self._newcomers if self._lacks_something(path) and not self._is_named(path)
        )

    # ---- configuration ----

    @cached_property
    def _keys(self) -> list[TestKeys]:
        names = RUNNERS if self._found.has_recipes else self._followed.runners
        more = ("test*", "pretest*", "posttest*") if self._found.has_recipes else ()
        return keys_of(names, (*sorted(self._followed.packaged), *more))

    def _is_partial(self, path: str) -> bool:
        return any(each.covers(path) for each in self._keys) and self._reaches_tests(path)

    def _with_old_keys(self, path: str) -> str | None:
        """The new text with the old test keys; None if the old file must be used as a whole, if there was one."""
        if path not in self._texts:
            self._texts[path] = self._edit(path)
        return self._texts[path]

    def _edit(self, path: str) -> str | None:
        old, new = self._change.old.text(path), self._change.new.text(path)
        if path not in self._new:
            return "" if old is None or with_old_keys(self._keys, path, None, old) == old else None
        if new is None or (old is None and path in self._old):
            return None
        return with_old_keys(self._keys, path, old, new)

    @cached_property
    def _configuration(self) -> frozenset[str]:
        known = (self._found.absent & _OF_RUNNERS) | _CUSTOMIZE
        return frozenset(name.casefold() for name in known)

    def _is_configuration(self, path: str) -> bool:
        if not self._configuration.isdisjoint(path.casefold().split("/")):
            return True
        return any(fnmatchcase(posixpath.basename(path), name) for name in _SETUP)

    def _reaches_tests(self, path: str) -> bool:
        """Whether old tests lie in the directory of a configuration file. A Python module counts everywhere."""
        directory = directory_of(path, self._keys)
        if not _CUSTOMIZE.isdisjoint(path.split("/")) or not directory:
            return bool(self.tests)
        return any(each.startswith(f"{directory}/") for each in self.tests)

    def _is_first_recipe(self, path: str) -> bool:
        """Whether a new Makefile, or the like, is the only one in its directory, and its program runs."""
        directory, name = posixpath.split(path)
        return any(
            name in names and not any(posixpath.join(directory, each) in self._old for each in names)
            for program, names in _RECIPES.items()
            if program in self._followed.runners
        )

    def _is_shadow(self, path: str) -> bool:
        """Whether a new Python module, next to the tests' working directory, has the name of a test runner."""
        for name in _PYTHON_MODULES:
            here = joined(self._command[1], name)
            if here is not None and (path == f"{here}.py" or path.startswith(f"{here}/")):
                return bool(self._followed.runners & set(_PYTHON_MODULES) or self._found.has_recipes)
        return False

    def _is_package(self, path: str) -> bool:
        """Whether a new `__init__.py` runs before old tests. An empty one, which only makes a package, is harmless."""
        directory, name = posixpath.split(path)
        code = re.sub(r"(?m)#.*", "", self._change.new.text(path) or "") if name == "__init__.py" else ""
        is_beside = any(each.endswith(".py") and each.startswith(f"{directory}/") for each in self.tests)
        return bool(code.strip()) and bool(_test_root(path)) and is_beside

    # ---- new tests ----

    @cached_property
    def _newcomers(self) -> frozenset[str]:
        """Test files that count as new: new ones, and those that may change."""
        found = self._verifying(self._new)
        return frozenset(
            path
            for path in self._change.paths
            if path in found.executed | found.by_custom
            and (path not in self._old or self._is_allowed(path))
            and path not in self._followed.checks
            and not self._is_configuration(path)
        )

    def _lacks_something(self, path: str) -> bool:
        """Whether a new test may need what was put back or removed, or repeats a test that was put back."""
        moved = {self._change.renamed.get(each) for each in self.put_back}
        gone = {posixpath.basename(each) for each in self.put_back if each not in self._new}
        if path in moved or posixpath.basename(path) in gone:
            return True
        return any(not scope or path.startswith(f"{scope}/") for scope in self._scopes)

    @cached_property
    def _scopes(self) -> frozenset[str]:
        """The directories in which configuration or helpers of tests are no longer the new ones."""
        recipes = {name for names in _RECIPES.values() for name in names}
        config = (
            self.unwanted | self.edited.keys() | {path for path in self.put_back if self._is_partial(path)}
        )
        support = {
            path
            for path in self.put_back - config
            if posixpath.basename(path) not in recipes
            and path not in self._followed.checks
            and (
                self._is_configuration(path)
                or (_test_root(path) and not tests_among([posixpath.basename(path)]))
            )
        }
        return frozenset(directory_of(path, self._keys) for path in config | support)

    def _is_named(self, path: str) -> bool:
        """Whether a command names this file, so that it fails without it."""
        for text, directory in self._followed.commands:
            for each in simple_commands(text, directory):
                where = inside(each.directory)
                for word in each.args:
                    if path in (
                        joined(where, without_part(word)),
                        joined(where, f"{word.replace('.', '/')}.py"),
                    ):
                        return True
        return False

    # ---- globs ----

    def _is_allowed(self, path: str) -> bool:
        return self._is_among(path, self._rules.allowed)

    def _is_among(self, path: str, globs: Iterable[str]) -> bool:
        names = [path]
        if self._rules.project != "." and path.startswith(f"{self._rules.project}/"):
            names.append(path[len(self._rules.project) + 1 :])
        return any(_glob(glob).fullmatch(name) for glob in globs for name in names)


def _test_root(path: str) -> str:
    """The uppermost directory for tests that a file is in; "" if there is none."""
    parts = path.split("/")[:-1]
    for number, part in enumerate(parts, 1):
        if TEST_DIRECTORY.fullmatch(part.strip("_")):
            return "/".join(parts[:number])
    return ""


@lru_cache
def _glob(glob: str) -> re.Pattern[str]:
    """A glob as git reads it. Without a slash it matches in any directory; a directory matches everything in it."""
    where = glob.removeprefix("./").rstrip("/")
    anywhere = "" if "/" in where else "(?:.*/)?"
    return re.compile(f"{anywhere}{''.join(_parts(where.lstrip('/')))}(?:/.*)?", re.DOTALL)


def _parts(glob: str) -> Iterator[str]:
    for part in re.split(r"((?:\*\*/)+|\*\*|\*|\?|\[[!^]?\]?[^\]]*\])", glob):
        if part.startswith("**/"):
            yield "(?:.*/)?"
        elif part.startswith("[") and len(part) > 2:
            yield f"[{'^' if part[1] in '!^' else ''}{re.escape(part[1:-1].lstrip('!^'))}]".replace(
                r"\-", "-"
            )
        else:
            yield {"**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part) or re.escape(part)
