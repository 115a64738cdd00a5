"""`ralph task`: every mistake is one error that says what is wrong and what to do, and changes nothing."""

from __future__ import annotations

import pytest

from commands.task_support import DONE, Here, in_the_project  # noqa: F401


def create(*options: str) -> tuple[str, ...]:
    return ("create", "NEW", "spec", "Title", *DONE, *options)


def test_everything_that_is_missing_is_listed(here: Here) -> None:
    """In one error, with an example."""
    assert here.refused("create", "A", "spec", "Title") == (
        "A was not created: 2 problems.\n"
        '  --outcome is missing: one measurable sentence that says what "done" means\n'
        "  --acceptance is missing: at least one verifiable requirement\n"
        '  For example: --outcome "All endpoints require a JWT" --acceptance "Invalid tokens return 401"\n'
    )
    said = here.refused(
        "create", "A", "spec", " ", "--outcome", "x", "--qa-verify", "external", "--coder-promise", "<"
    )
    assert said.splitlines()[:5] == [
        "A was not created: 4 problems.",
        "  TITLE is missing",
        "  --acceptance is missing: at least one verifiable requirement",
        "  --coder-promise must be one line without < and >",
        "  --qa-verify-cmd is missing: external verification needs a command that must succeed",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "A", "spec"), "Missing argument 'TITLE'"),
        (create("--acceptance", " "), "--acceptance is empty."),
        (("create", "../x", "spec", "T", *DONE), "ID must consist of letters, digits, `.`, `_` and `-`"),
        (("create", "x.lock", "spec", "T", *DONE), "ID must not contain `..` or end in `.` or `.lock`"),
        (("create", "x" * 101, "spec", "T", *DONE), "ID has 101 characters; the maximum is 100."),
        (("create", "A", "", "T", *DONE), "SPEC is missing"),
        (("create", "A", "spec", "T\nU", *DONE), "TITLE must be one line, without control characters."),
        (
            ("create", "OLD", "spec", "T", *DONE),
            "A task with this ID already exists.\n  To change it, use: ralph task edit",
        ),
        (create("--depends-on", "NOBODY"), "--depends-on names an unknown task: 'NOBODY'."),
        (create("--depends-on", "ODL"), "'ODL'; did you mean 'OLD'?"),
        (create("--depends-on", "NEW"), "--depends-on: dependency cycle: NEW → NEW."),
        (create("--priority", "high"), "Invalid value for '--priority'"),
        (create("--priority", "99999999"), "--priority must be 1000000 or less."),
        (
            create("--coder-promise", ""),
            "--coder-promise is empty: it is the text that the agent prints when it is done.",
        ),
        (create("--coder-promise", "a\nb"), "--coder-promise must be one line without < and >."),
        (
            create("--coder-max-iterations", "0"),
            "Invalid value for '--coder-max-iterations': must be 1 or more",
        ),
        (
            create("--coder-verify", "extrenal"),
            "--coder-verify names an unknown method: 'extrenal'; did you mean 'external'?",
        ),
        (
            create("--coder-verify", "x"),
            "names an unknown method: 'x'; one of string_match, semantic, external, multi_stage",
        ),
        (
            create("--coder-verify", "external"),
            "--coder-verify-cmd is missing: external verification needs a command",
        ),
        (
            create("--coder-verify-cmd", ""),
            "--coder-verify-cmd is missing: external verification needs a command",
        ),
        (
            create("--qa-verify", "multi_stage"),
            "stages is missing: a list of stages, each with a name, a method and a config.\n",
        ),
        (
            create("--qa-verify", "multi_stage"),
            "\n  Stages can only be imported from a file: ralph task import FILE",
        ),
        (
            create("--qa-verify-cmd", "x", "--qa-check-for", "y"),
            "--qa-verify-cmd and --qa-check-for cannot be used together.\n  Use one method per role.",
        ),
        (
            create("--qa-verify", "semantic", "--qa-verify-cmd", "x"),
            "--qa-verify semantic and --qa-verify-cmd cannot be used together.",
        ),
        (
            create("--qa-template", "pytest", "--qa-negative-pattern", "x"),
            "--qa-template and --qa-negative-pattern cannot be used together.",
        ),
        (create("--qa-template", "pytets"), "Unknown template 'pytets'.\n  Did you mean 'pytest'?"),
        (
            create("--qa-check-for", "all {{acceptance_criteria}}"),
            "--qa-check-for must be exactly {{acceptance_criteria}}",
        ),
        (create("--protect", ""), "--protect is empty."),
        (create("--colour", "red"), "No such option"),
        (
            ("edit", "OLD"),
            "Nothing to change: no options given.\n  To list the options: ralph task edit --help",
        ),
        (
            ("edit", "NOBODY", "--priority", "1"),
            "There is no task 'NOBODY' in this project.\n  To list the tasks: ralph task list",
        ),
        (("edit", "OLD", "--title", ""), "--title is missing."),
        (("edit", "OLD", "--status", "reviewing"), "Invalid value for '--status'"),
        (("edit", "OLD", "--remove-dependency", "X"), "OLD does not depend on 'X'."),
        (
            ("edit", "FIRST", "--depends-on", "OLD"),
            "--depends-on: dependency cycle: FIRST → OLD → FIRST",
        ),
        (("edit", "OLD", "--outcome", " "), "--outcome is missing"),
        (("show", "NOBODY"), "There is no task 'NOBODY' in this project."),
        (("list", "--status", "open"), "Invalid value for '--status'"),
        (("export", "NOBODY"), "There is no task 'NOBODY' in this project."),
        (("export", "--spec", "none"), "No matching tasks."),
        (("export", "-o", "nowhere/x.yaml"), "nowhere"),
        (("export", "-o", "."), "is not a regular file."),
        (("import", "nowhere.yaml"), "nowhere.yaml: task file not found."),
        (("import", "."), ".: the task file is not a regular file."),
        (("templates", "x"), "Unknown template 'x'."),
        (("invent",), "No such command 'invent'"),
    ],
)
def test_mistakes_are_explained(here: Here, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, a clear message, and nothing changes."""
    here.create("FIRST")
    here.create("OLD", "--depends-on", "FIRST")
    before = here.run("list", "--json").out
    assert said in here.refused(*arguments)
    assert here.run("list", "--json").out == before


def test_unreadable_settings_are_reported(here: Here) -> None:
    """They hold the defaults of the roles."""
    here.project.settings(ralph={"agents": {"coder": {"promis": "X"}}})
    assert "unknown key 'ralph.agents.coder.promis'" in here.refused(*create("--coder-max-iterations", "3"))
