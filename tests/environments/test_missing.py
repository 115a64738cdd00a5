"""What was missing in a copy of a project, from the output of the command that failed there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ralph.core.command_output import CommandOutput, Gap
from ralph.environments import missing
from ralph.environments.installing import installers
from ralph.environments.missing import CLEAN_COPY, WORKTREE, MissingDependency

UV = ("uv.lock", "pyproject.toml", "src/app/__init__.py", "tests/test_app.py")
NPM = ("package.json", "package-lock.json", "src/index.js", "packages/core/package.json")

NPX = f"npm error npx {'cancelled'.replace('ll', 'l')}"


def look(code: int, text: str) -> MissingDependency | None:
    return missing.look(code, CommandOutput(text))


def explained(code: int, text: str, files: tuple[str, ...] = UV) -> str:
    found = look(code, text)
    return missing.explained(found, files, WORKTREE) if found else ""


# ---- programs ----


@pytest.mark.parametrize(
    ("code", "text", "program"),
    [
        (127, "/bin/sh: 1: pytest: not found", "pytest"),
        (127, "/bin/sh: line 1: pytest: command not found", "pytest"),
        (127, "bash: line 12: pytest: command not found", "pytest"),
        (127, "sh: pytest: not found", "pytest"),
        (127, "zsh:1: command not found: pytest", "pytest"),
        (127, "./check.sh: 3: ruff: not found", "ruff"),
        (127, "scripts/check.sh: line 3: ruff: command not found", "ruff"),
        (127, "/bin/sh: 1: .venv/bin/python: not found", ".venv/bin/python"),
        (127, "/bin/sh: line 1: .venv/bin/python: No such file or directory", ".venv/bin/python"),
        (126, "/bin/sh: line 1: x/pytest: /gone/python: bad interpreter: No such file", "x/pytest"),
        (126, "/bin/sh: line 1: x/pytest: cannot execute: required file not found", "x/pytest"),
        (1, "/bin/sh: line 1: .venv/bin/activate: No such file or directory", ".venv/bin/activate"),
        (2, "/bin/sh: 1: .: cannot open .venv/bin/activate: No such file", ".venv/bin/activate"),
        (127, "> app@1.0.0 test\n> jest\n\nsh: 1: jest: not found", "jest"),
        (127, "/usr/bin/env: ‘python’: No such file or directory", "python"),
        (127, "env: 'python': No such file or directory", "python"),
        (127, "timeout: failed to run command ‘pytest’: No such file or directory", "pytest"),
        (2, "make: pytest: No such file or directory\nmake: *** [Makefile:2: test] Error 127", "pytest"),
        (2, "error: Failed to spawn: `pytest`\n  Caused by: No such file or directory", "pytest"),
        (2, "error: Failed to spawn: pytest\n  cause: No such file or directory (os error 2)", "pytest"),
        (1, "Command not found: pytest", "pytest"),
        (127, "bundler: command not found: rspec", "rspec"),
        (101, "error: no such command: `nextest`", "cargo nextest"),
    ],
)
def test_a_program_that_was_not_found(code: int, text: str, program: str) -> None:
    """The program is named as the shell or the launcher names it; the exit code of a shell makes it certain."""
    found = look(code, f"before\n{text}\n")
    assert found is not None
    assert (found.what, found.is_certain) == (program, code in (126, 127))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (1, "E   AssertionError: assert 'sh: 1: foo: not found' in out"),
        (1, "GET: /api/items: not found"),
        (1, "tests/data.txt: No such file or directory"),
        (1, "check.sh: line 4: data.txt: No such file or directory"),
        (126, "/bin/sh: 1: ./check.sh: Permission denied"),
        (127, "/bin/sh: 1: npm: not found"),
        (127, "/usr/bin/env: ‘node’: No such file or directory"),
        (1, "1 failed, 3 passed"),
        (1, ""),
    ],
)
def test_other_failures_of_commands(code: int, text: str) -> None:
    """Quoted messages, data files, permissions, and programs of the machine are not dependencies of the project."""
    assert look(code, text) is None


@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
def test_the_shells_of_this_machine(shell: str, tmp_path: Path) -> None:
    """What a real shell prints is recognised: a bare name, and a path in the project."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    for program in ("surely-missing-tool", ".venv/bin/python"):
        done = subprocess.run(
            [shell, "-c", f"{program} -q"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        found = look(done.returncode, done.stderr)
        assert found is not None and (found.what, found.is_certain) == (program, True), done.stderr


# ---- modules ----


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("ModuleNotFoundError: No module named 'requests'", "The Python module requests"),
        ("E   ModuleNotFoundError: No module named 'yaml.nodes'", "The Python module yaml"),
        ("ImportError: No module named requests", "The Python module requests"),
        ("/usr/bin/python3: No module named pytest", "The Python module pytest"),
        ("ImportError: Error importing plugin \"xdist\": No module named 'xdist'", "The Python module xdist"),
        ("ERROR: Error importing plugin \"xdist\": No module named 'xdist'", "The Python module xdist"),
        ("Error: Cannot find module 'express'", "The Node package express"),
        (
            f'{NPX} due to missing packages and no YES option: ["jest@30.5.2"]',
            "The Node package jest",
        ),
        ("    Cannot find module 'lodash/fp' from 'src/a.js'", "The Node package lodash"),
        ("Error [ERR_MODULE_NOT_FOUND]: Cannot find package '@scope/x' imported from /w/a.mjs", "@scope/x"),
        ("src/a.ts(1,20): error TS2307: Cannot find module 'zod' or its", "The Node package zod"),
        ("Error: Cannot find module '/w/node_modules/jest/bin/jest.js'", "The Node package jest"),
        ("main.go:4:2: no required module provides package github.com/x/y; to add it:", "github.com/x/y"),
        ("error: no matching package named `serde` found", "The crate serde"),
        ("error[E0463]: can't find crate for `serde`", "The crate serde"),
        ("[ERROR] Failed to execute goal on project app: Could not resolve dependencies for", "Maven"),
    ],
)
def test_a_module_that_was_not_found(text: str, what: str) -> None:
    """The package is named; the exit code does not prove that this is why the command failed."""
    found = look(1, f"Traceback (most recent call last):\n{text}\n")
    assert found is not None
    assert what in found.what and not found.is_certain


