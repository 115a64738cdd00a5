"""What to put back and what to remove, so that the tests of the start run on the new work."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from protection.tree_support import Tree, changed, look
from ralph.protection.old_tests import (
    ProtectRules,
    SecondLook,
    changed_tests,
    may_run_tests,
    second_look,
)

PYTHON = {
    "calc.py": "def add(a, b): ...\n",
    "conftest.py": "",
    "tests/helpers.py": "",
    "tests/test_a.py": "def test_a(): assert 1\n",
    "tests/test_b.py": "",
    "pyproject.toml": '[project]\nname = "x"\ndependencies = []\n\n[tool.pytest.ini_options]\naddopts = "-q"\n',
}
NOTHING = SecondLook()
PACKAGE = {
    "name": "x",
    "scripts": {"build": "tsc", "test": "node --test", "test:unit": "vitest run src"},
    "dependencies": {},
}


def package(**changes: object) -> str:
    return json.dumps({**PACKAGE, **changes})


def put_back(command: str, old: dict[str, str], new: dict[str, str | None]) -> list[str]:
    found = look(command, old, new)
    assert found.changed == found.put_back and not found.edited and not found.removed
    assert found.commands == ((0,) if found.put_back else ())
    return list(found.put_back)


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("pytest", "tests/test_a.py"),
        ("python -m pytest tests", "tests/test_a.py"),
        ("uv run pytest -x tests/test_a.py", "tests/test_a.py"),
        ("python -m unittest discover", "tests/test_a.py"),
        ("python -m unittest tests.test_a", "tests/test_a.py"),
        ("npx jest", "src/a.test.js"),
        ("npx vitest run", "src/a.spec.ts"),
        ("npx mocha", "test/a.js"),
        ("node --test", "test/a.js"),
        ("node --test", "src/a-test.mjs"),
        ("go test ./...", "pkg/a_test.go"),
        ("cargo test", "tests/it.rs"),
        ("mvn -q verify", "src/test/java/ATest.java"),
        ("vendor/bin/phpunit", "tests/ATest.php"),
        ("make test", "tests/anything.txt"),
        ("make", "Makefile"),
        ("sh check.sh", "check.sh"),
        ("./check.sh", "check.sh"),
        ("cd web && npm test", "web/a.test.js"),
        ("npm run test:unit", "src/a.test.ts"),
        ("npm t", "a.spec.js"),
    ],
)
def test_a_changed_test_is_put_back(command: str, path: str) -> None:
    """The tests that a command executes are put back when they are changed or deleted, with what runs them."""
    old = {path: "old", "src/main.x": "", "Makefile": "x", "check.sh": "x", "vendor/bin/phpunit": ""}
    old |= {"web/package.json": "{}"}
    old[path] = "old"
    assert put_back(command, old, {path: "new"}) == [path]
    assert put_back(command, old, {path: None}) == [path]
    assert put_back(command, old, {"src/main.x": "new"}) == []


@pytest.mark.parametrize("path", ["tests/helpers.py", "conftest.py", "tests/data/x.json", "pytest.ini"])
def test_helpers_and_configuration_belong_to_the_tests(path: str) -> None:
    """What lies next to tests, and what configures their runner, is put back too, even with plain `pytest`."""
    old = {**PYTHON, "tests/data/x.json": "{}", "pytest.ini": "[pytest]\n"}
    assert put_back("pytest", old, {path: "new"}) == [path]


@pytest.mark.parametrize(
    "command",
    ["ruff check tests", "mypy .", "cargo clippy", "grep -q x tests/test_a.py", "npm run build", ""],
)
def test_commands_without_tests_have_no_second_look(command: str) -> None:
    """Linters and builds only read tests, so changed tests do not concern them."""
    old = {**PYTHON, "package.json": package()}
    assert look(command, old, {"tests/test_a.py": "new"}) == NOTHING


def test_only_the_commands_of_touched_tests_run_again() -> None:
    """A command whose tests are as they were does not run."""
    old = {"tests/test_a.py": "", "web/a.test.js": "", "web/package.json": "{}"}
    commands = ["ruff check", "pytest", "cd web && npx jest"]
    found = second_look(commands, changed(old, {"web/a.test.js": "new"}), ProtectRules())
    assert (found.commands, found.changed) == ((2,), ("web/a.test.js",))


def test_new_tests_are_free() -> None:
    """Work with new tests, and new helpers for them, needs no second look."""
    new = {"tests/test_new.py": "", "tests/new/conftest.py": "x", "tests/new/test_x.py": "", "calc.py": "new"}
    assert look("pytest", PYTHON, new) == NOTHING


@pytest.mark.parametrize(
    "path",
    [
        "tests/conftest.py",
        "sitecustomize.py",
        "src/usercustomize.py",
        "pytest.ini",
        ".pytest.ini",
        "pytest.py",
        "_pytest/__init__.py",
        "tests/__init__.py",
    ],
)
def test_new_configuration_of_old_tests_is_removed(path: str) -> None:
    """A new file that changes how old tests run is not in the copy; new tests in its scope are not there either."""
    found = look("python -m pytest", PYTHON, {path: "import os\n"})
    assert found == SecondLook(removed=(path,), commands=(0,), changed=(path,))


def test_new_tests_leave_with_the_configuration_that_they_need() -> None:
    """They may need its fixtures. A test that the command names stays, because the command fails without it."""
    new = {"tests/conftest.py": "x", "tests/test_new.py": "", "other/test_far.py": ""}
    assert look("pytest", PYTHON, new).removed == ("tests/conftest.py", "tests/test_new.py")
    assert look("pytest tests tests/test_new.py::test_x", PYTHON, new).removed == ("tests/conftest.py",)
    assert look(
        "python -m unittest tests.test_new tests.test_a", PYTHON, {**new, "tests/helpers.py": "x"}
    ) == (SecondLook(put_back=("tests/helpers.py",), commands=(0,), changed=("tests/helpers.py",)))


@pytest.mark.parametrize("path", ["conftest.py", "tests/helpers.py"])
def test_new_tests_leave_when_a_helper_is_put_back(path: str) -> None:
    """A new test may use what was added to a helper; whether old tests pass can be seen without it."""
    found = look("pytest", PYTHON, {path: "def fixture(): ...\n", "tests/test_new.py": ""})
    assert (found.put_back, found.removed) == ((path,), ("tests/test_new.py",))


def test_new_tests_stay_when_only_tests_are_put_back() -> None:
    """They count for coverage, for example."""
    found = look("pytest", PYTHON, {"tests/test_a.py": "new", "tests/test_new.py": ""})
    assert (found.put_back, found.removed) == (("tests/test_a.py",), ())


def test_a_moved_test_is_there_only_once() -> None:
    """A runner may refuse two tests with one name, or two copies of one test."""
    moved = {"tests/test_a.py": None, "tests/unit/test_a.py": PYTHON["tests/test_a.py"]}
    assert look("pytest", PYTHON, moved).removed == ("tests/unit/test_a.py",)
    renamed = changed(PYTHON, {"tests/test_b.py": None, "tests/test_c.py": ""})
    change = replace(renamed, renamed={"tests/test_b.py": "tests/test_c.py"})
    found = second_look(["pytest"], change, ProtectRules())
    assert (found.put_back, found.removed) == (("tests/test_b.py",), ("tests/test_c.py",))


def test_an_empty_package_file_is_harmless() -> None:
    """A new `__init__.py` that contains no code only makes a package."""
    assert look("pytest", PYTHON, {"tests/__init__.py": "# tests\n\n"}) == NOTHING


def test_a_first_makefile_is_needed() -> None:
    """Without it the command cannot run; but one that hides another is removed."""
    assert look("make test", {"tests/test_a.py": ""}, {"Makefile": "test:\n"}) == NOTHING
    found = look("make test", {"tests/test_a.py": "", "Makefile": "test:\n"}, {"GNUmakefile": "test:\n"})
    assert found.removed == ("GNUmakefile",)


def test_a_first_file_of_another_program_is_not_needed() -> None:
    """A new `tox.ini` configures pytest; only tox cannot run without it."""
    new = {"tox.ini": "[pytest]\naddopts = --collect-only\n"}
    assert look("pytest", PYTHON, new).edited == (("tox.ini", "\n"),)
    assert look("tox", PYTHON, new) == NOTHING


# ---- files that configure more than tests ----


def test_a_new_dependency_changes_no_tests() -> None:
    """Only the keys of the runner count in `pyproject.toml` and `package.json`."""
    toml = PYTHON["pyproject.toml"].replace("[]", '["rich"]')
    assert look("pytest", PYTHON, {"pyproject.toml": toml}) == NOTHING
    old = {"package.json": package(), "a.test.js": ""}
    assert look("npm test", old, {"package.json": package(dependencies={"left-pad": "1"})}) == NOTHING


def test_only_the_test_keys_are_put_back() -> None:
    """The rest of the file stays as the agent made it."""
    toml = PYTHON["pyproject.toml"].replace("[]", '["rich"]').replace('"-q"', '"-k nothing"')
    found = look("pytest", PYTHON, {"pyproject.toml": toml})
    assert found.edited == (("pyproject.toml", PYTHON["pyproject.toml"].replace("[]", '["rich"]')),)
    assert (found.changed, found.put_back) == (("pyproject.toml",), ())


@pytest.mark.parametrize(
    ("command", "scripts", "is_touched"),
    [
        ("npm test", {**PACKAGE["scripts"], "test": "true"}, True),  # type: ignore[dict-item]
        ("npm test", {**PACKAGE["scripts"], "pretest": "rm -r src"}, True),  # type: ignore[dict-item]
        ("npm test", {**PACKAGE["scripts"], "build": "vite"}, False),  # type: ignore[dict-item]
        ("npm test", {**PACKAGE["scripts"], "test:unit": "true"}, False),  # type: ignore[dict-item]
        ("npm run test:unit", {**PACKAGE["scripts"], "test:unit": "true"}, True),  # type: ignore[dict-item]
        ("npm run build", {**PACKAGE["scripts"], "build": "true"}, False),  # type: ignore[dict-item]
    ],
)
def test_the_script_that_runs_tests_counts(command: str, scripts: dict[str, str], is_touched: bool) -> None:
    """Of the scripts of a `package.json`, those count that the command runs, if they run tests."""
    old = {"package.json": package(), "src/a.test.ts": ""}
    found = look(command, old, {"package.json": package(scripts=scripts)})
    assert bool(found.edited) is is_touched
    if is_touched:
        assert json.loads(found.edited[0][1])["scripts"] == PACKAGE["scripts"]


def test_a_script_is_read_for_its_runner() -> None:
    """`npm test` runs what the old `package.json` says: here `node --test`, so files in `test/` are tests."""
    old = {"package.json": package(), "test/a.js": ""}
    assert put_back("npm test", old, {"test/a.js": "new"}) == ["test/a.js"]


def test_a_whole_file_is_put_back_if_its_keys_cannot_be() -> None:
    """A form that the editor does not know: the old file is used."""
    dotted = 'tool.pytest.ini_options.addopts = "-k nothing"\n'
    assert put_back("pytest", PYTHON, {"pyproject.toml": dotted}) == ["pyproject.toml"]
    pom = "<project><properties><skipTests>{}</skipTests></properties></project>"
    old = {"pom.xml": pom.format("false"), "src/test/java/A.java": ""}
    assert put_back("mvn test", old, {"pom.xml": pom.format("true")}) == ["pom.xml"]


def test_new_keys_in_a_new_file_are_taken_out() -> None:
    """A file that did not exist had no test keys."""
    old = {key: text for key, text in PYTHON.items() if key != "pyproject.toml"}
    found = look("pytest", old, {"pyproject.toml": PYTHON["pyproject.toml"]})
    assert found.edited == (("pyproject.toml", '[project]\nname = "x"\ndependencies = []\n\n'),)


def test_an_unknown_runner_of_a_test_script() -> None:
    """Then every file that is named like a test counts."""
    old = {"package.json": package(scripts={"test": "wrapped --fast"}), "test/a.js": ""}
    assert put_back("npm test", old, {"test/a.js": "new"}) == ["test/a.js"]


# ---- scripts ----


def test_sourced_and_linked_scripts_count() -> None:
    """A check script is also what it sources, and the file that a link leads to."""
    old = {
        "check.sh": "set -e\n. ./ci/lib.sh\nrun_tests\n",
        "ci/lib.sh": "run_tests() { pytest spec_dir/; }\n",
        "go": "-> ci/real.sh",
        "ci/real.sh": "#!/bin/sh\nsource ci/lib.sh\n",
    }
    for command in ("sh check.sh", "bash go", "./go"):
        assert put_back(command, old, {"ci/lib.sh": "true\n"}) == ["ci/lib.sh"]
    assert put_back("./go", old, {"ci/real.sh": "true\n"}) == ["ci/real.sh"]
    assert put_back("./go", old, {"go": "-> ci/other.sh", "ci/other.sh": ""}) == ["go"]
    assert put_back("./go", old, {"go": None}) == ["go"]
    assert put_back("./go", old, {"check.sh": "true\n"}) == []


@pytest.mark.parametrize(
    "command", ["sh greet.sh | grep -q Hello", "./greet.sh", "python app.py", 'test "$(sh greet.sh)" = Hi']
)
def test_a_script_may_be_the_work_itself(command: str) -> None:
    """A script that neither looks like a check nor runs tests is not put back."""
    old = {"greet.sh": "#!/bin/sh\necho Hi\n", "app.py": "", "tests/test_a.py": ""}
    assert look(command, old, {"greet.sh": "new", "app.py": "new", "tests/test_a.py": "new"}) == NOTHING


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("sh run_tests.sh", "run_tests.sh"),
        ("python scripts/verify.py", "scripts/verify.py"),
        ("./ci/all", "ci/all"),
        ("python manage.py test", "tests/test_a.py"),
        ("sh go", "go"),
        ("sh go", "tests/test_a.py"),
    ],
)
def test_a_script_may_be_a_check(command: str, path: str) -> None:
    """By its name, by a word that it gets, or because it runs tests."""
    old = {"run_tests.sh": "", "scripts/verify.py": "", "ci/all": "", "manage.py": "", "go": "pytest"}
    assert put_back(command, old | {"tests/test_a.py": ""}, {path: "new"}) == [path]


# ---- what the user says ----


def test_allowed_files_count_as_new() -> None:
    """They are not put back, and leave like new tests if something that they may need is put back."""
    new: dict[str, str | None] = {"tests/test_a.py": "new", "tests/test_b.py": None}
    assert look("pytest", PYTHON, new, ProtectRules(allowed=("tests/**",))) == NOTHING
    assert look("pytest", PYTHON, new, ProtectRules(allowed=("test_b.py",))).put_back == ("tests/test_a.py",)
    both = look("pytest", PYTHON, new | {"conftest.py": "x"}, ProtectRules(allowed=("tests/",)))
    assert (both.put_back, both.removed) == (("conftest.py",), ("tests/test_a.py",))


def test_globs_replace_the_default() -> None:
    """Only files that match are tests; the configuration of their runner still counts."""
    rules = ProtectRules(globs=("tests/test_b.py",))
    assert look("pytest", PYTHON, {"tests/test_a.py": "new"}, rules) == NOTHING
    assert look("pytest", PYTHON, {"tests/test_b.py": "new"}, rules).put_back == ("tests/test_b.py",)
    assert look("pytest", PYTHON, {"conftest.py": "new"}, rules).put_back == ("conftest.py",)
    assert look("pytest", PYTHON, {"tests/conftest.py": "new"}, rules).removed == ("tests/conftest.py",)
    assert look("pytest", PYTHON, {"tests/test_b.py": None}, ProtectRules(globs=())) == NOTHING


def test_paths_start_at_the_top_or_in_the_project() -> None:
    """A project inside a repository: commands run in it, and globs may be relative to either."""
    old = {"app/tests/test_a.py": "", "app/x.py": ""}
    new = {"app/tests/test_a.py": "new"}
    assert look("pytest tests", old, new, ProtectRules(project="app")).put_back == ("app/tests/test_a.py",)
    for glob in ("tests/*.py", "app/tests/", "test_?.py", "**/test_[ab].py"):
        assert look("pytest", old, new, ProtectRules(None, (glob,), "app")) == NOTHING
    for glob in ("tests/*.txt", "test", "x/**", "test_[!a].py"):
        assert look("pytest", old, new, ProtectRules(None, (glob,), "app")) != NOTHING


SCRIPTS = {
    "go.sh": "exec pytest\n",
    "greet.sh": "echo Hi\n",
    "check.sh": "",
    "ci.sh": "",
    "package.json": package(),
}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        *(
            (each, True)
            for each in ("pytest -q", "make test", "./check.sh", "sh ci.sh", "npm test", "go test ./...")
        ),
        ("sh go.sh", True),
        ("sh greet.sh", False),
        *(
            (each, False)
            for each in ("ruff check .", "test -f done", "grep -q x y", "cargo fmt --check", "true")
        ),
    ],
)
def test_commands_that_may_run_tests(command: str, expected: bool) -> None:
    """Decided before a run, from the content of scripts."""
    assert may_run_tests([command], Tree(SCRIPTS)) is expected


def test_changed_tests_are_named() -> None:
    """Of changed paths: tests by their names, and what the checks execute."""
    paths = ["README.md", "check.sh", "src/a.py", "tests/test_a.py", "x/b.spec.ts"]
    assert changed_tests([], paths) == ["tests/test_a.py", "x/b.spec.ts"]
    assert changed_tests(["sh check.sh"], paths) == ["check.sh", "tests/test_a.py", "x/b.spec.ts"]
