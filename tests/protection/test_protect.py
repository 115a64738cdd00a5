"""The files that verification consists of, derived from its commands alone."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.protection.protect import Protection, protection
from ralph.protection.runners import PACKAGE_MANAGERS, RUNNERS

TRACKED = frozenset(
    [
        "Makefile",
        "check.sh",
        "conftest.py",
        "noxfile.py",
        "tox.ini",
        "scripts/check.sh",
        "scripts/verify.py",
        "src/app.py",
        "src/test_app.py",
        "tests/conftest.py",
        "tests/data/x.json",
        "tests/test_login.py",
        "tests/unit/test_b.py",
        "web/Makefile",
        "web/package.json",
        "web/src/a.ts",
        "web/src/a.test.ts",
        "web/src/b.spec.js",
        "web/__tests__/helper.js",
        "go/a.go",
        "go/a_test.go",
        "go/testdata/in.txt",
        "crate/src/lib.rs",
        "crate/tests/it.rs",
        "php/tests/LoginTest.php",
        "php/phpunit.xml",
        "php/src/Login.php",
        "ruby/spec/login_spec.rb",
        "ruby/spec/spec_helper.rb",
        "ruby/lib/login.rb",
        "jvm/src/test/java/A.java",
        "jvm/src/main/java/A.java",
        "jvm/gradlew",
    ]
)
CONFTESTS = ["conftest.py", "tests/conftest.py"]
ALL_PYTEST = [*CONFTESTS, "src/test_app.py", "tests/test_login.py", "tests/unit/test_b.py"]
ALL_TESTS = [*CONFTESTS, "tests/data/x.json", "tests/test_login.py", "tests/unit/test_b.py"]
ALL_WEB = ["web/__tests__/helper.js", "web/src/a.test.ts", "web/src/b.spec.js"]


def protected(command: str, working_dir: str = ".") -> list[str]:
    return list(protection([(command, working_dir)], TRACKED).executed)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("./check.sh", ["check.sh"]),
        ("scripts/check.sh --all", ["scripts/check.sh"]),
        ("sh check.sh", ["check.sh"]),
        ("bash -eu -o pipefail scripts/check.sh", ["scripts/check.sh"]),
        ("python3.12 -W error scripts/verify.py", ["scripts/verify.py"]),
        (". ./check.sh", ["check.sh"]),
        ("php -f check.sh", ["check.sh"]),
        ("ruby -I lib scripts/verify.py", ["scripts/verify.py"]),
        ("cd scripts && ./check.sh && cd .. && ./check.sh", ["check.sh", "scripts/check.sh"]),
        ("sh -c 'cd scripts; ./check.sh'", ["scripts/check.sh"]),
        ("bash -euo pipefail -c './check.sh | tee log'", ["check.sh"]),
        ("x $(./check.sh) y", ["check.sh"]),
    ],
)
def test_executed_files_are_protected(command: str, expected: list[str]) -> None:
    """The program itself and the script that an interpreter runs are protected."""
    assert protected(command) == expected


@pytest.mark.parametrize(
    "command",
    [
        "grep -q x src/app.py",
        "grep -q '|' src/app.py",
        "test -f src/app.py && [ -s check.sh ]",
        "diff src/app.py check.sh",
        "ruff check src/",
        "python -m py_compile src/app.py",
        "python -c 'import src.app' src/app.py",
        "node --check web/src/a.ts",
        "bash -n check.sh",
        "php -l php/src/Login.php",
        "check.sh",
        "/check.sh",
        "$HOME/check.sh",
        "cat < check.sh > src/app.py",
        "cd $DIR && ./check.sh",
        "sh missing.sh",
        "npm run build",
        "go vet ./...",
        "# ./check.sh",
        "./check.sh 'unterminated",
        "",
    ],
)
def test_files_that_are_only_read_are_not_protected(command: str) -> None:
    """A file that a command only reads is the work itself. An unknown file is not protected."""
    assert protected(command) == []


@pytest.mark.parametrize(
    "wrapper",
    [
        "A=1 B='x y'",
        "env -u X A=1",
        "timeout -k 5 10",
        "time -p",
        "nice -n 5",
        "uv run --with x --",
        "poetry run",
        "npx --yes",
        "exec",
        "sudo -u nobody",
        "env timeout 5 nice time",
        "!",
    ],
)
def test_wrapped_commands_are_found(wrapper: str) -> None:
    """A wrapper does not count, but the command that it runs does."""
    assert protected(f"{wrapper} ./check.sh") == ["check.sh"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("pytest", ALL_PYTEST),
        ("pytest -x -k 'tests/unit' --cov src 2>&1 | tail", ALL_PYTEST),
        ("pytest .", ALL_PYTEST),
        ("py.test tests/", ALL_TESTS),
        ("pytest tests/test_login.py::TestA::test_x", [*CONFTESTS, "tests/test_login.py"]),
        ("python -m pytest tests/unit/*.py", [*CONFTESTS, "tests/unit/test_b.py"]),
        ("pytest tests/not_there_yet.py", CONFTESTS),
        ("pytest src", [*CONFTESTS, "src/test_app.py"]),
        ("uv run -m pytest tests/unit", [*CONFTESTS, "tests/unit/test_b.py"]),
        ("uv run scripts/verify.py", ["scripts/verify.py"]),
        ("coverage run -m pytest tests && coverage report", ALL_TESTS),
        ("python -m coverage run --source src -m pytest tests", ALL_TESTS),
        ("python -m unittest tests.test_login.TestA", ["tests/test_login.py"]),
        ("python -m unittest", ["src/test_app.py", "tests/test_login.py", "tests/unit/test_b.py"]),
        (
            "python -m unittest discover -s tests -p '*.py'",
            [path for path in ALL_TESTS if path != "conftest.py"],
        ),
        ("tox -e py312", [*ALL_PYTEST, "tox.ini"]),
        ("nox -s tests", [*CONFTESTS, "noxfile.py", *ALL_PYTEST[2:]]),
    ],
)
def test_the_tests_of_python(command: str, expected: list[str]) -> None:
    """Named tests, otherwise conventional ones; a test directory as a whole, and always conftest.py."""
    assert protected(command) == sorted(expected)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("npm test", ALL_WEB),
        ("npm run test:unit -- --coverage", ALL_WEB),
        ("npm --prefix web t", ALL_WEB),
        ("cd web && yarn test", ALL_WEB),
        ("pnpm run test", ALL_WEB),
        ("yarn jest spec", ["web/src/b.spec.js"]),
        ("npx jest web/src/a.test.ts", ["web/src/a.test.ts"]),
        ("npx jest --findRelatedTests web/src/a.ts", ALL_WEB),
        ("npx vitest run", ALL_WEB),
        ("node_modules/.bin/mocha 'web/**/*.test.ts'", ["web/src/a.test.ts"]),
        ("node --test web/__tests__", ["web/__tests__/helper.js"]),
        ("go test ./...", ["go/a_test.go", "go/testdata/in.txt"]),
        ("go test -run TestX ./go", ["go/a_test.go", "go/testdata/in.txt"]),
        ("cd crate && cargo test --all", ["crate/tests/it.rs"]),
        ("cd php && vendor/bin/phpunit", ["php/phpunit.xml", "php/tests/LoginTest.php"]),
        (
            "cd ruby && bundle exec rspec spec/login_spec.rb:12",
            ["ruby/spec/login_spec.rb", "ruby/spec/spec_helper.rb"],
        ),
        ("cd jvm && ./gradlew test", ["jvm/gradlew", "jvm/src/test/java/A.java"]),
        ("make -j4 test", ["Makefile"]),
        ("make -C web test", ["web/Makefile"]),
        ("make -f check.sh", ["Makefile", "check.sh"]),
    ],
)
def test_the_tests_of_other_runners(command: str, expected: list[str]) -> None:
    """Every runner has its own conventions."""
    assert protected(command) == sorted(expected)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("T=scripts/verify.py; python $T", ["scripts/verify.py"]),
        ("f() { pytest tests/unit; }; f", [*CONFTESTS, "tests/unit/test_b.py"]),
        ("for t in check scripts/check; do sh $t.sh; done", ["check.sh", "scripts/check.sh"]),
        ("sh <<'EOF'\ncd scripts\n./check.sh\nEOF", ["scripts/check.sh"]),
        ("sh < check.sh", ["check.sh"]),
        ("eval 'sh check.sh'", ["check.sh"]),
        ("echo './check.sh' | sh", ["check.sh"]),
        ("find tests -name 'test_*.py' -exec python {} +", ["tests/test_login.py"]),
        ('cd "$(git rev-parse --show-toplevel)" && ./check.sh', ["check.sh"]),
        ("cd web && $OLDPWD/check.sh", ["check.sh"]),
        ("sh {,scripts/}check.sh", ["check.sh"]),
        ("trap ./check.sh EXIT", ["check.sh"]),
        ("env -C scripts bash -euo pipefail -c './check.sh'", ["scripts/check.sh"]),
        ("uv run --directory scripts verify.py", ["scripts/verify.py"]),
        ("python -um pytest tests/unit", [*CONFTESTS, "tests/unit/test_b.py"]),
        ("coverage run -p -m pytest tests/unit", [*CONFTESTS, "tests/unit/test_b.py"]),
        ("bun run web/src/a.ts", ["web/src/a.ts"]),
        ("deno run --allow-net web/src/a.ts", ["web/src/a.ts"]),
        ('sh -c "echo \'x" ; ./check.sh', ["check.sh"]),
    ],
)
def test_a_command_is_read_as_a_shell_does(command: str, expected: list[str]) -> None:
    """Variables, functions, loops, here-documents, pipes and substitutions are followed."""
    assert protected(command) == expected


@pytest.mark.parametrize(
    "command",
    [
        "node -e \"const {run} = require('./src/app.py'); run()\"",
        "python -c \"import subprocess; subprocess.run('./src/app.py')\"",
        "cat <<'EOF'\n./check.sh\nEOF",
        "alias x='./check.sh $('",
    ],
)
def test_text_that_might_not_be_a_command_is_ignored(command: str) -> None:
    """Strings in code of other languages and printed text are ignored."""
    assert protected(command) == []


def test_commands_run_in_their_directory() -> None:
    """Paths are relative to the working directory, and results to the root."""
    assert protected("./check.sh", "scripts") == ["scripts/check.sh"]
    assert protected("make test", "web/") == ["web/Makefile"]
    assert protected("../check.sh", "web") == ["check.sh"]
    assert protected("./check.sh", "/elsewhere") == []


def test_several_commands_are_taken_together() -> None:
    """Each file is named once, in order."""
    commands = [(command, ".") for command in ("sh check.sh", "make", "./check.sh")]
    assert protection(commands, TRACKED).executed == ("Makefile", "check.sh")


def test_names_match_themselves_only() -> None:
    """Glob characters in a name are escaped."""
    tracked = {"app/[id]/x*.test.ts", "app/i/xy.test.ts"}
    found = protection([("jest 'app/[id]/x*.test.ts'", ".")], tracked)
    assert found.executed == ("app/[[]id]/x[*].test.ts",)


@pytest.mark.parametrize(
    "command",
    [
        *("make check", "just test", "task check", "npm run check", "sh check.sh", "./check.sh"),
        *("cd scripts && ./check.sh", "python scripts/verify.py", "timeout 5 sh -c 'make'"),
    ],
)
def test_behind_a_script_all_conventional_tests_are_protected(command: str) -> None:
    """It is unknown which tests a script runs, so every file named like a test counts."""
    assert protection([(command, ".")], TRACKED).by_custom == tuple(
        sorted(
            [
                *(*ALL_PYTEST, *ALL_WEB, "tests/data/x.json", "go/a_test.go", "crate/tests/it.rs"),
                *("php/tests/LoginTest.php", "ruby/spec/login_spec.rb", "ruby/spec/spec_helper.rb"),
                "jvm/src/test/java/A.java",
            ]
        )
    )


@pytest.mark.parametrize(
    "command", ["pytest", "npm test", "go test ./...", "ruff check .", "sh missing.sh", ""]
)
def test_conventions_do_not_matter_if_the_tests_are_known(command: str) -> None:
    """Only the named tests are protected, or none if none are run."""
    assert protection([(command, ".")], TRACKED).by_custom == ()


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (
            "pytest tests",
            {"conftest.py", "pytest.ini", ".pytest.ini", "sitecustomize.py", "usercustomize.py"},
        ),
        ("python -m pytest", {"pytest.py", "pytest", "conftest.py"}),
        ("python -m unittest.main", {"unittest.py", "unittest"}),
        ("make", {"GNUmakefile", "makefile", "Makefile", "conftest.py", "sitecustomize.py"}),
        ("sh check.sh", {"conftest.py", "sitecustomize.py"}),
        ("npx vitest", {"vitest.config.ts", "jest.config.js"}),
        ("cd php && phpunit", {"phpunit.xml"}),
    ],
)
def test_names_that_must_stay_unused(command: str, names: set[str]) -> None:
    """A new file that the runner reads first, or runs instead, would decide the result."""
    assert names <= set(protection([(command, ".")], TRACKED).absent)


def test_modules_of_the_project_are_not_forbidden() -> None:
    """The project's own modules can be run and extended."""
    absent = protection([("python -m src.app", "."), ("python -m app", "src")], TRACKED).absent
    assert absent == ("sitecustomize.py", "usercustomize.py")


