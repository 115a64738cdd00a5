"""The formats of docs/formats.md: Ralph writes and reads what the golden files contain.

`RALPH_UPDATE_GOLDEN=1` rewrites them; formats may only be extended.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import fields

from conftest import Project
from ralph import settings
from ralph.core import events, machine, model
from ralph.core.model import Cause, Outcome
from ralph.core.task_model import ACCEPTANCE, CompletionCriteria, Task, TaskCompletionSpec, TaskStatus
from ralph.store import codec
from ralph.store.database import VERSION
from ralph.store.runs import new_id
from ralph.tasks import task_file
from ralph.views import tasks as task_view
from ralph.views.jsonl import KINDS as EVENT_KINDS
from ralph.views.report.model import Report
from ralph.views.status import Summary

GOLDEN = Path(__file__).parent / "golden"
DOCS = Path(__file__).parent.parent / "docs"


def compare(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("RALPH_UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text, f"{name} has changed: docs/formats.md says that it only grows"


def pretty(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


PLAN = model.Plan(
    run="20260102-030405-abcd",
    flow=model.Flow.RUN,
    directory="/home/ada/project",
    agents=(model.AgentSpec("my-agent", "custom", "my-agent", ("--model", "x"), (("A", "1"),)),),
    prompt=model.PromptSource(text="Do it"),
    checks=(model.Check("make test", "command", '{"command":"make test","timeoutSeconds":0.0}'),),
    scm=model.Scm("git", ("commit", "push")),
    restart=model.Restart(),
)
FEEDBACK = model.Feedback(model.FailAction.APPEND, "it failed")
VERDICT = model.Verdict("make test", green=False, reason="exit code 1", feedback=FEEDBACK, log=".ralph/x.log")
STEER = model.Steer(8.0, 7, "use tabs")
BOARD = model.BoardSeen("review", done=False, approves=True, legal="{}", illegal=("US-1",))
ROWS: list[Any] = [
    PLAN,
    model.Look(),
    model.RunAgent(
        model.Purpose.WORK, 1, "my-agent", "", model.Left(cost_usd=1.0), 10, (FEEDBACK,), (STEER,)
    ),
    model.Restore("{}", ("US-1",)),
    model.RunChecks(1, ("make test",)),
    model.Commit(1, "Add a thing"),
    model.Hold(model.HoldWhy.LIMIT, until=99.0),
    model.Stop(Cause.PROVED, "all checks passed", ("a note",)),
    model.Seen(
        1.0, 0.1, "", "0123", BOARD, done=True, wait="w", children=1, tree="t", changed=True, waited=2.0
    ),
    model.Ran(
        2.0,
        model.Ended.OK,
        "my-agent",
        1.5,
        True,
        model.Usage(0.5, 1, 2, 3, 4),
        9.0,
        0,
        "text",
        "d",
        "f",
        "s",
    ),
    model.Checked(3.0, 0.2, (VERDICT,), model.Usage(), None),
    model.Did(4.0, 0.3, over=False, detail="d", made="c"),
    model.Pause(5.0),
    model.Cancel(6.0, Cause.SIGNAL, now=False),
    STEER,
    model.Resume(9.0, 20, 1.5, 1000, 60.0),
    model.Fail(10.0, "why"),
]


def test_every_kind_of_row_has_its_golden_form() -> None:
    """Each value is written as the golden file says."""
    written = {codec.kind_of(row): json.loads(codec.encode(row)) for row in ROWS}
    assert set(written) == set(codec.KINDS)
    compare("journal.json", pretty(written))


def test_every_golden_row_can_be_read() -> None:
    """Rows written by this and every earlier version are read back as the same values."""
    golden = json.loads((GOLDEN / "journal.json").read_text())
    assert [codec.decode(kind, json.dumps(body)) for kind, body in golden.items()] == ROWS


def test_the_state_has_its_golden_form() -> None:
    """A state is written without its plan, and read back with it."""
    state = machine.start(PLAN, at=1.0)
    compare("state.json", pretty(json.loads(codec.encode_state(state))))
    assert codec.decode_state((GOLDEN / "state.json").read_text(), PLAN) == state


def test_fields_that_a_later_version_adds_are_ignored() -> None:
    """An older Ralph reads the rows of a newer one that only adds."""
    body = json.loads(codec.encode(STEER)) | {"later": 1}
    assert codec.decode("steer", json.dumps(body)) == STEER


def test_outcomes_and_exit_codes() -> None:
    """Each cause has its outcome, each outcome its exit code."""
    causes = {outcome: [cause for cause in Cause if cause.outcome is outcome] for outcome in Outcome}
    compare("outcomes.json", pretty({o: {"exit_code": o.exit_code, "causes": causes[o]} for o in Outcome}))


def test_run_ids_sort_by_time() -> None:
    """Date, time in UTC, four hexadecimal digits."""
    assert re.fullmatch(r"20260102-030405-[0-9a-f]{4}", new_id(1767323045.0))


def test_the_schema_of_the_store(project: Project) -> None:
    """The tables, and the number of their format."""
    project.run("status")
    db = sqlite3.connect(project.home.database)
    tables = [
        sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
    ]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    db.close()
    compare("store.sql", f"-- user_version {version}\n" + ";\n".join(tables) + ";\n")
    assert version == VERSION


def test_the_settings_schema() -> None:
    """Keys, types, defaults and descriptions."""
    compare("settings.schema.json", pretty(settings.schema()))


def test_every_event_has_its_golden_form() -> None:
    """The fields of each event of `--json`."""
    compare(
        "events.json", pretty({kind: [f.name for f in fields(event)] for event, kind in EVENT_KINDS.items()})
    )
    assert set(EVENT_KINDS) == set(get_args(events.Event))


def test_the_status_object() -> None:
    """The fields of `ralph status --json`."""
    compare("status.json", pretty([f.name for f in fields(Summary)]))


def test_the_schema_of_a_report() -> None:
    """The fields of `ralph report --json`."""
    compare("report.schema.json", pretty(msgspec.json.schema(Report)))


TASK = Task(
    id="TASK-002",
    spec_id="auth",
    title="Log out",
    description="Tokens are kept in the store.\nA list of void ones is enough.\n",
    status=TaskStatus.FAILED,
    priority=1,
    dependencies=("TASK-001",),
    assignee="ada",
    created_at=1767323045.25,
    updated_at=1767409445.0,
    metadata={"followup_of": "TASK-001"},
    iteration=7,
    completion_spec=TaskCompletionSpec(
        "A token is refused from the moment of its logout",
        ("POST /logout answers 204", "A void token is answered with 401"),
        coder=CompletionCriteria("LOGOUT_WRITTEN"),
        reviewer=CompletionCriteria(
            "LOGOUT_REVIEWED",
            "Safe to merge",
            "semantic",
            {"check_for": [ACCEPTANCE, "no secret"], "negative_patterns": ["TODO"]},
            5,
        ),
        tester=CompletionCriteria(
            "LOGOUT_TESTED",
            "",
            "external",
            {"command": "test -f tests/test_logout.py &&\npytest tests/test_logout.py\n", "timeout": 60},
        ),
        qa=CompletionCriteria(
            "LOGOUT_QA_PASSED",
            "",
            "multi_stage",
            {
                "stages": [
                    {
                        "name": "tests",
                        "method": "external",
                        "config": {"command": "pytest"},
                        "required": True,
                    },
                    {"name": "criteria", "method": "semantic", "config": {"check_for": ACCEPTANCE}},
                ]
            },
        ),
    ),
    protect=("tests/**",),
    attempts=2,
)
FIRST = Task(
    "TASK-001", "auth", "Log in", completion_spec=TaskCompletionSpec("It works", ("Login returns a JWT",))
)


def test_the_json_of_tasks(project: Project) -> None:
    """A full task and a minimal one, as in `ralph task list --json` and `show --json`."""
    tasks = project.home.tasks("/home/ada/project/.git")
    rows = [tasks.as_stored(task) for task in (TASK, FIRST)]
    compare("tasks.json", task_view.encoded([task_view.to_json(row) for row in rows]).decode())
    assert [tasks.read(row) for row in rows] == [TASK, FIRST]
    tasks.db.close()


def test_a_file_of_tasks() -> None:
    """What `ralph task export` writes. Reading it back: tests/commands/test_task_methods.py."""
    compare("tasks.yaml", task_file.to_text([FIRST, TASK]))


def test_files_of_a_run_in_the_state_directory(repository: Project) -> None:
    """The names of files and refs."""
    repository.agent(
        "echo out; echo err >&2; echo '<response>DONE</response>'",
        snapshots=True,
        guardrails=[{"command": "true"}],
    )
    repository.run("run", "-p", "x")
    run = repository.status()[0]["id"]
    home, ralph = repository.home.path, repository.path / ".ralph"
    names = [str(p.relative_to(home)).replace(run, "<run>") for p in sorted(home.rglob("*")) if p.is_file()]
    kept = [n for n in names if not n.endswith(("-wal", "-shm")) and "/scm/" not in n]
    assert kept == ["ralph.db", "runs/<run>/001-2.work.stderr", "runs/<run>/001-2.work.stdout"]
    assert sorted(p.name for p in ralph.iterdir()) == [
        ".gitignore",
        "current_run",
        "guardrail_001_true.log",
        "prompt_001.txt",
        "settings.json",
    ]
    refs = repository.git("for-each-ref", "--format=%(refname)", "refs/ralph").split()
    assert refs == [f"refs/ralph/{run}/1", f"refs/ralph/{run}/2"]


@pytest.mark.parametrize(
    "word",
    [
        *codec.KINDS,
        *EVENT_KINDS.values(),
        *Outcome,
        *Cause,
        *TaskStatus,
        *task_view.TaskJson.__struct_fields__,
    ],
)
def test_the_page_names_everything(word: str) -> None:
    """docs/formats.md lists every kind of row, event, outcome, cause and task field."""
    assert f"`{word}`" in (DOCS / "formats.md").read_text()


def test_the_diagram_matches_the_transition_table() -> None:
    """docs/architecture.md shows the transitions of the state machine."""
    sys.path.insert(0, str(DOCS.parent / "scripts"))
    try:
        import architecture  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    page = (DOCS / "architecture.md").read_text()
    assert architecture.page_with_diagram(page) == page
