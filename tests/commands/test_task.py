"""`ralph task`: create, list, show, edit and delete tasks."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from msgspec.structs import asdict

from commands.task_support import DONE, Here, begin_work, in_the_project  # noqa: F401
from conftest import Project
from ralph.cli import make_group
from ralph.core.task_model import ROLES, CompletionCriteria, TaskProgress, TaskStatus
from ralph.tasks.templates import TEMPLATES
from terminal_support import COLUMNS, terminal

FIELDS = [
    "id",
    "spec_id",
    "title",
    "description",
    "status",
    "priority",
    "dependencies",
    "assignee",
    "created_at",
    "updated_at",
    "metadata",
    "iteration",
    "completion_spec",
    "protect",
    "attempts",
    "project",
]


def test_a_task_is_created_shown_and_listed(project: Project) -> None:
    """From the user's command line to JSON, in real processes."""
    created = project.run(
        *("task", "create", "TASK-001", "auth", "Implement JWT auth"),
        *("--outcome", "All API endpoints require valid JWT tokens"),
        *("--acceptance", "Login returns a JWT", "--acceptance", "Invalid tokens return 401"),
        *("--description", "Two\nlines", "--priority", "-2", "--protect", "tests/**"),
        *("--attempts", "2"),
        *("--coder-promise", "AUTH_IMPLEMENTED", "--coder-max-iterations", "3"),
    )
    assert (created.code, created.out, created.err) == (0, "Created TASK-001.\n", "")
    shown = json.loads(project.run("task", "show", "task-001", "--json").out)
    assert list(shown) == FIELDS
    for key in ("created_at", "updated_at"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", shown[key])
    assert shown | {"created_at": "", "updated_at": ""} == {
        "id": "TASK-001",
        "spec_id": "auth",
        "title": "Implement JWT auth",
        "description": "Two\nlines",
        "status": "todo",
        "priority": -2,
        "dependencies": [],
        "assignee": "",
        "created_at": "",
        "updated_at": "",
        "metadata": {},
        "iteration": 0,
        "completion_spec": {
            "outcome": "All API endpoints require valid JWT tokens",
            "acceptance_criteria": ["Login returns a JWT", "Invalid tokens return 401"],
            "coder": {
                "promise": "AUTH_IMPLEMENTED",
                "description": "",
                "verification_method": "semantic",
                "verification_config": {"check_for": "{{acceptance_criteria}}"},
                "max_iterations": 3,
            },
        },
        "protect": ["tests/**"],
        "attempts": 2,
        "project": str(project.path),
    }
    assert json.loads(project.run("task", "list", "--json").out) == [shown]


def test_the_list_for_people(here: Here) -> None:
    """One aligned line per task, by priority, without colours if stdout is not a terminal."""
    here.create("A")
    here.run("create", "B", "other", "Zwei Worte 日本", *DONE, "--priority", "-1", "--depends-on", "A")
    listed = here.run("list")
    assert (listed.code, listed.err) == (0, "")
    assert listed.out.splitlines() == [
        "task  status  priority  spec   title            depends on",
        "B     todo    -1        other  Zwei Worte 日本  A",
        "A     todo    0         spec   Title of A",
    ]


def test_filtered_lists(here: Here) -> None:
    """By spec, by status, for all projects."""
    here.create("A")
    here.run("create", "B", "other", "T", *DONE)
    here.run("edit", "A", "--status", "done")
    other = here.project.home.tasks("/another")
    with closing(other.db), here.tasks() as tasks:
        other.add([tasks.find("B")])
    assert (here.ids(), here.ids("--spec", "other"), here.ids("--status", "done")) == (
        ["A", "B"],
        ["B"],
        ["A"],
    )
    assert here.ids("--all") == ["B", "A", "B"]
    assert here.run("list", "--all").out.splitlines()[1].endswith("  /another")
    empty = here.run("list", "--spec", "none")
    assert (empty.code, empty.out, empty.err[:18]) == (0, "", "No matching tasks.")
    assert here.run("list", "--spec", "none", "--json").out == "[]\n"


def test_an_empty_list(here: Here) -> None:
    """It says how to start."""
    result = here.run("list")
    assert (result.code, result.out) == (0, "")
    assert result.err == "No tasks. To create one, see: ralph task create --help\n"


def test_the_details_of_a_task(here: Here) -> None:
    """All fields, and for each role the criteria in force, including the acceptance criteria."""
    here.create("A", "--description", "A few\nmore words", "--coder-promise", "CODED")
    here.project.settings(
        ralph={"agents": {"reviewer": {"enabled": False}, "qa": {"verification": "string_match"}}}
    )
    here.run(
        "followup", "A", "B", "Another one", *DONE, "--depends-on", "A", "--protect", "a/**", "--protect", "b"
    )
    with here.tasks() as tasks:
        tasks.move("A", TaskStatus.FAILED, TaskProgress(reason="the tests are red"), 7)
    out = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "NOW", here.run("show", "A").out)
    assert out.replace(str(here.path), "HERE") == (
        "A  Title of A\n"
        "status      failed: the tests are red\n"
        "spec        spec\n"
        "priority    0\n"
        "depends on  nothing\n"
        "iteration   7\n"
        "protect     files that verification runs (detected automatically)\n"
        "created     NOW\n"
        "updated     NOW\n"
        "project     HERE\n"
        "\n"
        "  A few\n"
        "  more words\n"
        "\n"
        "outcome\n"
        "  It works\n"
        "\n"
        "acceptance criteria\n"
        "  - It starts\n"
        "\n"
        "coder  (from the task)\n"
        "  promise       <promise>CODED</promise>\n"
        "  verification  semantic, max 15 iterations\n"
        "  Complete coder stage for: Title of A\n"
        "    check_for:\n"
        "      - It starts\n"
        "\n"
        "reviewer  (skipped: disabled in the settings)\n"
        "  promise       <promise>REVIEW_PASSED</promise>\n"
        "  verification  semantic, max 5 iterations\n"
        "  Complete reviewer stage for: Title of A\n"
        "    check_for:\n"
        "      - It starts\n"
        "\n"
        "tester  (by default)\n"
        "  promise       <promise>TESTS_PASSED</promise>\n"
        "  verification  semantic, max 10 iterations\n"
        "  Complete tester stage for: Title of A\n"
        "    check_for:\n"
        "      - It starts\n"
        "\n"
        "qa  (by default)\n"
        "  promise       <promise>QA_PASSED</promise>\n"
        "  verification  string_match, max 5 iterations\n"
        "  Complete qa stage for: Title of A\n"
    )
    other = here.run("show", "B").out
    assert 'metadata    {"followup_of":"A"}' in other
    assert "depends on  A\n" in other and "protect     a/**, b\n" in other