def test_without_a_command_nothing_is_protected() -> None:
    """A task that only a judge checks has no such files."""
    assert protection([], TRACKED) == Protection()


WORDS = st.sampled_from(
    [
        *sorted(TRACKED),
        *" ".join([*RUNNERS, *PACKAGE_MANAGERS]).split(),
        *[
            "env",
            "timeout",
            "sh",
            "bash",
            "python",
            "node",
            "php",
            "uv",
            "poetry",
            "npx",
            "sudo",
            "xargs",
            "find",
        ],
        *[
            "-c",
            "-m",
            "-x",
            "--",
            "-o",
            "run",
            "test",
            "&&",
            ";",
            "|",
            "(",
            ")",
            "$(",
            "'",
            '"',
            "\\",
            "A=1",
            ">",
            "\n",
        ],
    ]
) | st.text(max_size=8)


@given(st.lists(WORDS, max_size=12), st.sampled_from([".", "web", "..", "/", "$X"]))
def test_any_command_gives_tracked_files(words: list[str], directory: str) -> None:
    """No command raises an error, and every glob matches exactly one file, a tracked one."""
    for glob in protection([(" ".join(words), directory)], TRACKED).executed:
        assert sum(fnmatchcase(path, glob) for path in TRACKED) == 1


def test_a_file_that_a_command_sources_must_not_appear() -> None:
    """`[ ! -f .env ] || . ./.env` would run what an agent writes there."""
    for command in ("[ ! -f .env ] || . ./.env; pytest", "set -a; source .env && pytest"):
        assert ".env" in protection([(command, ".")], ["tests/test_a.py"]).absent
        assert ".env" not in protection([(command, ".")], ["tests/test_a.py", ".env"]).absent
    assert "activate" not in protection([(". .venv/bin/activate && pytest", ".")], ["tests/test_a.py"]).absent
