"""The written form of a task: all that is wrong with it at once, and back again as it was."""

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
    """Where and what, of everything that is wrong."""
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
"""Nothing here is about time, and the machine may be busy."""


@PATIENT
@given(TASKS)
def test_what_is_written_is_read_back(original: Task) -> None:
    """An equal task, whatever its texts are."""
    assert read(written(original), SETTINGS).task == original


def test_work_in_progress_is_not_written() -> None:
    """Somewhere else nobody would be at it: there it is to be done."""
    original = Task("A", "s", "T", status=TaskStatus.REVIEWING, iteration=3, completion_spec=None)
    assert written(original) == {"id": "A", "spec_id": "s", "title": "T", "priority": 0, "dependencies": []}


def test_everything_that_is_missing() -> None:
    """Each with what it is for, all at once."""
    assert [where for where, _ in problems({})] == ["id", "spec_id", "title", "completion"]
    found = dict(problems(entry(title=" ", completion={"outcome": "", "acceptance_criteria": []})))
    assert found == {
        "title": "is missing",
        "completion.outcome": 'is missing: one sentence that can be measured and says what "done" means',
        "completion.acceptance_criteria": "is missing: at least one requirement that can be verified",
    }


def test_the_spec_can_be_given_from_outside() -> None:
    """It is for tasks that do not say it themselves."""
    values = entry()
    assert task(values).spec_id == "s"
    del values["spec_id"]
    assert problems(values) == [("spec_id", "is missing: the name of the spec that the task is a part of")]
    found = read(values, SETTINGS, "plan").task
    assert found is not None and found.spec_id == "plan"


def test_a_key_without_a_value_is_not_there() -> None:
    """`description:` and nothing behind it is no description."""
    empty = dict.fromkeys(("description", "priority", "dependencies", "metadata", "protect", "assignee"))
    found = task(entry(**empty, completion=DONE | dict.fromkeys(ROLES)))
    assert found == Task("A", "s", "T", completion_spec=TaskCompletionSpec("It works", ("It starts",)))


@pytest.mark.parametrize(
    ("values", "where", "what"),
    [
        ({"title": 5}, "title", "must be a text, not a whole number (put it in quotes)"),
        ({"title": True}, "title", "must be a text, not true or false (put it in quotes)"),
        ({"title": ["x"]}, "title", "must be a text, not a list (put it in quotes)"),
        ({"title": {"a": 1}}, "title", "must be a text, not a mapping (a text with `: ` in it needs quotes)"),
        ({"title": "a\nb"}, "title", "must be one line, without control characters"),
        ({"title": "a\x1b[2J"}, "title", "must be one line, without control characters"),
        ({"description": "a\0b"}, "description", "has a character in it that is no text"),
        ({"description": "\ud800"}, "description", "has a character in it that is no text"),
        ({"priority": "high"}, "priority", "must be a whole number, not a text"),
        ({"priority": 10**7}, "priority", "must be a whole number, at most 1000000"),
        ({"priority": True}, "priority", "must be a whole number, not true or false"),
        ({"dependencies": "B"}, "dependencies", "must be a list, not a text"),
        (
            {"dependencies": ["B", 3]},
            "dependencies.1",
            "must be a text, not a whole number (put it in quotes)",
        ),
        ({"metadata": []}, "metadata", "must be a mapping, not a list"),
        ({"metadata": {"n": 2**70}}, "metadata.n", "is too large a number"),
        ({"metadata": {"n": 1e999}}, "metadata.n", "is too large a number"),
        ({"metadata": {"a": ["\0"]}}, "metadata.a.0", "has a character in it that is no text"),
        ({"protect": [""]}, "protect.0", "is empty"),
        (
            {"status": "reviewing"},
            "status",
            "is set by `ralph work` alone; one of todo, done, failed, blocked",
        ),
        ({"status": "open"}, "status", "'open' is unknown; one of todo, done, failed, blocked, cancelled"),
        ({"dependancies": []}, "dependancies", "is no key that is known here; did you mean 'dependencies'?"),
        ({"xyz": []}, "xyz", "is no key that is known here"),
        ({"completion": []}, "completion", "must be a mapping, not a list"),
        ({"completion": DONE | {"coder": "x"}}, "completion.coder", "must be a mapping, not a text"),
        (
            {"completion": DONE | {"acceptance_criteria": "x"}},
            "completion.acceptance_criteria",
            "must be a list, not a text",
        ),
        (
            {"completion": DONE | {"acceptance_criteria": ["a", " "]}},
            "completion.acceptance_criteria.1",
            "is empty",
        ),
        (
            {"completion": DONE | {"codr": {}}},
            "completion.codr",
            "is no key that is known here; did you mean",
        ),
    ],
)
def test_what_is_wrong_is_said_where_it_is(values: dict[str, Any], where: str, what: str) -> None:
    """The key, and in words what was expected there."""
    ((found, text),) = problems(entry(**values))
    assert found == where and text.startswith(what)


