"""A command as a verification method."""

from __future__ import annotations

import errno
import json
import math
from typing import Any

import pytest
from msgspec.structs import replace

from checks.check_support import LOG, Bench
from ralph.checks.base import Interrupted, Shell
from ralph.checks.external import run
from ralph.checks.registry import METHODS, config_problem
from ralph.core.command_output import Gap
from ralph.core.model import Check, Ended, Exit, FailAction, Feedback, Verdict
from ralph.errors import RalphError
from ralph.scm.git import GitError


def external(hint: str = "", action: FailAction = FailAction.APPEND, **config: Any) -> Check:
    values = json.dumps({"command": "make test"} | config)
    return Check("tests", "external", values, fail_action=action, hint=hint)


def test_it_is_in_the_registry() -> None:
    """A check with the method `external` is this one."""
    assert METHODS["external"].run is run


def test_the_expected_exit_code_is_green() -> None:
    """By default that is 0, within 300 seconds, in the worktree itself."""
    context = Bench(Exit(0), "all is well")
    assert run(external(), context) == Verdict(
        "tests", green=True, reason="External verification passed", log=LOG
    )
    assert (context.asked, context.directories) == ([("make test", 300.0)], ["."])


def test_every_key_has_its_effect() -> None:
    """Another exit code, a timeout, a directory."""
    context = Bench(Exit(3))
    assert run(external(success_exit_code=3, timeout=7, working_dir="web/./src/.."), context).green
    assert (context.asked, context.directories) == ([("make test", 7.0)], ["web"])


@pytest.mark.parametrize(
    ("exit", "config", "reason"),
    [
        (Exit(1), {}, "Command exited with 1, expected 0"),
        (Exit(0), {"success_exit_code": 2}, "Command exited with 0, expected 2"),
        (Exit(127), {}, "Command exited with 127, expected 0"),
        (Exit(None, signal=9), {}, "Command exited with 137, expected 0"),
        (Exit(None, signal=15, ended=Ended.TIMEOUT), {}, "Command timed out after 300s"),
        (Exit(0, ended=Ended.TIMEOUT), {"timeout": 0.5}, "Command timed out after 0.5s"),
        (Exit(lost=True), {}, "Command failed: it was killed"),
        (Exit(0), {"output_contains": "passed"}, "Output doesn't contain: passed"),
        (Exit(0), {"output_not_contains": "1 fail"}, "Output contains forbidden: 1 fail"),
        (Exit(1), {"output_contains": "passed"}, "Command exited with 1, expected 0"),
    ],
)
def test_anything_else_is_red(exit: Exit, config: dict[str, Any], reason: str) -> None:
    """The verdict shows the expected and the actual result."""
    verdict = run(external(**config), Bench(exit, "1 failed"))
    assert (verdict.green, verdict.reason, verdict.log) == (False, reason, LOG)


@pytest.mark.parametrize("unset", ["", None])
def test_empty_texts_are_not_searched_for(unset: str | None) -> None:
    """Every output contains an empty text."""
    config: dict[str, Any] = {"output_contains": unset, "output_not_contains": unset}
    assert run(external(**config), Bench(Exit(0), "")).green


@pytest.mark.parametrize(("key", "green"), [("output_contains", True), ("output_not_contains", False)])
def test_cut_output_is_searched_in_its_log(key: str, green: bool) -> None:
    """Text after the part that is kept counts too."""
    context = Bench(Exit(0), "the beginning", gap=Gap(9, 90), logs={LOG: "the beginning … FAILED"})
    config: dict[str, Any] = {key: "FAILED"}
    assert run(external(**config), context).green is green


def test_a_log_that_is_gone_is_red() -> None:
    """If the output cannot be read, nothing is proved."""

    class Cleared(Bench):
        def has_printed(self, done: Shell, text: str) -> bool:
            raise FileNotFoundError(2, "No such file", LOG)

    verdict = run(external(output_not_contains="FAILED"), Cleared(Exit(0)))
    assert (verdict.green, verdict.reason) == (False, f"Command failed: [Errno 2] No such file: '{LOG}'")


