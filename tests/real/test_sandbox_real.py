"""The real agent CLIs inside bubblewrap, driven by `ralph` against a scripted model server."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from conftest import Project, Result
from ralph.stories.rules import NEEDS_REVIEW
from real.real_support import DONE, NAMES, REAL, Lonely, driven, ends, turns
from stories.test_rules import board, story

pytestmark = [*REAL, pytest.mark.usefixtures("bubblewrap")]

SANDBOX = {"rung": "bubblewrap", "variables": ["SCRIPTED_KEY"]}
LOOK = "cat ~/.ssh/id; cat ~/.netrc; echo $SECRET; echo $RALPH_SANDBOX; touch ../escaped"


def run(project: Lonely, *words: str) -> Result:
    return project.run(*words, "--json", timeout=120)


def plant(project: Lonely) -> Path:
    """Put credentials into the agent's home and a secret into its environment."""
    home = Path(project.alone["HOME"])
    (home / ".ssh").mkdir(exist_ok=True)
    for name in (".ssh/id", ".netrc"):
        (home / name).write_text("honeytoken\n")
    project.alone["SECRET"] = "honeytoken"
    return home


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_loop_inside(name: str, repository: Project) -> None:
    """A whole run with a failed check works in the sandbox, and the agent sees no secret."""
    script = turns(
        {"tools": [{"write": {"path": "a.txt", "content": "one\n"}}]},
        {"tools": [{"bash": LOOK}]},
        {"text": DONE},
        {"tools": [{"bash": "echo two >a.txt"}]},
        {"text": f"It is right now.\n\n{DONE}"},
        {"text": "Say two in a.txt"},
    )
    with driven(
        name,
        repository,
        script,
        agent={"permissions": None},
        maximumIterations=3,
        sandbox=SANDBOX,
        guardrails=[{"command": "test -n $RALPH_SANDBOX && grep two a.txt"}],
        scm={"command": "git", "tasks": ["commit"]},
    ) as (project, server):
        plant(project)
        result = run(project, "run", "-p", "Write a.txt")
        assert (result.code, ends(result)) == (0, ["ok", "ok", "ok"]), result.err
        seen = server.turns()[2].said()
        assert "bubblewrap" in seen and "honeytoken" not in seen
        assert not (project.path.parent / "escaped").exists()
        assert (project.path / "a.txt").read_text() == "two\n"


@pytest.fixture
def loopback() -> str:
    """A loopback name of this machine other than localhost, to which Claude Code talks without a proxy."""
    for line in Path("/etc/hosts").read_text().splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        for name in names if address.startswith("127.") else ():
            if name != "localhost" and socket.gethostbyname(name) == "127.0.0.1":
                return name
    pytest.skip("this machine has no name on loopback but localhost")


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_only_the_model_can_be_reached(name: str, repository: Project, loopback: str) -> None:
    """With an allow-list, the agent reaches its server through the proxy and nothing else."""
    reach = "curl -sS --max-time 5 https://example.org; curl -sS --noproxy '*' --max-time 5 http://1.1.1.1; echo tried"
    script = turns({"tools": [{"bash": reach}]}, {"text": DONE})
    with driven(name, repository, script) as (project, server):
        port = server.url.rpartition(":")[2]
        for key, value in project.alone.items():
            project.alone[key] = value.replace(f"127.0.0.1:{port}", f"{loopback}:{port}")
        config = Path(project.alone["HOME"]) / ".codex" / "config.toml"
        if config.exists():
            config.write_text(config.read_text().replace("127.0.0.1", loopback))
        project.configure(
            agent={"env": {"NO_PROXY": "none"}},
            sandbox=SANDBOX | {"network": "allow-list", "allowedHosts": [f"{loopback}:{port}"]},
        )
        result = run(project, "run", "-p", "Look around")
        assert (result.code, ends(result)) == (0, ["ok"]), result.err
        assert "tried" in server.turns()[1].said()
        told = [line["text"] for line in result.lines() if line["event"] == "notice"]
        assert any("refused a connection to example.org:443" in text for text in told)


def test_claude_keeps_its_sessions_but_not_its_changed_file(repository: Project) -> None:
    """Claude's sessions are kept in the user's directory, but its config file is only a copy."""
    script = turns({"text": DONE})
    with driven("claude", repository, script, sandbox=SANDBOX) as (project, _):
        home = plant(project)
        (home / ".claude").mkdir(exist_ok=True)
        (home / ".claude.json").write_text("{}")
        result = run(project, "run", "-p", "Say it")
        assert (result.code, ends(result)) == (0, ["ok"]), result.err
        assert list((home / ".claude" / "projects").rglob("*.jsonl"))
        assert (home / ".claude.json").read_text() == "{}"
        assert not list(project.home.path.rglob("sandbox/copied")), "a copy may hold a key"


def test_a_prd_loop_inside_with_hooks(repository: Project) -> None:
    """The best backend is the default, and the plugin's Stop hook fires inside and reaches the model."""
    (repository.path / "ralph").mkdir()
    first = board(story())
    (repository.path / "ralph" / "tasks.json").write_text(json.dumps(first))
    for name in ("prd.md", "prompt.md", "progress.txt"):
        (repository.path / "ralph" / name).write_text("# Work on the next story\n")
    repository.git("add", "-A")
    repository.git("commit", "-q", "-m", "Plan")

    def tasks(**changed: Any) -> dict[str, Any]:
        """A turn that writes the list with its only story changed."""
        text = json.dumps(board(story(**changed)))
        commit = "git add -A && git commit -qm work"
        return {"tools": [{"bash": f"cat >ralph/tasks.json <<'END'\n{text}\nEND\n{commit}"}]}

    (repository.path / ".gitignore").write_text(".ralph-active\n.ralph/\n")
    repository.git("add", "-A")
    repository.git("commit", "-q", "-m", "Ignore")
    done = {"notes": "made"}
    script = turns(
        tasks(passes=True, reviewStatus="approved", reviewCount=1, **done),
        {"text": "I approve myself."},  # the hook refuses
        tasks(reviewStatus=NEEDS_REVIEW, **done),
        {"text": "For review."},
        tasks(passes=True, reviewStatus="approved", reviewCount=1, **done),
        {"text": "<promise>COMPLETE</promise>"},
    )
    with driven("claude", repository, script, agent={"permissions": None}) as (project, server):
        plant(project)
        result = run(project, "prd", "run", "-n", "4")
        assert result.code == 0, result.err + result.out
        begun = next(line for line in result.lines() if line["event"] == "run_started")
        assert (begun["sandbox"], begun["permissions"]) == ("bubblewrap", "bypass")
        told = server.turns()[2].said()
        assert "implement" in told and "US-001" in told, "the Stop hook's message arrived"
        assert not server.turns()[1].said().count("Stop hook feedback")
