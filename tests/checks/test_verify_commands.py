"""The verify commands of a task list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checks.check_support import Bench
from ralph.checks.stories import run
from ralph.core.model import Check, Ended, Exit
from ralph.prd.plan import PrdInputs, plan
from ralph.settings import AgentSettings, Settings


def verify(iteration_timeout: float = 0.0) -> Check:
    """The check of a run with these settings."""
    settings = Settings(agent=AgentSettings(command="true"), iteration_timeout_seconds=iteration_timeout)
    (check,) = plan(settings, PrdInputs(Path("/project"))).checks
    return check


@pytest.mark.parametrize(("given", "seconds"), [(0.0, 3600.0), (90.0, 90.0)])
def test_a_command_that_hangs_times_out_and_is_red(given: float, seconds: float) -> None:
    """After an hour, or after the timeout of an iteration."""
    context = Bench(
        Exit(None, signal=15, ended=Ended.TIMEOUT), board=json.dumps({"verifyCommands": ["npm test"]})
    )
    verdict = run(verify(given), context)
    assert context.asked == [("npm test", seconds)]
    assert (verdict.green, verdict.reason) == (False, f"npm test: a timeout after {seconds:g} s")


def test_the_first_that_fails_decides() -> None:
    """Later commands do not run."""
    context = Bench(Exit(2), board=json.dumps({"verifyCommands": ["a", "b"]}))
    assert run(verify(), context).reason == "a: exit code 2"
    assert [command for command, _ in context.asked] == ["a"]
