"""`ralph work` with an editable install in the user's `.venv`, as an installer leaves it behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Project
from environments.package_support import hashes
from environments.python_support import finder, make_venv, path_line, program, site_of
from ralph.core.task_model import CompletionCriteria
from work_support import Site, external, make_site, task

WORKS, BROKEN = "def add(a, b):\n    return a + b\n", 'raise RuntimeError("broken")\n'
PYPROJECT = '[project]\nname = "demo"\nversion = "1"\n'
CHECK = ".venv/bin/check"


@pytest.fixture(params=[path_line, finder])
def site(project: Project, request: pytest.FixtureRequest) -> Site:
    """A package in `src`, installed into `.venv`, with a script that tests it."""
    made = make_site(project)
    source = project.path / "src"
    (source / "demo").mkdir(parents=True)
    (source / "demo" / "__init__.py").write_text(WORKS)
    (project.path / "pyproject.toml").write_text(PYPROJECT)
    (project.path / ".gitignore").write_text(".venv\n.ralph/\n__pycache__/\n")
    venv = make_venv(project.path / ".venv")
    request.param(site_of(venv), source)
    program(venv, "check", f"#!{venv}/bin/python\nimport demo\nassert demo.add(2, 3) == 5\n")
    project.git("add", "-A")
    project.git("commit", "-qm", "Package")
    return made


def agents(site: Site, coder: str, reviewer: str = "") -> None:
    off = ("tester", "qa") if reviewer else ("reviewer", "tester", "qa")
    body = f"case $RALPH_ROLE in\ncoder) {coder};;\nreviewer) {reviewer or ':'};;\nesac"
    site.agents(body, ralph={"agents": {name: {"enabled": False} for name in off}})


def writes(text: str) -> str:
    return f"cat > src/demo/__init__.py <<'END'\n{text}END\n"


def package(site: Site) -> Path:
    return site.project.path / "src" / "demo" / "__init__.py"


def test_a_breaking_change_is_red(site: Site) -> None:
    """The user's checkout works, what the agent has written does not."""
    before = hashes(site.project.path / ".venv")
    agents(site, f"{writes(BROKEN)}promise CODED")
    site.add(task(coder=external(CHECK)))
    ended = site.work()
    assert ended.code == 1
    assert "RuntimeError: broken" in ended.err
    assert package(site).read_text() == WORKS
    assert hashes(site.project.path / ".venv") == before


def test_a_fixing_change_is_green(site: Site) -> None:
    """The user's checkout is broken, what the agent has written works, and it is merged."""
    package(site).write_text(BROKEN)
    site.project.git("commit", "-qam", "Broken")
    before = hashes(site.project.path / ".venv")
    agents(site, f"{writes(WORKS)}promise CODED")
    site.add(task(coder=external(CHECK)))
    ended = site.work()
    assert ended.code == 0, ended.err
    assert package(site).read_text() == WORKS
    assert hashes(site.project.path / ".venv") == before


def test_an_agent_sees_its_own_files(site: Site) -> None:
    """The programs of the environment import the worktree when the agent runs them."""
    agents(
        site,
        f".venv/bin/check && {{ {writes(BROKEN)} }}; .venv/bin/check || {{ {writes(WORKS)} echo x > new; }}; .venv/bin/check && promise CODED",
    )
    site.add(task(coder=external(CHECK)))
    ended = site.work()
    assert ended.code == 0, ended.err
    assert site.project.git("show", "main:new") == "x\n"


def test_an_environment_that_cannot_be_made_is_for_the_agent_to_fix(site: Site) -> None:
    """A role has left a pyproject that cannot be read: the next coder is told, fixes it, and the task completes."""
    fixes = f"git checkout -q main -- pyproject.toml; {writes(WORKS)}echo $(date) > new; promise CODED"
    breaks = "if grep -q '^.project.$' pyproject.toml && [ ! -f told ]; then touch told; echo '[project' > pyproject.toml; echo '<refuse>not yet</refuse>'; else promise REVIEW_PASSED; fi"
    agents(site, fixes, breaks)
    site.add(
        task(
            coder=external(CHECK),
            reviewer=CompletionCriteria("REVIEW_PASSED", "", "external", {"command": "true"}),
        )
    )
    ended = site.work()
    assert "pyproject.toml cannot be read: " in ended.err
    assert "Traceback" not in ended.err
    assert ended.code == 0, ended.err
