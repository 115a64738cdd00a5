"""The ladder: every rung, the best first. A new one is one file and one line here."""

from __future__ import annotations

from ralph.sandbox.base import Run, Rung
from ralph.sandbox.bubblewrap import Bubblewrap
from ralph.sandbox.container import Container
from ralph.sandbox.direct import Direct
from ralph.sandbox.docker import DockerSandbox

DIRECT = Direct()
LADDER: dict[str, Rung] = {rung.name: rung for rung in (DockerSandbox(), Bubblewrap(), Container(), DIRECT)}


def best(run: Run) -> tuple[Rung, str]:
    """The best rung that can be used here; if that is none, `direct`, and why it had to be."""
    problems = []
    for rung in LADDER.values():
        if rung is DIRECT:
            break
        if not (problem := rung.problem(run)):
            return rung, ""
        problems.append(f"{rung.name}: {problem}")
    return DIRECT, "; ".join(problems)
