"""`ralph work`: files that verification depends on are protected, even if the command line does not name them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from conftest import Project
from work_support import CHECK, FIXES, Site, external, make_site, task


@pytest.fixture
def site(project: Project) -> Site:
    return make_site(project)


def coder_only(site: Site, body: str) -> None:
    off = {name: {"enabled": False} for name in ("reviewer", "tester", "qa")}
    site.agents(body, ralph={"agents": off})


@pytest.mark.parametrize("name", ["sitecustomize.py", "deep/down/GNUmakefile", "Conftest.py"])
def test_a_new_file_cannot_change_the_result_of_a_check(site: Site, name: str) -> None:
    """The check fails, the agent is told to remove the file, and then the task completes."""
    (site.project.path / "Makefile").write_text(f"check:\n\t{CHECK}\n")
    site.project.git("add", "Makefile")
    site.project.git("commit", "-qm", "Make")
    add = f"mkdir -p $(dirname {name}); echo x > {name}"
    coder_only(site, f"{FIXES}; [ $RALPH_ITERATION = 1 ] && {{ {add}; }} || rm -f {name}; promise CODED")
    site.add(task(coder=external("make check")))
    assert site.work().code == 0
    first, second = site.history("coder")
    assert (first[1], second[1]) == (False, True)
    assert f"Protected files were changed: {name}" in first[2]
    assert f"git rm -rf -- {name}" in site.prompts("T-1.coder")[1]


def test_tests_are_protected_behind_a_script(site: Site) -> None:
    """Files that a script runs in turn are unknown, so existing tests are protected; new ones can be added."""
    tests = site.project.path / "tests"
    tests.mkdir()
    (tests / "test_add.py").write_text("from calc import add\n\nassert add(2, 3) == 5\n")
    (site.project.path / "check.sh").write_text("PYTHONPATH=. python3 tests/test_add.py\n")
    site.project.git("add", "-A")
    site.project.git("commit", "-qm", "Script")
    weaken = "echo > tests/test_add.py"
    honest = f"git checkout main -- tests; {FIXES}; echo > tests/test_more.py"
    coder_only(site, f"[ $RALPH_ITERATION = 1 ] && {{ {weaken}; }} || {{ {honest}; }}\npromise CODED")
    site.add(task(coder=external("sh check.sh")))
    assert site.work().code == 0
    assert "tests/test_add.py" in site.history("coder")[0][2]
    assert site.project.git("show", "main:tests/test_more.py") == "\n"


# ---- the base branch ----


def moves_base(work: str) -> str:
    """The agent commits and moves the user's branch to its commit, which Ralph has not proved."""
    return f"{work}; git add -A; git commit -qm mine; git update-ref refs/heads/main HEAD; promise CODED"


def test_work_that_an_agent_merged_itself_is_still_verified(site: Site) -> None:
    """Work that is already in the base, and needs an ignored file, is not done."""
    answer = "echo 5 > answer.pyc; echo 'def add(a, b): return int(open(\"answer.pyc\").read())' > calc.py"
    (site.project.path / ".gitignore").write_text("*.pyc\n__pycache__/\n.ralph/\n")
    site.project.git("commit", "-qam", "Ignore")
    coder_only(site, moves_base(answer))
    site.add(task(coder=replace(external(), max_iterations=1)))
    assert site.work().code == 1
    state = site.state()
    assert state["status"] == "failed"
    assert [run["role"] for run in state["runs"]] == ["coder"], "its claim was checked in a fresh copy"


def test_good_work_that_is_already_in_the_base_is_done(site: Site) -> None:
    """Whoever merged it: verified there, it counts, with the commit that brought it."""
    coder_only(site, moves_base(FIXES))
    site.add(task())
    assert site.work().code == 0
    state = site.state()
    assert [run["role"] for run in state["runs"]] == ["coder", "merge"]
    assert state["merged"] == site.project.git("rev-parse", "main").strip()
    assert not site.worktree.exists()