def test_an_incomplete_log_cannot_rule_out_a_text() -> None:
    """What was printed beyond the log is unknown, so a forbidden text may have been printed."""

    class Lost(Bench):
        def shell(self, command: str, timeout: float, **more: Any) -> Shell:
            return replace(super().shell(command, timeout, **more), lost="the disk is full")

    context = Lost(Exit(0), "the beginning", gap=Gap(9, 90), logs={LOG: "the beginning"})
    verdict = run(external(output_not_contains="FAILED"), context)
    assert verdict.reason == "Output may contain FAILED: its log is incomplete (the disk is full)"
    assert run(external(output_not_contains="FAILED"), Lost(Exit(0), "all of it")).green


def test_an_error_of_git_is_not_a_verdict() -> None:
    """Without the tree nobody knows what the command would have seen."""

    class Broken(Bench):
        def shell(self, command: str, timeout: float, **more: Any) -> Shell:
            raise GitError("git status: it died")

    with pytest.raises(GitError):
        run(external(), Broken(Exit(0)))


def test_feedback_has_command_reason_hint_log_and_output() -> None:
    """The agent gets everything it needs to continue, each on its line, and no tag that it could repeat."""
    context = Bench(Exit(1), "and more <promise>DONE</promise>", truncate=60)
    assert run(external("Fix the code.", FailAction.PREPEND), context).feedback == Feedback(
        FailAction.PREPEND,
        'Verification by "make test" failed: Command exited with 1, expected 0.\n'
        "Hint: Fix the code.\n"
        f"Output file: {LOG}\n"
        "Output:\n"
        "and more &lt;promise&gt;DONE&lt;/promise&gt;",
    )


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "No such file"), RalphError("web is not a directory.")]
)
def test_a_command_that_cannot_run_is_red(error: Exception) -> None:
    """A missing directory does not end the run: it is a failed check."""

    class Broken(Bench):
        def shell(
            self, command: str, timeout: float, *, is_clean: bool = False, directory: str = "."
        ) -> Shell:
            raise error

    reason = f"Command failed: {error}"
    assert run(external(), Broken()) == Verdict(
        "tests",
        green=False,
        reason=reason,
        feedback=Feedback(FailAction.APPEND, f'Verification by "make test" failed: {reason}.\nOutput:\n'),
    )


@pytest.mark.parametrize(
    ("output", "why"), [("", "Cannot allocate memory"), ("web: not there", "web: not there")]
)
def test_a_command_that_cannot_start_says_why(output: str, why: str) -> None:
    """The reason comes from the context, otherwise from the system."""
    verdict = run(external(), Bench(Exit(error=errno.ENOMEM), output))
    assert (verdict.green, verdict.reason) == (False, f"Command failed: {why}")


def test_an_interrupted_one_has_no_verdict() -> None:
    """A command that was stopped before it finished says nothing about the work."""
    with pytest.raises(Interrupted):
        run(external(), Bench(Exit(None, signal=15, ended=Ended.INTERRUPTED)))


OUTSIDE = "working_dir: {!r} is not inside the worktree; give a path relative to it"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"command": "x"}, ""),
        ({"command": "x", "timeout": 1.5, "working_dir": "a/../b", "success_exit_code": 255}, ""),
        ({"command": "x", "output_contains": None, "output_not_contains": "y", "timeout": 0}, ""),
        ({}, "Object missing required field `command`"),
        ({"command": " \n"}, "command: must not be empty"),
        ({"command": "a\0b"}, "command: contains a NUL character"),
        ({"command": "x", "timeout": -1}, "timeout: Expected `float` >= 0.0"),
        ({"command": "x", "timeout": math.inf}, "timeout: must be a number of seconds (0: no limit)"),
        ({"command": "x", "timeout": math.nan}, "timeout: Expected `float` >= 0.0"),
        ({"command": "x", "timeout": "300"}, "timeout: Expected `float`, got `str`"),
        ({"command": "x", "success_exit_code": 256}, "success_exit_code: Expected `int` <= 255"),
        ({"command": "x", "success_exit_code": True}, "success_exit_code: Expected `int`, got `bool`"),
        ({"command": "x", "working_dir": "/tmp"}, OUTSIDE.format("/tmp")),
        ({"command": "x", "working_dir": "a/../../b"}, OUTSIDE.format("a/../../b")),
        ({"command": "x", "cwd": "."}, "Object contains unknown field `cwd`"),
    ],
)
def test_its_config(config: dict[str, Any], problem: str) -> None:
    """Every key is checked before anything runs, and a misspelt key is refused."""
    assert config_problem("external", config) == problem
