"""Real projects from the registry with their own tests: honest work is merged, broken work is not."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

import debian
from conftest import Project
from environments.package_support import NETWORK, Package, cache, checkout, tool

pytestmark = NETWORK

VENV = '"$PY" -m venv --without-pip .venv\nuv pip install -q --python .venv/bin/python pytest'
PROJECTS = {
    "click==8.5.1": ("src/click/utils.py", 'def make_str(value):\n    return ""\n', f"{VENV} -e ."),
    "pluggy==1.7.0": (
        "src/pluggy/_hooks.py",
        "def varnames(func):\n    return (), ()\n",
        f"{VENV} pytest-benchmark\npip --python .venv/bin/python install -q -e .",
    ),
}
"""For each project a file, a definition for its end that breaks the tests, and how it is installed."""


def unpacked(requirement: str, target: Path) -> None:
    """Unpack the sources of a project from the registry, downloaded on first use."""
    place, name = cache() / "sources", requirement.partition("==")[0]
    file = place / f"{requirement.replace('==', '-')}.tar.gz"
    if not file.exists():
        argv = [
            str(tool("pip") / "pip"),
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            name,
            "-d",
            str(place),
        ]
        done = subprocess.run([*argv, requirement], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            debian.missing(f"{requirement} could not be downloaded: {done.stderr[-500:]}")
    with tarfile.open(file) as archive:
        archive.extractall(target.parent / "unpacked", filter="data")
    (target.parent / "unpacked" / file.name.removesuffix(".tar.gz")).rename(target)


@pytest.mark.parametrize("requirement", PROJECTS)
def test_a_real_project(project: Project, requirement: str) -> None:
    """A function with its test is merged; one that breaks the project's tests is not."""
    code, breaks, install = PROJECTS[requirement]
    project.path.rmdir()
    unpacked(requirement, project.path)
    text = (project.path / code).read_text()
    tests = "testing" if (project.path / "testing").is_dir() else "tests"
    check = f".venv/bin/pytest -q -x -p no:cacheprovider {tests}"
    package = Package({}, install, ("uv", "pip"), check, code)
    made = checkout(project, package, text)
    ended = made.work(f"cat >> {code} <<'END'\n\n\n{breaks}END")
    assert ended.code == 1, ended.err
    assert "coder: external failed (Command exited with 1" in ended.err
    module = code.removeprefix("src/").removesuffix(".py").replace("/", ".")
    new = f"from {module} import new\n\n\ndef test_new():\n    assert new() == 1\n"
    ended = made.work(
        f"printf '\\n\\ndef new():\\n    return 1\\n' >> {code}\ncat > {tests}/test_new.py <<'END'\n{new}END"
    )
    assert ended.code == 0, ended.err
    assert made.is_merged(f"{text}\n\ndef new():\n    return 1\n")
    assert made.is_untouched()
