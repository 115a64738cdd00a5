"""Every sandbox backend, the best first. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from ralph.errors import RalphError
from ralph.sandbox.base import Backend, RunCommand
from ralph.sandbox.bubblewrap import Bubblewrap
from ralph.sandbox.container import IMAGE, Container
from ralph.sandbox.direct import NoSandbox
from ralph.sandbox.docker_sandbox import DockerSandbox

DIRECT = NoSandbox()


def all_backends(image: str = "", agent: str = "", auth: str = "") -> dict[str, Backend]:
    """`image`: of containers. `agent`: whose machine it is, and `auth`, where its login is kept, for Docker Sandbox."""
    backends = (DockerSandbox(agent, auth), Bubblewrap(), Container(image or IMAGE), DIRECT)
    return {backend.name: backend for backend in backends}


NAMES = tuple(all_backends())


def canonical(name: str) -> str:
    """The name of a backend by one that it had in earlier versions, which stored runs and settings may use."""
    return {"docker": "docker-sandbox"}.get(name, name)


def find(name: str, backends: dict[str, Backend]) -> Backend:
    name = canonical(name)
    if name not in backends:
        raise RalphError(f"There is no sandbox {name!r}.", f"Known: {', '.join(backends)}.")
    return backends[name]


def best(backends: dict[str, Backend], run: RunCommand) -> tuple[Backend, dict[str, str]]:
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