def test_only_what_is_given_is_changed(here: Here) -> None:
    """Texts and lists are replaced, dependencies added and removed."""
    here.create("A")
    here.create("B")
    here.create("C", "--depends-on", "A", "--protect", "x")
    before = here.show("C")
    edits: list[tuple[tuple[str, ...], str, Any]] = [
        (("--title", "Other"), "title", "Other"),
        (("--description", "x"), "description", "x"),
        (("--description", ""), "description", ""),
        (("--priority", "7"), "priority", 7),
        (("--attempts", "3"), "attempts", 3),
        (("--depends-on", "B"), "dependencies", ["A", "B"]),
        (("--remove-dependency", "A"), "dependencies", ["B"]),
        (("--protect", "y", "--protect", "z"), "protect", ["y", "z"]),
        (("--status", "cancelled"), "status", "cancelled"),
    ]
    for options, key, value in edits:
        result = here.run("edit", "c", *options)
        assert (result.code, result.out, result.err) == (0, "Changed C.\n", "")
        before[key] = value
        after = here.show("C")
        assert after == before | {"updated_at": after["updated_at"]}
    here.run("edit", "C", "--outcome", "Better", "--acceptance", "a", "--acceptance", "b")
    assert here.show("C")["completion_spec"] == before["completion_spec"] | {
        "outcome": "Better",
        "acceptance_criteria": ["a", "b"],
    }


