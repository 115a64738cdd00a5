"""What tests of `ralph work` with real agents share: tasks, scripted answers, the place of work."""

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
"""Seconds for a whole `ralph work`: a busy machine has time enough."""


# ---- tasks and answers ----


def imported(site: Site, text: str) -> None:
    """Tasks as they are written in a file."""
    done = site.project.run("task", "import", "-", stdin=text)
    assert done.code == 0, done.err


def say(text: str, promise: str) -> dict[str, Any]:
    """The agent's last word, with what it promises."""
    return {"text": f"{text}\n\n<promise>{promise}</promise>"}


def write(**files: str) -> dict[str, Any]:
    """One answer that writes files; `__` in a name is a slash."""
    named = {name.replace("__", "/") + ".py": content for name, content in files.items()}
    return {"tools": [{"write": {"path": path, "content": content}} for path, content in named.items()]}


def edit(path: str, old: str, new: str) -> list[dict[str, Any]]:
    """Two answers: agents read a file before they may edit it."""
    return [{"tools": [{"read": path}]}, {"tools": [{"edit": {"path": path, "old": old, "new": new}}]}]


# ---- the place of work ----


@contextmanager
def working(
    repository: Project, names: tuple[str, ...], *script: dict[str, Any], path: str = "", **settings: Any
) -> Iterator[tuple[Site, ModelServer]]:
    """The repository with these agents, the first of them configured; in the end nobody is left.

    Claude is a subscriber's here, who is told when a limit ends. `path`: further commands of the project.
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
    """Settings in which tasks go through these roles only."""
    off = {role: {"enabled": False} for role in ("reviewer", "tester", "qa") if role not in roles}
    return {"ralph": {"agents": off | ralph.pop("agents", {})} | ralph}


def told(server: ModelServer, role: str) -> list[str]:
    """What the model heard at the beginning of each iteration of a role."""
    return [request.said() for request in asked_by(server, role) if _is_first(request)]


def asked_by(server: ModelServer, role: str) -> list[Request]:
    return [request for request in server.turns() if f"- **Agent**: {role}\n" in request.said()]


def _is_first(request: Request) -> bool:
    talk = json.dumps(request.body.get("messages") or request.body.get("input"))
    return '"assistant"' not in talk and '_call"' not in talk


def roles(site: Site, id: str) -> list[str]:
    return [run["role"] for run in site.state(id)["runs"]]
