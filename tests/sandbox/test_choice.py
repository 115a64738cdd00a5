"""The backend that a run gets, and what is reported and recorded when there is none."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from conftest import RALPH, Project, Result, some, some_rows
from sandbox_support import BUBBLEWRAP

pytestmark = BUBBLEWRAP

NO_BWRAP = ("--ro-bind", "/dev/null", os.path.realpath("/usr/bin/bwrap"))
NO_NAMESPACES = ("--unshare-user", "--disable-userns")


def without(project: Project, missing: tuple[str, ...], *words: str) -> Result:
    """ralph on a machine where bubblewrap is missing or cannot create namespaces."""
    outer = ["bwrap", "--unshare-user", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *missing]
    command = [*outer, "--cap-drop", "ALL", "--", RALPH, *words]
    done = subprocess.run(
        command, cwd=project.path, env=project.env, capture_output=True, text=True, timeout=60
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def ready(repository: Project) -> Project:
    """A repository with an agent that is done at once."""
    agent = repository.script(
        "agent.sh", 'echo "in ${RALPH_SANDBOX:-none}"; echo "<response>DONE</response>"'
    )
    repository.settings(agent={"command": agent})
    repository.git("add", "-A")
    repository.git("commit", "-qm", "An agent")
    return repository


def started(result: Result) -> dict[str, Any]:
    return next(line for line in result.lines() if line["event"] == "run_started")


@pytest.mark.parametrize("missing", some([NO_BWRAP, NO_NAMESPACES], 1))
@pytest.mark.parametrize("option", [("--sandbox",), ("--sandbox-backend", "bubblewrap")])
def test_s4_a_required_sandbox_that_is_missing_is_an_error(
    ready: Project, missing: tuple[str, ...], option: tuple[str, ...]
) -> None:
    """Exit code 2 with the reason, and no agent is started."""
    done = without(ready, missing, "run", "-p", "x", *option)
    assert done.code == 2 and "bubblewrap" in done.err and "in " not in done.out
    assert not ready.home.runs().all()


@pytest.mark.parametrize(
    ("missing", "why"),
    some_rows(
        [
            (NO_BWRAP, "bwrap is not installed"),
            (NO_NAMESPACES, "this system does not let users create namespaces"),
        ],
        1,
    ),
)
def test_each_unavailable_backend_is_listed_with_its_reason(
    ready: Project, missing: tuple[str, ...], why: str
) -> None:
    """Each backend is listed with its reason, followed by a hint."""
    lines = without(ready, missing, "run", "-p", "x", "--sandbox").err.splitlines()
    assert lines[0] == "ralph: error: No sandbox works on this machine:"
    assert [line.split(":")[0] for line in lines[1:-1]] == [
        "    docker-sandbox",
        "    bubblewrap",
        "    container",
    ]
    assert why in lines[2] and "--no-sandbox" in lines[-1]


@pytest.mark.parametrize("missing", some([NO_BWRAP, NO_NAMESPACES], 1))
def test_s4_auto_without_any_backend_is_reported_everywhere(ready: Project, missing: tuple[str, ...]) -> None:
    """auto continues without a sandbox and says so in both views, the journal and the status."""
    ready.settings(agent={"command": str(ready.path / "agent.sh")}, sandbox={"rung": "auto"})
    done = without(ready, missing, "run", "-p", "x", "--json")
    assert done.code == 0, done.err
    assert started(done)["sandbox"] == "direct"
    notices = [line["text"] for line in done.lines() if line["event"] == "notice"]
    assert any("No sandbox" in text and "bubblewrap" in text for text in notices)
    status = json.loads(ready.run("status", started(done)["run"], "--json").out)
    assert status["sandbox"].startswith("none (") and "bubblewrap: " in status["sandbox"]
    assert "No sandbox" in ready.run("logs", started(done)["run"]).out


def test_a_run_is_direct_by_default(ready: Project) -> None:
    """Settings or an option turn the sandbox on, and another option turns it off."""
    direct = ready.run("run", "-p", "x", "--json")
    chosen = ready.run("run", "-p", "x", "--json", "--sandbox")
    ready.settings(agent={"command": str(ready.path / "agent.sh")}, sandbox={"rung": "bubblewrap"})
    configured = ready.run("run", "-p", "x", "--json")
    none = ready.run("run", "-p", "x", "--json", "--no-sandbox")
    backends = [started(each)["sandbox"] for each in (direct, chosen, configured, none)]
    assert backends == ["direct", "bubblewrap", "bubblewrap", "direct"]
    assert json.loads(ready.run("status", started(configured)["run"], "--json").out)["sandbox"] == (
        "bubblewrap, network open"
    )


@pytest.mark.parametrize(
    ("words", "settings", "said"),
    [
        (("--sandbox-backend", "moat"), {}, "Unknown sandbox 'moat'"),
        (
            ("--no-sandbox", "--sandbox-backend", "bubblewrap"),
            {},
            "--no-sandbox and --sandbox-backend cannot be used together",
        ),
        ((), {"rung": "moat"}, ".ralph/settings.json: sandbox.rung: unknown sandbox 'moat'"),
        (
            (),
            {"rung": "bubblewrap", "allowedHosts": ["10.0.0.1"]},
            "sandbox.allowedHosts: '10.0.0.1' is not a host name",
        ),
        ((), {"network": "closed"}, "sandbox.network"),
        ((), {"image": "--privileged"}, "sandbox.image: '--privileged' is not an image name"),
        ((), {"memoryMb": -1}, "sandbox.memoryMb"),
        ((), {"wall": 1}, "unknown key 'sandbox.wall'"),
    ],
)
def test_an_impossible_choice_is_one_error(
    ready: Project, words: tuple[str, ...], settings: dict[str, Any], said: str
) -> None:
    """The error names the file and the key, or the option."""
    ready.settings(agent={"command": str(ready.path / "agent.sh")}, sandbox=settings)
    done = ready.run("run", "-p", "x", *words)
    assert done.code == 2 and said in done.err


@pytest.mark.parametrize("home", ["/", "somewhere"])
def test_a_home_that_cannot_be_hidden_is_refused(ready: Project, home: str) -> None:
    """Service accounts can have a home like this. It is refused before anything starts."""
    ready.extra_env["HOME"] = home
    done = ready.run("run", "-p", "x", "--sandbox")
    assert (done.code, done.err.splitlines()[0]) == (
        2,
        f"ralph: error: HOME is {home}, which a sandbox cannot hide.",
    )


@pytest.mark.parametrize("key", ["readOnly", "hidden"])
def test_a_path_that_could_be_moved_away_is_refused(ready: Project, key: str) -> None:
    """A path deep inside the worktree cannot be protected from a process that can move its parents."""
    (ready.path / "a").mkdir()
    ready.settings(
        agent={"command": str(ready.path / "agent.sh")}, sandbox={"rung": "bubblewrap", key: ["a/b"]}
    )
    done = ready.run("run", "-p", "x")
    assert done.code == 2 and f"sandbox.{key}" in done.err
