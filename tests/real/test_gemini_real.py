"""The real Gemini CLI, driven by `ralph run` against a scripted model server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conftest import Project, Result, wait_until
from ralph.modelserver.script import Script, parse
from ralph.modelserver.server import ModelServer
from real.real_support import REAL, environment

pytestmark = REAL

DONE = "<response>DONE</response>"
A_DAY = 90_000
STARTED = 15
"""So many seconds of silence are more than it needs to start, also on a busy machine."""


@dataclass
class Lonely(Project):
    """A project whose environment holds nothing but what the agent needs."""

    alone: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        return self.alone | {"RALPH_STATE_DIR": str(self.home.path), "NO_COLOR": "1"}

    def configure(self, **settings: Any) -> None:
        agent = {"command": "gemini", "permissions": "bypass", "flags": ["-m", "gemini-2.5-pro"]}
        agent |= settings.pop("agent", {})
        self.settings(**({"agent": agent, "maximumIterations": 1, "snapshots": False} | settings))

    def living(self) -> set[int]:
        """Every process that has this project's home: ralph, Gemini, and whatever they have started."""
        mark = f"HOME={self.alone['HOME']}\0".encode()
        return {
            int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if mark in _bytes(path)
        }


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def turns(*each: dict[str, Any]) -> Script:
    return parse(json.dumps({"turns": each, "then": "error"}))


@contextmanager
def gemini(repository: Project, script: Script, **settings: Any) -> Iterator[tuple[Lonely, ModelServer]]:
    """The repository with Gemini as its agent; in the end nobody may be left."""
    with ModelServer(script) as server:
        home = repository.home.path.parent / "home"
        alone = environment("gemini", home, server) | {"TMPDIR": str(home)}
        lonely = Lonely(repository.path, repository.home, alone=alone)
        lonely.git("config", "user.name", "Test")
        lonely.git("config", "user.email", "test@localhost")
        lonely.configure(**settings)
        yield lonely, server
        assert not lonely.living()


def ends(result: Result) -> list[str]:
    """How each agent process ended."""
    return [line["ran"]["ended"] for line in result.lines() if line["event"] == "agent_ended"]


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    """Read what ralph tells until it says this."""
    assert process.stderr is not None
    assert any(words in line for line in process.stderr)


def finish(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=40)
    return process.returncode


