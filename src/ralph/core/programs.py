"""Tables of well-known programs that run other programs, scripts or tests, as they are called on a command line."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


@dataclass(frozen=True, slots=True)
class Options:
    """Options that are followed by a value; `runs`: it is a file that is run, `moves`: the directory to work in."""

    values: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    moves: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name in self.values or name in self.runs or name in self.moves


def _values(words: str, *, runs: str = "", moves: str = "") -> Options:
    return Options(_set(words), _set(runs), _set(moves))


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A program that runs another one. `skips`: how many words of its own stand before that.

    `is_python`: it runs modules and files of Python too.
    """

    options: Options = Options()
    skips: int = 0
    is_python: bool = False


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A program that runs a script.

    Patterns of options: `code`, after which the program itself stands; `module`, the same for the name of one;
    `dry`, with which nothing is run.
    """

    code: str = r"-e"
    module: str = r"(?!)"
    dry: str = r"-c"
    options: Options = Options()
    is_shell: bool = False


@dataclass(frozen=True, slots=True)
class PackageManager:
    """A program that runs the scripts of a package by their names."""

    options: Options = Options()


class Takes(Enum):
    """What the arguments of a test runner are: names are those of Python's modules; filters, parts of a path."""

    PATHS = "paths"
    NAMES = "names"
    FILTERS = "filters"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Runner:
    """A test runner. `tests`: how its tests are called by custom; with "/" at the end, how their directory is.

    `always`: what it reads wherever the tests are; `beside`: in the directory in which it is run. `is_indirect`: it
    runs other commands, which stand in a file of its own.
    """

    tests: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    takes: Takes = Takes.PATHS
    options: Options = Options()
    is_indirect: bool = False


Program = Wrapper | Interpreter | PackageManager | Runner

