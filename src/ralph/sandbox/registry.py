"""All sandbox backends, best first. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from ralph.errors import RalphError
from ralph.registry import Registry
from ralph.sandbox.base import Backend, BackendOptions, RunCommand
from ralph.sandbox.direct import NoSandbox

DIRECT = NoSandbox()
_MODULES = {"docker-sandbox": "docker_sandbox", "bubblewrap": "bubblewrap", "container": "container"}
NAMES = (*_MODULES, DIRECT.name)


def all_backends(image: str = "", agent: str = "", home: str = "") -> Registry[Backend]:
    """Return all backends for a run with these options (see `BackendOptions`). Each is loaded on first use."""
    options = BackendOptions(image, agent, home)

    def load(name: str) -> Backend:
        if name == DIRECT.name:
            return DIRECT
        backend: Backend = import_module(f"ralph.sandbox.{_MODULES[name]}").backend(options)
        return backend

    return Registry(NAMES, load)


def canonical(name: str) -> str:
    """Return the current name of a backend. Stored runs and settings may use a name from an earlier version."""
    return {"docker": "docker-sandbox"}.get(name, name)


def find(name: str, backends: Mapping[str, Backend]) -> Backend:
    name = canonical(name)
    if name not in backends:
        raise RalphError(f"Unknown sandbox {name!r}.", f"Choose one of: {', '.join(backends)}.")
    return backends[name]


def best(backends: Mapping[str, Backend], run: RunCommand) -> tuple[Backend, dict[str, str]]:
    """Return the best backend that works here, at worst `direct`, and the problems of the better ones."""
    problems: dict[str, str] = {}
    for backend in backends.values():
        if not (problem := backend.problem(run)):
            return backend, problems
        problems[backend.name] = problem
    return DIRECT, problems


def none_here(problems: Mapping[str, str], hint: str) -> RalphError:
    lines = (f"\n    {name}: {problem}" for name, problem in problems.items())
    return RalphError(f"No sandbox works on this machine:{''.join(lines)}", hint)