@pytest.mark.parametrize(
    "text",
    [
        "E   assert \"No module named 'x'\" in str(error)",
        "E   AssertionError: ModuleNotFoundError: No module named 'x'",
        "    raise ModuleNotFoundError(name)",
        "ModuleNotFoundError: No module named 'distutils'" if "distutils" in sys.stdlib_module_names else "",
        "ModuleNotFoundError: No module named 'tomllib'",
        "ModuleNotFoundError: No module named 'a.b'; 'a' is not a package",
        "ImportError: cannot import name 'x' from 'app' (/w/app.py)",
        "Error: Cannot find module './local'",
        "Error: Cannot find module '../lib/a.js'",
        "Error: Cannot find module '/w/src/index.js'",
        "Error: Cannot find module 'node:nothing'",
        "Error: Cannot find module '@/components/a'",
        "expect(message).toContain(\"Cannot find module 'x'\")",
        "error[E0463]: can't find crate for `std`",
        "error[E0432]: unresolved import `crate::a`",
    ],
)
def test_failures_that_are_about_the_code(text: str) -> None:
    """Quoted errors, files of the project, and modules of the language itself are not missing dependencies."""
    assert look(1, f"{text}\n") is None


def test_long_output_is_read_at_its_end() -> None:
    """The error at the end of output whose middle was dropped is recognised."""
    output = CommandOutput("start\n", "more\nModuleNotFoundError: No module named 'yaml'\n", Gap(9, 900))
    found = missing.look(1, output)
    assert found is not None and found.module == "yaml"


