"""`ralph task import` and `export`: all or nothing, and back again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from commands.task_support import DONE, Here, begin_work, in_the_project  # noqa: F401
from conftest import Project

PLAN = """\
- id: TASK-001
  title: "Implement JWT authentication"
  description: "Add JWT-based authentication to API"
  priority: 1
  dependencies: []

  completion:
    outcome: "All API endpoints require valid JWT tokens for access"
    acceptance_criteria:
      - "JWT middleware validates tokens on all protected routes"
      - "Invalid/expired tokens return 401 Unauthorized"
- id: TASK-002
  title: Log out
  dependencies: [TASK-001]
  completion: {outcome: A token is void after logout, acceptance_criteria: [It returns 401]}
"""


def write(project: Project, text: str, name: str = "auth.yaml") -> str:
    (project.path / name).write_text(text)
    return name


def test_a_file_is_imported(project: Project) -> None:
    """In real processes; tasks without a spec get the file name as their spec."""
    file = write(project, PLAN)
    checked = project.run("task", "import", file, "--check")
    assert (checked.code, checked.out) == (0, "2 tasks: no problems found. Nothing was imported.\n")
    assert project.run("task", "list", "--json").out == "[]\n"
    imported = project.run("task", "import", file)
    assert (imported.code, imported.out, imported.err) == (0, "Imported 2 tasks.\n", "")
    found = json.loads(project.run("task", "list", "--json").out)
    assert [(task["id"], task["spec_id"], task["dependencies"]) for task in found] == [
        ("TASK-002", "auth", ["TASK-001"]),
        ("TASK-001", "auth", []),
    ]


def test_stdin_is_a_file(project: Project) -> None:
    """It has no name, so the spec must be given."""
    refused = project.run("task", "import", "-", stdin=PLAN)
    assert refused.code == 2 and "stdin:1: TASK-001: spec_id is missing" in refused.err
    assert project.run("task", "import", "-", "--spec", "auth", stdin=PLAN).out == "Imported 2 tasks.\n"


def test_existing_tasks_are_replaced_on_request(here: Here) -> None:
    """Status and progress stay; without `--update`, nothing at all is imported."""
    write(here.project, PLAN)
    here.run("import", "auth.yaml")
    here.run("edit", "TASK-001", "--status", "failed")
    write(
        here.project, PLAN.replace("Log out", "Log off").replace("priority: 1", "priority: 9") + "- id: X\n"
    )
    assert here.refused("import", "auth.yaml").startswith("auth.yaml: 4 problems.\n")
    write(here.project, PLAN.replace("priority: 1", "priority: 9") + PLAN.replace("TASK-0", "NEW-0"))
    said = here.refused("import", "auth.yaml")
    assert "auth.yaml:1: TASK-001: id already exists" in said
    assert said.endswith("  Use --update to replace existing tasks.\n")
    assert here.run("import", "auth.yaml", "--update").out == "Imported 4 tasks (2 new, 2 replaced).\n"
    found = here.show("TASK-001")
    assert (found["priority"], found["status"]) == (9, "failed")


def test_what_is_being_worked_on_is_not_replaced(here: Here) -> None:
    """It would become another task in the middle of the work."""
    write(here.project, PLAN)
    here.run("import", "auth.yaml")
    begin_work(here.project, "TASK-002")
    assert here.refused("import", "auth.yaml", "--update") == (
        "auth.yaml:12: TASK-002: id is being worked on.\n  Wait for it, or stop it with `ralph cancel`.\n"
    )


def test_every_problem_is_shown_and_nothing_is_imported(here: Here) -> None:
    """By line; problems in the file, in its tasks and in their dependencies."""
    text = PLAN.replace("title: Log out", "titel: Log out\n  id: twice").replace(
        "[TASK-001]", "[TASK-01, TASK-002]"
    )
    write(here.project, text)
    assert here.refused("import", "auth.yaml").splitlines() == [
        "auth.yaml: 5 problems.",
        "  auth.yaml:12: TASK-002: title is missing",
        "  auth.yaml:13: TASK-002: titel is not a known key; did you mean 'title'?",
        "  auth.yaml:14: duplicate key 'id'",
        "  auth.yaml:15: TASK-002: dependencies: dependency cycle: TASK-002 → TASK-002",
        "  auth.yaml:15: TASK-002: dependencies[0] names an unknown task: 'TASK-01'; did you mean 'TASK-001'?",
    ]
    assert here.ids() == []


def test_what_is_exported_can_be_imported(here: Here, tmp_path: Path) -> None:
    """In another project the tasks are the same, in the same order."""
    here.create("A", "--description", "One\n\n  two\n", "--protect", "x")
    here.run("followup", "A", "B", "yes", *DONE, "--depends-on", "A", "--priority", "-1")
    here.run("edit", "A", "--status", "blocked")
    exported = here.run("export")
    assert (exported.code, exported.err) == (0, "")
    other = Project(tmp_path, here.project.home)
    assert other.run("task", "import", "-", stdin=exported.out).out == "Imported 2 tasks.\n"
    mine = json.loads(here.run("list", "--json").out)
    theirs = json.loads(other.run("task", "list", "--json").out)
    own = ("created_at", "updated_at", "project")
    assert [t | dict.fromkeys(own) for t in mine] == [t | dict.fromkeys(own) for t in theirs]


def test_exporting_some_tasks(here: Here) -> None:
    """By id or by spec; dependencies that are not exported are a warning."""
    here.create("A")
    here.create("B", "--depends-on", "A")
    here.run("create", "C", "other", "T", *DONE)
    one = here.run("export", "b")
    assert one.out.startswith("task:\n  id: B\n") and "id: A" not in one.out
    (here.path / "one.yaml").write_text(one.out)
    assert here.run("import", "one.yaml", "--check", "--update").code == 0, "a single task has its own form"
    assert one.err == "ralph: warning: B depends on A, which is not exported.\n"
    assert here.run("export", "--spec", "other").out.count("- id: ") == 1
    assert here.run("export", "B", "A", "B").out.count("- id: ") == 2


def test_a_file_is_written_atomically(here: Here) -> None:
    """`-o FILE` replaces it, `-o -` is stdout."""
    here.create("A")
    (here.path / "out.yaml").write_text("old")
    written = here.run("export", "-o", "out.yaml")
    assert (written.code, written.out, written.err) == (0, "", "Wrote 1 task to out.yaml.\n")
    assert (here.path / "out.yaml").read_text() == here.run("export", "-o", "-").out
    assert sorted(os.listdir(here.path)) == ["out.yaml"]


@pytest.mark.parametrize("size", [1000])
def test_many_tasks(here: Here, size: int) -> None:
    """A chain of a thousand tasks is imported in one go, and its end is found."""
    text = "".join(
        f"- id: T{n}\n  title: t\n  dependencies: [{f'T{n - 1}' if n else ''}]\n"
        f"  completion: {{outcome: x, acceptance_criteria: [y]}}\n"
        for n in range(size)
    )
    write(here.project, text)
    assert here.run("import", "auth.yaml").out == "Imported 1,000 tasks.\n"
    assert "T0 → T999 → " in here.refused("edit", "T0", "--depends-on", "T999")
