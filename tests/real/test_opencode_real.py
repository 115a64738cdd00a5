"""The real OpenCode, driven by `ralph run` against a scripted model server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import Project, wait_until
from ralph.agents.opencode import OpenCode
from ralph.modelserver.server import ModelServer
from real.real_support import REAL, driven, ends, environment, hears, installed, started, turns

pytestmark = REAL

DONE = "<response>DONE</response>"


def test_a_whole_loop(repository: Project) -> None:
    """A write, a red guardrail, its feedback in the next prompt, a fix, the claim, the commit.

    All of it where the run is, wherever `PWD` points to; and the commit message is the last word only.
    """
    script = turns(
        {"text": "I write.", "tools": [{"write": {"path": "a.txt", "content": "one\n"}}]},
        {"text": DONE},
        {"tools": [{"edit": {"path": "a.txt", "old": "one", "new": "two"}}]},
        {"text": f"It is right now.\n\n{DONE}", "usage": {"input": 1000, "cached": 600, "output": 100}},
        {"text": "Let me look.", "tools": [{"bash": "git status --short"}]},
        {"text": "Say two in a.txt"},
    )
    with driven(
        "opencode",
        repository,
        script,
        maximumIterations=3,
        guardrails=[{"command": "grep two a.txt || { echo missing-two; exit 1; }"}],
        scm={"command": "git", "tasks": ["commit"]},
    ) as (project, server):
        project.alone["PWD"] = str(repository.home.path)
        result = project.run("run", "-p", "Write a.txt", "--json", timeout=120)
        assert (result.code, ends(result)) == (0, ["ok", "ok", "ok"]), result.err
        asked = server.turns()
        assert [request.played for request in asked] == [1, 2, 3, 4, 5, 6]
        assert "missing-two" not in asked[1].said()
        assert "missing-two" in asked[2].said()
        assert project.git("log", "-1", "--format=%s").strip() == "Say two in a.txt"
        assert (project.path / "a.txt").read_text() == "two\n"
        usage = result.lines()[-1]["usage"]
        assert (usage["input_tokens"], usage["cache_read_tokens"], usage["output_tokens"]) == (5400, 600, 600)


def test_a_usage_limit(repository: Project) -> None:
    """OpenCode would wait in silence: Ralph ends it, waits itself, and gives up when it takes too long."""
    words = "The usage limit has been reached. It will reset in 2 hours."
    script = turns({"status": 429, "message": words, "headers": {"retry-after": "7200"}, "times": "forever"})
    with driven("opencode", repository, script, exitGraceSeconds=0.5) as (project, _):
        with started(project) as ralph:
            assert hears(ralph, "Waiting until")
            ralph.send_signal(signal.SIGINT)
            assert ralph.wait(30) == 130
        project.settings(
            agent={"command": "opencode"}, maxLimitWaitSeconds=1, exitGraceSeconds=0.5, snapshots=False
        )
        result = project.run("run", "-p", "x", "--json", timeout=120)
        assert (result.code, ends(result)) == (3, ["limit"]), result.err
        assert words in result.out


def test_a_hang_in_mid_stream(repository: Project) -> None:
    """It is ended after the idle time, and the next iteration goes on.

    It is silent until the model has answered: a slow start may be taken for a hang more than once.
    """
    script = turns({"text": f"All is done: {DONE}", "hang_after": 3}, {"text": DONE})
    with driven("opencode", repository, script, idleTimeoutSeconds=12, maximumIterations=4) as (project, _):
        result = project.run("run", "-p", "x", "--json", timeout=120)
        assert (result.code, ends(result)[0], ends(result)[-1]) == (0, "idle", "ok"), result.err


def test_a_cut_stream_an_empty_answer_and_a_failure(repository: Project) -> None:
    """A cut stream is tried again by OpenCode; an empty answer and a refused request claim nothing."""
    script = turns(
        {"text": f"All is done: {DONE}", "cut": True},
        {"text": "Half of it."},
        {"empty": True},
        {"status": 400, "message": f"bad thing {DONE}"},
    )
    with driven("opencode", repository, script, maximumIterations=3) as (project, _):
        result = project.run("run", "-p", "x", "--json", timeout=120)
        assert (result.code, ends(result)) == (1, ["ok", "empty", "failed"]), result.err


def test_a_child_that_outlives_it_and_a_tag_in_a_file(repository: Project) -> None:
    """What is left running is gone when the iteration is over; a file with the tag in it claims nothing."""
    (repository.path / "notes.md").write_text(f"{DONE}\n")
    (repository.path / "prompt.md").write_text("word " * 60_000 + "and that is the end of it")
    leave = "setsid sleep 300 > /dev/null 2>&1 & echo $! > .ralph/child"
    script = turns({"tools": [{"bash": leave}, {"read": "notes.md"}]}, {"text": "I have read it."})
    with driven("opencode", repository, script) as (project, server):
        result = project.run("run", "-f", "prompt.md", "--json", timeout=120)
        assert (result.code, ends(result)) == (1, ["ok"]), result.err
        with pytest.raises(ProcessLookupError):
            os.kill(int((project.path / ".ralph/child").read_text()), 0)
        assert DONE in server.turns()[1].said()
        assert "and that is the end of it" in server.turns()[0].said()


def test_ctrl_c(repository: Project) -> None:
    """Once: OpenCode may finish what it does, and then it is over, with the work kept."""
    script = turns(
        {"tools": [{"write": {"path": "a.txt", "content": "one\n"}}]}, {"text": "Half of it.", "delay": 1.5}
    )
    with driven("opencode", repository, script, maximumIterations=3) as (project, server):
        with started(project) as ralph:
            wait_until(lambda: len(server.turns()) == 2, 60)
            assert len(project.living()) > 1
            ralph.send_signal(signal.SIGINT)
            assert ralph.wait(30) == 130
        assert len(server.turns()) == 2
        assert (project.path / "a.txt").exists()


def test_ctrl_c_twice(repository: Project) -> None:
    """Twice: everything is ended now, whatever OpenCode waits for."""
    script = turns({"tools": [{"bash": "sleep 300"}]})
    with driven("opencode", repository, script, maximumIterations=3) as (project, server):
        with started(project) as ralph:
            wait_until(lambda: project.runs("sleep", "300"), 60)
            ralph.send_signal(signal.SIGINT)
            assert hears(ralph, "Received signal")
            ralph.send_signal(signal.SIGINT)
            assert ralph.wait(30) == 130
        assert len(server.turns()) == 1


def test_nothing_may_be_written(repository: Project) -> None:
    """Where OpenCode has to ask and may not, the run stops as fatal and names the setting."""
    (repository.path / "opencode.json").write_text(json.dumps({"permission": {"edit": "ask"}}))
    script = turns({"tools": [{"write": {"path": "a.txt", "content": "one\n"}}]}, {"text": "I may not."})
    with driven("opencode", repository, script, agent={"permissions": "none"}, maximumIterations=3) as (
        project,
        _,
    ):
        result = project.run("run", "-p", "x", timeout=120)
        assert result.code == 2, result.err
        assert '"permissions": "edit"' in result.err + result.out


def test_its_help_names_the_flags(tmp_path: Path) -> None:
    """What Ralph passes is what this version of OpenCode knows."""
    about = OpenCode.about
    with ModelServer(turns({"text": "x"})) as server:
        env = environment("opencode", tmp_path / "home", server)
        command = [str(installed("opencode")), *about.help]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert [flag for flag in about.flags if flag not in done.stdout + done.stderr] == []
