"""Tables of common test runners and package managers, by their command lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from ralph.shell.arguments import takes_next


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


class Options(Struct, frozen=True):
    """Options that take a value. Those in `runs` take a file to run, those in `moves` the working directory."""

    values: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    moves: frozenset[str] = frozenset()

    def __contains__(self, name: object) -> bool:
        return name in self.values or name in self.runs or name in self.moves


def _values(words: str, *, runs: str = "", moves: str = "") -> Options:
    return Options(_set(words), _set(runs), _set(moves))


class PackageManager(Struct, frozen=True):
    """A program that runs the scripts of a package by name."""

    options: Options = Options()


class Takes(Enum):
    """Kind of arguments that a test runner takes. Names are those of Python modules, filters are parts of a path."""

    PATHS = "paths"
    NAMES = "names"
    FILTERS = "filters"
    OTHER = "other"


class TestRunner(Struct, frozen=True):
    """A test runner. `tests`: conventional names of its test files, or of their directories with a trailing "/".

    `always`: files that it reads wherever the tests are. `configs`: files that it reads in its working directory.
    `is_indirect`: it runs other commands, which are listed in a file.
    """

    tests: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    takes: Takes = Takes.PATHS
    options: Options = Options()
    is_indirect: bool = False


_PYTEST = TestRunner(
    ("test_*.py", "*_test.py"),
    always=("conftest.py",),
    configs=("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
    options=_values(
        "-k -m -c -o -p -n -r -W --cov --cov-report --cov-config --cov-fail-under --junitxml --junit-xml --rootdir"
        " --ignore --ignore-glob --deselect --maxfail --tb --timeout --durations --dist --basetemp --confcutdir"
        " --import-mode --log-level --log-file --log-cli-level --color --capture --numprocesses --override-ini"
        " --config-file --reruns"
    ),
)
_UNITTEST = TestRunner(
    ("test*.py",), takes=Takes.NAMES, options=_values("-k -p --pattern -t --top-level-directory")
)
_JAVASCRIPT = TestRunner(
    ("*.test.*", "*.spec.*", "__tests__/"),
    configs=tuple(
        f"{runner}.config.{ending}"
        for runner in ("jest", "vitest", "playwright")
        for ending in ("js", "ts", "mjs", "cjs", "mts", "cts", "json")
    ),
    takes=Takes.FILTERS,
    options=_values(
        "-t --testNamePattern -c --config --reporter --reporters --coverageReporters --testTimeout --maxWorkers"
        " --project -g --grep -r --require --environment --pool --timeout",
        moves="--rootDir --root",
    ),
)
_MOCHA = TestRunner(
    (*_JAVASCRIPT.tests, "test/"),
    configs=(".mocharc.js", ".mocharc.cjs", ".mocharc.json", ".mocharc.yml"),
    takes=Takes.FILTERS,
    options=_JAVASCRIPT.options,
)
_NODE = TestRunner(
    (
        *_MOCHA.tests,
        *(
            f"{name}.{ending}"
            for name in ("test", "test-*", "*-test", "*_test")
            for ending in ("js", "mjs", "cjs", "ts")
        ),
    ),
    takes=Takes.FILTERS,
    options=_JAVASCRIPT.options,
)
_JVM = TestRunner(("src/test/",), takes=Takes.OTHER)
_CARGO = TestRunner(("tests/",), takes=Takes.OTHER)
_PHPUNIT = TestRunner(
    ("*Test.php", "Pest.php"),
    configs=("phpunit.xml", "phpunit.xml.dist"),
    options=_values("-c --configuration --filter --testsuite --group --bootstrap --log-junit"),
)
_MAKE = TestRunner(
    configs=("Makefile", "makefile", "GNUmakefile"),
    takes=Takes.OTHER,
    options=_values("-l -I -o -W", runs="-f --file --makefile", moves="-C --directory"),
    is_indirect=True,
)

RUNNERS: dict[str, TestRunner] = {
    "pytest": _PYTEST,
    "py.test": _PYTEST,
    "unittest": _UNITTEST,
    "nose2": _UNITTEST,
    "tox": TestRunner(_PYTEST.tests, _PYTEST.always, ("tox.ini",), Takes.OTHER),
    "nox": TestRunner(
        _PYTEST.tests, _PYTEST.always, ("noxfile.py",), Takes.OTHER, _values("-s", runs="-f --noxfile")
    ),
    "behave": TestRunner(("*.feature", "steps/")),
    "jest": _JAVASCRIPT,
    **dict.fromkeys(("vitest", "vitest run", "vitest watch", "vitest dev"), _JAVASCRIPT),
    "ava": _JAVASCRIPT,
    "mocha": _MOCHA,
    "node --test": _NODE,
    "bun test": _JAVASCRIPT,
    "deno test": TestRunner(("*_test.*", "*.test.*")),
    "playwright test": _JAVASCRIPT,
    "cypress run": TestRunner(("*.cy.*",), takes=Takes.OTHER),
    "go test": TestRunner(
        ("*_test.go", "testdata/"),
        options=_values("-run -count -timeout -tags -bench -coverprofile -p -o", moves="-C"),
    ),
    "cargo test": _CARGO,
    "cargo nextest": _CARGO,
    "phpunit": _PHPUNIT,
    "pest": _PHPUNIT,
    "rspec": TestRunner(
        ("*_spec.rb",),
        always=("spec_helper.rb", "rails_helper.rb"),
        configs=(".rspec",),
        options=_values("-e -f -t -r -I -o --example --format --tag --require --out"),
    ),
    "rake": TestRunner(
        ("*_test.rb", "*_spec.rb"), (), ("Rakefile",), Takes.OTHER, _values("", runs="-f --rakefile")
    ),
    "bats": TestRunner(("*.bats",), options=_values("-f -F -j --filter --formatter --jobs")),
    "prove": TestRunner(("*.t",), options=_values("-I -e -j -P --exec --jobs")),
    "mix test": TestRunner(("*_test.exs", "test_helper.exs")),
    "dart test": TestRunner(("*_test.dart",)),
    "flutter test": TestRunner(("*_test.dart",)),
    "swift test": TestRunner(("Tests/",), takes=Takes.OTHER),
    "dotnet test": TestRunner(("*Test.cs", "*Tests.cs"), takes=Takes.OTHER),
    "mvn": _JVM,
    "mvnw": _JVM,
    "gradle": _JVM,
    "gradlew": _JVM,
    "sbt": _JVM,
    "make": _MAKE,
    "gmake": _MAKE,
    "just": TestRunner(
        configs=("justfile", "Justfile", ".justfile"),
        takes=Takes.OTHER,
        options=_values("", runs="-f --justfile", moves="-d --working-directory"),
        is_indirect=True,
    ),
    "task": TestRunner(
        configs=("Taskfile.yml", "Taskfile.yaml"),
        takes=Takes.OTHER,
        options=_values("", runs="-t --taskfile", moves="-d --dir"),
        is_indirect=True,
    ),
}

TESTS_BY_CUSTOM = (
    *("test_*.py", "*_test.*", "*.test.*", "*.spec.*", "*_spec.*", "*Test.php", "*Test.java", "*Tests.cs"),
    *("*.bats", "*.feature", "conftest.py", "test/", "tests/", "spec/", "__tests__/", "e2e/"),
)
"""Names of tests, for commands that do not show which tests they run."""

CUSTOMIZE = ("sitecustomize.py", "usercustomize.py")
"""Modules that Python runs before any program."""

_NPM = PackageManager(
    _values("-w --workspace -F --filter --loglevel", moves="--prefix -C --dir --cwd"),
)

PACKAGE_MANAGERS = dict.fromkeys(("npm", "yarn", "pnpm", "bun run"), _NPM)

_VERSION = re.compile(r"(?<=[a-z])[\d.]+$")


_PROGRAMS: dict[str, TestRunner | PackageManager] = {**RUNNERS, **PACKAGE_MANAGERS}


def find_program(words: Sequence[str]) -> tuple[TestRunner | PackageManager | None, list[str]]:
    """Return the entry for a program (by name and first argument, otherwise by name) and the words that follow."""
    name = program_name(words)
    return _PROGRAMS.get(name), list(words[1 + name.count(" ") :])


def program_name(words: Sequence[str]) -> str:
    """Return the name of a program as these tables have it; "" if they do not."""
    names = (" ".join(words[:2]) if len(words) > 1 else "", words[0], _VERSION.sub("", words[0]))
    return next((name for name in names if name in _PROGRAMS), "")


def leading_options(words: Sequence[str], options: Options) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the leading options, each with its value, and the words after them."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(words) and len(words[at]) > 1 and words[at][0] in "-+":
        word, at = words[at], at + 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if not equals and takes_next(name, options):
            value, at = "".join(words[at : at + 1]), at + 1
        elif not equals and not word.startswith("--") and word[:2] in options:
            name, value = word[:2], word[2:]
        found.append((name, value))
    return found, list(words[at:])
