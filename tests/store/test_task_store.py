"""The tasks in the store: their order, transactions, and damaged rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from conftest import Project
from ralph.core.task_model import CompletionCriteria, Task, TaskCompletionSpec, TaskProgress, TaskStatus
from ralph.errors import RalphError
from ralph.store.tasks import Tasks

SPEC = TaskCompletionSpec(
    "It works",
    ("It starts", "It stops"),
    coder=CompletionCriteria("CODED", "all of it", "external", {"command": "make"}, 3),
    qa=CompletionCriteria("CHECKED", "", "semantic", {"check_for": ["x"]}),
)


@pytest.fixture
def tasks(project: Project) -> Iterator[Tasks]:
    found = project.home.tasks("/project/.git")
    with closing(found.db):
        yield found


def task(id: str, **fields: Any) -> Task:
    return Task(id, "spec", f"Title of {id}", completion_spec=SPEC, **fields)


def ids(found: list[Task]) -> list[str]:
    return [each.id for each in found]


def test_a_task_is_read_back_as_it_was_written(tasks: Tasks) -> None:
    """Every field, with the times of the store."""
    full = task(
        "A",
        description="More",
        status=TaskStatus.BLOCKED,
        priority=-3,
        dependencies=("B", "C"),
        assignee="ada",
        metadata={"a": [1, None, {"b": "ü"}]},
        iteration=4,
        protect=("tests/**",),
    )
    tasks.add([full, task("B", protect=())])
    found = tasks.find("A")
    assert found.created_at == found.updated_at > 0
    assert replace(found, created_at=0.0, updated_at=0.0) == full
    assert (tasks.find("B").protect, tasks.find("B").metadata) == ((), {})


def test_by_priority_then_as_they_were_added(tasks: Tasks) -> None:
    """Tasks, briefs and rows have the same order, and can be filtered by spec and status."""
    tasks.add([task("late", priority=2), task("b"), task("a"), task("first", priority=-1)])
    tasks.add([replace(task("other"), spec_id="else", status=TaskStatus.DONE)])
    order = ["first", "b", "a", "other", "late"]
    assert ids(tasks.all()) == order
    assert [brief.id for brief in tasks.briefs()] == [row.id for row in tasks.stored()] == order
    assert ids(tasks.all("else")) == ids(tasks.all(status=TaskStatus.DONE)) == ["other"]
    assert ids(tasks.all("spec", TaskStatus.DONE)) == []


def test_projects_do_not_see_each_other(project: Project, tasks: Tasks) -> None:
    """The same id in two projects is two tasks; a list of everything has both."""
    other = project.home.tasks("/another/.git")
    with closing(other.db):
        other.add([task("A", dependencies=("B",))])
        tasks.add([task("A")])
        assert ids(other.all()) == ids(tasks.all()) == ["A"]
        assert [(brief.project, brief.dependencies) for brief in tasks.briefs(everywhere=True)] == [
            ("/another/.git", ("B",)),
            ("/project/.git", ()),
        ]
        assert [tasks.read(row) for row in tasks.stored(everywhere=True)] == [
            other.find("A"),
            tasks.find("A"),
        ]


def test_all_or_nothing(tasks: Tasks) -> None:
    """If one task already exists, none of the others is added."""
    tasks.add([task("A")])
    with pytest.raises(RalphError, match="already exists"):
        tasks.add([task("B"), task("A")])
    assert ids(tasks.all()) == ["A"]


def test_a_transaction_is_undone_as_a_whole(tasks: Tasks) -> None:
    """An error inside `writing` leaves nothing behind, whatever was called in it."""
    tasks.add([task("A"), task("B")])
    with pytest.raises(RalphError, match="no"), tasks.writing():
        tasks.add([task("C")])
        tasks.put(replace(task("A"), title="Other"))
        tasks.move("A", TaskStatus.DONE, TaskProgress(merged="0123"))
        tasks.delete("B")
        assert ids(tasks.all()) == ["A", "C"]
        raise RalphError("no")
    assert [(each.id, each.title, each.status) for each in tasks.all()] == [
        ("A", "Title of A", "todo"),
        ("B", "Title of B", "todo"),
    ]
    assert tasks.progress("A") == TaskProgress()


def test_put_keeps_the_progress(tasks: Tasks) -> None:
    """Only the work itself changes the progress of a task."""
    tasks.add([task("A")])
    progress = TaskProgress("main", "0123", role="reviewer", sent_back=2)
    tasks.move("A", TaskStatus.REVIEWING, progress, 7)
    tasks.put(replace(tasks.find("A"), title="Other"))
    found = tasks.find("A")
    assert (found.title, found.status, found.iteration) == ("Other", TaskStatus.REVIEWING, 7)
    assert tasks.progress("A") == progress


def test_an_id_is_found_whatever_its_case(tasks: Tasks) -> None:
    """Unless another id differs by case alone; then it must be exact."""
    tasks.add([task("Task-1"), task("b"), task("B")])
    assert tasks.find("TASK-1").id == "Task-1"
    assert (tasks.find("b").id, tasks.find("B").id) == ("b", "B")
    tasks.add([task("TASK-1")])
    for id in ("task-1", "nobody", "", "%"):
        with pytest.raises(RalphError, match="no task"):
            tasks.find(id)


def test_the_graph(tasks: Tasks) -> None:
    """Which task depends on which."""
    tasks.add([task("A"), task("B", dependencies=("A",)), task("C", dependencies=("B", "A"))])
    assert tasks.graph() == {"A": (), "B": ("A",), "C": ("B", "A")}
    assert tasks.dependents("A") == ["B", "C"]
    assert tasks.dependents("C") == []
    assert tasks.statuses() == dict.fromkeys("ABC", "todo")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("completion_spec", '{"outcome":'),
        ("completion_spec", '{"outcome": 3, "acceptance_criteria": []}'),
        ("metadata", "[]"),
        ("dependencies", "nothing"),
        ("protect", "{}"),
        ("status", "dreaming"),
    ],
)
def test_a_damaged_task_is_named(tasks: Tasks, column: str, value: str) -> None:
    """Reading it is an error that says what to do, and that works."""
    tasks.add([task("A"), task("B")])
    tasks.db.execute(f"UPDATE tasks SET {column} = ? WHERE id = 'A'", (value,))
    with pytest.raises(RalphError, match="task A cannot be read") as raised:
        tasks.all()
    assert "ralph task delete A" in raised.value.hint
    assert (tasks.resolve("a"), tasks.dependents("A")) == ("A", [])
    tasks.delete("A")
    assert ids(tasks.all()) == ["B"]


def test_roles_without_criteria_are_not_in_the_store(tasks: Tasks) -> None:
    """The JSON of a spec has only the roles with criteria in the task."""
    row = tasks.as_stored(task("A"))
    assert list(msgspec.json.decode(row.completion_spec or "")) == [
        "outcome",
        "acceptance_criteria",
        "coder",
        "qa",
    ]
    assert tasks.read(row) == task("A")