def test_a_whole_loop(repository: Project) -> None:
    """A write, a red guardrail, its feedback in the next prompt, a fix, the claim, the commit."""
    script = turns(
        {"text": "I write.", "tools": [{"write": {"path": "a.txt", "content": "one\n"}}]},
        {"text": DONE},
        {"tools": [{"edit": {"path": "a.txt", "old": "one", "new": "two"}}]},
        {"text": f"It is right now.\n\n{DONE}", "usage": {"input": 1000, "cached": 600, "output": 100}},
        {"text": "<response>Say two in a.txt</response>"},
    )
    with gemini(
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
        assert [request.played for request in asked] == [1, 2, 3, 4, 5]
        assert "missing-two" not in asked[1].said()
        assert "missing-two" in asked[2].said()
        assert project.git("log", "-1", "--format=%s").strip() == "Say two in a.txt"
        assert (project.path / "a.txt").read_text() == "two\n"
        usage = result.lines()[-1]["usage"]
        assert (usage["input_tokens"], usage["cache_read_tokens"], usage["output_tokens"]) == (4400, 600, 500)


def test_a_usage_limit(repository: Project) -> None:
    """It is waited for, spends no iteration, and is given up when the wait would be too long."""
    script = parse("turns: [{usage_limit: {resets_in: 600}, times: forever}]")
    with gemini(repository, script, maxLimitWaitSeconds=A_DAY) as (project, _):
        ralph = project.start("run", "-p", "x")
        wait_for(ralph, "Waiting until")
        ralph.send_signal(signal.SIGINT)
        assert finish(ralph) == 130
        project.configure(maxLimitWaitSeconds=1)
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (3, ["limit"]), result.err
        assert "exhausted your daily quota" in result.out


def test_a_hang_in_mid_stream(repository: Project) -> None:
    """It is ended after the idle time, and the next iteration goes on."""
    script = turns({"text": f"I am on my way to {DONE}", "hang_after": 1}, {"text": DONE})
    with gemini(repository, script, idleTimeoutSeconds=STARTED, maximumIterations=2) as (project, _):
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (0, ["idle", "ok"]), result.err


def test_a_cut_stream_and_an_empty_answer(repository: Project) -> None:
    """The first has failed, the second is empty after Gemini's own retries: neither claims anything."""
    script = turns({"text": f"I am on my way to {DONE}", "cut": True}, {"empty": True, "times": 4})
    with gemini(repository, script, maximumIterations=2) as (project, _):
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (1, ["failed", "empty"]), result.err


def test_a_child_that_outlives_it(repository: Project) -> None:
    """What Gemini leaves running is gone in the end; a tag in a file that it reads is no claim.

    A prompt of 300 kB reaches the model whole.
    """
    (repository.path / "notes.md").write_text(f"{DONE}\n")
    (repository.path / "prompt.md").write_text("word " * 60_000 + "and that is the end of it")
    command = "setsid sleep 300 > /dev/null 2>&1 & echo $! > .ralph/child; cat notes.md"
    script = turns({"tools": [{"bash": command}]}, {"text": "I have read it."})
    with gemini(repository, script) as (project, server):
        result = project.run("run", "-f", "prompt.md", "--json")
        assert (result.code, ends(result)) == (1, ["ok"]), result.err
        child = int((project.path / ".ralph/child").read_text())
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
        assert DONE in server.turns()[1].said()
        assert "and that is the end of it" in server.turns()[0].said()


def test_ctrl_c(repository: Project) -> None:
    """Once: Gemini may finish what it does, and then it is over, with the work kept."""
    script = turns(
        {"tools": [{"write": {"path": "a.txt", "content": "one\n"}}]}, {"text": "Half of it.", "delay": 1.5}
    )
    with gemini(repository, script, maximumIterations=3) as (project, server):
        ralph = project.start("run", "-p", "x")
        wait_until(lambda: len(server.turns()) == 2, 40)
        assert len(project.living()) > 2
        ralph.send_signal(signal.SIGINT)
        assert finish(ralph) == 130
        assert len(server.turns()) == 2
        assert (project.path / "a.txt").exists()


def test_ctrl_c_twice(repository: Project) -> None:
    """Twice: everything is ended now, whatever Gemini waits for."""
    script = turns({"tools": [{"bash": "sleep 300"}]})
    with gemini(repository, script, maximumIterations=3) as (project, server):
        ralph = project.start("run", "-p", "x")

        def sleeps() -> bool:
            return any(b"sleep\x00300" in _bytes(Path(f"/proc/{pid}/cmdline")) for pid in project.living())

        wait_until(sleeps, 40)
        ralph.send_signal(signal.SIGINT)
        wait_for(ralph, "shutting down")
        ralph.send_signal(signal.SIGINT)
        assert finish(ralph) == 130
        assert len(server.turns()) == 1


def test_nothing_may_be_written(repository: Project) -> None:
    """Without permissions there is no tool that writes: the run stops as fatal and names the setting."""
    write = {"name": "write_file", "input": {"file_path": "a.txt", "content": "one\n"}}
    script = turns({"tools": [{"call": write}]}, {"text": "I may not."})
    with gemini(repository, script, agent={"permissions": "none"}, maximumIterations=3) as (project, _):
        result = project.run("run", "-p", "x")
        assert result.code == 2, result.err
        assert '"permissions": "edit"' in result.err + result.out


def test_no_key(repository: Project) -> None:
    """Nobody is logged in: the run stops as fatal, and says so in Gemini's words."""
    with gemini(repository, turns({"text": DONE}), maximumIterations=3) as (project, _):
        del project.alone["GEMINI_API_KEY"]
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (2, ["auth"]), result.err
        assert "must specify the GEMINI_API_KEY" in result.out
