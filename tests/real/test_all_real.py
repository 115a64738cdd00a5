"""Every real agent CLI, driven by `ralph run` against a scripted model server."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conftest import Project, Result, wait_until
from ralph.agents.registry import AGENTS
from ralph.modelserver.server import ModelServer
from real.real_support import (
    DONE,
    NAMES,
    REAL,
    Lonely,
    assert_gone,
    attempts,
    driven,
    ends,
    environment,
    hears,
    installed,
    limits,
    started,
    turns,
)

pytestmark = [*REAL, pytest.mark.parametrize("name", NAMES)]

MESSAGE = "Provide a short imperative commit message"
WRITE = {"tools": [{"write": {"path": "a.txt", "content": "one\n"}}]}


def run(project: Lonely, *words: str) -> Result:
    """Run ralph with JSON output and a timeout that is long enough for the slowest agent."""
    return project.run("run", "--json", *words, timeout=120)


def test_a_whole_loop(name: str, repository: Project) -> None:
    """A whole run: a write, a failed guardrail, its feedback in the next prompt, a fix, the claim, the commit.

    The agent works in the run's directory even if `PWD` differs. Asked for a commit message, it runs in an empty
    directory and cannot use its tools; only its final message counts.
    """
    left = repository.home.path / "left-by-the-message-call"
    message = "Say two in a.txt" if name == "opencode" else "<response>Say two in a.txt</response>"
    script = turns(
        {"text": "I write."} | WRITE,
        {"text": DONE},
        {"tools": [{"read": "a.txt"}]},
        {"tools": [{"edit": {"path": "a.txt", "old": "one", "new": "two"}}]},
        {"text": f"It is right now.\n\n{DONE}", "usage": {"input": 1000, "cached": 600, "output": 100}},
        *({"when": MESSAGE} | each for each in (*attempts(name, left), {"text": message})),
    )
    with driven(
        name,
        repository,
        script,
        agent={"permissions": "edit"},
        maximumIterations=3,
        guardrails=[{"command": "grep two a.txt || { echo missing-two; exit 1; }"}],
        scm={"command": "git", "tasks": ["commit"]},
    ) as (project, server):
        project.alone["PWD"] = str(repository.home.path)
        result = run(project, "-p", "Write a.txt")
        assert (result.code, ends(result)) == (0, ["ok", "ok", "ok"]), result.err
        asked = server.turns()
        assert [request.played for request in asked] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert "missing-two" not in asked[1].said()
        assert "missing-two" in asked[2].said()
        assert project.git("log", "-1", "--format=%s").strip() == "Say two in a.txt"
        assert (project.path / "a.txt").read_text() == "two\n" and not left.exists()
        assert all("/ralph-empty-" in json.dumps(request.body) for request in asked[5:])
        usage = result.lines()[-1]["usage"]
        assert (usage["input_tokens"], usage["cache_read_tokens"], usage["output_tokens"]) == (7400, 600, 800)
        assert (usage["cost_usd"] > 0) == (name == "claude")


LIMIT_WORDS = {
    "claude": "hit your 5-hour limit",
    "codex": "hit your usage limit",
    "gemini": "exhausted your daily quota",
    "opencode": "The usage limit has been reached. It will reset in 2 hours.",
}
LIMIT_SETTINGS: dict[str, dict[str, Any]] = {
    "gemini": {"maxLimitWaitSeconds": 90_000},  # it mentions a whole day
    "opencode": {"exitGraceSeconds": 0.5},  # it would wait without output, so it is stopped
}


def test_a_usage_limit(name: str, repository: Project) -> None:
    """The run waits for a usage limit without using an iteration, and stops if the wait is too long."""
    limited: dict[str, Any] = {"usage_limit": {"resets_in": 1200}}
    if name == "opencode":  # it has no usage limit message
        limited = {"status": 429, "message": LIMIT_WORDS[name], "headers": {"retry-after": "7200"}}
    script = turns(limited | {"times": "forever"})
    settings = LIMIT_SETTINGS.get(name, {})
    with driven(name, repository, script, subscription=name == "claude", **settings) as (project, _):
        with started(project) as ralph:
            assert hears(ralph, "Waiting until")
            ralph.send_signal(signal.SIGINT)
            assert ralph.wait(30) == 130
        project.configure(**(settings | {"maxLimitWaitSeconds": 1}))
        result = run(project, "-p", "x")
        assert (result.code, ends(result)) == (3, ["limit"]), result.err
        (limit,) = limits(result)
        assert limit["kind"] == "usage"
        assert LIMIT_WORDS[name] in limit["text"]


HANGS = {"claude": (3, 5), "codex": (6, 5), "gemini": (1, 15), "opencode": (3, 30)}
"""The events before the hang (some text, no tag), and an idle timeout longer than a slow start."""


def test_a_hang_in_mid_stream(name: str, repository: Project) -> None:
    """The agent is stopped after the idle timeout, and the next iteration continues the work."""
    events, seconds = HANGS[name]
    script = turns({"text": f"All is done: {DONE}", "hang_after": events}, {"text": DONE})
    with driven(name, repository, script, idleTimeoutSeconds=seconds, maximumIterations=2) as (project, _):
        result = run(project, "-p", "x")
        assert (result.code, ends(result)) == (0, ["idle", "ok"]), result.err


CUT = {"text": f"All is done: {DONE}", "cut": True}
EMPTY = {"empty": True}
BROKEN: dict[str, tuple[list[dict[str, Any]], list[str], list[int]]] = {
    "claude": ([CUT | {"times": 3}, EMPTY | {"times": 2}], ["failed", "empty"], [1]),
    "codex": ([CUT | {"times": 6}, EMPTY], ["failed", "empty"], [1, 2, 3, 4, 5]),
    "gemini": ([CUT, EMPTY | {"times": 4}], ["failed", "empty"], []),
    "opencode": ([CUT, {"text": "Half of it."}, EMPTY], ["ok", "empty"], []),
}
"""Faults repeated as often as the agent retries, its results, and the retries it reports."""


def test_a_cut_stream_and_an_empty_answer(name: str, repository: Project) -> None:
    """Neither a cut stream nor an empty answer is a claim, whether or not the agent retries."""
    script, ended, retries = BROKEN[name]
    agent = {"env": {"CLAUDE_CODE_MAX_RETRIES": "1"}}
    with driven(name, repository, turns(*script), maximumIterations=2, agent=agent) as (project, _):
        result = run(project, "-p", "x")
        assert (result.code, ends(result)) == (1, ended), result.err
        assert [line["attempt"] for line in result.lines() if line["event"] == "retry"] == retries


def test_a_child_that_outlives_it(name: str, repository: Project) -> None:
    """A background process of the agent is gone when the run is over."""
    leave = "setsid sleep 300 > /dev/null 2>&1 & echo $! > .ralph/child"
    with driven(
        name, repository, turns({"tools": [{"bash": leave}]}, {"text": DONE}), guard={"enabled": False}
    ) as (project, _):
        result = run(project, "-p", "x")
        assert (result.code, ends(result)) == (0, ["ok"]), result.err
        assert_gone(project.path / ".ralph/child")


def test_ctrl_c(name: str, repository: Project) -> None:
    """One Ctrl-C lets the agent finish, then the run stops with the work kept."""
    script = turns(WRITE, {"text": "Half of it.", "delay": 1.5})
    with driven(name, repository, script, maximumIterations=3) as (project, server):
        with started(project) as ralph:
            wait_until(lambda: len(server.turns()) == 2, 60)
            assert len(project.living()) > (
                2 if name in ("codex", "gemini") else 1
            )  # these run two processes each
            ralph.send_signal(signal.SIGINT)
            assert hears(ralph, "Received signal")
            assert ralph.wait(30) == 130
        assert len(server.turns()) == 2
        assert (project.path / "a.txt").exists()


def test_ctrl_c_twice(name: str, repository: Project) -> None:
    """A second Ctrl-C stops everything at once."""
    script = turns({"tools": [{"bash": "echo begun; sleep 299"}]})
    with driven(name, repository, script, maximumIterations=3) as (project, server):
        with started(project) as ralph:
            wait_until(lambda: project.runs("sleep", "299"), 60)
            ralph.send_signal(signal.SIGINT)
            assert hears(ralph, "Received signal")
            ralph.send_signal(signal.SIGINT)
            assert ralph.wait(30) == 130
        assert len(server.turns()) == 1


def test_nothing_may_be_written(name: str, repository: Project) -> None:
    """Without permissions every write is denied, and the run stops as fatal and names the setting."""
    (repository.path / "opencode.json").write_text(json.dumps({"permission": {"edit": "ask"}}))
    call = {"name": "write_file", "input": {"file_path": "a.txt", "content": "one\n"}}
    write = (
        {"tools": [{"call": call}]} if name == "gemini" else WRITE
    )  # Gemini does not offer the tool at all
    script = turns(write, {"text": "I may not."})
    with driven(name, repository, script, agent={"permissions": "none"}, maximumIterations=3) as (project, _):
        result = project.run("run", "-p", "x", timeout=120)
        assert result.code == 2, result.err
        assert '"permissions": "edit"' in result.err + result.out
        assert not (project.path / "a.txt").exists()


def test_a_tag_in_a_file_and_a_long_prompt(name: str, repository: Project) -> None:
    """A tag in a file is not a claim, and a prompt of 300 kB reaches the model whole."""
    (repository.path / "notes.md").write_text(f"{DONE}\nNothing else is noted.\n")
    (repository.path / "prompt.md").write_text("word " * 60_000 + "and that is the end of it")
    script = turns(
        {"text": f"I begin. {DONE}", "tools": [{"bash": "cat notes.md"}]},
        {"tools": [{"read": "notes.md"}]},
        {"text": "I have read it."},
    )
    with driven(name, repository, script) as (project, server):
        result = run(project, "-f", "prompt.md")
        assert (result.code, ends(result)) == (1, ["ok"]), result.err
        asked = [request.said() for request in server.turns()]
        assert "and that is the end of it" in asked[0]
        assert [said.count("Nothing else is noted.") for said in asked] == [0, 1, 2]


def test_its_help_names_the_flags(name: str, tmp_path: Path) -> None:
    """The agent's help lists every flag that Ralph passes."""
    about = AGENTS[name].about
    assert about is not None
    with ModelServer(turns({"text": "never"})) as server:
        env = environment(name, tmp_path / "home", server)
        command = [str(installed(name)), *about.help]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert [flag for flag in about.flags if flag not in done.stdout + done.stderr] == []
