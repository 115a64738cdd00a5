"""How users run their tests, what changes what is installed, and setup commands: with real package managers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conftest import Project
from environments.package_support import BROKEN, NETWORK, WORKS, Checkout, Package, checkout, writes
from environments.packages import PACKAGES

pytestmark = NETWORK

PIP, UV = PACKAGES["pip, src layout"], PACKAGES["uv"]
CODE = "src/demo/__init__.py"


def in_tree(project: Project, package: Package, code: str) -> Checkout:
    """An activated `.venv` in the checkout."""
    made = checkout(project, package, code)
    made.activate(made.path / ".venv")
    return made


def outside(project: Project, package: Package, code: str) -> Checkout:
    """An active environment outside the checkout."""
    install = package.install.replace(".venv", "../outer")
    made = checkout(project, replace_install(package, install), code)
    made.activate(made.top.parent / "outer")
    return made


def replace_install(package: Package, install: str) -> Package:
    return Package(package.files, install, package.tools, package.check, package.code, package.below)


# ---- ways to run the tests ----

ACTIVE = pytest.mark.parametrize("active", [in_tree, outside])
COMMANDS = pytest.mark.parametrize(
    "command", ["pytest -q", "python -m pytest -q", "demo", "python3 -c 'import demo; demo.main()'"]
)


@ACTIVE
@COMMANDS
def test_an_active_environment(project: Project, active: Callable[..., Checkout], command: str) -> None:
    """By its programs, by `python -m`, and by the project's own console script: broken is red, fixed is green."""
    made = active(project, PIP, WORKS)
    ended = made.work(writes(CODE, BROKEN), command)
    assert (ended.code, "RuntimeError: broken" in ended.err) == (1, True), ended.err
    made.commit({CODE: BROKEN})
    ended = made.work(writes(CODE, WORKS), command)
    assert ended.code == 0, ended.err
    assert made.is_merged(WORKS)
    assert made.is_untouched()


@ACTIVE
def test_an_active_environment_in_a_clean_copy(project: Project, active: Callable[..., Checkout]) -> None:
    """A clean guardrail that runs the active environment's pytest sees its copy."""
    made = active(project, PIP, BROKEN)
    assert made.run("true", "pytest -q").code == 1
    ended = made.run(writes(CODE, WORKS), "pytest -q && demo | grep ^$PWD/")
    assert ended.code == 0, ended.err
    assert made.is_untouched()


@pytest.mark.parametrize("command", [".venv/bin/demo", ".venv/bin/python -m pytest -q"])
def test_programs_of_an_environment_in_the_tree(project: Project, command: str) -> None:
    """Called by their relative path, without activating anything."""
    made = checkout(project, PIP)
    assert made.work(writes(CODE, BROKEN), command).code == 1
    made.commit({CODE: BROKEN})
    assert made.work(writes(CODE, WORKS), command).code == 0
    assert made.is_untouched()


@pytest.mark.parametrize("where", ["work", "run"])
def test_a_project_in_a_subdirectory(project: Project, where: str) -> None:
    """`backend/` in a repository, with its own settings and `.venv`."""
    package = Package(PIP.files, PIP.install, PIP.tools, PIP.check, PIP.code, below="backend")
    made = checkout(project, package)
    do = made.work if where == "work" else made.run
    ended = do(writes(CODE, BROKEN))
    assert (ended.code, "RuntimeError: broken" in ended.err) == (1, True), ended.err
    made.commit({CODE: BROKEN})
    ended = do(writes(CODE, WORKS))
    assert ended.code == 0, ended.err
    assert made.is_untouched()


# ---- what is installed changes ----