# ---- the project's own files ----


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("ModuleNotFoundError: No module named 'app.models'", UV),
        ("ModuleNotFoundError: No module named 'calc'", ("calc.py",)),
        ("ModuleNotFoundError: No module named 'helpers'", ("tests/helpers.py",)),
        ("ModuleNotFoundError: No module named 'space'", ("src/space/part.py",)),
        ("Error: Cannot find module '@acme/core'", NPM),
        ("a.go:3:2: no required module provides package x.org/app/internal/db", ("internal/db/db.go",)),
        ("error: no matching package named `my_lib` found", ("crates/my-lib/Cargo.toml",)),
        ("/bin/sh: 1: ./check.sh: not found", ("check.sh",)),
    ],
)
def test_what_the_project_has_itself_is_not_a_dependency(text: str, files: tuple[str, ...]) -> None:
    """Its packages, modules and scripts, also those that the agent's change has removed, get no sentence."""
    assert explained(127 if "not found" in text and "sh" in text else 1, text, files) == ""


@pytest.mark.parametrize(
    "files", [("docs/yaml/readme.md",), ("src/app/__init__.py", "src/app/yaml.py"), ("yaml.txt",)]
)
def test_files_that_cannot_be_imported_by_that_name(files: tuple[str, ...]) -> None:
    """Other directories of the same name, and modules inside a package, do not hide a missing dependency."""
    assert explained(1, "ModuleNotFoundError: No module named 'yaml'", files)


# ---- the sentence ----


def test_the_sentence_about_a_program() -> None:
    """What is missing, why, and what to set, with the command of this project."""
    assert explained(127, "/bin/sh: 1: pytest: not found") == (
        "pytest was not found in this worktree. It has the files that git knows and what is installed in your checkout;"
        ' set ralph.setup to the command that installs what the project needs, for example "uv sync"'
    )


def test_the_sentence_about_a_module_is_careful() -> None:
    """The output may quote an error, and a module may still have to be written."""
    assert explained(1, "Error: Cannot find module 'express'", NPM) == (
        "The Node package express was not found in this worktree, which has the files that git knows and what is"
        " installed in your checkout. If the project depends on it, set ralph.setup to the command that installs what the project"
        ' needs, for example "npm ci"'
    )


def test_in_a_clean_copy_setup_installs() -> None:
    """`ralph.setup` runs in clean copies too."""
    found = look(127, "sh: 1: jest: not found")
    assert found is not None
    assert missing.explained(found, NPM, CLEAN_COPY).endswith(
        'set ralph.setup to the command that installs what the project needs, for example "npm ci"'
    )


@pytest.mark.parametrize(
    ("files", "directory", "commands"),
    [
        (("requirements.txt",), ".", ["python -m venv .venv && .venv/bin/pip install -r requirements.txt"]),
        (("uv.lock", "requirements.txt"), ".", ["uv sync"]),
        (("pnpm-lock.yaml", "package.json"), ".", ["pnpm install --frozen-lockfile"]),
        (("yarn.lock", "package.json"), ".", ["yarn install --frozen-lockfile"]),
        (("yarn.lock", ".yarnrc.yml"), ".", ["yarn install --immutable"]),
        (("bun.lock", "package.json"), ".", ["bun install --frozen-lockfile"]),
        (("poetry.lock", "package-lock.json"), ".", ["poetry install", "npm ci"]),
        (("web/package-lock.json",), "web", ["npm ci"]),
        (("web/package-lock.json",), ".", []),
    ],
)
def test_the_command_depends_on_the_files(
    files: tuple[str, ...], directory: str, commands: list[str]
) -> None:
    """The best command of each ecosystem, by the files in the project's directory."""
    assert [each.command for each in installers(files, directory)] == commands


def test_the_command_is_of_the_right_ecosystem() -> None:
    """A Node program in a project with Python files too gets the Node command; without one, no example."""
    both = (*UV, *NPM)
    assert '"npm ci"' in explained(127, "sh: 1: jest: not found", both)
    assert '"uv sync"' in explained(127, "sh: 1: mypy: not found", both)
    assert "for example" not in explained(127, "sh: 1: jest: not found", UV)
    assert '"uv sync"' in explained(127, "sh: 1: some-tool: not found", both)
