"""Tasks with Ralph's verification methods: from options, from files, in the documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commands.task_support import DONE, Here, in_the_project  # noqa: F401
from conftest import Project
from ralph.checks.registry import config_problem, verification_methods
from ralph.core.task_model import ACCEPTANCE, ROLES, CompletionCriteria, Task, injected
from ralph.settings import WorkSettings
from ralph.tasks import task_file
from ralph.tasks.form import read, written
from ralph.tasks.templates import TEMPLATES
from tasks.test_form import PATIENT, TASKS

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "src/ralph/plugin/skills/ralph-tasks/SKILL.md"
GUIDE = ROOT / "docs/tasks.md"
GOLDEN = ROOT / "tests/golden"
CREATE = ("create", "A", "spec", "Title", *DONE)


def criteria(here: Here, role: str, *options: str) -> dict[str, Any]:
    """The criteria for a role of a task created with these options."""
    result = here.run(*CREATE, *options)
    assert (result.code, result.err) == (0, "")
    found: dict[str, Any] = here.show("A")["completion_spec"][role]
    return found


def test_the_example_of_the_specification(project: Project) -> None:
    """Outcome, criteria, promises and commands, as one command line."""
    created = project.run(
        *("task", "create", "TASK-001", "my-spec", "Implement JWT auth"),
        *("--outcome", "All API endpoints require valid JWT tokens"),
        *("--acceptance", "JWT middleware validates tokens"),
        *("--acceptance", "Login endpoint returns valid JWT"),
        *("--acceptance", "Invalid tokens return 401"),
        *("--coder-promise", "AUTH_IMPLEMENTED"),
        *("--coder-verify", "external"),
        *("--coder-verify-cmd", "grep -r 'jwt.verify' src/"),
        *("--tester-promise", "AUTH_TESTS_PASS"),
        *("--tester-verify", "external"),
        *("--tester-verify-cmd", "pytest tests/test_auth.py --cov-fail-under=80"),
    )
    assert (created.code, created.out, created.err) == (0, "Created TASK-001.\n", "")
    spec = json.loads(project.run("task", "show", "TASK-001", "--json").out)["completion_spec"]
    external = {"description": "", "verification_method": "external", "max_iterations": None}
    assert spec == {
        "outcome": "All API endpoints require valid JWT tokens",
        "acceptance_criteria": [
            "JWT middleware validates tokens",
            "Login endpoint returns valid JWT",
            "Invalid tokens return 401",
        ],
        "coder": external
        | {
            "promise": "AUTH_IMPLEMENTED",
            "verification_config": {"command": "grep -r 'jwt.verify' src/"},
        },
        "tester": external
        | {
            "promise": "AUTH_TESTS_PASS",
            "verification_config": {"command": "pytest tests/test_auth.py --cov-fail-under=80"},
        },
    }


@pytest.mark.parametrize(
    ("options", "method", "config"),
    [
        (("verify-cmd", "make"), "external", {"command": "make"}),
        (("verify", "external", "verify-cmd", "a &&\nb"), "external", {"command": "a &&\nb"}),
        (("verify", "string_match"), "string_match", {}),
        (("verify", "semantic"), "semantic", {"check_for": ACCEPTANCE}),
        (("check-for", "a", "check-for", "b"), "semantic", {"check_for": ["a", "b"]}),
        (("check-for", ACCEPTANCE, "check-for", "b"), "semantic", {"check_for": [ACCEPTANCE, "b"]}),
        (("negative-pattern", "TODO"), "semantic", {"negative_patterns": ["TODO"]}),
        (("template", "npm test"), "external", {"command": "npm test"}),
        (("template", "qa"), "multi_stage", TEMPLATES["qa"].config),
        (("promise", "X"), "semantic", {"check_for": ACCEPTANCE}),
    ],
)
@pytest.mark.parametrize("role", ROLES)
def test_options_become_criteria(
    here: Here, role: str, options: tuple[str, ...], method: str, config: dict[str, Any]
) -> None:
    """The same for every role; without a promise it gets the role's default."""
    named = [f"--{role}-{word}" if place % 2 == 0 else word for place, word in enumerate(options)]
    assert criteria(here, role, *named, f"--{role}-description", "All", f"--{role}-max-iterations", "2") == {
        "promise": "X" if "promise" in options else ROLES[role].promise,
        "description": "All",
        "verification_method": method,
        "verification_config": config,
        "max_iterations": 2,
    }


