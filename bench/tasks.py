"""Ten thousand tasks: listing them, the status and picking the next one, against the start of Python.

The tasks belong to two specs, in chains of ten; all but the first chain wait for the first task. Processor time is
measured, which varies least on a busy machine.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from bench.measure import RALPH, Measurement, Scratch, alternate, scratch
from ralph.core import board
from ralph.core.board import RoleRunEnded
from ralph.core.model import RunVerdict
from ralph.core.task_model import ACCEPTANCE, CompletionCriteria, Task, TaskCompletionSpec
from ralph.settings import AgentSettings, Settings
from ralph.store.home import Home
from ralph.work.jobs import Choice, Jobs

MANY = 10_000
CHAIN = 10
LIMIT = 30.0
"""Python starts in 10 to 20 ms, so this is 0.3 s on a machine where it takes 10."""

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
    with scratch() as place:
        _fill(place)
        yield _listed(place, "task", "list")
        yield _listed(place, "task", "list", "--json")
        yield _listed(place, "status")
        yield _inside(place, "pick", "the next task is picked, of 10,000")
        yield _inside(place, "decide", "a task is proved, and the next one begins, of 10,000")
        yield _inside(place, "block", "the first task fails, and 9,999 are blocked")


def _fill(place: Scratch) -> None:
    tasks = Home(place.state).tasks(_project(place.path))
    tasks.add(_task(number) for number in range(MANY))
    tasks.db.close()


def _task(number: int) -> Task:
    criteria = tuple(f"Requirement {each} of part {number} holds" for each in range(5))
    before = number - 1 if number % CHAIN else 0
    return Task(
        f"TASK-{number:05d}",
        f"spec-{number % 2}",
        f"Implement part number {number}",
        "What the agents should know about it. " * 3,
        priority=number % 5,
        dependencies=(f"TASK-{before:05d}",) if number else (),
        completion_spec=replace(_SPEC, outcome=f"Part {number} works", acceptance_criteria=criteria),
    )


def _project(path: Path) -> str:
    return str(path.resolve())


def _listed(place: Scratch, *arguments: str) -> Measurement:
    name = f"ralph {' '.join(arguments)}, 10,000 tasks, against python -c pass"
    return _against_python(place, name, lambda: _processor(place, [RALPH, *arguments]))


def _against_python(place: Scratch, name: str, measure: Callable[[], float]) -> Measurement:
    mine, bare = alternate(measure, lambda: _processor(place, [sys.executable, "-c", "pass"]), 15)
    ratio = mine / bare
    detail = f"{mine * 1e3:.1f} ms against {bare * 1e3:.1f} ms"
    return Measurement(name, f"≤ {LIMIT:g}×", ratio, "×", ratio <= LIMIT, 1.0, detail)


def _processor(place: Scratch, command: list[str]) -> float:
    """Return the processor seconds of a command."""
    _, code, usage = place.run(command)
    assert code == 0, command
    return usage.ru_utime + usage.ru_stime


# ---- inside `ralph work` ----


def _inside(place: Scratch, what: str, name: str) -> Measurement:
    """Measure in a separate process, excluding its start."""
    words = (f"from bench.tasks import {what}", f"{what}({str(place.state)!r}, {_project(place.path)!r})")
    command = [sys.executable, "-c", "; ".join(words)]

    def measure() -> float:
        done = subprocess.run(
            command, cwd=Path(__file__).parents[1], env=place.env, capture_output=True, check=True
        )
        return float(done.stdout)

    return _against_python(place, f"{name}, against python -c pass", measure)


def pick(state: str, project: str) -> None:
    started = time.process_time()
    assert board.ready(_board(state, project))
    print(time.process_time() - started)


def decide(state: str, project: str) -> None:
    """Apply the end of a run to the board, pick the next action and start it."""
    here = _board(state, project)
    first = board.ready(here)[0]
    here = board.begin(here, first)
    started = time.process_time()
    here = board.apply(here, RoleRunEnded(first.job, 1, RunVerdict.PROVED))
    board.begin(here, board.ready(here)[0])
    print(time.process_time() - started)


def block(state: str, project: str) -> None:
    here = _board(state, project)
    first = board.ready(here)[0]
    here = board.begin(here, first)
    started = time.process_time()
    here = board.apply(here, RoleRunEnded(first.job, 1, RunVerdict.FAILED))
    print(time.process_time() - started)
    assert board.is_over(here)


def _board(state: str, project: str) -> board.Board:
    settings = Settings(agent=AgentSettings(command="true"))
    jobs = Jobs(Home(Path(state)), project, settings, lambda task, event: None)
    return board.open_board(jobs.chosen(Choice(slots=8)), 8)