NEEDS = WORKS.replace("def answer", "import itsdangerous\n\n\ndef answer")
DEPENDS = "sed -i 's/^dependencies = .*/dependencies = [\"itsdangerous\"]/' pyproject.toml"
ADDS = {
    "pip": (PIP, DEPENDS),
    "requirements.txt": (
        Package(
            {
                "conftest.py": "",
                "requirements.txt": "pytest\n",
                "tests/test_demo.py": PIP.files["tests/test_demo.py"],
            },
            '"$PY" -m venv --without-pip .venv\nuv pip install -q --python .venv/bin/python -r requirements.txt',
            check="PYTHONPATH=src .venv/bin/pytest -q",
        ),
        "echo itsdangerous >> requirements.txt",
    ),
    "uv": (UV, f"{DEPENDS}\nuv lock -q"),
    "uv run": (PACKAGES["uv run"], f"{DEPENDS}\nuv lock -q"),
    "poetry": (PACKAGES["poetry"], f"{DEPENDS}\npoetry lock -q"),
}
OFF: dict[str, Any] = {"protect": []}


@pytest.mark.parametrize("kind", ADDS)
def test_a_new_dependency(project: Project, kind: str) -> None:
    """It is installed for the checks alone if the task requires it; without that, its import is red."""
    package, add = ADDS[kind]
    made = checkout(project, package)
    assert made.work(writes(CODE, NEEDS), **OFF).code == 1
    ended = made.work(f"{add}\n{writes(CODE, NEEDS)}", **OFF)
    assert ended.code == 0, ended.err
    assert made.is_merged(NEEDS)
    assert made.is_untouched()


def test_a_new_dependency_in_a_clean_copy(project: Project) -> None:
    """A dependency that the agent has not installed is red if the project does not list it, and installed if it does."""
    made = checkout(project, PIP)
    ended = made.run(writes(CODE, NEEDS))
    assert (ended.code, "The Python module itsdangerous was not found" in ended.err) == (1, True), ended.err
    ended = made.run(DEPENDS)
    assert ended.code == 0, ended.err
    assert made.is_untouched()


@pytest.mark.parametrize("kind", ["pip", "uv"])
def test_a_new_entry_point(project: Project, kind: str) -> None:
    """A console script that the agent adds can be run by the check."""
    made = checkout(project, {"pip": PIP, "uv": UV}[kind])
    add = "sed -i 's/^demo = .*/&\\nsecond = \"demo:main\"/' pyproject.toml"
    assert made.work(f"{writes(CODE, WORKS)}\necho x > y", ".venv/bin/second", **OFF).code == 1
    ended = made.work(add, ".venv/bin/second", **OFF)
    assert ended.code == 0, ended.err
    assert made.is_untouched()


def test_what_is_installed_is_shared(project: Project) -> None:
    """Two tasks with the same requirements install them once; the second imports its own files."""
    made = checkout(project, PIP)
    assert made.work(f"{DEPENDS}\n{writes(CODE, BROKEN)}", **OFF).code == 1
    ended = made.work(f"{DEPENDS}\n{writes(CODE, NEEDS)}", **OFF)
    assert ended.code == 0, ended.err
    assert "Dependencies have changed" not in ended.err
    assert made.is_merged(NEEDS)


@pytest.mark.parametrize(
    "damage", ["[project", '[project]\nname = 1\n[build-system]\nrequires = ["nowhere-to-be-found-x"]']
)
def test_a_broken_pyproject(project: Project, damage: str) -> None:
    """The check is red with one sentence, and `ralph work` ends as it does for any failed task."""
    made = checkout(project, PIP)
    ended = made.work(writes("pyproject.toml", f"{damage}\n"), ".venv/bin/demo", iterations=2, **OFF)
    assert ended.code == 1, ended.err
    assert "Traceback" not in ended.err + ended.out
    assert "cannot be read" in ended.err or "pip install failed for the copy" in ended.err


# ---- files that a build writes ----

_SCM = {
    "setuptools_scm": (
        "setuptools.build_meta",
        '"setuptools>=80", "setuptools_scm"',
        "[tool.setuptools_scm]\nversion_file",
    ),
    "hatch-vcs": (
        "hatchling.build",
        '"hatchling", "hatch-vcs"',
        '[tool.hatch.version]\nsource = "vcs"\n[tool.hatch.build.targets.wheel]\npackages = ["src/demo"]\n'
        "[tool.hatch.build.hooks.vcs]\nversion-file",
    ),
}


