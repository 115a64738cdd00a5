"""Test keys of configuration files, put back as they were."""

from __future__ import annotations

import configparser
import json
import tomllib

import pytest

from ralph.protection.configuration import CONFIGURATION, directory_of, keys_of, with_old_keys
from ralph.protection.runners import PACKAGE_MANAGERS, RUNNERS

ALL = keys_of(CONFIGURATION, ["test", "pretest"])


def restored(path: str, old: str | None, new: str) -> str | None:
    return with_old_keys(ALL, path, old, new)


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        (
            "setup.cfg",
            "[metadata]\nname = x\n[tool:pytest]\naddopts = -q\n  --strict\n",
            "[tool:pytest]\naddopts = -k none\n[metadata]\nname = y\n",
            "[metadata]\nname = y\n[tool:pytest]\naddopts = -q\n  --strict\n",
        ),
        (
            "tox.ini",
            "[testenv]\ndeps = a\ncommands =\n    pytest\n    coverage report\n",
            "[testenv]\ncommands = true\ndeps =\n    a\n    b\n",
            "[testenv]\ncommands =\n    pytest\n    coverage report\ndeps =\n    a\n    b\n",
        ),
        (
            "Cargo.toml",
            '[package]\nname = "x"\n\n[[test]]\nname = "it"\n',
            '[package]\nname = "x"\nautotests = false\n\n[dependencies]\nrand = "1"\n',
            '[package]\nname = "x"\n\n[dependencies]\nrand = "1"\n\n[[test]]\nname = "it"\n',
        ),
        (
            "Cargo.toml",
            '[lib]\nname = "x"\ntest = true\n',
            '[lib]\nname = "y"\ntest = false\n',
            '[lib]\ntest = true\nname = "y"\n',
        ),
        ("web/.npmrc", "save-exact=true\n", "save-exact=true\nscript-shell=/bin/true\n", "save-exact=true\n"),
        (".npmrc", None, "script-shell=/bin/true\n", ""),
        (
            ".cargo/config.toml",
            None,
            '[target.x]\nrunner = "true"\n[net]\noffline = true\n',
            "[net]\noffline = true\n",
        ),
        (
            "pyproject.toml",
            "[tool.coverage.report]\nfail_under = 90\n",
            '[tool.coverage.report]\nfail_under = 1\n\n[tool.ruff]\nselect = [\n    "E",\n]\n',
            '[tool.ruff]\nselect = [\n    "E",\n]\n[tool.coverage.report]\nfail_under = 90\n',
        ),
    ],
)
def test_keys_are_put_back_in_the_text(path: str, old: str | None, new: str, expected: str) -> None:
    """Everything else keeps its new value."""
    found = restored(path, old, new)
    assert found is not None
    assert [line for line in found.splitlines() if line] == [line for line in expected.splitlines() if line]
    if path.endswith(".toml"):
        assert tomllib.loads(found) == tomllib.loads(expected)
    elif path.endswith((".ini", ".cfg")):
        parser = configparser.RawConfigParser()
        parser.read_string(found)


def test_scripts_and_tables_of_a_package_are_put_back() -> None:
    """The text is new, with the keys in the same order."""
    old = {"scripts": {"test": "jest"}, "jest": {"bail": 1}}
    new = {"name": "x", "scripts": {"start": "node .", "test": "true", "pretest": "rm -r a"}, "jest": {}}
    found = restored("package.json", json.dumps(old), json.dumps(new))
    expected = {"name": "x", "scripts": {"start": "node .", "test": "jest"}, "jest": {"bail": 1}}
    assert found is not None
    assert json.loads(found) == expected


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("pyproject.toml", "[tool.pytest]\na = 1\n", "tool.pytest.a = 2\n"),
        ("pyproject.toml", "[tool.pytest]\na = 1\n", "not toml"),
        ("pyproject.toml", "not toml", "[tool.pytest]\na = 1\n"),
        ("package.json", "{}", "[]"),
        ("setup.cfg", "[tool:pytest]\na = 1\n", "no section\n"),
        ("pom.xml", "<skipTests>false</skipTests>", "<skipTests>true</skipTests>"),
        (
            "pom.xml",
            "<p/>",
            "<plugin><groupId>maven-surefire-plugin</groupId><excludes>*</excludes></plugin>",
        ),
        ("build.gradle", "test {\n  useJUnitPlatform()\n}\n", "test { enabled = false }\n"),
        ("build.gradle.kts", "", "tasks.withType<Test> { enabled = false }"),
        ("vite.config.ts", "export default {}", "export default { test: { exclude: ['**'] } }"),
    ],
)
def test_whole_old_files_where_the_text_cannot_be_edited(path: str, old: str, new: str) -> None:
    """The answer is that the old file is needed; unparsable text is never taken for unchanged keys."""
    assert restored(path, old, new) is None


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("pyproject.toml", "[tool.pytest]\na = 1 # one\n", "[project]\nx = 1\n[tool.pytest]\na = 1\n"),
        ("package.json", '{"jest": {}}', '{"jest": {}, "dependencies": {"a": "1"}}'),
        ("pom.xml", "<p><!-- <skipTests>true</skipTests> --></p>", "<p><dependency/></p>"),
        ("build.gradle", "test { a }", "dependencies { testImplementation 'x' }\ntest {\n a\n}"),
        ("vite.config.js", "export default {}", "export default { plugins: [] }"),
        ("pyproject.toml", "not toml", "not toml"),
        ("tox.ini", "[tox]\nenvlist = a\n", "[tox]\nenvlist = b\n"),
    ],
)
def test_the_same_keys_need_no_change(path: str, old: str, new: str) -> None:
    """The text stays, whatever else is different."""
    assert restored(path, old, new) == new


def test_every_runner_of_the_table_is_known() -> None:
    """The keys are listed by the names that the table of runners has."""
    assert set(CONFIGURATION) <= {*RUNNERS, *PACKAGE_MANAGERS}


def test_the_directory_of_a_configuration() -> None:
    """A file in a directory for configuration belongs to the directory above."""
    assert directory_of("a/.cargo/config.toml", ALL) == "a"
    assert directory_of(".cargo/config.toml", ALL) == ""
    assert directory_of("a/b/pyproject.toml", ALL) == "a/b"
    assert directory_of("tests/x.py", ALL) == "tests"
