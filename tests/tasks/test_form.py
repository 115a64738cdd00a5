"""The written form of a task: all problems reported at once, and a round trip without loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ralph.core.task_model import ROLES, CompletionCriteria, Task, TaskCompletionSpec, TaskStatus
from ralph.scm.worktrees import branch_of
from ralph.settings import RoleSettings, RolesSettings, WorkSettings
from ralph.store.home import Home
from ralph.tasks.form import BY_WORK, id_problem, read, written
from ralph.tasks.verification import TaskProblem

SETTINGS = WorkSettings()
DONE = {"outcome": "It works", "acceptance_criteria": ["It starts"]}


def problems(values: Any, spec: str = "") -> list[tuple[str, str]]:
    """The place and text of every problem."""
    return [(".".join(keys), text) for keys, text in read(values, SETTINGS, spec).problems]


def entry(**values: Any) -> dict[str, Any]:
    return {"id": "A", "spec_id": "s", "title": "T", "completion": DONE} | values


def task(values: dict[str, Any], settings: WorkSettings = SETTINGS) -> Task:
    found = read(values, settings)
    assert found.problems == () and found.task is not None
    return found.task


LINE = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=20).filter(
    str.strip
)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
IDS = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,20}\Z").filter(lambda id: not id_problem(id))
METADATA = st.dictionaries(TEXT, st.none() | st.booleans() | st.integers(-99, 99) | TEXT | st.lists(TEXT))
SPECS = st.builds(
    TaskCompletionSpec,
    outcome=TEXT.filter(str.strip),
    acceptance_criteria=st.lists(TEXT.filter(str.strip), min_size=1, max_size=4).map(tuple),
)
TASKS = st.builds(
    Task,
    id=IDS,
    spec_id=LINE,
    title=LINE,
    description=TEXT,
    status=st.sampled_from([each for each in TaskStatus if each not in BY_WORK]),
    priority=st.integers(-1_000_000, 1_000_000),
    dependencies=st.lists(IDS, unique=True, max_size=3).map(tuple),
    assignee=st.just("") | LINE,
    metadata=METADATA,
    completion_spec=SPECS,
    protect=st.none() | st.lists(LINE, max_size=3).map(tuple),
    attempts=st.integers(1, 9),
)


PATIENT = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Nothing here depends on time, and the machine may be busy."""


@PATIENT
@given(TASKS)
def test_what_is_written_is_read_back(original: Task) -> None:
    """An equal task, whatever its texts are."""
    assert read(written(original), SETTINGS).task == original


def test_work_in_progress_is_not_written() -> None:
    """On another machine nobody works on it, so there it is still to do."""
    original = Task("A", "s", "T", status=TaskStatus.REVIEWING, iteration=3, completion_spec=None)
    assert written(original) == {"id": "A", "spec_id": "s", "title": "T", "priority": 0, "dependencies": []}


def test_everything_that_is_missing() -> None:
    """All missing fields at once, each with its purpose."""
    assert [where for where, _ in problems({})] == ["id", "spec_id", "title", "completion"]
    found = dict(problems(entry(title=" ", completion={"outcome": "", "acceptance_criteria": []})))
    assert found == {
        "title": "is missing",
        "completion.outcome": 'is missing: one measurable sentence that says what "done" means',
        "completion.acceptance_criteria": "is missing: at least one verifiable requirement",
    }


def test_the_spec_can_be_given_from_outside() -> None:
    """It applies to tasks without a spec."""
    values = entry()
    assert task(values).spec_id == "s"
    del values["spec_id"]
    assert problems(values) == [("spec_id", "is missing: the name of the spec that the task belongs to")]
    found = read(values, SETTINGS, "plan").task
    assert found is not None and found.spec_id == "plan"


def test_a_key_without_a_value_counts_as_missing() -> None:
    """`description:` with nothing after it means no description."""
    empty = dict.fromkeys(("description", "priority", "dependencies", "metadata", "protect", "assignee"))
    found = task(entry(**empty, completion=DONE | dict.fromkeys(ROLES)))
    assert found == Task("A", "s", "T", completion_spec=TaskCompletionSpec("It works", ("It starts",)))


