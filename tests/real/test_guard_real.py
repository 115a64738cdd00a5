"""The command guard in the real Claude Code: dangerous commands do not run, and the model gets the reason."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from conftest import Project
from ralph.modelserver.server import ModelServer
from ralph.runs import agent_hooks
from real.real_support import DONE, REAL, driven, ends, environment, run_directly, turns

pytestmark = REAL

DANGEROUS = 'touch ran; rm -rf "$HOME/precious"'
"""If it ran, it would leave a new file and remove a directory."""


def test_a_run_continues_after_a_denial(repository: Project) -> None:
    """The reason for a denial reaches the model and the run completes, whatever Claude's permissions."""
    victim = repository.home.path.parent / "home" / "precious"
    victim.mkdir(parents=True)
    script = turns(
        {"tools": [{"bash": DANGEROUS}]},
        {"tools": [{"write": {"path": ".ralph/settings.json", "content": "{}"}}]},
        {"tools": [{"bash": "echo fine > harmless"}]},
        {"text": DONE},
    )
    with driven("claude", repository, script, agent={"permissions": "bypass"}) as (project, server):
        kept = (project.path / ".ralph/settings.json").read_text()
        result = project.run("run", "-p", "x", "--json", timeout=120)
        assert (result.code, ends(result)) == (0, ["ok"]), result.err
        assert victim.is_dir() and not (project.path / "ran").exists()
        assert (project.path / "harmless").read_text() == "fine\n"
        assert (project.path / ".ralph/settings.json").read_text() == kept
        said = [request.said() for request in server.turns()]
        assert "Denied by Ralph's guard, rule delete-outside" in said[1]
        assert "rule harness-files" in said[2]
        (started,) = [line for line in result.lines() if line["event"] == "run_started"]
        assert started["unguarded"] == []


def test_the_guard_can_be_turned_off(repository: Project) -> None:
    """With the guard turned off, the command runs, and the start of the run shows that there is no guard."""
    victim = repository.home.path.parent / "home" / "precious"
    victim.mkdir(parents=True)
    script = turns({"tools": [{"bash": DANGEROUS}]}, {"text": DONE})
    agent = {"permissions": "bypass"}
    with driven("claude", repository, script, agent=agent, guard={"enabled": False}) as (project, _):
        result = project.run("run", "-p", "x", timeout=120)
        assert result.code == 0 and not victim.exists()
        assert ", no command guard" in result.out + result.err


BROKEN = {
    "no interpreter": "/nonexistent/python",
    "no guard": sys.executable,
    "a crash": sys.executable,
    "a kill": sys.executable,
}
CODE = {
    "a crash": "import os; os._exit(1)",
    "a kill": "import os; os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_guard_lets_nothing_through(how: str, repository: Project, tmp_path: Path) -> None:
    """If the guard is missing, crashes or is killed, the command does not run and the model is told."""
    script = tmp_path / "guard.py"
    if how in CODE:
        script.write_text(CODE[how])
    command = agent_hooks.guard_command(tmp_path / "guard.json", BROKEN[how], script)
    hook = [{"matcher": agent_hooks.GUARDED_TOOLS, "hooks": [{"type": "command", "command": command}]}]
    settings = tmp_path / "hooks.json"
    settings.write_text(json.dumps({"hooks": {"PreToolUse": hook}}))
    with ModelServer(turns({"tools": [{"bash": "touch ran"}]}, {"text": "x"})) as server:
        env = environment("claude", tmp_path / "home", server) | {"RALPH_RUN_ID": "x"}
        ended = run_directly("claude", repository.path, env, "Go.", flags=("--settings", str(settings)))
        assert ended.code == 0, ended.err
        assert not (repository.path / "ran").exists()
        assert "guard failed, so this was not run" in server.turns()[-1].said()
