"""Adding, changing and deleting tasks keeps them consistent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from conftest import Project
from ralph.core.model import AgentSpec, Flow, Plan, PromptSource
from ralph.core.task_model import TaskProgress, TaskStatus
from ralph.errors import RalphError
from ralph.settings import WorkSettings
from ralph.store import locks
from ralph.store.runs import Runs
from ralph.store.tasks import Tasks
from ralph.tasks import edit
from ralph.tasks.form import Entry, read
from ralph.tasks.verification import TaskProblem

SETTINGS = WorkSettings()


@pytest.fixture
def tasks(project: Project) -> Iterator[Tasks]:
    found = project.home.tasks(str(project.path))
    with closing(found.db):
        yield found


def entry(id: str, *dependencies: str, **values: Any) -> Entry:
    completion = {"outcome": "It works", "acceptance_criteria": ["It starts"]}
    written = {"id": id, "spec_id": "s", "title": f"Title of {id}", "dependencies": list(dependencies)}
    return read(written | {"completion": completion} | values, SETTINGS)


def begin_work(tasks: Tasks, id: str) -> None:
    """A run of this process that is working on the task."""

    def plan(run: str) -> Plan:
        spec = AgentSpec("agent", "custom", "agent")
        return Plan(run, Flow.WORK, tasks.project, (spec,), PromptSource("x"), task_id=id, role="coder")

    Runs(tasks.db, tasks.path).create(plan(""), tasks.project, tasks.project)


def ids(tasks: Tasks) -> list[str]:
    return [task.id for task in tasks.all()]


def texts(added: edit.AddedTasks) -> list[tuple[int, str]]:
    return [(found.entry, found.problem.text) for found in added.problems]


def test_tasks_may_depend_on_each_other_in_any_order(tasks: Tasks) -> None:
    """On tasks later in the same file, and on existing ones."""
    assert edit.add(tasks, [entry("B", "A"), entry("A")]) == edit.AddedTasks([], 2, 0)
    assert edit.add(tasks, [entry("C", "B", "A")]) == edit.AddedTasks([], 1, 0)
    assert ids(tasks) == ["B", "A", "C"]


def test_nothing_is_written_when_something_is_wrong(tasks: Tasks) -> None:
    """All problems of all entries are reported, in order."""
    edit.add(tasks, [entry("A")])
    added = edit.add(tasks, [entry("B", "X1"), entry("A"), entry("C", title=3), entry("C"), entry("D", "D")])
    assert texts(added) == [
        (0, "names an unknown task: 'X1'"),
        (1, "already exists"),
        (2, "must be a string, not a whole number (put it in quotes)"),
        (3, "is used twice: C"),
        (4, ": dependency cycle: D → D"),
    ]
    assert ids(tasks) == ["A"]


def test_a_cycle_is_shown(tasks: Tasks) -> None:
    """Starting with the first task of the file in the cycle, including existing tasks."""
    added = edit.add(tasks, [entry("A", "C"), entry("B", "A"), entry("C", "B")])
    assert texts(added) == [(0, ": dependency cycle: A → C → B → A")]
    edit.add(tasks, [entry("A"), entry("B", "A")])
    added = edit.add(tasks, [entry("X"), entry("A", "B")], update=True)
    assert texts(added) == [(1, ": dependency cycle: A → B → A")]


def test_a_similar_id_is_proposed(tasks: Tasks) -> None:
    """A typo gets a suggestion."""
    added = edit.add(tasks, [entry("TASK-001"), entry("TASK-002", "TAKS-001")])
    assert texts(added) == [(1, "names an unknown task: 'TAKS-001'; did you mean 'TASK-001'?")]


def test_updating_keeps_status_and_progress(tasks: Tasks) -> None:
    """The file replaces everything else, and new tasks are added."""
    edit.add(tasks, [entry("A", description="old", metadata={"a": 1})])
    progress = TaskProgress("main", role="qa", reason="no")
    tasks.move("A", TaskStatus.FAILED, progress, 4)
    before = tasks.find("A")
    assert edit.add(tasks, [entry("B"), entry("A", "B")], update=True) == edit.AddedTasks([], 1, 1)
    after = tasks.find("A")
    assert after == replace(
        before, dependencies=("B",), description="", metadata={}, updated_at=after.updated_at
    )
    assert (after.status, after.iteration, tasks.progress("A")) == (TaskStatus.FAILED, 4, progress)


def test_checking_writes_nothing(tasks: Tasks) -> None:
    """It reports what would happen."""
    edit.add(tasks, [entry("A")])
    before = tasks.find("A")
    added = edit.add(tasks, [entry("A", title="Other"), entry("B")], update=True, check=True)
    assert (added, tasks.all()) == (edit.AddedTasks([], 1, 1), [before])


@pytest.mark.parametrize("status", ["implementing", "reviewing", "testing", "qa"])
def test_a_task_between_two_roles_is_protected(project: Project, tasks: Tasks, status: str) -> None:
    """It has no run then, but `ralph work` holds the lock; once that is gone, the task is free."""
    edit.add(tasks, [entry("A"), entry("B")])
    tasks.move("A", TaskStatus(status), TaskProgress(role="coder"))
    lock = locks.acquire(project.path, project.home.path, above=False)
    assert (edit.is_live(tasks, "A"), edit.is_live(tasks, "B")) == (True, False)
    added = edit.add(tasks, [entry("A")], update=True)
    assert [found.problem for found in added.problems] == [edit.AT_WORK]
    with pytest.raises(RalphError, match="A is being worked on") as raised:
        edit.delete(tasks, "A", force=True)
    assert raised.value.hint == "Wait for it, or stop it with `ralph cancel A`."
    os.close(lock)
    assert edit.add(tasks, [entry("A")], update=True) == edit.AddedTasks([], 0, 1)
    assert edit.delete(tasks, "A", force=False) == edit.Deleted("A", [])


def test_a_task_with_a_live_run_is_protected(tasks: Tasks) -> None:
    """It cannot be replaced, changed or deleted, not even with force."""
    edit.add(tasks, [entry("A"), entry("B")])
    begin_work(tasks, "A")
    assert (edit.is_live(tasks, "A"), edit.is_live(tasks, "B")) == (True, False)
    added = edit.add(tasks, [entry("A")], update=True)
    assert [found.problem for found in added.problems] == [edit.AT_WORK]
    with pytest.raises(RalphError, match="A is being worked on"):
        edit.edit(tasks, "A", lambda values: values, SETTINGS)
    with pytest.raises(RalphError, match="A is being worked on"):
        edit.delete(tasks, "A", force=True)
    edit.delete(tasks, "B", force=False)
    assert ids(tasks) == ["A"]


def test_force_deletes_a_task_that_others_depend_on(tasks: Tasks) -> None:
    """They lose this dependency and keep their others."""
    edit.add(tasks, [entry("A"), entry("B", "A"), entry("C", "A", "B")])
    with pytest.raises(RalphError, match="B, C depend on it"):
        edit.delete(tasks, "A", force=False)
    assert edit.delete(tasks, "A", force=True) == edit.Deleted("A", ["B", "C"])
    assert tasks.graph() == {"B": (), "C": ("B",)}
    with pytest.raises(RalphError, match="C depends on it"):
        edit.delete(tasks, "B", force=False)


def test_editing_changes_what_it_changes(tasks: Tasks) -> None:
    """Everything else stays, including times and progress; the status changes only if given."""
    edit.add(tasks, [entry("A", metadata={"a": 1}, protect=["x"])])
    tasks.move("A", TaskStatus.REVIEWING, TaskProgress(role="reviewer"), 2)
    before = tasks.find("A")
    after, problems = edit.edit(tasks, "a", lambda values: values | {"title": "Other"}, SETTINGS)
    assert (after, problems) == (replace(before, title="Other", updated_at=after.updated_at), [])


def test_a_reopened_task_starts_with_the_first_role(tasks: Tasks) -> None:
    """Earlier work stays: the branch, and the recorded starting point."""
    edit.add(tasks, [entry("A")])
    before = TaskProgress(
        "main", "01", "02", role="reviewer", sent_back=3, merge_retries=1, reason="no", attempt=2
    )
    tasks.move("A", TaskStatus.FAILED, before)
    after, _ = edit.edit(tasks, "A", lambda values: values, SETTINGS, TaskStatus.TODO)
    assert (after.status, tasks.progress("A")) == (
        TaskStatus.TODO,
        TaskProgress("main", "01", "02", attempt=2),
    )
    edit.edit(tasks, "A", lambda values: values, SETTINGS, TaskStatus.DONE)
    assert tasks.find("A").status is TaskStatus.DONE


def test_an_inconsistent_edit_changes_nothing(tasks: Tasks) -> None:
    """An unknown dependency, a cycle, an empty title."""
    edit.add(tasks, [entry("A"), entry("B", "A")])
    before = tasks.find("A")
    after, problems = edit.edit(
        tasks, "A", lambda values: values | {"dependencies": ["B", "X"], "title": ""}, SETTINGS
    )
    assert (after, tasks.find("A")) == (before, before)
    assert problems == [
        TaskProblem(("title",), "is missing"),
        TaskProblem(("dependencies", "1"), "names an unknown task: 'X'"),
        TaskProblem(("dependencies",), ": dependency cycle: A → B → A"),
    ]


def test_a_damaged_task_can_be_deleted(tasks: Tasks) -> None:
    """As the error message suggests."""
    edit.add(tasks, [entry("A"), entry("B")])
    tasks.db.execute("UPDATE tasks SET dependencies = 'rubbish', completion_spec = '' WHERE id = 'A'")
    assert edit.delete(tasks, "A", force=False) == edit.Deleted("A", [])
    assert ids(tasks) == ["B"]