def test_editing_changes_a_part_of_the_criteria(here: Here) -> None:
    """The rest of the config stays, until another method is chosen."""
    (here.path / "plan.yaml").write_text(
        "- id: A\n  title: T\n  completion:\n    outcome: x\n    acceptance_criteria: [y]\n    tester:\n"
        "      promise: P\n      verification_method: external\n"
        "      verification_config: {command: a, timeout: 9}\n"
    )
    assert here.run("import", "plan.yaml").code == 0

    def edited(*options: str) -> dict[str, Any]:
        result = here.run("edit", "A", *options)
        assert (result.code, result.err) == (0, "")
        found: dict[str, Any] = here.show("A")["completion_spec"]["tester"]
        return found

    before = edited("--tester-verify-cmd", "b")
    assert (before["promise"], before["verification_config"]) == ("P", {"command": "b", "timeout": 9})
    assert edited("--tester-promise", "Q") == before | {"promise": "Q"}
    judged = edited("--tester-check-for", "c")
    assert (judged["verification_method"], judged["verification_config"]) == (
        "semantic",
        {"check_for": ["c"]},
    )
    more = edited("--tester-negative-pattern", "TODO")
    assert more["verification_config"] == {"check_for": ["c"], "negative_patterns": ["TODO"]}
    assert edited("--tester-template", "unittest")["verification_config"] == TEMPLATES["unittest"].config
    assert edited("--tester-template", "make")["verification_config"] == {"command": "make"}
    assert here.show("A")["completion_spec"].keys() == {"outcome", "acceptance_criteria", "tester"}


def test_the_criteria_follow_the_acceptance_criteria(here: Here) -> None:
    """The placeholder is stored; the output shows the current criteria in its place."""
    assert criteria(here, "qa", "--qa-template", "qa")["verification_config"] == TEMPLATES["qa"].config
    here.run("edit", "A", "--acceptance", "It stops")
    shown = here.run("show", "A").out
    assert ACCEPTANCE not in shown and "          - It stops\n" in shown.partition("qa  (from the task)")[2]


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_is_a_valid_config(here: Here, name: str) -> None:
    """As YAML in a file, and as an option."""
    template = TEMPLATES[name]
    assert config_problem(template.method, injected(template.config, ("x",))) == ""
    block = here.run("templates", name).out.replace("\n", "\n    ").rstrip()
    head = "- id: B\n  title: T\n  completion:\n    outcome: x\n    acceptance_criteria: [y]\n    "
    (here.path / "plan.yaml").write_text(head + block)
    assert here.run("import", "plan.yaml").out == "Imported 1 task.\n"
    found = criteria(here, "coder", "--coder-template", name)
    imported = here.show("B")["completion_spec"][template.role]
    same = ("verification_method", "verification_config")
    assert (
        [found[key] for key in same] == [imported[key] for key in same] == [template.method, template.config]
    )


PLAN = """\
- id: A
  title: T
  completion:
    outcome: x
    acceptance_criteria: [y]
    qa:
      verification_method: METHOD
      verification_config:
        CONFIG
"""


@pytest.mark.parametrize(
    ("method", "config", "said"),
    [
        ("external", "comand: make", "command is missing: external verification"),
        (
            "external",
            "{command: a, timout: 3}",
            "timout is not a known key; did you mean 'timeout'?",
        ),
        ("external", "{command: a, timeout: soon}", "timeout must be a number, not a string"),
        ("external", "{command: a, timeout: -1}", "timeout must be 0 or more"),
        ("external", "{command: 3}", "command must be a string, not a whole number"),
        ("external", "{command: '  '}", "command: must not be empty"),
        ("external", "{command: a, working_dir: ../..}", "working_dir: '../..' is not inside the worktree"),
        ("semantic", "model: haiku", "verification_config: nothing to check"),
        ("semantic", "check_for: []", "check_for is empty: leave it out, or write {{acceptance_criteria}}"),
        ("semantic", "negative_patterns: TODO", "negative_patterns must be a list, not a string"),
        ("string_match", "command: a", "command is not a known key"),
        (
            "multi_stage",
            "stages: []",
            "stages is missing: a list of stages, each with a name, a method and a config",
        ),
        ("multi_stage", "stages: [{method: external, config: {command: a}}]", "stages[0].name is missing"),
        (
            "multi_stage",
            "stages: [{name: a, method: extenal}]",
            "stages[0].method names an unknown method: 'extenal'; did",
        ),
        (
            "multi_stage",
            "stages: [{name: a, method: external}]",
            "stages[0].config.command is missing: external",
        ),
        (
            "multi_stage",
            "stages: [{name: a, method: semantic, config: {check_fro: [x]}}]",
            "stages[0].config.check_fro is not a known key; did you mean 'check_for'?",
        ),
        (
            "multi_stage",
            "stages: [{name: a, method: string_match, required: 'yes'}]",
            "stages[0].required must be true or false, not a string",
        ),
        (
            "multi_stage",
            "stages: [{name: a, method: string_match, required: false}]",
            "stages: no stage is required, so nothing would be verified",
        ),
    ],
)
def test_an_invalid_config_is_refused(here: Here, method: str, config: str, said: str) -> None:
    """With the line and the key, before anything runs."""
    (here.path / "plan.yaml").write_text(PLAN.replace("METHOD", method).replace("CONFIG", config))
    error = here.refused("import", "plan.yaml")
    assert re.match(r"plan\.yaml:[89]: A: completion\.qa\.verification_config", error) and said in error