_PYTEST = Runner(
    ("test_*.py", "*_test.py"),
    always=("conftest.py",),
    beside=("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
    options=_values(
        "-k -m -c -o -p -n -r -W --cov --cov-report --cov-config --cov-fail-under --junitxml --junit-xml --rootdir"
        " --ignore --ignore-glob --deselect --maxfail --tb --timeout --durations --dist --basetemp --confcutdir"
        " --import-mode --log-level --log-file --log-cli-level --color --capture --numprocesses --override-ini"
        " --config-file --reruns"
    ),
)
_UNITTEST = Runner(
    ("test*.py",), takes=Takes.NAMES, options=_values("-k -p --pattern -t --top-level-directory")
)
_JAVASCRIPT = Runner(
    ("*.test.*", "*.spec.*", "__tests__/"),
    beside=tuple(
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
_MOCHA = Runner(
    (*_JAVASCRIPT.tests, "test/"),
    beside=(".mocharc.js", ".mocharc.cjs", ".mocharc.json", ".mocharc.yml"),
    takes=Takes.FILTERS,
    options=_JAVASCRIPT.options,
)
_JVM = Runner(("src/test/",), takes=Takes.OTHER)
_CARGO = Runner(("tests/",), takes=Takes.OTHER)
_PHPUNIT = Runner(
    ("*Test.php", "Pest.php"),
    beside=("phpunit.xml", "phpunit.xml.dist"),
    options=_values("-c --configuration --filter --testsuite --group --bootstrap --log-junit"),
)
_MAKE = Runner(
    beside=("Makefile", "makefile", "GNUmakefile"),
    takes=Takes.OTHER,
    options=_values("-l -I -o -W", runs="-f --file --makefile", moves="-C --directory"),
    is_indirect=True,
)

RUNNERS: dict[str, Runner] = {
    "pytest": _PYTEST,
    "py.test": _PYTEST,
    "unittest": _UNITTEST,
    "nose2": _UNITTEST,
    "tox": Runner(_PYTEST.tests, _PYTEST.always, ("tox.ini",), Takes.OTHER),
    "nox": Runner(
        _PYTEST.tests, _PYTEST.always, ("noxfile.py",), Takes.OTHER, _values("-s", runs="-f --noxfile")
    ),
    "behave": Runner(("*.feature", "steps/")),
    "jest": _JAVASCRIPT,
    **dict.fromkeys(("vitest", "vitest run", "vitest watch", "vitest dev"), _JAVASCRIPT),
    "ava": _JAVASCRIPT,
    "mocha": _MOCHA,
    "node --test": _MOCHA,
    "bun test": _JAVASCRIPT,
    "deno test": Runner(("*_test.*", "*.test.*")),
    "playwright test": _JAVASCRIPT,
    "cypress run": Runner(("*.cy.*",), takes=Takes.OTHER),
    "go test": Runner(
        ("*_test.go", "testdata/"),
        options=_values("-run -count -timeout -tags -bench -coverprofile -p -o", moves="-C"),
    ),
    "cargo test": _CARGO,
    "cargo nextest": _CARGO,
    "phpunit": _PHPUNIT,
    "pest": _PHPUNIT,
    "rspec": Runner(
        ("*_spec.rb",),
        always=("spec_helper.rb", "rails_helper.rb"),
        beside=(".rspec",),
        options=_values("-e -f -t -r -I -o --example --format --tag --require --out"),
    ),
    "rake": Runner(
        ("*_test.rb", "*_spec.rb"), (), ("Rakefile",), Takes.OTHER, _values("", runs="-f --rakefile")
    ),
    "bats": Runner(("*.bats",), options=_values("-f -F -j --filter --formatter --jobs")),
    "prove": Runner(("*.t",), options=_values("-I -e -j -P --exec --jobs")),
    "mix test": Runner(("*_test.exs", "test_helper.exs")),
    "dart test": Runner(("*_test.dart",)),
    "flutter test": Runner(("*_test.dart",)),
    "swift test": Runner(("Tests/",), takes=Takes.OTHER),
    "dotnet test": Runner(("*Test.cs", "*Tests.cs"), takes=Takes.OTHER),
    "mvn": _JVM,
    "mvnw": _JVM,
    "gradle": _JVM,
    "gradlew": _JVM,
    "sbt": _JVM,
    "make": _MAKE,
    "gmake": _MAKE,
    "just": Runner(
        beside=("justfile", "Justfile", ".justfile"),
        takes=Takes.OTHER,
        options=_values("", runs="-f --justfile", moves="-d --working-directory"),
        is_indirect=True,
    ),
    "task": Runner(
        beside=("Taskfile.yml", "Taskfile.yaml"),
        takes=Takes.OTHER,
        options=_values("", runs="-t --taskfile", moves="-d --dir"),
        is_indirect=True,
    ),
}

TESTS_BY_CUSTOM = (
    *("test_*.py", "*_test.*", "*.test.*", "*.spec.*", "*_spec.*", "*Test.php", "*Test.java", "*Tests.cs"),
    *("*.bats", "*.feature", "conftest.py", "test/", "tests/", "spec/", "__tests__/", "e2e/"),
)
"""What is a test wherever one cannot see which are run."""

CUSTOMIZE = ("sitecustomize.py", "usercustomize.py")
"""Modules that Python runs before any program."""

_NPX = Wrapper(_values("-p --package -w --workspace"))
_POETRY = Wrapper(is_python=True)
_TIMEOUT = Wrapper(_values("-k --kill-after -s --signal"), skips=1)
_BARE = Wrapper()

WRAPPERS: dict[str, Wrapper] = {
    "env": Wrapper(_values("-u --unset", moves="-C --chdir")),
    "timeout": _TIMEOUT,
    "gtimeout": _TIMEOUT,
    "time": Wrapper(_values("-f --format -o --output")),
    "nice": Wrapper(_values("-n --adjustment")),
    "ionice": Wrapper(_values("-c -n --class --classdata")),
    "stdbuf": Wrapper(_values("-i -o -e --input --output --error")),
    "sudo": Wrapper(_values("-u -g -h -p -U")),
    "xvfb-run": Wrapper(_values("-n -s -e -f -w --server-args --server-num")),
    **dict.fromkeys(("nohup", "setsid", "exec", "command", "builtin", "bundle exec"), _BARE),
    "uv run": Wrapper(
        _values(
            "--with --with-requirements --with-editable --python -p --group --no-group --only-group --extra"
            " --no-extra --package --project --env-file --index-url --extra-index-url --index --config-file",
            moves="--directory",
        ),
        is_python=True,
    ),
    "uvx": Wrapper(_values("--from --with --python -p")),
    **dict.fromkeys(("poetry run", "pdm run", "pipenv run", "rye run", "hatch run"), _POETRY),
    "coverage run": Wrapper(
        _values("--source --omit --include --rcfile --data-file --context"), is_python=True
    ),
    **dict.fromkeys(("npx", "bunx", "bun x", "npm exec", "npm x"), _NPX),
    **dict.fromkeys(("pnpm exec", "pnpm dlx", "yarn exec", "yarn dlx"), _NPX),
}

_SHELL = Interpreter(
    r"-[A-Za-z]*c[A-Za-z]*", dry=r"-n", options=_values("-o -O +o +O --rcfile --init-file"), is_shell=True
)
_PYTHON = Interpreter(r"-[A-Za-z]*c", r"-[A-Za-z]*m", options=_values("-W -X"))
_NODE = Interpreter(
    r"-e|--eval|-p|--print",
    dry=r"-c|--check",
    options=_values("-r --require --import --loader --experimental-loader -C --conditions"),
)

INTERPRETERS: dict[str, Interpreter] = {
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh", "ash", "fish"), _SHELL),
    **dict.fromkeys((".", "source"), Interpreter()),
    **dict.fromkeys(("python", "pypy"), _PYTHON),
    **dict.fromkeys(("node", "nodejs", "tsx", "ts-node", "bun", "deno run"), _NODE),
    "ruby": Interpreter(dry=r"-w?c", options=_values("-I -r -C -E")),
    "perl": Interpreter(r"-[A-Za-z]*[eE]", dry=r"-w?c", options=_values("-I")),
    "php": Interpreter(r"-r", dry=r"-l", options=_values("-d -c -z", runs="-f --file")),
    "lua": Interpreter(options=_values("-l")),
    "Rscript": Interpreter(),
    "go run": Interpreter(options=_values("-tags -mod -modfile -exec")),
}

_NPM = PackageManager(
    _values("-w --workspace -F --filter --loglevel", moves="--prefix -C --dir --cwd"),
)

PROGRAMS: dict[str, Program] = {
    **WRAPPERS,
    **INTERPRETERS,
    **RUNNERS,
    **dict.fromkeys(("npm", "yarn", "pnpm", "bun run"), _NPM),
}

_VERSION = re.compile(r"(?<=[a-z])[\d.]+$")


def find_program(words: Sequence[str]) -> tuple[Program | None, list[str]]:
    """What is known of a program, by its name and first argument or by its name, and the words that follow."""
    name = posixpath.basename(words[0]) or words[0]
    both = " ".join([name, *words[1:2]])
    if both in PROGRAMS and len(words) > 1:
        return PROGRAMS[both], list(words[2:])
    return PROGRAMS.get(name) or PROGRAMS.get(_VERSION.sub("", name)), list(words[1:])


def leading_options(words: Sequence[str], options: Options) -> tuple[list[tuple[str, str]], list[str]]:
    """The options that stand first, each with its value, and the words behind them."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(words) and len(words[at]) > 1 and words[at][0] in "-+":
        word, at = words[at], at + 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if not equals and _takes_next(name, options):
            value, at = "".join(words[at : at + 1]), at + 1
        elif not equals and not word.startswith("--") and word[:2] in options:
            name, value = word[:2], word[2:]
        found.append((name, value))
    return found, list(words[at:])


def _takes_next(name: str, options: Options) -> bool:
    """`-o`, or short options in one word whose last one takes a value: `-euo pipefail`."""
    is_cluster = len(name) > 2 and not name.startswith("--") and name[:2] not in options
    return name in options or (is_cluster and name[0] + name[-1] in options)
