"""Support for tests of `ralph work` with real agents: tasks, scripted answers, and the project."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import Project
from ralph.modelserver.server import ModelServer, Request
from real.real_support import Lonely, environment, turns
from work_support import Site

TIMEOUT = 150
"""Seconds for a whole `ralph work`, enough for a busy machine."""


# ---- tasks and answers ----


def imported(site: Site, text: str) -> None:
    """Import tasks from YAML text."""
    done = site.project.run("task", "import", "-", stdin=text)
    assert done.code == 0, done.err


def say(text: str, promise: str) -> dict[str, Any]:
    """The agent's final message with its promise."""
    return {"text": f"{text}\n\n<promise>{promise}</promise>"}


def write(**files: str) -> dict[str, Any]:
    """An answer that writes files; `__` in a name stands for a slash."""
    named = {name.replace("__", "/") + ".py": content for name, content in files.items()}
    return {"tools": [{"write": {"path": path, "content": content}} for path, content in named.items()]}


def edit(path: str, old: str, new: str) -> list[dict[str, Any]]:
    """Two answers, because agents must read a file before they edit it."""
    return [{"tools": [{"read": path}]}, {"tools": [{"edit": {"path": path, "old": old, "new": new}}]}]


# ---- the project ----


@contextmanager
def working(
    repository: Project, names: tuple[str, ...], *script: dict[str, Any], path: str = "", **settings: Any
) -> Iterator[tuple[Site, ModelServer]]:
    """The repository with these agents, the first of them configured; afterwards no process may be left.

    Claude runs with a subscription, so that it reports when a limit resets. `path` adds commands to PATH.
    """
    with ModelServer(turns(*script)) as server:
        home = repository.home.path.parent / "home"
        each = [environment(name, home, server, subscription=name == "claude") for name in names]
        search = [path, *(env["PATH"] for env in each), str(Path(sys.executable).parent)]
        alone = {name: value for env in each for name, value in env.items()}
        alone["PATH"] = ":".join(filter(None, search))
        project = Lonely(repository.path, repository.home, name=names[0], alone=alone)
        project.git("config", "user.name", "Test")
        project.git("config", "user.email", "test@localhost")
        project.settings(**({"agent": {"command": names[0]}} | settings))
        yield Site(project), server
        assert not project.living()


def only(*roles: str, **ralph: Any) -> dict[str, Any]:
    """Settings that enable only these roles besides the coder."""
    off = {role: {"enabled": False} for role in ("reviewer", "tester", "qa") if role not in roles}
    return {"ralph": {"agents": off | ralph.pop("agents", {})} | ralph}


def told(server: ModelServer, role: str) -> list[str]:
    """The first request to the model in each iteration of a role."""
    return [request.said() for request in asked_by(server, role) if _is_first(request)]


def asked_by(server: ModelServer, role: str) -> list[Request]:
    return [request for request in server.turns() if f"- **Agent**: {role}\n" in request.said()]


def _is_first(request: Request) -> bool:
    talk = json.dumps(request.body.get("messages") or request.body.get("input"))
    return '"assistant"' not in talk and '_call"' not in talk


def roles(site: Site, id: str) -> list[str]:
    return [run["role"] for run in site.state(id)["runs"]]
