"""There must be changes."""

from __future__ import annotations

from checks.check_support import Bench
from ralph.checks.changes import run
from ralph.checks.registry import METHODS, config_problem
from ralph.core.model import Check, FailAction, Feedback, Verdict

CHECK = Check("changes", "changes")


def test_it_is_in_the_registry() -> None:
    """A check with the method `changes` is this one."""
    assert METHODS["changes"].run is run


def test_a_change_is_green() -> None:
    """Any difference is enough."""
    assert run(CHECK, Bench(difference="+x\n")) == Verdict("changes", green=True, reason="there are changes")


def test_no_change_is_red() -> None:
    """An agent that promised without any work is told so."""
    assert run(CHECK, Bench()) == Verdict(
        "changes",
        green=False,
        reason="nothing was changed",
        feedback=Feedback(FailAction.APPEND, "You say the task is done, but nothing was changed."),
    )


def test_it_has_no_config() -> None:
    """Any key is unknown."""
    assert (config_problem("changes", {}), config_problem("changes", {"x": 1})) == (
        "",
        "Object contains unknown field `x`",
    )