@pytest.mark.parametrize(
    ("values", "where", "what"),
    [
        ({"title": 5}, "title", "must be a string, not a whole number (put it in quotes)"),
        ({"title": True}, "title", "must be a string, not true or false (put it in quotes)"),
        ({"title": ["x"]}, "title", "must be a string, not a list (put it in quotes)"),
        (
            {"title": {"a": 1}},
            "title",
            "must be a string, not a mapping (a string with `: ` in it needs quotes)",
        ),
        ({"title": "a\nb"}, "title", "must be one line, without control characters"),
        ({"title": "a\x1b[2J"}, "title", "must be one line, without control characters"),
        ({"description": "a\0b"}, "description", "contains an invalid character"),
        ({"description": "\ud800"}, "description", "contains an invalid character"),
        ({"priority": "high"}, "priority", "must be a whole number, not a string"),
        ({"priority": 10**7}, "priority", "must be 1000000 or less"),
        ({"priority": True}, "priority", "must be a whole number, not true or false"),
        ({"dependencies": "B"}, "dependencies", "must be a list, not a string"),
        (
            {"dependencies": ["B", 3]},
            "dependencies.1",
            "must be a string, not a whole number (put it in quotes)",
        ),
        ({"metadata": []}, "metadata", "must be a mapping, not a list"),
        ({"metadata": {"n": 2**70}}, "metadata.n", "is too large"),
        ({"metadata": {"n": 1e999}}, "metadata.n", "is too large"),
        ({"metadata": {"a": ["\0"]}}, "metadata.a.0", "contains an invalid character"),
        ({"protect": [""]}, "protect.0", "is empty"),
        (
            {"status": "reviewing"},
            "status",
            "can only be set by `ralph work`; one of todo, done, failed, blocked",
        ),
        ({"status": "open"}, "status", "'open' is unknown; one of todo, done, failed, blocked, cancelled"),
        ({"dependancies": []}, "dependancies", "is not a known key; did you mean 'dependencies'?"),
        ({"xyz": []}, "xyz", "is not a known key"),
        ({"completion": []}, "completion", "must be a mapping, not a list"),
        ({"completion": DONE | {"coder": "x"}}, "completion.coder", "must be a mapping, not a string"),
        (
            {"completion": DONE | {"acceptance_criteria": "x"}},
            "completion.acceptance_criteria",
            "must be a list, not a string",
        ),
        (
            {"completion": DONE | {"acceptance_criteria": ["a", " "]}},
            "completion.acceptance_criteria.1",
            "is empty",
        ),
        (
            {"completion": DONE | {"codr": {}}},
            "completion.codr",
            "is not a known key; did you mean",
        ),
    ],
)
def test_problems_are_reported_where_they_are(values: dict[str, Any], where: str, what: str) -> None:
    """The key, and what was expected there."""
    ((found, text),) = problems(entry(**values))
    assert found == where and text.startswith(what)


