"""The real Codex, driven by `ralph run` against a scripted model server."""

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
from ralph.agents.codex import Codex
from ralph.modelserver.script import Script, parse
from ralph.modelserver.server import ModelServer
from real.real_support import REAL, environment, installed

pytestmark = REAL

DONE = "<response>DONE</response>"


@dataclass
class Lonely(Project):
    """A project whose environment holds nothing but what the agent needs."""

    alone: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        return self.alone | {"RALPH_STATE_DIR": str(self.home.path), "NO_COLOR": "1"}

    def living(self) -> set[int]:
        """Every process that has this project's home: ralph, Codex, and whatever they have started."""
        mark = f"HOME={self.alone['HOME']}\0".encode()
        return {
            int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if mark in _bytes(path)
        }


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def runs(pid: int, *argv: str) -> bool:
    return _bytes(Path(f"/proc/{pid}/cmdline")) == "".join(f"{word}\0" for word in argv).encode()


def turns(*each: dict[str, Any]) -> Script:
    return parse(json.dumps({"turns": each, "then": "error"}))


@contextmanager
def codex(repository: Project, script: Script, **settings: Any) -> Iterator[tuple[Lonely, ModelServer]]:
    """The repository with Codex as its agent; in the end nobody may be left."""
    with ModelServer(script) as server:
        alone = environment("codex", repository.home.path.parent / "home", server)
        lonely = Lonely(repository.path, repository.home, alone=alone)
        lonely.git("config", "user.name", "Test")
        lonely.git("config", "user.email", "test@localhost")
        agent = {"command": "codex", "permissions": "bypass"} | settings.pop("agent", {})
        lonely.settings(**({"agent": agent, "maximumIterations": 1, "snapshots": False} | settings))
        yield lonely, server
        wait_until(lambda: not lonely.living(), 2)


@contextmanager
def started(project: Project) -> Iterator[subprocess.Popen[str]]:
    """ralph in the background; a test that fails leaves nothing running."""
    process = project.start("run", "-p", "x")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ends(result: Result) -> list[str]:
    """How each agent process ended."""
    return [line["ran"]["ended"] for line in result.lines() if line["event"] == "agent_ended"]


def test_a_whole_loop(repository: Project) -> None:
    """A write, a red guardrail, its feedback in the next prompt, a fix, the claim, the commit."""
    script = turns(
        {"text": "I write.", "tools": [{"write": {"path": "a.txt", "content": "one\n"}}]},
        {"text": DONE},
        {"tools": [{"edit": {"path": "a.txt", "old": "one", "new": "two"}}]},
        {"text": f"It is right now.\n\n{DONE}", "usage": {"input": 1000, "cached": 600, "output": 100}},
        {"text": "<response>Say two in a.txt</response>"},
    )
    with codex(
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
    with codex(repository, script) as (project, _):
        with started(project) as ralph:
            assert ralph.stderr is not None
            assert any("Waiting until" in line for line in ralph.stderr)
            ralph.send_signal(signal.SIGINT)
            assert ralph.wait(30) == 130
        project.settings(agent={"command": "codex"}, maxLimitWaitSeconds=1, snapshots=False)
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (3, ["limit"]), result.err
        assert "hit your usage limit" in result.out


def test_a_hang_in_mid_stream(repository: Project) -> None:
    """It is ended after the idle time, and the next iteration goes on."""
    script = turns({"text": f"All is done: {DONE}", "hang_after": 6}, {"text": DONE})
    with codex(repository, script, idleTimeoutSeconds=5, maximumIterations=2) as (project, _):
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (0, ["idle", "ok"]), result.err


def test_a_cut_stream_and_an_empty_answer(repository: Project) -> None:
    """The first has failed after Codex's own retries, the second is empty: neither claims anything."""
    script = turns({"text": f"All is done: {DONE}", "cut": True, "times": 6}, {"empty": True})
    with codex(repository, script, maximumIterations=2) as (project, _):
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (1, ["failed", "empty"]), result.err
        assert [line["attempt"] for line in result.lines() if line["event"] == "retry"] == [1, 2, 3, 4, 5]


def test_a_child_that_outlives_it(repository: Project) -> None:
    """What Codex leaves running in the background is gone when the run is over."""
    script = turns(
        {"tools": [{"bash": "setsid sleep 300 > /dev/null 2>&1 & echo $! > .ralph/child"}]}, {"text": DONE}
    )
    with codex(repository, script) as (project, _):
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (0, ["ok"]), result.err
        child = int((project.path / ".ralph/child").read_text())
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def test_ctrl_c(repository: Project) -> None:
    """Once: Codex may finish what it does, and then it is over, with the work kept."""
    script = turns(
        {"tools": [{"write": {"path": "a.txt", "content": "one\n"}}]}, {"text": "Half of it.", "delay": 1.5}
    )
    with codex(repository, script, maximumIterations=3) as (project, server):
        with started(project) as ralph:
            wait_until(lambda: len(server.turns()) == 2)
            assert len(project.living()) > 2
            ralph.send_signal(signal.SIGINT)
            assert ralph.wait(30) == 130
        assert len(server.turns()) == 2
        assert (project.path / "a.txt").exists()


def test_ctrl_c_twice(repository: Project) -> None:
    """Twice: everything is ended now, whatever Codex waits for."""
    script = turns({"tools": [{"bash": "sleep 300"}]})
    with codex(repository, script, maximumIterations=3) as (project, server):
        with started(project) as ralph:
            wait_until(lambda: any(runs(pid, "sleep", "300") for pid in project.living()))
            ralph.send_signal(signal.SIGINT)
            assert ralph.stderr is not None
            assert any("Received signal" in line for line in ralph.stderr)
            ralph.send_signal(signal.SIGINT)
            assert ralph.wait(30) == 130
        assert len(server.turns()) == 1


def test_nothing_may_be_written(repository: Project) -> None:
    """Without permissions Codex is read-only: the run stops as fatal and names the setting."""
    script = turns({"tools": [{"write": {"path": "a.txt", "content": "one\n"}}]}, {"text": "I may not."})
    with codex(repository, script, agent={"permissions": "none"}, maximumIterations=3) as (project, _):
        result = project.run("run", "-p", "x")
        assert result.code == 2, result.err
        assert '"permissions": "edit"' in result.err + result.out


def test_a_tag_in_a_file_and_a_long_prompt(repository: Project) -> None:
    """Codex reads a file with the tag in it: no claim. A prompt of 300 kB reaches the model whole."""
    (repository.path / "notes.md").write_text(f"{DONE}\n")
    (repository.path / "prompt.md").write_text("word " * 60_000 + "and that is the end of it")
    script = turns({"tools": [{"bash": "cat notes.md"}]}, {"text": "I have read it."})
    with codex(repository, script) as (project, server):
        result = project.run("run", "-f", "prompt.md", "--json")
        assert (result.code, ends(result)) == (1, ["ok"]), result.err
        assert DONE in server.turns()[1].said()
        assert "and that is the end of it" in server.turns()[0].said()


def test_its_help_names_the_flags() -> None:
    """What Ralph passes is what this version of Codex knows."""
    about = Codex.about
    done = subprocess.run([str(installed("codex")), *about.help], capture_output=True, text=True, check=True)
    assert [flag for flag in about.flags if flag not in done.stdout] == []