@pytest.mark.parametrize(
    ("criteria", "where", "what"),
    [
        ({"promise": ""}, "promise", "is empty: what the agent says when it is done"),
        ({"promise": "\n "}, "promise", "is empty: what the agent says when it is done"),
        ({"promise": "a\nb"}, "promise", "must be one line without < and >"),
        ({"promise": "<promise>X</promise>"}, "promise", "must be one line without < and >"),
        ({"promise": 3}, "promise", "must be a text, not a whole number (put it in quotes)"),
        ({"max_iterations": 0}, "max_iterations", "must be a whole number, at least 1"),
        ({"max_iterations": 1.5}, "max_iterations", "must be a whole number, not a number"),
        (
            {"verification_config": {"command": "x"}},
            "verification_method",
            "is missing; one of string_match, ",
        ),
        (
            {"verification_method": "extrnal"},
            "verification_method",
            "names no method: 'extrnal'; did you mean",
        ),
        (
            {"verification_method": "command"},
            "verification_method",
            "names no method: 'command'; one of string_",
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
            "must be {{acceptance_criteria}} alone, with nothing before, in or after it",
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
            "names no method: 'by_hand'; one of",
        ),
    ],
)
def test_criteria_that_prove_nothing_are_refused(criteria: dict[str, Any], where: str, what: str) -> None:
    """A promise that cannot be said, a method that is unknown or has nothing to verify."""
    ((found, text),) = problems(entry(completion=DONE | {"tester": criteria}))
    assert found == f"completion.tester.{where}" and text.startswith(what)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_without_a_promise_gets_its_own(role: str) -> None:
    """That of the settings, else the role's default; its method is the one for a role without a command."""
    spec = task(entry(completion=DONE | {role: {"max_iterations": 2}})).completion_spec
    assert spec is not None
    acceptance = {"check_for": "{{acceptance_criteria}}"}
    expected = CompletionCriteria(ROLES[role].promise, "", "semantic", acceptance, 2)
    assert spec.criteria_of(role) == expected
    roles = RolesSettings(**{role: RoleSettings(promise="MINE", verification="string_match")})
    mine = task(entry(completion=DONE | {role: {"max_iterations": 2}}), WorkSettings(agents=roles))
    assert mine.completion_spec is not None
    assert mine.completion_spec.criteria_of(role) == CompletionCriteria("MINE", "", "string_match", {}, 2)


def test_a_role_that_says_nothing_has_no_criteria() -> None:
    """An empty mapping is as good as none."""
    assert task(entry(completion=DONE | {"coder": {}})) == task(entry())


def test_a_promise_is_trimmed_and_a_dependency_there_once() -> None:
    """Spaces around a promise would never be seen."""
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
    """What could not be a branch or a directory."""
    assert id_problem(id)


@PATIENT
@given(IDS, IDS, st.integers(2, 9))
def test_an_attempt_never_has_the_place_of_another_task(one: str, other: str, attempt: int) -> None:
    """Neither its branch nor its worktree, whatever the ids are: cleaning up after one would remove the other."""
    home = Home(Path("/state"))
    assert branch_of(one, attempt) != branch_of(other)
    assert home.worktree("/project/.git", one, attempt) != home.worktree("/project/.git", other)


def test_what_is_no_mapping_is_one_problem() -> None:
    """A number in a list of tasks; that it has no title need not be said."""
    assert read(5, SETTINGS).problems == (TaskProblem((), "must be a mapping, not a whole number"),)
