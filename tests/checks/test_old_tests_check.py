"""The second look: old files in a copy, the new ones in another if that is red."""

from __future__ import annotations

import pytest

from checks.check_support import Bench
from protection.tree_support import changed
from ralph.checks import old_tests
from ralph.checks.base import Interrupted, Shell, SinceStart
from ralph.checks.registry import METHODS
from ralph.core.command_output import CommandOutput
from ralph.core.model import Check, Ended, Exit, Verdict

TESTS = {"tests/test_a.py": "old", "tests/test_b.py": "old", "pyproject.toml": "[tool.pytest]\na = 1\n"}
COMMANDS = (old_tests.TestCommand("ruff check"), old_tests.TestCommand("pytest -q", 9.0))
BAD = Shell(Exit(1), CommandOutput("FAILED tests/test_a.py\n"), ".ralph/guardrail_001_old_tests.log")


def check(**values: object) -> Check:
    return Check("old tests", "old_tests", old_tests.configure(old_tests.Config(COMMANDS, **values)))  # type: ignore[arg-type]


def bench(new: dict[str, str | None], old: str = "", control: str = "") -> Bench:
    """The results of `pytest -q` with the old files and with the new ones: "" for green."""
    change = changed(TESTS, new)
    since = SinceStart("S", change.paths, change.renamed, lambda: (change.old, change.new))
    shells = {"old: pytest -q": old, "new: pytest -q": control}
    return Bench(since=since, shells={name: BAD for name, red in shells.items() if red})


WEAK: dict[str, str | None] = {"tests/test_a.py": "new", "tests/test_b.py": None, "pytest.ini": "[pytest]\n"}


def test_it_is_in_the_registry() -> None:
    """A check with the method `old_tests` is this one."""
    assert METHODS["old_tests"].run is old_tests.run


def test_without_changes_nothing_runs() -> None:
    """Nor outside git, nor if only other files have changed."""
    for context in (Bench(), bench({}), bench({"calc.py": "new", "tests/test_new.py": ""})):
        assert old_tests.run(check(), context) == Verdict(
            "old tests", green=True, reason="no protected test was changed"
        )
        assert not context.copies


def test_old_files_are_put_back_before_the_command_runs() -> None:
    """What is new goes, what was there returns; of a shared file only the keys."""
    context = bench(WEAK | {"pyproject.toml": "[tool.pytest]\na = 2\n"})
    assert old_tests.run(check(), context).green
    (copy,) = context.copies
    assert copy.done == [
        ("remove", ("pytest.ini",)),
        ("put back", ("tests/test_a.py", "tests/test_b.py")),
        ("write", ("pyproject.toml", "[tool.pytest]\na = 1\n")),
        ("run", ("pytest -q", 9.0)),
    ]


def test_red_old_tests_are_explained() -> None:
    """Names, how to restore them, the way out, and the output."""
    context = bench(WEAK, old="red")
    verdict = old_tests.run(check(may_refuse=True), context)
    names = "pytest.ini, tests/test_a.py, tests/test_b.py"
    assert verdict.reason == f"exit code 1: {names} as they were when the run started"
    assert verdict.tests == ("pytest.ini", "tests/test_a.py", "tests/test_b.py")
    assert verdict.excerpt == ("FAILED tests/test_a.py",)
    assert verdict.feedback is not None
    text = verdict.feedback.text
    assert "Restore: git checkout S -- tests/test_a.py tests/test_b.py\n" in text
    assert "Remove files that change how old tests run: pytest.ini\n" in text
    assert "<refuse>why the old test must change</refuse>" in text and text.endswith(
        "FAILED tests/test_a.py\n"
    )
    assert [copy.done[-1] for copy in context.copies] == [("run", ("pytest -q", 9.0))] * 2
    assert len(context.copies[1].done) == 1, "the control has the new files"
    told = old_tests.run(check(), bench(WEAK, old="red"))
    assert told.feedback is not None and "<refuse>" not in told.feedback.text and not told.tests


def test_a_red_control_shows_nothing() -> None:
    """If the command fails in the copy with the new tests too, the outcome says that nothing was compared."""
    verdict = old_tests.run(check(), bench(WEAK, old="red", control="red"))
    assert verdict.green
    assert verdict.note.startswith(
        "old tests were not compared (pytest.ini, tests/test_a.py, tests/test_b.py)"
    )
    assert verdict.note.endswith("pytest -q fails with the new tests too (exit code 1)")


def test_the_user_decides_what_may_change() -> None:
    """From the command line of the run, from its settings, or when it is resumed."""
    for values, allowed in (({"allow": ("**",)}, ()), ({"protect": ()}, ("pytest.ini",)), ({}, ("*",))):
        context = bench(WEAK, old="red")
        context.allowed = allowed
        assert old_tests.run(check(**values), context).green, values


def test_an_interrupted_second_look_has_no_verdict() -> None:
    """It is taken again."""
    context = bench(WEAK)
    context.shells["old: pytest -q"] = Shell(Exit(ended=Ended.INTERRUPTED), CommandOutput(), "")
    with pytest.raises(Interrupted):
        old_tests.run(check(), context)


def test_the_commands_of_a_task_list() -> None:
    """A PRD loop has them in its list, which may have changed."""
    context = bench(WEAK, old="red")
    context.board = '{"verifyCommands": ["pytest -q"]}'
    made = Check("old tests", "old_tests", old_tests.configure(old_tests.Config(timeout=9.0)), required=False)
    verdict = old_tests.run(made, context)
    assert (verdict.green, verdict.required) == (False, False)
    assert verdict.note.startswith("old tests fail: pytest.ini")