@pytest.mark.parametrize(
    ("criteria", "where", "what"),
    [
        ({"promise": ""}, "promise", "is empty: it is the text that the agent prints when it is done"),
        ({"promise": "\n "}, "promise", "is empty: it is the text that the agent prints when it is done"),
        ({"promise": "a\nb"}, "promise", "must be one line without < and >"),
        ({"promise": "<promise>X</promise>"}, "promise", "must be one line without < and >"),
        ({"promise": 3}, "promise", "must be a string, not a whole number (put it in quotes)"),
        ({"max_iterations": 0}, "max_iterations", "must be 1 or more"),
        ({"max_iterations": 1.5}, "max_iterations", "must be a whole number, not a number"),
        (
            {"verification_config": {"command": "x"}},
            "verification_method",
            "is missing; one of string_match, ",
        ),
        (
            {"verification_method": "extrnal"},
            "verification_method",
            "names an unknown method: 'extrnal'; did you mean",
        ),
        (
            {"verification_method": "command"},
            "verification_method",
            "names an unknown method: 'command'; one of string_",
        ),
        (
            {"verification_method": "external"},
            "verification_config.command",
            "is missing: external verification",
        ),
        (
            {"verification_method": "multi_stage"},
            "verification_config.stages",
            "is missing: a list of stages",
        ),
        (
            {"verification_method": "semantic", "verification_config": {"check_for": []}},
            "verification_config.check_for",
            "is empty: leave it out, or write {{acceptance_criteria}}",
        ),
        (
            {
                "verification_method": "semantic",
                "verification_config": {"check_for": "{{ acceptance_criteria }}"},
            },
            "verification_config.check_for",
            "must be exactly {{acceptance_criteria}}, with nothing before, inside or after it",
        ),
        (
            {
                "verification_method": "multi_stage",
                "verification_config": {"stages": [{"name": "a", "method": "external", "config": {}}]},
            },
            "verification_config.stages.0.config.command",
            "is missing: external verification needs a command that must succeed",
        ),
        (
            {
                "verification_method": "multi_stage",
                "verification_config": {"stages": [{"method": "by_hand"}]},
            },
            "verification_config.stages.0.method",
            "names an unknown method: 'by_hand'; one of",
        ),
    ],
)
def test_criteria_that_prove_nothing_are_refused(criteria: dict[str, Any], where: str, what: str) -> None:
    """A promise that cannot be printed, an unknown method, a method with nothing to verify."""
    ((found, text),) = problems(entry(completion=DONE | {"tester": criteria}))
    assert found == f"completion.tester.{where}" and text.startswith(what)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_without_a_promise_gets_its_own(role: str) -> None:
    """From the settings, or the role's default; its method is the one for a role without a command."""
    spec = task(entry(completion=DONE | {role: {"max_iterations": 2}})).completion_spec
    assert spec is not None
    acceptance = {"check_for": "{{acceptance_criteria}}"}
    expected = CompletionCriteria(ROLES[role].promise, "", "semantic", acceptance, 2)
    assert spec.criteria_of(role) == expected
    roles = RolesSettings(**{role: RoleSettings(promise="MINE", verification="string_match")})
    mine = task(entry(completion=DONE | {role: {"max_iterations": 2}}), WorkSettings(agents=roles))
    assert mine.completion_spec is not None
    assert mine.completion_spec.criteria_of(role) == CompletionCriteria("MINE", "", "string_match", {}, 2)


def test_an_empty_role_has_no_criteria() -> None:
    """An empty mapping counts as none."""
    assert task(entry(completion=DONE | {"coder": {}})) == task(entry())


def test_promises_are_trimmed_and_dependencies_unique() -> None:
    """Spaces around a promise would never be matched."""
    found = task(entry(dependencies=["B", "C", "B"], completion=DONE | {"qa": {"promise": " OK "}}))
    assert found.dependencies == ("B", "C")
    assert found.completion_spec and found.completion_spec.qa and found.completion_spec.qa.promise == "OK"


@pytest.mark.parametrize("id", ["A", "TASK-001", "a.b_c-d", "_x", "9", "x" * 100, "A.locks", "Ünsinn"[1:]])
def test_good_ids(id: str) -> None:
    """Letters, digits, `.`, `_`, `-`."""
    assert id_problem(id) == ""


@pytest.mark.parametrize(
    "id",
    [
        "",
        ".a",
        "-a",
        "a b",
        "a/b",
        "a..b",
        "a.",
        "a.lock",
        "A.LOCK",
        "x" * 101,
        "é",
        "a\n",
        "a~1",
        "a:b",
        "a\\",
    ],
)
def test_bad_ids(id: str) -> None:
    """Ids that cannot be the name of a branch or a directory."""
    assert id_problem(id)


@PATIENT
@given(IDS, IDS, st.integers(2, 9))
def test_attempts_never_collide_with_other_tasks(one: str, other: str, attempt: int) -> None:
    """Neither the branch nor the worktree, whatever the ids: cleaning up one would remove the other."""
    home = Home(Path("/state"))
    assert branch_of(one, attempt) != branch_of(other)
    assert home.worktree("/project/.git", one, attempt) != home.worktree("/project/.git", other)


def test_a_task_that_is_not_a_mapping_is_one_problem() -> None:
    """A number in a list of tasks; its missing title is not reported too."""
    assert read(5, SETTINGS).problems == (TaskProblem((), "must be a mapping, not a whole number"),)
