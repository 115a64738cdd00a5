"""The real Claude Code, driven by `ralph run` against a scripted model server."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Project, Result, wait_until
from ralph.agents.claude import Claude
from ralph.modelserver.script import Script, parse
from ralph.modelserver.server import ModelServer
from real.real_support import REAL, Lonely, driven, ends, environment, hears, installed, started, turns

pytestmark = REAL

DONE = "<response>DONE</response>"
WRITE = {"tools": [{"write": {"path": "a.txt", "content": "one\n"}}]}


@contextmanager
def claude(repository: Project, script: Script, **settings: Any) -> Iterator[tuple[Lonely, ModelServer]]:
    """The repository with Claude Code, which may do everything unless told otherwise."""
    agent = {"permissions": "bypass"} | settings.pop("agent", {})
    with driven("claude", repository, script, agent=agent, **settings) as driving:
        yield driving


def assert_gone(file: Path) -> None:
    """The process that wrote its number into this file does not run any more."""
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


def limits(result: Result) -> list[str]:
    return [line["kind"] for line in result.lines() if line["event"] == "limit"]


def test_a_whole_loop(repository: Project) -> None:
    """A write, a red guardrail, its feedback in the next prompt, a fix, the claim, the commit."""
    script = turns(
        {"text": "I write."} | WRITE,
        {"text": DONE},
        {"tools": [{"read": "a.txt"}]},
        {"tools": [{"edit": {"path": "a.txt", "old": "one", "new": "two"}}]},
        {"text": f"It is right now.\n\n{DONE}", "usage": {"input": 1000, "cached": 600, "output": 100}},
        {"text": "<response>Say two in a.txt</response>"},
    )
    with claude(
        repository,
        script,
        agent={"permissions": "edit"},
        maximumIterations=3,
        guardrails=[{"command": "grep two a.txt || { echo missing-two; exit 1; }"}],
        scm={"command": "git", "tasks": ["commit"]},
    ) as (project, server):
        result = project.run("run", "-p", "Write a.txt", "--json")
        assert (result.code, ends(result)) == (0, ["ok", "ok", "ok"]), result.err
        asked = server.turns()
        assert [request.played for request in asked] == [1, 2, 3, 4, 5, 6]
        assert "missing-two" not in asked[1].said()
        assert "missing-two" in asked[2].said()
        assert project.git("log", "-1", "--format=%s").strip() == "Say two in a.txt"
        assert (project.path / "a.txt").read_text() == "two\n"
        usage = result.lines()[-1]["usage"]
        assert (usage["input_tokens"], usage["cache_read_tokens"], usage["output_tokens"]) == (5400, 600, 600)
        assert usage["cost_usd"] > 0


def test_a_usage_limit(repository: Project) -> None:
    """It is waited for until its reset, spends no iteration, and is given up when that is too far."""
    reset = int(time.time()) + 1200
    script = parse(f"turns: [{{usage_limit: {{resets_at: {reset}}}, times: forever}}]")
    with claude(repository, script, subscription=True) as (project, _):
        with started(project) as ralph:
            assert hears(ralph, "Waiting until")
            ralph.send_signal(signal.SIGINT)
            assert ralph.wait(30) == 130
        project.settings(agent={"command": "claude"}, maxLimitWaitSeconds=1, snapshots=False)
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result), limits(result)) == (3, ["limit"], ["usage"]), result.err
        (limit,) = [line for line in result.lines() if line["event"] == "limit"]
        assert limit["retry_at"] == reset


def test_a_fallback_while_it_is_limited(repository: Project) -> None:
    """The limited agent is not waited for when there is another one."""
    script = parse("turns: [{usage_limit: {resets_in: 1200}, times: forever}]")
    other = repository.script("other.sh", f"echo '{DONE}'")
    with claude(repository, script, subscription=True, agent={"fallbacks": [{"command": other}]}) as (
        project,
        server,
    ):
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (0, ["limit", "ok"]), result.err
        assert len(server.turns()) == 1


def test_a_rejected_key(repository: Project) -> None:
    """Claude would try ten times more, for minutes: the run stops as fatal within seconds."""
    script = parse("turns: [{status: 401, type: authentication_error, message: wrong, times: forever}]")
    with claude(repository, script, maximumIterations=3) as (project, server):
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result), limits(result)) == (2, ["auth"], ["auth"]), result.err
        assert len(server.turns()) <= 3


def test_a_hang_in_mid_stream(repository: Project) -> None:
    """It is ended after the idle time, and the next iteration goes on."""
    script = turns({"text": f"All is done: {DONE}", "hang_after": 3}, {"text": DONE})
    with claude(repository, script, idleTimeoutSeconds=5, maximumIterations=2) as (project, _):
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (0, ["idle", "ok"]), result.err


def test_a_cut_stream_and_an_empty_answer(repository: Project) -> None:
    """The first has failed after Claude's own retry, the second is empty: neither claims anything."""
    script = turns({"text": f"All is done: {DONE}", "cut": True, "times": 3}, {"empty": True, "times": 2})
    with claude(repository, script, maximumIterations=2, agent={"env": {"CLAUDE_CODE_MAX_RETRIES": "1"}}) as (
        project,
        _,
    ):
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (1, ["failed", "empty"]), result.err
        assert [line["attempt"] for line in result.lines() if line["event"] == "retry"] == [1]


