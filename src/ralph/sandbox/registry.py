"""The ladder: every rung, the best first. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from ralph.errors import RalphError
from ralph.sandbox.base import Backend, RunCommand
from ralph.sandbox.bubblewrap import Bubblewrap
from ralph.sandbox.container import IMAGE, Container
from ralph.sandbox.direct import NoSandbox
from ralph.sandbox.docker_sandbox import DockerSandbox

DIRECT = NoSandbox()


def backends(image: str = "", agent: str = "", auth: str = "") -> dict[str, Backend]:
    """`image`: of containers. `agent`: whose machine it is, and `auth`, where its login is kept, for Docker Sandbox."""
    rungs = (DockerSandbox(agent, auth), Bubblewrap(), Container(image or IMAGE), DIRECT)
    return {rung.name: rung for rung in rungs}


NAMES = tuple(backends())


def find(name: str, rungs: dict[str, Backend]) -> Backend:
    if name not in rungs:
        raise RalphError(f"There is no sandbox {name!r}.", f"Known: {', '.join(rungs)}.")
    return rungs[name]


def best(rungs: dict[str, Backend], run: RunCommand) -> tuple[Backend, dict[str, str]]:
    """The best rung that can be used here, be it `direct`, and what is wrong with those that are better."""
    problems: dict[str, str] = {}
    for rung in rungs.values():
        if not (problem := rung.problem(run)):
            return rung, problems
        problems[rung.name] = problem
    return DIRECT, problems


def none_here(problems: Mapping[str, str], hint: str) -> RalphError:
    lines = (f"\n    {name}: {problem}" for name, problem in problems.items())
    return RalphError(f"There is no sandbox here:{''.join(lines)}", hint)