@pytest.mark.parametrize("kind", _SCM)
@pytest.mark.parametrize("where", ["work", "run"])
def test_a_version_file(project: Project, kind: str, where: str) -> None:
    """A package that imports the file with its version, which git ignores, works in a copy."""
    backend, requires, table = _SCM[kind]
    pyproject = PIP.files["pyproject.toml"].partition("[project]")
    text = (
        f'[build-system]\nrequires = [{requires}]\nbuild-backend = "{backend}"\n{pyproject[1]}{pyproject[2]}'
    )
    text = text.replace('version = "1.0"', 'dynamic = ["version"]') + f'{table} = "src/demo/_version.py"\n'
    install = f"git tag v1.0\necho /src/demo/_version.py >> .git/info/exclude\n{PIP.install}"
    made = checkout(project, Package({**PIP.files, "pyproject.toml": text}, install, PIP.tools))
    uses = WORKS.replace("def answer", "from demo._version import __version__\n\n\ndef answer")
    do = made.work if where == "work" else made.run
    ended = do(writes(CODE, uses))
    assert ended.code == 0, ended.err
    assert made.is_untouched()


# ---- ralph.setup ----

VENV = '"$PY" -m venv .venv && .venv/bin/pip install -q -e . pytest'
SETUPS = {
    "venv and pip": (PIP, VENV),
    "uv sync": (UV, "uv sync -q"),
    "uv venv": (PIP, "uv venv -q && uv pip install -q -e . pytest"),
}


@pytest.mark.parametrize("where", ["work", "run"])
@pytest.mark.parametrize("kind", SETUPS)
def test_a_setup_command(project: Project, kind: str, where: str) -> None:
    """It makes an environment in every copy, and the user's stays as it is."""
    package, setup = SETUPS[kind]
    made = checkout(project, package)
    made.package = Package(package.files, "", package.tools, package.check, setup=setup)
    do = made.work if where == "work" else made.run
    ended = do(writes(CODE, BROKEN), f"{package.check} tests/test_demo.py")
    assert (ended.code, "RuntimeError: broken" in ended.err) == (1, True), ended.err
    made.commit({CODE: BROKEN})
    ended = do(writes(CODE, WORKS))
    assert ended.code == 0, ended.err
    assert made.is_untouched()


@ACTIVE
@pytest.mark.parametrize(
    "setup", ["pip install -q -e .", "python -m pip install -q -e .", "uv pip install -q -e ."]
)
def test_a_setup_command_in_an_active_environment(
    project: Project, active: Callable[..., Checkout], setup: str
) -> None:
    """`pip install -e .` installs into the layer: not one byte of the user's environment changes."""
    package = replace_install(PIP, PIP.install.replace("--without-pip ", ""))
    made = active(project, package, WORKS)
    made.package = Package(PIP.files, "", PIP.tools, "pytest -q", setup=setup)
    ended = made.work(writes(CODE, BROKEN), "pytest -q tests/test_demo.py")
    assert (ended.code, "RuntimeError: broken" in ended.err) == (1, True), ended.err
    made.commit({CODE: BROKEN})
    ended = made.work(writes(CODE, WORKS))
    assert ended.code == 0, ended.err
    assert made.is_untouched()


def test_a_changed_setup_command(project: Project) -> None:
    """A task that failed with the old command is taken up with the new one, in the same worktree."""
    made = checkout(project, PIP)
    made.package = Package(PIP.files, "", PIP.tools, "cat made-by-setup", setup="exit 1")
    ended = made.work(writes(CODE, BROKEN))
    assert "ralph.setup failed" in ended.err
    made.package = Package(PIP.files, "", PIP.tools, "cat made-by-setup", setup="echo 1 > made-by-setup")
    ended = made.work(writes(CODE, WORKS + "\n"))
    assert ended.code == 0, ended.err
