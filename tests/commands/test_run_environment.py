"""An agent in `ralph run` that changes what the project's environment runs is not believed because of it."""

from __future__ import annotations

import venv
from pathlib import Path

import pytest

from conftest import Project

CHECK = ".venv/bin/pytest"
TOOL = "import sys, unittest; sys.path.insert(0, ''); sys.argv[1:] = ['discover', '-s', 'tests']; unittest.main(module=None)"
DONE = "echo '<response>DONE</response>'"
BREAK = "echo 'def add(a, b): return a - b' > calc.py"
SITE = ".venv/lib/python3*/site-packages"


@pytest.fixture
def made(repository: Project) -> Project:
    """A project with an environment whose own program runs the tests."""
    top = repository.path
    (top / "calc.py").write_text("def add(a, b): return a + b\n")
    (top / "tests").mkdir()
    (top / "tests" / "test_calc.py").write_text(
        "import unittest, calc\n\n\nclass Calc(unittest.TestCase):\n"
        "    def test(self): self.assertEqual(calc.add(1, 2), 3)\n"
    )
    (top / ".gitignore").write_text(".venv/\n__pycache__/\n.ralph/\n")
    venv.create(top / ".venv", symlinks=True)
    program = top / ".venv" / "bin" / "pytest"
    program.write_text(f"#!{top}/.venv/bin/python\n{TOOL}\n")
    program.chmod(0o755)
    for key, value in (("user.name", "A"), ("user.email", "a@example.org")):
        repository.git("config", key, value)
    repository.git("add", "-A")
    repository.git("commit", "-qm", "Calculator")
    return repository


def run(project: Project, body: str, *options: str, check: str = CHECK) -> tuple[int, str]:
    project.agent(
        f"{body}\n{DONE}", guardrails=[{"command": check}], scm={"command": "git", "tasks": ["commit"]}
    )
    ended = project.run("run", "-p", "x", *options)
    return ended.code, ended.out


SHIM = f"printf '#!/bin/sh\\nexit 0\\n' > {CHECK}"
POISON = {
    "a shim": SHIM,
    "a shim and no environment": f"rm .venv/pyvenv.cfg; {SHIM}",
    "a path file": f"for d in {SITE}; do echo 'import os; os._exit(0)' > $d/x.pth; done",
    "sitecustomize": f"for d in {SITE}; do echo 'import os; os._exit(0)' > $d/sitecustomize.py; done",
    "usercustomize": f"for d in {SITE}; do echo 'import os; os._exit(0)' > $d/sitecustomize.py; rm .venv/pyvenv.cfg; done",
}


@pytest.mark.parametrize("deed", POISON)
def test_a_poisoned_environment_is_not_believed(made: Project, deed: str) -> None:
    """The tests run again in a copy whose environment starts as it did."""
    code, out = run(made, f"{BREAK}\n{POISON[deed]}", "-m", "3")
    assert code in (1, 3), out
    assert "Done" not in out
    assert made.git("log", "--oneline").count("\n") == 2, "nothing was committed"


@pytest.mark.parametrize("deed", [SHIM, f"for d in {SITE}; do echo '' > $d/x.pth; done"])
def test_right_work_with_a_changed_environment_is_done(made: Project, deed: str) -> None:
    """An environment may change: what counts is that the work passes with it as it was."""
    code, out = run(made, f"echo '# more' >> calc.py\n{deed}", "-m", "2")
    assert (code, "Done" in out) == (0, True), out


def test_installing_a_program_changes_nothing(made: Project) -> None:
    """New programs and packages are what installing does."""
    installs = (
        "touch .venv/bin/new; for d in .venv/lib/python3*/site-packages; do echo 'x = 1' > $d/new.py; done"
    )
    code, out = run(made, f"echo '# more' >> calc.py\n{installs}")
    assert code == 0 and "old tests" not in out, out


def test_poisoned_bytecode_is_not_read(made: Project) -> None:
    """Bytecode of the old source, with the time and size of the new one, does not hide that the work is wrong."""
    (made.path / "calc.py").write_text("def add(a, b): return a + b\n")
    poison = (
        ".venv/bin/python -c 'import calc'\n"
        "touch -r calc.py stamp\n"
        "echo 'def add(a, b): return a - b' > calc.py\n"
        "touch -r stamp calc.py; rm stamp"
    )
    code, out = run(made, poison, "-m", "2")
    assert code == 1, out


def test_no_record_without_tests(repository: Project) -> None:
    """A run without a check of tests records nothing about the environment."""
    repository.agent(DONE, guardrails=[{"command": "true"}])
    assert repository.run("run", "-p", "x").code == 0
    assert not list(Path(repository.home.path).glob("runs/*/start-files.json"))
