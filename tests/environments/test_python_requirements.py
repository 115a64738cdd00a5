"""What a project requires, and whether a copy requires something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from environments.python_support import Place, dist_info, path_line, place
from ralph.environments import python
from ralph.environments.base import NotPrepared
from ralph.environments.python_install import to_install
from ralph.environments.python_installed import normal, versions_of
from ralph.environments.python_requirements import (
    in_use_among,
    project_at,
    requirements,
    version_files,
)

PROJECT = (
    '[project]\nname = "demo"\nversion = "1.0"\ndependencies = ["a"]\n[build-system]\nrequires = ["x"]\n'
)


def changed(made: Place) -> list[str]:
    """The files that require something else in the copy than in the user's checkout."""
    found = to_install(made.copy, made.installed)
    return list(found.files) if found is not None and found.is_changed else []


@pytest.fixture
def made(tmp_path: Path) -> Place:
    found = place(tmp_path)
    path_line(found.site, found.source)
    for top in (found.origin, found.top):
        (top / "pyproject.toml").write_text(PROJECT)
    return found


@pytest.mark.parametrize(
    "change",
    [
        'name = "demo" ->name = "other"',
        'dependencies = ["a"]->dependencies = ["a", "b"]',
        'dependencies = ["a"]->dependencies = ["a"]\nscripts = { x = "demo:x" }',
        'dependencies = ["a"]->dependencies = ["a"]\noptional-dependencies = { x = ["b"] }',
        'dependencies = ["a"]->dependencies = ["a"]\nentry-points = { x = { y = "demo:y" } }',
        'requires = ["x"]->requires = ["y"]',
        '[build-system]->[dependency-groups]\ndev = ["b"]\n[build-system]',
        '[build-system]->[tool.uv.sources]\na = { path = "a" }\n[build-system]',
        '[build-system]->[tool.setuptools.packages.find]\nwhere = ["lib"]\n[build-system]',
    ],
)
def test_a_change_of_what_is_installed(made: Place, change: str) -> None:
    """Dependencies, entry points, groups, the build and its settings."""
    old, new = change.replace(" ->", "->").split("->")
    (made.top / "pyproject.toml").write_text(PROJECT.replace(old, new))
    assert changed(made) == ["pyproject.toml"]


@pytest.mark.parametrize(
    "text",
    [
        PROJECT.replace("1.0", "2.0"),
        PROJECT + '[tool.ruff]\nline-length = 100\n[tool.pytest.ini_options]\naddopts = "-q"\n',
        "# a comment\n" + PROJECT,
        PROJECT.replace("[project]\n", '[project]\ndescription = "x"\n'),
        PROJECT.replace("\n", "\r\n"),
    ],
)
def test_a_change_of_something_else(made: Place, text: str) -> None:
    """The version, the description, comments and settings of tools install nothing."""
    (made.top / "pyproject.toml").write_text(text)
    assert not changed(made)


@pytest.mark.parametrize(
    ("name", "then", "now"),
    [
        ("requirements.txt", "a\n", "a\nb\n"),
        ("requirements-dev.txt", "", "b\n"),
        ("dev_requirements.in", "", "b\n"),
        ("requirements/test.txt", "a\n", "b\n"),
        ("uv.lock", "a", "b"),
        ("poetry.lock", "a", "b"),
        ("pdm.lock", "a", "b"),
        ("Pipfile", "a", "b"),
        ("setup.py", "a", "b"),
        ("setup.cfg", "[options]\ninstall_requires = a\n", "[options]\ninstall_requires = b\n"),
        ("setup.cfg", "[options.extras_require]\nx = a\n", "[options.extras_require]\nx = b\n"),
    ],
)
def test_files_with_requirements(made: Place, name: str, then: str, now: str) -> None:
    """Requirement files of pip, lock files, and those of setuptools."""
    for top, text in ((made.origin, then), (made.top, now)):
        (top / name).parent.mkdir(exist_ok=True)
        (top / name).write_text(text)
    assert changed(made) == [name]