def test_children_that_outlive_it(repository: Project) -> None:
    """What Claude leaves running is gone: a daemon, and a task that keeps it from exiting after its result."""
    daemon = "setsid sleep 300 > /dev/null 2>&1 & echo $! > .ralph/daemon"
    task = "echo $$ > .ralph/task; while :; do sleep 1; done"
    call = {"name": "Bash", "input": {"command": task, "description": "wait", "run_in_background": True}}
    script = turns({"tools": [{"bash": daemon}]}, {"tools": [{"call": call}]}, {"text": DONE})
    with claude(repository, script, exitGraceSeconds=2) as (project, _):
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (0, ["ok"]), result.err
        for name in ("daemon", "task"):
            assert_gone(project.path / ".ralph" / name)


def test_ctrl_c(repository: Project) -> None:
    """Once: Claude may finish what it does, and then it is over, with the work kept."""
    script = turns(WRITE, {"text": "Half of it.", "delay": 1.5})
    with claude(repository, script, maximumIterations=3) as (project, server):
        with started(project) as ralph:
            wait_until(lambda: len(server.turns()) == 2)
            assert len(project.living()) > 1
            ralph.send_signal(signal.SIGINT)
            assert ralph.wait(30) == 130
        assert len(server.turns()) == 2
        assert (project.path / "a.txt").exists()


def test_ctrl_c_twice(repository: Project) -> None:
    """Twice: everything is ended now, whatever Claude waits for."""
    script = turns({"tools": [{"bash": "echo begun; sleep 299"}]})
    with claude(repository, script, maximumIterations=3) as (project, server):
        with started(project) as ralph:
            wait_until(lambda: project.runs("sleep", "299"))
            ralph.send_signal(signal.SIGINT)
            assert hears(ralph, "Received signal")
            ralph.send_signal(signal.SIGINT)
            assert ralph.wait(30) == 130
        assert len(server.turns()) == 1


def test_nothing_may_be_written(repository: Project) -> None:
    """Without permissions every write is denied: the run stops as fatal and names the setting."""
    script = turns(WRITE, {"text": "I may not."})
    with claude(repository, script, agent={"permissions": "none"}, maximumIterations=3) as (project, _):
        result = project.run("run", "-p", "x")
        assert result.code == 2, result.err
        assert '"permissions": "edit"' in result.err + result.out
        assert not (project.path / "a.txt").exists()


def test_a_tag_in_a_file_and_a_long_prompt(repository: Project) -> None:
    """Claude `cat`s a file with the tag in it: no claim. A prompt of 300 kB reaches the model whole."""
    (repository.path / "notes.md").write_text(f"{DONE}\n")
    (repository.path / "prompt.md").write_text("word " * 60_000 + "and that is the end of it")
    script = turns(
        {"text": f"I begin. {DONE}", "tools": [{"bash": "cat notes.md"}]},
        {"tools": [{"read": "notes.md"}]},
        {"text": "I have read it."},
    )
    with claude(repository, script) as (project, server):
        result = project.run("run", "-f", "prompt.md", "--json")
        assert (result.code, ends(result)) == (1, ["ok"]), result.err
        assert DONE in server.turns()[2].said()
        assert "and that is the end of it" in server.turns()[0].said()


def test_a_prompt_as_argument(repository: Project) -> None:
    """One that looks like an option reaches the model as it is."""
    agent = {"promptVia": "argument", "flags": ["--allowedTools Bash"]}
    with claude(repository, turns({"text": DONE}), agent=agent) as (project, server):
        result = project.run("run", "-p", "--help me", "--json")
        assert (result.code, ends(result)) == (0, ["ok"]), result.err
        assert "--help me" in server.turns()[0].said()


def test_its_help_names_the_flags(tmp_path: Path) -> None:
    """What Ralph passes is what this version of Claude Code knows."""
    about = Claude.about
    with ModelServer(turns({"text": "never"})) as server:
        env = environment("claude", tmp_path, server)
        done = subprocess.run(
            [str(installed("claude")), *about.help], env=env, capture_output=True, text=True, check=True
        )
    assert [flag for flag in about.flags if flag not in done.stdout] == []
