"""Every sandbox backend, the best first. A new one is one file and one line here."""

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
    """Each as a run needs it, see `BackendOptions`; those that nobody asks for are not loaded."""
    options = BackendOptions(image, agent, home)

    def load(name: str) -> Backend:
        if name == DIRECT.name:
            return DIRECT
        backend: Backend = import_module(f"ralph.sandbox.{_MODULES[name]}").backend(options)
        return backend

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