@pytest.mark.parametrize(
    ("name", "then", "now"),
    [
        ("setup.cfg", "[flake8]\nx = 1\n[options]\ny = 1\n", "[flake8]\nx = 2\n[options]\ny = 1\n"),
        ("notes.txt", "a", "b"),
        (".venv/requirements.txt", "a", "b"),
        ("src/demo/__init__.py", "a", "b"),
    ],
)
def test_files_without_requirements(made: Place, name: str, then: str, now: str) -> None:
    """Settings of tools, other files, and what lies in an environment."""
    for top, text in ((made.origin, then), (made.top, now)):
        (top / name).parent.mkdir(exist_ok=True)
        (top / name).write_text(text)
    (made.top / ".venv").mkdir(exist_ok=True)
    (made.top / ".venv" / "pyvenv.cfg").touch()
    assert not changed(made)


@pytest.mark.parametrize(
    "damage",
    [
        b"[project\nname",
        b"\xff\xfe\x00",
        pytest.param(
            b"[project]\nname = 1\ndependencies = 3\n", marks=pytest.mark.slow
        ),  # pip looks for a backend
    ],
)
def test_a_broken_pyproject_is_one_clear_sentence(made: Place, damage: bytes) -> None:
    """A project that cannot be installed says so, with what the installer said."""
    (made.top / "pyproject.toml").write_bytes(damage)
    with pytest.raises(NotPrepared) as raised:
        made.prepare()
    text = str(raised.value)
    assert text.startswith(
        ("pip install failed for the copy: ", f"{made.top}/pyproject.toml cannot be read: ")
    )
    assert "\n" not in text and len(text) < 500
    assert made.where() == "copy", "an agent can still run the project and fix it"


def test_a_missing_pyproject(made: Place) -> None:
    """A project whose pyproject the agent has removed has nothing to install."""
    (made.top / "pyproject.toml").unlink()
    assert not changed(made)
    made.prepare()
    assert made.where() == "copy"


def test_a_pyproject_that_is_not_a_file(made: Place) -> None:
    """A directory or a dangling link under this name is passed over."""
    (made.top / "pyproject.toml").unlink()
    (made.top / "pyproject.toml").mkdir()
    (made.top / "setup.py").symlink_to("nowhere")
    assert requirements(made.top, ["."]) == {}
    assert project_at(made.top / "nothing").requires == []


# ---- which extras and groups are installed ----


def test_extras_and_groups_that_are_in_use(made: Place) -> None:
    """Those of which at least half is installed, by normalised names; conditions do not count."""
    dist_info(made.site, "Foo_Bar")
    dist_info(made.site, "baz")
    names = frozenset(versions_of(made.installed))
    listed = {
        "all": ["foo-bar>=1", "baz[x]; python_version > '3'"],
        "half": ["baz", "missing"],
        "less": ["baz", "missing", "lacking"],
        "none": [],
        "url": ["baz @ file:///x"],
    }
    assert in_use_among(listed, names) == ["all", "half", "url"]
    assert normal("Foo__B.a-r") == "foo-b-a-r"


def test_odd_values_in_a_pyproject(made: Place) -> None:
    """What has another type than it should counts as absent."""
    (made.top / "pyproject.toml").write_text(
        'project = 3\n[dependency-groups]\nx = ["a", { include-group = "y" }]\ny = "z"\n[tool]\nuv = 1\n'
    )
    found = project_at(made.top)
    assert found.groups == {"x": ["a"], "y": []}
    assert not found.is_workspace


# ---- version files ----


