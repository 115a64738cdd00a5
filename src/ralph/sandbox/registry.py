"""Every sandbox backend, the best first. A new one is one file and one line here."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ralph.core.registry import Registry
from ralph.errors import RalphError
from ralph.sandbox.base import Backend, RunCommand
from ralph.sandbox.direct import NoSandbox

DIRECT = NoSandbox()
NAMES = ("docker-sandbox", "bubblewrap", "container", DIRECT.name)


def all_backends(image: str = "", agent: str = "", home: str = "") -> Registry[Backend]:
    """`image`: of containers. `agent`: whose machine it is, and `home`, where its login is kept, for Docker Sandbox."""

    def load(name: str) -> Backend:
        if name == "docker-sandbox":
            from ralph.sandbox.docker_sandbox import AUTH, DockerSandbox

            return DockerSandbox(agent, os.path.join(home, AUTH) if home else "")
        if name == "bubblewrap":
            from ralph.sandbox.bubblewrap import Bubblewrap

            return Bubblewrap()
        if name == "container":
            from ralph.sandbox.container import IMAGE, Container

            return Container(image or IMAGE)
        return DIRECT

    return Registry(NAMES, load)


def canonical(name: str) -> str:
    """The name of a backend by one that it had in earlier versions, which stored runs and settings may use."""
    return {"docker": "docker-sandbox"}.get(name, name)


def find(name: str, backends: Mapping[str, Backend]) -> Backend:
    name = canonical(name)
    if name not in backends:
        raise RalphError(f"There is no sandbox {name!r}.", f"Known: {', '.join(backends)}.")
    return backends[name]


def best(backends: Mapping[str, Backend], run: RunCommand) -> tuple[Backend, dict[str, str]]:
    """The best backend that can be used here, be it `direct`, and what is wrong with those that are better."""
    problems: dict[str, str] = {}
    for backend in backends.values():
        if not (problem := backend.problem(run)):
            return backend, problems
        problems[backend.name] = problem
    return DIRECT, problems


def none_here(problems: Mapping[str, str], hint: str) -> RalphError:
    lines = (f"\n    {name}: {problem}" for name, problem in problems.items())
    return RalphError(f"There is no sandbox here:{''.join(lines)}", hint)