def test_all_invalid_stages_are_shown(here: Here) -> None:
    """Each with its own line."""
    stages = [
        "stages:",
        "          - {name: a, method: external, config: {command: make}}",
        "          - name: b",
        "            method: external",
        "            config:",
        "              timeout: 5",
        "          - name: c",
        "            method: semantic",
        "            config: {check_for: []}",
    ]
    text = PLAN.replace("METHOD", "multi_stage").replace("CONFIG", "\n".join(stages))
    (here.path / "plan.yaml").write_text(text)
    at = "A: completion.qa.verification_config.stages"
    assert here.refused("import", "plan.yaml").splitlines() == [
        "plan.yaml: 2 problems.",
        f"  plan.yaml:13: {at}[1].config.command is missing: external verification needs a command that must succeed",
        f"  plan.yaml:17: {at}[2].config.check_for is empty: leave it out, or write {{{{acceptance_criteria}}}}",
    ]


# ---- export and import ----

WORDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20
).filter(lambda text: bool(text.strip()) and "acceptance_criteria" not in text)
EXTERNAL = st.fixed_dictionaries(
    {"command": WORDS},
    optional={
        "success_exit_code": st.integers(0, 255),
        "output_contains": WORDS,
        "timeout": st.integers(0, 999) | st.floats(0, 999),
    },
)
SEMANTIC = st.fixed_dictionaries(
    {"check_for": st.just(ACCEPTANCE) | st.lists(WORDS | st.just(ACCEPTANCE), min_size=1, max_size=3)},
    optional={"negative_patterns": st.lists(WORDS, min_size=1, max_size=2), "model": WORDS},
)
VERIFICATION: st.SearchStrategy[tuple[str, dict[str, Any]]] = (
    st.tuples(st.just("external"), EXTERNAL)
    | st.tuples(st.just("semantic"), SEMANTIC)
    | st.tuples(st.just("string_match"), st.just({}))
)
STAGES = st.lists(VERIFICATION, min_size=1, max_size=3).map(
    lambda stages: {
        "stages": [
            {"name": f"s{n}", "method": method, "config": config} for n, (method, config) in enumerate(stages)
        ]
    }
)
PROMISES = st.text(
    st.characters(categories=["L", "N", "P", "S"], exclude_characters="<>"), min_size=1, max_size=20
)
CRITERIA = st.builds(
    lambda promise, description, verification, most: CompletionCriteria(
        promise, description, verification[0], verification[1], most
    ),
    PROMISES,
    WORDS | st.just(""),
    VERIFICATION | st.tuples(st.just("multi_stage"), STAGES),
    st.none() | st.integers(1, 1000),
)


@st.composite
def full_tasks(draw: st.DrawFn) -> Task:
    """Tasks with criteria for some of the roles."""
    task = draw(TASKS)
    assert task.completion_spec is not None
    roles: dict[str, Any] = {role: draw(st.none() | CRITERIA) for role in ROLES}
    return replace(task, completion_spec=replace(task.completion_spec, **roles))


@PATIENT
@given(st.lists(full_tasks(), min_size=1, max_size=3))
def test_what_is_exported_is_imported_again(tasks: list[Task]) -> None:
    """Equal tasks, for any criteria of any method."""
    found = task_file.parse(task_file.to_text(tasks), "f", WorkSettings())
    assert [entry.problems for entry in found.entries] == [()] * len(tasks)
    assert [entry.task for entry in found.entries] == tasks


@PATIENT
@given(full_tasks())
def test_json_of_the_written_form_is_the_same(task: Task) -> None:
    """The same tasks can be written as JSON, because JSON is YAML."""
    found = task_file.parse(json.dumps([written(task)]), "f", WorkSettings())
    assert [entry.task for entry in found.entries] == [task] == [read(written(task), WorkSettings()).task]


def test_there_are_four_methods() -> None:
    """Those of the specification; packages may add more."""
    assert verification_methods()[:4] == ["string_match", "semantic", "external", "multi_stage"]


# ---- examples ----


def examples(path: Path) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", examples(GUIDE) + examples(SKILL))
def test_every_example_can_be_imported(here: Here, example: str) -> None:
    """Those in the guide and in the skill, unchanged; exporting them gives the same."""
    (here.path / "plan.yaml").write_text(example)
    assert here.run("import", "--check", "plan.yaml").code == 0
    assert here.run("import", "plan.yaml").code == 0
    exported = here.run("export").out
    before = here.run("list", "--json").out
    (here.path / "again.yaml").write_text(exported)
    assert here.run("import", "--update", "again.yaml").code == 0
    assert json.loads(here.run("list", "--json").out) == [
        task | {"updated_at": new["updated_at"]}
        for task, new in zip(json.loads(before), json.loads(here.run("list", "--json").out), strict=True)
    ]


def test_there_are_examples_of_everything() -> None:
    """Each method, a placeholder, a command of several lines, protected files, both forms."""
    text = "".join(examples(GUIDE))
    for wanted in (*verification_methods()[:4], ACCEPTANCE, "command: |", "protect:", "task:\n", "- id: "):
        assert wanted in text
    assert len(examples(SKILL)) == 1


def test_the_golden_file_can_be_imported(here: Here) -> None:
    """Files written by this and every earlier version can be read."""
    assert here.run("import", str(GOLDEN / "tasks.yaml")).code == 0
    assert here.run("export").out == (GOLDEN / "tasks.yaml").read_text()
