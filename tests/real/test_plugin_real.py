"""The plugin in the real Claude Code: it is valid, its skills are listed, and its hooks reach the model."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import Project
from plugin.plugin_support import PLUGIN, SCRIPTS
from ralph.modelserver.script import ModelScript
from ralph.modelserver.server import ModelServer
from ralph.stories import rules
from ralph.stories.rules import APPROVED, IMPLEMENT, NEEDS_REVIEW
from real.real_support import REAL, Ended, environment, installed, run_directly, turns
from stories.test_rules import board, story

pytestmark = REAL

ROOT = Path(__file__).parents[2]
LOADED = ("--plugin-dir", str(PLUGIN))
TRANSCRIBED = "until [ -s ~/.claude/projects/*/*.jsonl ]; do sleep 0.05; done"
"""Waits for Claude Code's transcript, which is written with a delay and measured by the alert."""


@dataclass
class Claude:
    """Claude Code with a scripted model, in a repository."""

    project: Project
    server: ModelServer
    env: dict[str, str]

    def session(self, *flags: str, prompt: str = "Continue.") -> list[dict[str, Any]]:
        """The events of a whole session."""
        ended = run_directly("claude", self.project.path, self.env, prompt, flags=flags)
        assert ended.code == 0, ended.err
        return [json.loads(line) for line in ended.out.splitlines()]

    def command(self, *arguments: str) -> Ended:
        """A command without a session."""
        done = subprocess.run(
            [installed("claude"), *arguments],
            cwd=self.project.path,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def hears(self, turn: int, words: str) -> bool:
        """Whether the model gets these words for the first time in this turn."""
        said = [request.said() for request in self.server.turns()]
        return words in said[turn - 1] and not any(words in each for each in said[: turn - 1])


@contextmanager
def claude(project: Project, script: ModelScript) -> Iterator[Claude]:
    with ModelServer(script) as server:
        env = environment("claude", project.home.path.parent / "home", server)
        env["PATH"] += f":{Path(sys.executable).parent}"  # in case there is no other python3
        yield Claude(project, server, env)


@pytest.fixture
def repository(repository: Project) -> Project:
    """A repository with the story of a loop."""
    (repository.path / ".gitignore").write_text(".ralph-active\n")
    (repository.path / "ralph").mkdir()
    (repository.path / "ralph" / "tasks.json").write_text(json.dumps(board(story())))
    repository.git("config", "user.name", "Test")
    repository.git("config", "user.email", "test@localhost")
    repository.git("add", "-A")
    repository.git("commit", "-q", "-m", "Plan")
    return repository


def mark(project: Project) -> None:
    """Mark a loop as active, at the start of an implement iteration."""
    found = rules.snapshot(board(story()))
    marker = {"pid": 1, "iterationMode": IMPLEMENT, "preIterationSnapshot": found, "reviewCap": 5}
    (project.path / ".ralph-active").write_text(json.dumps(marker))


def skills(events: list[dict[str, Any]]) -> set[str]:
    (init,) = [each for each in events if each.get("subtype") == "init"]
    return {name for name in init["skills"] if name.startswith("ralph:")}


ALL_SKILLS = {f"ralph:{path.parent.name}" for path in PLUGIN.glob("skills/*/SKILL.md")}


def test_it_is_valid(repository: Project) -> None:
    """The plugin and both marketplaces pass strict validation."""
    with claude(repository, turns({"text": "unused"})) as agent:
        for place in (PLUGIN, ROOT):
            ended = agent.command("plugin", "validate", "--strict", str(place))
            assert ended.code == 0 and "Validation passed" in ended.out, ended


def test_every_skill_is_listed(repository: Project) -> None:
    """The user sees each skill's name, and the model also sees its description."""
    with claude(repository, turns({"text": "Hello."})) as agent:
        assert skills(agent.session(*LOADED)) == ALL_SKILLS
        assert all(agent.hears(1, name) for name in (*ALL_SKILLS, "plan this feature for ralph"))


@pytest.mark.parametrize("name", sorted(ALL_SKILLS))
def test_a_skill_is_called_by_its_name(repository: Project, name: str) -> None:
    """The model gets the skill's whole text."""
    text = (PLUGIN / "skills" / name.partition(":")[2] / "SKILL.md").read_text().split("---\n", 2)[2]
    with claude(repository, turns({"text": "Which feature?"})) as agent:
        assert agent.session(*LOADED, prompt=f"/{name}")[-1]["result"] == "Which feature?"
        assert agent.hears(1, text.strip())


@pytest.mark.parametrize("how", ["marketplace", "skills folder"])
def test_an_installed_copy_is_loaded(repository: Project, how: str) -> None:
    """The plugin loads after the commands printed by `ralph plugin install`, or from the skills folder."""
    with claude(repository, turns({"text": "Hello."})) as agent:
        home = Path(agent.env["HOME"])
        place = home / "plugins/ralph" if how == "marketplace" else home / ".claude/skills/ralph"
        printed = repository.run("plugin", "install", "--dir", str(place)).out
        if how == "marketplace":
            commands = [line.split() for line in printed.splitlines() if line.startswith("  claude ")]
            assert [agent.command(*words[1:]).code for words in commands] == [0, 0]
        assert skills(agent.session()) == ALL_SKILLS


@pytest.mark.parametrize("command", [TRANSCRIBED, f"{TRANSCRIBED}; false"], ids=["good", "failed"])
def test_the_alert_reaches_the_model(repository: Project, command: str) -> None:
    """The alert arrives once after a tool call, even after one that failed."""
    script = turns({"tools": [{"bash": command}]}, {"tools": [{"bash": "true"}]}, {"text": "x"})
    with claude(repository, script) as agent:
        agent.env["CLAUDE_CONTEXT_WINDOW"] = "10"
        events = agent.session(*LOADED)
        assert agent.hears(2, "CRITICAL: about 100% of the context window is used. Wrap up immediately.")
        assert agent.server.turns()[-1].said().count("CRITICAL: about") == 1
        state = Path(f"/tmp/claude-context-alerts-{events[-1]['session_id']}")
        assert state.read_text().split()[-1] == "90"
        state.unlink()


def test_a_session_begins_with_every_alert(repository: Project) -> None:
    """SessionStart removes the alert state of an earlier session with the same id."""
    script = turns({"text": "x"}, {"tools": [{"bash": "true"}]}, {"text": "x"})
    with claude(repository, script) as agent:
        id = agent.session(*LOADED)[-1]["session_id"]
        state = Path(f"/tmp/claude-context-alerts-{id}")
        state.write_text("50\n60\n70\n80\n90\n")
        agent.env["CLAUDE_CONTEXT_WINDOW"] = "10"
        events = agent.session(*LOADED, "--resume", id)
        assert events[-1]["session_id"] == id
        assert agent.hears(3, "CRITICAL: about 100%")
        state.unlink()


def test_megabytes_for_the_monitor(repository: Project) -> None:
    """The hook reads all of a very large input full of quotes without an error."""
    waiter = {"type": "command", "command": TRANSCRIBED}
    counter = {"type": "command", "command": "wc -c > .git/size"}
    hooks = {"PreToolUse": [{"hooks": [waiter]}], "PostToolUse": [{"hooks": [counter]}]}
    settings = json.dumps({"hooks": hooks})
    big = {"path": str(repository.path / "big.txt"), "content": '"session_id":' * 200_000}
    with claude(repository, turns({"tools": [{"write": big}]}, {"text": "x"})) as agent:
        agent.env["CLAUDE_CONTEXT_WINDOW"] = "10"
        events = agent.session(*LOADED, "--settings", settings)
        assert agent.hears(2, "CRITICAL: about 100%")
        Path(f"/tmp/claude-context-alerts-{events[-1]['session_id']}").unlink()
    assert int((repository.path / ".git" / "size").read_text()) > 2_000_000


def test_a_stop_is_blocked_until_the_work_is_in_order(repository: Project) -> None:
    """Each block reason reaches the model's next turn: its own approval, then uncommitted work."""
    mark(repository)
    path = str(repository.path / "ralph" / "tasks.json")
    approved = story(passes=True, reviewStatus=APPROVED, reviewCount=1)
    script = turns(
        {"tools": [{"write": {"path": path, "content": json.dumps(board(approved))}}]},
        {"text": "All done."},
        {
            "tools": [
                {"write": {"path": path, "content": json.dumps(board(story(reviewStatus=NEEDS_REVIEW)))}}
            ]
        },
        {"text": "Submitted."},
        {"tools": [{"bash": "git commit -qam 'feat: [US-001] - A story'"}]},
        {"text": "Committed."},
    )
    with claude(repository, script) as agent:
        events = agent.session(*LOADED)
        assert agent.hears(3, "Implement iterations cannot set passes=true")
        assert agent.hears(5, "3. Commit ALL changes")
        assert len(agent.server.turns()) == 6
        assert (events[-1]["is_error"], events[-1]["result"]) == (False, "Committed.")
    assert repository.git("status", "--porcelain") == ""


def test_without_a_loop_a_session_ends_as_usual(repository: Project) -> None:
    """Without a loop nothing is blocked, even with uncommitted files."""
    (repository.path / "new.txt").touch()
    with claude(repository, turns({"text": "Hello."})) as agent:
        assert agent.session(*LOADED)[-1]["result"] == "Hello."
        assert len(agent.server.turns()) == 1


def test_claude_code_stops_after_eight_blocks(repository: Project) -> None:
    """Claude Code ends the session after eight blocks, so Ralph has to check again."""
    mark(repository)
    (repository.path / "new.txt").touch()
    with claude(repository, turns({"text": "No.", "times": 20})) as agent:
        agent.session(*LOADED)
        assert len(agent.server.turns()) <= 10


def test_the_copy_of_a_plugin_runs_alone(repository: Project, tmp_path: Path) -> None:
    """A copy of the plugin works without Ralph, in a folder with spaces in its name."""
    place = tmp_path / "a copy" / "ralph"
    shutil.copytree(PLUGIN, place)
    mark(repository)
    (repository.path / "new.txt").touch()
    script = turns(
        {"text": "Done."}, {"tools": [{"bash": "git add -A; git commit -qm x"}]}, {"text": "Done."}
    )
    with claude(repository, script) as agent:
        agent.session("--plugin-dir", str(place))
        assert agent.hears(2, "There are uncommitted changes: new.txt")
    assert not (SCRIPTS / "__pycache__").exists()
