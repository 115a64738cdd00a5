"""Ten thousand tasks: listing them for people and for programs, against the start of Python alone."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

from bench.measure import Measurement, Scratch, alternate, scratch, seconds
from ralph.core.tasks import ACCEPTANCE, CompletionCriteria, Task, TaskCompletionSpec
from ralph.store.home import Home

MANY = 10_000
LIMIT = 30.0
"""A start of Python takes 10 to 20 ms: so many of them are at most 0.3 s where it takes 10."""

_SPEC = TaskCompletionSpec(
    "All API endpoints require valid JWT tokens for access",
    tuple(f"Requirement number {number} of this task holds" for number in range(5)),
    coder=CompletionCriteria("AUTH_IMPLEMENTED", "It is committed", "external", {"command": "make test"}, 15),
    reviewer=CompletionCriteria(
        "AUTH_REVIEWED",
        "It is secure",
        "semantic",
        {"check_for": ["no secrets"], "negative_patterns": ["TODO"]},
    ),
    tester=CompletionCriteria(
        "AUTH_TESTS_PASS", "With coverage", "external", {"command": "pytest", "timeout": 60}
    ),
    qa=CompletionCriteria(
        "AUTH_QA_COMPLETE",
        "All of it",
        "multi_stage",
        {
            "stages": [
                {"name": "tests", "method": "external", "config": {"command": "pytest tests/"}},
                {"name": "criteria", "method": "semantic", "config": {"check_for": ACCEPTANCE}},
            ]
        },
    ),
)


def suite() -> Iterator[Measurement]:
    place = scratch()
    try:
        _fill(place)
        yield _listed(place, "task", "list")
        yield _listed(place, "task", "list", "--json")
    finally:
        shutil.rmtree(place.path.parent, ignore_errors=True)


def _fill(place: Scratch) -> None:
    tasks = Home(place.state).tasks(str(place.path.resolve()))
    tasks.add(
        Task(
            f"TASK-{number:05d}",
            f"spec-{number % 7}",
            f"Implement part number {number}",
            "What the agents should know about it. " * 3,
            priority=number % 5,
            dependencies=(f"TASK-{number - 1:05d}",) if number % 10 else (),
            completion_spec=_SPEC,
        )
        for number in range(MANY)
    )
    tasks.db.close()


def _listed(place: Scratch, *arguments: str) -> Measurement:
    mine, bare = alternate(
        lambda: place.ralph(*arguments)[0], lambda: seconds([sys.executable, "-c", "pass"], place.env, 1), 15
    )
    ratio = mine / bare
    detail = f"{mine * 1e3:.0f} ms against {bare * 1e3:.0f} ms"
    name = f"ralph {' '.join(arguments)}, 10,000 tasks, against python -c pass"
    return Measurement(name, f"≤ {LIMIT:g}×", ratio, "×", ratio <= LIMIT, 1.0, detail)