def test_a_followup_belongs_to_the_same_spec(here: Here) -> None:
    """It remembers its origin, and has no dependencies."""
    here.create("A")
    assert here.run("followup", "a", "B", "Found on the way", *DONE).out == "Created B.\n"
    found = here.show("B")
    assert (found["spec_id"], found["metadata"], found["dependencies"]) == ("spec", {"followup_of": "A"}, [])
    said = here.refused("followup", "A", "C", "Without")
    assert "--outcome is missing" in said and "--acceptance is missing" in said
    assert "There is no task 'X'" in here.refused("followup", "X", "C", "Nobody's", *DONE)


def test_deleting(here: Here) -> None:
    """Without asking if there is no terminal; tasks that others depend on need --force."""
    for id, options in {"A": (), "B": ("--depends-on", "A"), "C": ("--depends-on", "A")}.items():
        here.create(id, *options)
    said = here.refused("delete", "A")
    assert said.startswith("A cannot be deleted: B, C depend on it.\n  Use --force ")
    assert here.run("delete", "B").out == "Deleted B.\n"
    assert here.run("delete", "A", "--force").out == "Deleted A. C no longer depends on it.\n"
    assert (here.ids(), here.show("C")["dependencies"]) == (["C"], [])
    assert "There is no task 'A' in this project." in here.refused("delete", "A", "--yes")


def test_a_task_that_is_being_worked_on(here: Here) -> None:
    """It can be neither edited nor deleted."""
    here.create("A")
    begin_work(here.project, "A")
    for arguments in (("edit", "A", "--priority", "1"), ("delete", "A"), ("delete", "A", "--force", "--yes")):
        assert here.refused(*arguments).startswith("A is being worked on.\n  ")
    assert here.show("A")["priority"] == 0


@pytest.mark.parametrize(("answer", "left"), [("y", []), ("n", ["A"]), ("", ["A"])])
def test_delete_asks_on_a_terminal(here: Here, answer: str, left: list[str]) -> None:
    """Enter means no."""
    here.create("A")
    with terminal(here.project, "task", "delete", "a") as screen:
        screen.answer("Delete A? (y/N):", answer)
        assert screen.finish() == 0
    assert here.ids() == left


def test_delete_does_not_ask_with_yes(here: Here) -> None:
    """`--yes` is for scripts that have a terminal."""
    here.create("A")
    with terminal(here.project, "task", "delete", "A", "--yes") as screen:
        assert screen.finish() == 0
    assert here.ids() == []


@pytest.mark.parametrize("no_colour", ["", "1"])
def test_colours_on_a_terminal_only(here: Here, no_colour: str) -> None:
    """The status of a task is coloured, unless NO_COLOR is set; long titles are shortened to fit."""
    here.run("create", "A", "spec", "word " * 60, *DONE)
    here.run("edit", "A", "--status", "done")
    here.project.extra_env["NO_COLOR"] = no_colour
    with terminal(here.project, "task", "list") as screen:
        assert screen.finish() == 0
        head, line = screen.screen.splitlines()
    assert (head.split(), line.split()[:3]) == (
        ["task", "status", "priority", "spec", "title", "depends", "on"],
        ["A", "done", "0"],
    )
    assert len(head) == COLUMNS and line.endswith("word wo…")
    assert screen.colour_of("done") == ("default" if no_colour else "green")
    assert "\x1b" not in here.run("list").out


