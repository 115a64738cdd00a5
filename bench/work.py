"""Measures how often `ralph work` completes unfinished tasks or fails finished ones.

Every scene is played with every verification method, and with the floor, which accepts the promise. A task counts as
completed when it is `done` in the store; an oracle that inspects only the base branch decides whether it truly is.

- false: the task was completed, but the work is not in the base branch;
- missed: all work was finally done and promised, but the task was not completed;
- harmed: a file of the user that git ignores is gone or changed;
- beyond: false, but undetectable by anything this method runs or reads.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from bench import arena, tables
from bench.agents import calculator, failing_git, installed, judge, play
from bench.agents.calculator import CRITERIA, TEST_CRITERION
from bench.agents.model import Agent, Shape, Tag
from bench.agents.scene import Method, Scene
from bench.agents.scenes import FAMILIES, QUICK, SCENES
from bench.arena import Place
from bench.harness import keeper
from bench.harness.base import Launch
from bench.harness.ralph import COMMANDS, OURS
from bench.measure import write_program
from bench.tables import by, played, table
from bench.truth import WORKERS, Wardens
from ralph.core.task_model import ROLES, CompletionCriteria, Task, TaskCompletionSpec, TaskStatus
from ralph.process.client import Warden
from ralph.runs.location import here
from ralph.store.home import Home

TASK = "T-1"
ITERATIONS = 3
"""Iteration limit of every role."""

MEASURED = (Method.EXTERNAL, Method.SEMANTIC, Method.MULTI_STAGE)
FLOOR = Method.STRING_MATCH


@dataclass(frozen=True, slots=True)
class Row:
    """One scene with one method."""

    family: str
    agent: str
    method: str
    shape: str
    status: str
    complete: bool
    done: bool
    false: bool
    missed: bool
    beyond: bool
    harmed: bool
    starts: int
    orphans: int
    hung: bool
    seconds: float
    code: int | None
    why: str

    @property
    def is_bad(self) -> bool:
        """Whether the run has a failure that must never happen; the floor is exempt."""
        harm = self.false or self.missed or self.harmed or self.hung or self.orphans > 0
        return harm and self.method != FLOOR


@dataclass(frozen=True, slots=True)
class Report:
    version: str
    rows: list[Row]


def measure(
    scenes: Sequence[Scene] = SCENES,
    methods: Sequence[Method] = tuple(Method),
    each: Callable[[Row], None] = lambda row: None,
) -> Report:
    """Play every scene in its shapes with every method, several in parallel."""
    cases = [
        (scene, method, shape)
        for scene, method in product(scenes, methods)
        if method in scene.methods
        for shape in scene.shapes
    ]
    with closing(Wardens()) as wardens:
        rows = played(lambda case: run(wardens.mine(), *case), cases, each, WORKERS)
    return Report(OURS.find(), rows)


def run(warden: Warden, scene: Scene, method: Method, shape: Shape) -> Row:
    """Let `ralph work` take one task through all roles."""
    with arena.place() as where:
        launch = prepare(where, scene, method, shape)
        seen = arena.attend(warden, where, launch, arena.PATIENCE, keeper.PATIENCE)
        survivors = [name for role in ROLES for name in arena.end_survivors(where.private / role)]
        starts = sum(
            arena.starts(where.private / role)[kind] for role in ROLES for kind in ("work", "message")
        )
        task, reason = outcome(where)
        done, harmed = is_done(scene, where.project), calculator.is_harmed(where.project)
    complete = task.status is TaskStatus.DONE and not seen.hung
    is_false = complete and not done
    return Row(
        scene.family,
        scene.name,
        method,
        shape,
        task.status,
        complete,
        done,
        false=is_false and method not in scene.beyond,
        missed=scene.finishes and not complete,
        beyond=is_false and method in scene.beyond,
        harmed=harmed,
        starts=starts,
        orphans=len(seen.orphans) + len(survivors),
        hung=seen.hung,
        seconds=round(seen.seconds, 3),
        code=seen.finished.code,
        why="" if complete else _shown(reason or seen.finished.err, where),
    )


def outcome(where: Place) -> tuple[Task, str]:
    tasks = _tasks(where)
    try:
        return tasks.find(TASK), tasks.progress(TASK).reason
    finally:
        tasks.db.close()


def is_done(scene: Scene, project: Path) -> bool:
    answer = calculator.ask(project, scene.stage.layout)
    return answer.code and answer.notes and answer.kept and (answer.tests or not scene.needs_test)


def _shown(reason: str, where: Place) -> str:
    """Return the first line, without local paths."""
    return reason.strip().partition("\n")[0].replace(str(where.path), "…")[:200]


# ---- preparation ----


def prepare(where: Place, scene: Scene, method: Method, shape: Shape) -> Launch:
    """Create the project and its task, and put the agents on PATH."""
    roles = ("coder", *scene.others)
    written = {".ralph/settings.json": json.dumps(settings(where, scene, shape))}
    calculator.create(where.project, written, scene.stage.layout)
    variables = installed.prepare(scene.stage, where.project, where.home)
    for role in ROLES:
        (where.private / role).mkdir()
        turns = scene.turns if role == "coder" else scene.others.get(role, ())
        agent = Agent(scene.family, scene.name, turns, message=scene.message)
        (where.private / f"{role}.json").write_text(agent.script(shape, tag(role), str(where.private / role)))
        if agent.breaks_git:
            failing_git.install(where.programs, where.private / role)
    for name in arena.PROGRAMS[shape]:
        words = (sys.executable, "-I", "-S", play.__file__)
        script = f'"{where.private}/${{RALPH_ROLE:-coder}}.json"'
        write_program(where.programs / name, f'exec {shlex.join(words)} {script} {name} "$@"')
    judged = (sys.executable, "-I", "-S", judge.__file__, scene.judge)
    write_program(where.programs / "judge", f'exec {shlex.join(judged)} "$@"')
    if not scene.stage.environment:
        arena.install_python(where)
    criteria = {role: _criteria(scene, role, method) for role in roles}
    spec = TaskCompletionSpec(calculator.OUTCOME, CRITERIA, **criteria)
    tasks = _tasks(where)
    tasks.add([Task(TASK, "calc", "Make the calculator right", completion_spec=spec)])
    tasks.db.close()
    state = {"RALPH_STATE_DIR": str(_state(where))}
    path = (Path(variables["VIRTUAL_ENV"], "bin"),) if "VIRTUAL_ENV" in variables else ()
    return Launch((str(OURS.program), "work"), state | variables, path)


def tag(role: str) -> Tag:
    return Tag("promise", ROLES[role].promise)


def settings(where: Place, scene: Scene, shape: Shape) -> dict[str, Any]:
    off = {role: {"enabled": False} for role in ROLES if role not in ("coder", *scene.others)}
    return {
        "agent": {"command": COMMANDS[shape], "permissions": "bypass"},
        "streamAgentOutput": False,
        "ralph": {"agents": off, "judge": {"agent": "judge"}},
    }


def _criteria(scene: Scene, role: str, method: Method) -> CompletionCriteria:
    """Verify the role under test by the method, a coder before a tester by its tests, others not at all."""
    if role != scene.verified:
        is_tested = role == "coder" and scene.verified == "tester"
        method = Method.EXTERNAL if is_tested else Method.STRING_MATCH
    external = {"command": scene.check}
    semantic = {"check_for": list(CRITERIA if role != "tester" else (TEST_CRITERION, CRITERIA[-1]))}
    stages = [
        {"name": "tests", "method": Method.EXTERNAL, "config": external},
        {"name": "criteria", "method": Method.SEMANTIC, "config": semantic},
    ]
    configs: dict[Method, dict[str, Any]] = {
        Method.EXTERNAL: external,
        Method.SEMANTIC: semantic,
        Method.MULTI_STAGE: {"stages": stages},
        Method.STRING_MATCH: {},
    }
    return CompletionCriteria(ROLES[role].promise, "", method, configs[method], ITERATIONS)


def _state(where: Place) -> Path:
    state = where.private / "state"
    state.mkdir(exist_ok=True)
    return state


def _tasks(where: Place) -> Any:
    return Home(_state(where)).tasks(here(where.project).project)


# ---- tables ----


def summary(report: Report) -> str:
    """Return one line per method."""
    kinds = ("false", "missed", "beyond", "harmed", "orphans", "hung")
    lines: list[Sequence[str]] = [("method", "runs", *kinds)]
    for method in Method:
        rows = [row for row in report.rows if row.method == method]
        totals = [str(sum(int(getattr(row, kind)) for row in rows)) for kind in kinds]
        lines += [(method, str(len(rows)), *totals)] if rows else []
    return table(lines)


def by_family(report: Report) -> str:
    """Return false / missed / beyond of each family, by method."""
    methods = [method for method in Method if any(row.method == method for row in report.rows)]
    return by("family", FAMILIES, report.rows, ("false", "missed", "beyond"), methods, "method")


def quick() -> Report:
    """Run the form for CI: some scenes of every family, with one method each."""
    reports = [measure(chosen([], names), [method], show) for method, names in QUICK.items()]
    return Report(reports[0].version, [row for report in reports for row in report.rows])


def show(row: Row) -> None:
    """Print failures immediately."""
    if row.is_bad:
        kinds = ("false", "missed", "harmed", "hung", "orphans")
        words = [word for word in kinds if getattr(row, word)]
        where = f"{row.family} / {row.agent} / {row.method} / {row.shape}"
        print(f"{where}: {', '.join(words)} ({row.status}: {row.why})", file=sys.stderr, flush=True)


def chosen(families: Iterable[str], agents: Iterable[str] = ()) -> list[Scene]:
    """Return the scenes whose families contain one of these texts, or all if none is given."""
    found = tables.chosen(SCENES, families, lambda scene: scene.family)
    names = set(agents)
    return [each for each in found if not names or each.name in names]