@pytest.mark.parametrize(
    "table",
    [
        '[tool.setuptools_scm]\nversion_file = "src/demo/_version.py"\n',
        '[tool.setuptools_scm]\nwrite_to = "src/demo/_version.py"\n',
        '[tool.hatch.build.hooks.vcs]\nversion-file = "src/demo/_version.py"\n',
        '[tool.pdm.version]\nwrite_to = "src/demo/_version.py"\n',
    ],
)
def test_version_files_are_copied(made: Place, table: str) -> None:
    """The file that a build has written, which git ignores, is in the copy too."""
    for top in (made.origin, made.top):
        (top / "pyproject.toml").write_text(PROJECT + table)
    (made.source / "demo" / "_version.py").write_text("version = '1.2'\n")
    made.prepare()
    assert made.where(code="from demo._version import version; print(version)") == "1.2"


def test_version_files_outside_the_project(made: Place, tmp_path: Path) -> None:
    """A path that leads out of the project is not copied, neither is one that is not Python."""
    (made.top / "pyproject.toml").write_text(
        '[tool.setuptools_scm]\nwrite_to = "../../stolen.py"\n[tool.x]\nversion_file = "VERSION"\n'
    )
    assert version_files(made.top) == []


# ---- an environment that is behind ----


def behind(made: Place) -> list[str]:
    """The files of which the user's environment lacks something, although nothing has changed in the copy."""
    found = to_install(made.copy, made.installed)
    return list(found.files) if found is not None and not found.is_changed else []


def write_both(made: Place, name: str, text: str) -> None:
    for top in (made.origin, made.top):
        (top / name).write_text(text)


def test_a_merged_dependency_is_not_installed_yet(made: Place) -> None:
    """After a merge the user's checkout requires what nobody has installed there."""
    dist_info(made.site, "demo")
    assert behind(made) == ["pyproject.toml"]
    dist_info(made.site, "a")
    assert behind(made) == []
    write_both(made, "pyproject.toml", PROJECT.replace('["a"]', '["a"]\nscripts = { tool = "demo:x" }'))
    assert behind(made) == ["pyproject.toml"], "a script is missing"


def test_requirements_with_a_condition_may_be_missing(made: Place) -> None:
    """Nobody knows whether a requirement with a marker applies here."""
    dist_info(made.site, "demo")
    write_both(made, "pyproject.toml", PROJECT.replace('["a"]', "[\"b; sys_platform == 'win32'\"]"))
    assert behind(made) == []


def test_a_lock_file_counts_for_an_environment_of_uv(made: Place) -> None:
    """An installed version that the lock file does not have is behind; a pip environment may have others."""
    for name in ("demo", "a"):
        dist_info(made.site, name)
    version = next(made.site.glob("a-*.dist-info")).name.removeprefix("a-").removesuffix(".dist-info")
    lock = '[[package]]\nname = "a"\nversion = "{}"\nsource = {{ registry = "x" }}\n'
    write_both(made, "uv.lock", lock.format("99.9"))
    assert behind(made) == []
    with (made.installed.prefix / "pyvenv.cfg").open("a") as file:
        file.write("uv = 0.9.0\n")
    assert behind(made) == ["uv.lock"]
    write_both(made, "uv.lock", lock.format(version))
    assert behind(made) == []


# ---- installing what has changed ----


def test_unchanged_requirements_install_nothing(made: Place) -> None:
    """No command runs, and nothing is kept in the cache."""
    tools = made.prepare()
    assert (tools.commands, tools.told, tools.cache.exists()) == ([], [], False)


@pytest.mark.parametrize(
    "name", ["tests/data/broken/pyproject.toml", "docs/requirements.txt", "examples/x/setup.py"]
)
def test_files_of_others_are_not_installed(made: Place, name: str) -> None:
    """An example or test data with a project inside does not have to be installable."""
    for each in ("demo", "a"):
        dist_info(made.site, each)
    (made.top / name).parent.mkdir(parents=True)
    (made.top / name).write_text("[project\n")
    tools = made.prepare()
    assert tools.commands == []
    assert made.where() == "copy"


def test_what_an_earlier_call_installed_stays(made: Place) -> None:
    """A second call with the same requirements makes nothing again."""
    made.prepare()
    (made.layer / "mark").touch()
    made.prepare()
    assert (made.layer / "mark").exists()
    assert python.detect(made.copy, made.environment())