def test_templates(here: Here) -> None:
    """The list, one template as YAML, both as JSON."""
    listed = here.run("templates").out.splitlines()
    assert listed[0].split() == ["template", "role", "method", "proves"]
    assert [line.split()[0] for line in listed[1:]] == list(TEMPLATES)
    assert here.run("templates", "npm test").out == (
        "tester:\n"
        "  promise: TESTS_PASSED\n"
        "  description: The test script of package.json succeeds.\n"
        "  verification_method: external\n"
        "  verification_config:\n"
        "    command: npm test\n"
    )
    one = json.loads(here.run("templates", "pytest", "--json").out)
    assert one == {
        "name": "pytest",
        "summary": "All tests pass, and there is at least one.",
        "role": "tester",
        "verification_method": "external",
        "verification_config": {"command": "python -m pytest -q"},
    }
    assert json.loads(here.run("templates", "--json").out)[0] == one
    assert "Did you mean 'pytest'?" in here.refused("templates", "pytst")


def completions(*words: str) -> set[str]:
    complete = ShellComplete(make_group(), {}, "ralph", "_RALPH_COMPLETE")
    *arguments, incomplete = words
    return {item.value for item in complete.get_completions(arguments, incomplete)}


def test_shells_complete_ids_and_names(here: Here) -> None:
    """Task ids by prefix in any case, methods, templates, statuses, the options of all roles."""
    for id in ("TASK-1", "TASK-2", "other"):
        here.create(id)
    assert completions("task", "show", "task") == {"TASK-1", "TASK-2"}
    assert completions("task", "export", "TASK-1", "") == {"TASK-1", "TASK-2", "other"}
    assert completions("task", "create", "--depends-on", "o") == {"other"}
    assert completions("task", "create", "--qa-verify", "s") == {"string_match", "semantic"}
    assert completions("task", "edit", "--qa-template", "cargo") == {"cargo-test", "cargo-clippy"}
    assert completions("task", "templates", "go") == {"go-test", "go-vet"}
    assert completions("task", "edit", "--status", "f") == {"failed"}
    assert completions("task", "create", "--reviewer-ve") == {"--reviewer-verify", "--reviewer-verify-cmd"}
    assert completions("task", "ex") == {"export"}


def test_without_a_store_there_is_nothing_to_complete(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is offered, and the user's shell shows no error."""
    monkeypatch.setenv("RALPH_STATE_DIR", "/dev/null/nowhere")
    assert completions("task", "show", "") == set()


def test_every_role_has_the_same_options() -> None:
    """They are generated from the list of roles."""
    group = make_group().get_command(click.Context(make_group()), "task")
    assert isinstance(group, click.Group)
    create = group.get_command(click.Context(group), "create")
    assert create is not None
    named = {option for param in create.params for option in param.opts if option.startswith("--")}
    of = {
        role: {name.removeprefix(f"--{role}-") for name in named if name.startswith(f"--{role}-")}
        for role in ROLES
    }
    assert set(map(frozenset, of.values())) == {frozenset(of["coder"])}
    criteria = {name.replace("_", "-") for name in asdict(CompletionCriteria("x"))}
    assert of["coder"] >= criteria - {"verification-method", "verification-config"}


def test_worktrees_share_their_tasks(repository: Project, tmp_path: Path) -> None:
    """A task belongs to the repository, whichever directory the command runs in."""
    repository.run("task", "create", "A", "spec", "T", *DONE)
    repository.git("worktree", "add", "-q", str(tmp_path / "tree"))
    (tmp_path / "tree" / "deep").mkdir()
    elsewhere = Project(tmp_path / "tree" / "deep", repository.home)
    assert json.loads(elsewhere.run("task", "show", "A", "--json").out)["id"] == "A"


def test_a_damaged_task_is_named_and_can_be_deleted(here: Here) -> None:
    """Even if the list prints the stored JSON as it is."""
    here.create("A")
    here.create("B")
    with here.tasks() as tasks:
        tasks.db.execute("UPDATE tasks SET completion_spec = '{\"outcome\"' WHERE id = 'A'")
    for arguments in (("list", "--json"), ("show", "A"), ("export",)):
        assert "task A cannot be read" in here.refused(*arguments)
    assert here.run("delete", "A").out == "Deleted A.\n"
    assert here.ids() == ["B"]
