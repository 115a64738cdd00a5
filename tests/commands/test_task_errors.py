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
        '  --outcome is missing: one sentence that can be measured and says what "done" means\n'
        "  --acceptance is missing: at least one requirement that can be verified\n"
        '  For example: --outcome "All endpoints require a JWT" --acceptance "Invalid tokens return 401"\n'
    )
    said = here.refused(
        "create", "A", "spec", " ", "--outcome", "x", "--qa-verify", "external", "--coder-promise", "<"
    )
    assert said.splitlines()[:5] == [
        "A was not created: 4 problems.",
        "  TITLE is missing",
        "  --acceptance is missing: at least one requirement that can be verified",
        "  --coder-promise must be one line without < and >",
        "  --qa-verify-cmd is missing: external verification needs a command that must succeed",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "A", "spec"), "Missing argument 'TITLE'"),
        (create("--acceptance", " "), "--acceptance is empty."),
        (("create", "../x", "spec", "T", *DONE), "ID must be letters, digits, `.`, `_` and `-`"),
        (("create", "x.lock", "spec", "T", *DONE), "ID must not have `..` in it, nor end in `.` or `.lock`"),
        (("create", "x" * 101, "spec", "T", *DONE), "ID has 101 characters; at most 100."),
        (("create", "A", "", "T", *DONE), "SPEC is missing"),
        (("create", "A", "spec", "T\nU", *DONE), "TITLE must be one line, without control characters."),
        (("create", "OLD", "spec", "T", *DONE), "ID is there already.\n  `ralph task edit` changes it."),
        (create("--depends-on", "NOBODY"), "--depends-on names no task of this project: 'NOBODY'."),
        (create("--depends-on", "ODL"), "'ODL'; did you mean 'OLD'?"),
        (create("--depends-on", "NEW"), "--depends-on: tasks that wait for each other: NEW → NEW."),
        (create("--priority", "high"), "Invalid value for '--priority'"),
        (create("--priority", "99999999"), "--priority must be a whole number, at most 1000000."),
        (create("--coder-promise", ""), "--coder-promise is empty: what the agent says when it is done."),
        (create("--coder-promise", "a\nb"), "--coder-promise must be one line without < and >."),
        (
            create("--coder-max-iterations", "0"),
            "Invalid value for '--coder-max-iterations': '0' is no whole",
        ),
        (
            create("--coder-verify", "extrenal"),
            "--coder-verify names no method: 'extrenal'; did you mean 'external'?",
        ),
        (
            create("--coder-verify", "x"),
            "names no method: 'x'; one of string_match, semantic, external, multi_stage",
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
        (create("--qa-verify", "multi_stage"), "\n  `ralph task import` reads stages from a file."),
        (
            create("--qa-verify-cmd", "x", "--qa-check-for", "y"),
            "--qa-verify-cmd and --qa-check-for contradict each other.\n  One method each;",
        ),
        (
            create("--qa-verify", "semantic", "--qa-verify-cmd", "x"),
            "--qa-verify semantic and --qa-verify-cmd contradict each other.",
        ),
        (
            create("--qa-template", "pytest", "--qa-negative-pattern", "x"),
            "--qa-template and --qa-negative-pattern contradict each other.",
        ),
        (create("--qa-template", "pytets"), "There is no template 'pytets'.\n  Did you mean 'pytest'?"),
        (
            create("--qa-check-for", "all {{acceptance_criteria}}"),
            "--qa-check-for must be {{acceptance_criteria}}",
        ),
        (create("--protect", ""), "--protect is empty."),
        (create("--colour", "red"), "No such option"),
        (
            ("edit", "OLD"),
            "There is nothing to change.\n  Say what: `ralph task edit --help` lists the options.",
        ),
        (
            ("edit", "NOBODY", "--priority", "1"),
            "There is no task 'NOBODY' in this project.\n  `ralph task list`",
        ),
        (("edit", "OLD", "--title", ""), "--title is missing."),
        (("edit", "OLD", "--status", "reviewing"), "Invalid value for '--status'"),
        (("edit", "OLD", "--remove-dependency", "X"), "OLD does not depend on 'X'."),
        (
            ("edit", "FIRST", "--depends-on", "OLD"),
            "--depends-on: tasks that wait for each other: FIRST → OLD → FIRST",
        ),
        (("edit", "OLD", "--outcome", " "), "--outcome is missing"),
        (("show", "NOBODY"), "There is no task 'NOBODY' in this project."),
        (("list", "--status", "open"), "Invalid value for '--status'"),
        (("export", "NOBODY"), "There is no task 'NOBODY' in this project."),
        (("export", "--spec", "none"), "There are no such tasks."),
        (("export", "-o", "nowhere/x.yaml"), "nowhere"),
        (("export", "-o", "."), "is no regular file."),
        (("import", "nowhere.yaml"), "nowhere.yaml: task file not found."),
        (("import", "."), ".: the task file is not a regular file."),
        (("templates", "x"), "There is no template 'x'."),
        (("invent",), "No such command 'invent'"),
    ],
)
def test_mistakes_are_explained(here: Here, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, in words, and everything is as it was."""
    here.create("FIRST")
    here.create("OLD", "--depends-on", "FIRST")
    before = here.run("list", "--json").out
    assert said in here.refused(*arguments)
    assert here.run("list", "--json").out == before


def test_settings_that_cannot_be_read_are_said(here: Here) -> None:
    """The defaults of a role come from there."""
    here.project.settings(ralph={"agents": {"coder": {"promis": "X"}}})
    assert "unknown key 'ralph.agents.coder.promis'" in here.refused(*create("--coder-max-iterations", "3"))
