"""Backends with their own system: which files of this machine are mounted there, and whole runs on fakes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Project
from loop.confinement_support import Noted
from ralph.core.model import (
    AgentSpec,
    Flow,
    Guarding,
    Plan,
    Prd,
    PromptSource,
    SandboxSpec,
)
from ralph.loop.confinement import ConfinedRun, Confinement
from ralph.runs import agent_hooks
from ralph.sandbox import programs
from ralph.sandbox.base import Mounts, Root
from ralph.sandbox.seccomp import without_namespaces
from ralph.scm.repository import find_repository
from sandbox.engine_support import Bench, faked


def rooms_of(project: Project, root: Root) -> Confinement:
    agents = (AgentSpec("custom", "custom", "agent"),)
    spec = SandboxSpec("container")
    plan = Plan("r", Flow.RUN, str(project.path), agents, PromptSource(), sandbox=spec)
    streams = project.home.make_streams("r").resolve()
    confinement = Confinement(
        ConfinedRun(plan, find_repository(project.path), project.home.path.resolve(), streams), root
    )
    confinement.sandbox = Noted()
    return confinement


def room_of(confinement: Confinement, program: str) -> Mounts:
    confinement.agent(confinement._plan.agents[0], [program], dict(os.environ), None)
    assert isinstance(confinement.sandbox, Noted)
    return confinement.sandbox.mounts


@pytest.mark.parametrize("root", [Root.IMAGE, Root.MACHINE])
def test_ralph_and_the_agent_are_mounted_into_another_system(
    project: Project, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are mounted wherever they are, unless a distribution installed them; nothing else of this system
    is."""
    elsewhere = project.path.parent / "opt" / "agent"
    elsewhere.parent.mkdir()
    elsewhere.write_text("#!/bin/sh\n")
    mounts = room_of(rooms_of(project, root), str(elsewhere))
    assert programs.within(str(elsewhere), mounts.read_only)
    package = str(Path(programs.__file__).parents[1])
    assert programs.within(package, mounts.read_only)
    assert programs.within(sys.prefix, mounts.read_only) or programs.is_of_system(sys.prefix)
    assert not any(programs.is_of_system(path) for path in mounts.read_only)


@pytest.mark.parametrize(
    ("path", "is_there"),
    [
        ("/usr/bin/node", True),
        ("/usr", True),
        ("/etc/resolv.conf", True),
        ("/usr/local", True),
        ("/usr/local/bin", True),
        ("/usr/local/bin/claude", False),
        ("/usr/local/lib/node_modules", False),
        ("/opt/agent", False),
        ("/home/x/.nvm", False),
    ],
)
def test_files_of_a_distribution_are_not_mounted(path: str, is_there: bool) -> None:
    """Files of a distribution come from the image; files added next to them do not."""
    assert programs.is_of_system(path) is is_there


def test_our_scripts_use_an_available_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our interpreter if it is mounted, otherwise that of the other system."""
    monkeypatch.setattr(sys, "executable", "/opt/ralph/bin/python")
    monkeypatch.setattr(sys, "platform", "linux")
    assert [programs.python(root) for root in Root] == ["/opt/ralph/bin/python"] * 2 + ["python3"]
    monkeypatch.setattr(sys, "executable", "/usr/bin/true")
    assert [programs.python(root) for root in Root] == ["/usr/bin/true", "python3", "python3"]


def test_the_boundary_has_the_worktree_first_and_the_main_repository(repository: Project) -> None:
    """The mounts of a Docker Sandbox are fixed when it is created."""
    place = repository.path.parent / "linked"
    repository.git("worktree", "add", "-q", str(place))
    agents = (AgentSpec("custom", "custom", "agent"),)
    plan = Plan("r", Flow.RUN, str(place), agents, PromptSource(), sandbox=SandboxSpec("docker"))
    streams = repository.home.make_streams("r").resolve()
    confinement = Confinement(
        ConfinedRun(plan, find_repository(place), repository.home.path.resolve(), streams), Root.MACHINE
    )
    assert confinement.boundary.writable[0] == str(place.resolve())
    assert confinement.boundary.read_only == (str((repository.path / ".git").resolve()),)


# ---- the command guard ----


@pytest.mark.parametrize("backend", ["direct", "bubblewrap", "container", "docker"])
@pytest.mark.parametrize("is_prd", [False, True])
def test_the_guard_is_a_hook_only_without_a_sandbox(tmp_path: Path, backend: str, is_prd: bool) -> None:
    """The hooks of a PRD loop are always there."""
    prompt = PromptSource(prd=Prd()) if is_prd else PromptSource()
    agents = (AgentSpec("claude", "claude", "claude"),)
    plan = Plan("r", Flow.RUN, str(tmp_path), agents, prompt, guard=Guarding(), sandbox=SandboxSpec(backend))
    file = agent_hooks.prepare(plan, tmp_path)
    found = set(json.loads(Path(file).read_text())["hooks"]) if file else set()
    of_prd = {"PostToolUse", "PostToolUseFailure", "Stop"} if is_prd else set()
    assert found == of_prd | ({"PreToolUse"} if backend == "direct" else set())


# ---- whole runs on fakes ----

AGENT = """
echo "$RALPH_SANDBOX ${RALPH_GUARDED:-unguarded}" >where
[ -e red ] && echo two >done.txt; touch red
echo '<response>DONE</response>'
"""


@pytest.fixture
def sbx(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A fake Docker Sandbox whose commands run on this machine."""
    place = tmp_path / "sbx"
    place.mkdir()
    with faked(place, monkeypatch, "sbx") as bench:
        yield bench


@pytest.mark.slow
def test_a_whole_run_in_a_docker_sandbox(sbx: Bench, project: Project) -> None:
    """Agent and checks go through `exec`, a failed check is answered, and the sandbox is stopped in the end."""
    project.agent(AGENT, guardrails=[{"command": "test -e done.txt"}])
    done = project.run("run", "-p", "x", "-m", "3", "--json", "--sandbox-rung", "docker")
    assert done.code == 0, done.err
    assert (
        next(line for line in done.lines() if line["event"] == "run_started")["sandbox"] == "docker-sandbox"
    )
    assert (project.path / "where").read_text() == "docker-sandbox 1\n"
    ((name, made),) = sbx.sandboxes().items()
    auth = os.path.join(project.home.path, ".dclaude_state")
    assert made["workspaces"][:2] == [str(project.path), auth] and made["status"] == "stopped"
    assert any(name in line["text"] and auth in line["text"] for line in done.lines() if "text" in line)
    assert (
        len(sbx.said("sbx", "exec", "-i")) == 5
    )  # the trial of the sandbox, then two each of agent and check


# ---- system calls ----


def test_a_profile_without_namespaces(tmp_path: Path) -> None:
    """Everything else that the profile allows stays; an unreadable profile gives none."""
    profile = tmp_path / "profile"
    allowed = {"names": ["read", "unshare", "clone"], "action": "SCMP_ACT_ALLOW"}
    profile.write_text(json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [allowed]}))
    found = json.loads(without_namespaces(str(profile)))
    assert found["defaultAction"] == "SCMP_ACT_ERRNO"
    assert found["syscalls"][0]["names"] == ["read"]
    assert {"unshare", "setns"} <= set(found["syscalls"][-1]["names"])
    profile.write_text("[]")
    assert without_namespaces(str(profile)) == without_namespaces(str(tmp_path / "none")) == ""
