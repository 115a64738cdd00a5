"""Worktrees and clean copies inside bubblewrap read the user's packages, and nothing else that an agent names."""

from __future__ import annotations

import os
import shutil

import pytest

from conftest import Project
from environments.package_support import hashes
from environments.python_support import BASE, finder, make_venv, path_line, program, site_of
from sandbox_support import BUBBLEWRAP
from work_support import Site, external, make_site, task

pytestmark = [*BUBBLEWRAP, pytest.mark.slow]

WORKS, BROKEN = "def add(a, b):\n    return a + b\n", 'raise RuntimeError("broken")\n'


@pytest.fixture(params=["in the tree", "outside"])
def site(project: Project, request: pytest.FixtureRequest) -> Site:
    """An active environment with a package of the checkout and another one."""
    made = make_site(project)
    source = project.path / "src"
    (source / "demo").mkdir(parents=True)
    (source / "demo" / "__init__.py").write_text(WORKS)
    (project.path / ".gitignore").write_text(".venv\n.ralph/\n__pycache__/\n")
    inside = request.param == "in the tree"
    venv = make_venv(project.path / ".venv" if inside else project.path.parent / "outer")
    (finder if inside else path_line)(site_of(venv), source)
    (site_of(venv) / "plain.py").write_text("x = 1\n")
    program(venv, "check", f"#!{venv}/bin/python\nimport demo, plain\nassert demo.add(2, 3) == 5\n")
    project.extra_env |= {"VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:{BASE.parent}:/usr/bin:/bin"}
    project.git("add", "-A")
    project.git("commit", "-qm", "Package")
    return made


def agents(site: Site, coder: str) -> None:
    off = {name: {"enabled": False} for name in ("reviewer", "tester", "qa")}
    site.agents(f"{coder}\npromise CODED", ralph={"agents": off}, sandbox={"rung": "bubblewrap"})


def writes(text: str) -> str:
    return f"cat > src/demo/__init__.py <<'END'\n{text}END"


def test_a_task_in_a_sandbox(site: Site) -> None:
    """A breaking change is red, a fixing one is green, and the agent runs the programs of the environment."""
    venv = site.project.extra_env["VIRTUAL_ENV"]
    before = hashes(site.project.path.parent / "outer", site.project.path / ".venv")
    agents(site, f"check && echo works > seen\n{writes(BROKEN)}")
    site.add(task(coder=external("check", timeout=30)))
    ended = site.work()
    assert (ended.code, "RuntimeError: broken" in ended.err) == (1, True), ended.err
    (site.project.path / "src" / "demo" / "__init__.py").write_text(BROKEN)
    site.project.git("commit", "-qam", "Broken")
    agents(site, f"{writes(WORKS)}\ncheck && echo works > seen")
    site.add(task("T-2", coder=external("check", timeout=30)))
    ended = site.work("--task", "T-2")
    assert ended.code == 0, ended.err
    assert site.project.git("show", "main:seen") == "works\n"
    assert hashes(site.project.path.parent / "outer", site.project.path / ".venv") == before, venv


def test_a_clean_copy_in_a_sandbox(site: Site) -> None:
    """The guardrail of a sandboxed `ralph run` finds the environment."""
    agent = site._script("agent.sh", "echo x > new; echo '<response>DONE</response>'")
    guardrail = {"command": f"check && test $PWD != {site.project.path}", "clean": True}
    site.project.settings(
        agent={"command": agent}, guardrails=[guardrail], maximumIterations=1, sandbox={"rung": "bubblewrap"}
    )
    ended = site.project.run("run", "-p", "x", "--sandbox")
    assert ended.code == 0, ended.err


def test_an_agent_cannot_open_more(site: Site) -> None:
    """A record that it writes into its worktree does not make a file of the user readable for the next role."""
    secret = site.project.path.parent / "secret" / "lib" / "python3.11" / "site-packages"
    secret.mkdir(parents=True)
    (secret / "key").write_text("secret\n")
    forged = "forged/lib/python3.11/site-packages"
    forge = (
        f"mkdir -p {forged}; echo 'home = {secret.parents[2]}/bin' > forged/pyvenv.cfg; "
        f'echo \'{{"sites": ["{secret}"], "skipped": []}}\' > forged/ralph-layer.json'
    )
    agents(site, f"cat {secret}/key > seen-$RALPH_ITERATION; {forge}")
    site.add(task(coder=external(f"! cat {secret}/key && check", timeout=30)))
    shutil.rmtree(site.project.path / "forged", ignore_errors=True)
    ended = site.work()
    assert ended.code == 0, ended.err
    assert os.path.exists(site.project.path / "forged")
    assert site.project.git("show", "main:seen-1") == ""
