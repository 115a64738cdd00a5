"""What users and agents read when a check lacks a program or a module in a worktree or a clean copy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from conftest import Project
from faults.work_fault_support import coder_only
from work_support import FIXES, Site, external, make_site, task

TOOL = (
    "surely-missing-tool was not found in this worktree. It has the files that git knows and what is installed in your checkout;"
    ' set ralph.setup to the command that installs what the project needs, for example "npm ci"'
)


@pytest.fixture
def site(project: Project) -> Site:
    site = make_site(project)
    (project.path / "package-lock.json").write_text("{}\n")
    project.git("add", "-A")
    project.git("commit", "-qm", "A lock file")
    return site


def failed(site: Site, command: str, body: str = "echo x >> notes.txt; promise CODED") -> str:
    """A task whose check fails in both iterations; returns what `ralph work` prints."""
    coder_only(site, body)
    site.add(task(coder=replace(external(command), max_iterations=2)))
    done = site.work()
    assert done.code == 1
    return done.out + done.err


def test_a_missing_program_is_explained_everywhere(site: Site) -> None:
    """On the console, in the outcome, in `task show`, and once in the next prompt; the check stays red."""
    shown = failed(site, "surely-missing-tool --all")
    assert f"(Command exited with 127, expected 0: {TOOL}); output goes into the next prompt" in shown
    assert (
        f"last result: coder: external: Command exited with 127, expected 0: {TOOL}" in site.state()["reason"]
    )
    assert TOOL in site.project.run("task", "show", "T-1").out
    assert site.history("coder")[0][2].endswith(TOOL)
    prompt = site.prompts("T-1.coder")[1]
    assert f"expected 0.\n{TOOL}.\nOutput file: " in prompt
    assert prompt.count("was not found in this worktree") == 1


def test_stages_pass_it_on(site: Site) -> None:
    """A stage that lacks a program says so in the reason of the whole check."""
    stages = [{"name": "unit", "method": "external", "config": {"command": "surely-missing-tool"}}]
    criteria = replace(
        external(),
        verification_method="multi_stage",
        verification_config={"stages": stages},
        max_iterations=2,
    )
    coder_only(site, "echo x >> notes.txt; promise CODED")
    site.add(task(coder=criteria))
    assert site.work().code == 1
    assert "Stage 'unit' failed: Command exited with 127" in site.state()["reason"]
    assert TOOL in site.state()["reason"]


def test_a_module_that_the_agent_removed_is_not_a_dependency(site: Site) -> None:
    """If the agent removes a module of the project, its tests are red and nothing has to be installed."""
    shown = failed(site, "python3 -c 'import calc'", "git rm -q calc.py; git commit -qm away; promise CODED")
    assert "ModuleNotFoundError: No module named 'calc'" in shown and "ralph.setup" not in shown


def test_a_missing_module_is_explained_with_care(site: Site) -> None:
    """The interpreter's own error is recognised; a quoted one is not."""
    shown = failed(site, "python3 -c 'import surely_missing'")
    assert "The Python module surely_missing was not found in this worktree, which has the files" in shown
    quoted = "python3 -c 'assert False, \"No module named surely_missing\"'"
    site.tasks.delete("T-1")
    assert "was not found" not in failed(site, quoted)


def run_with(site: Site, guardrail: dict[str, Any]) -> str:
    site.agents(f"{FIXES}; echo '<response>DONE</response>'", guardrails=[guardrail])
    done = site.project.run("run", "-p", "x", "-m", "1", "--json")
    verdicts = [json.loads(line) for line in done.out.splitlines() if '"check_ended"' in line]
    return str(verdicts[0]["verdict"]["reason"])


def test_only_copies_are_explained(site: Site) -> None:
    """In the user's own tree a missing program is just red; in a clean copy the check says what to set."""
    assert run_with(site, {"command": "surely-missing-tool"}) == "exit code 127"
    assert run_with(site, {"command": "surely-missing-tool", "clean": True}) == (
        "exit code 127: surely-missing-tool was not found in this clean copy. It has the files that git knows"
        " and what is installed in your checkout; set ralph.setup to the command that installs what the project needs, for example"
        ' "npm ci"'
    )
