"""The criteria in effect: from the task, the settings, or the role's defaults."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ralph.core.task_model import ROLES, CompletionCriteria, Task, TaskCompletionSpec
from ralph.settings import RoleSettings, RolesSettings, WorkSettings
from ralph.tasks.criteria import InForce, in_force

SPEC = TaskCompletionSpec("It works", ("It starts", "It stops"))
TASK = Task("A", "s", "Make it work", completion_spec=SPEC)
JUDGED = {"check_for": ["It starts", "It stops"]}
LIMITS = {"coder": 15, "reviewer": 5, "tester": 10, "qa": 5}


@pytest.mark.parametrize("role", ROLES)
def test_by_default_a_judge_decides_by_the_acceptance_criteria(role: str) -> None:
    """Even if the role's method would need a command or stages; the limits are those of the roles."""
    description = f"Complete {role} stage for: Make it work"
    assert in_force(TASK, role, WorkSettings()) == InForce(
        ROLES[role].promise, description, "semantic", JUDGED, LIMITS[role], is_own=False, is_enabled=True
    )


def test_the_task_goes_first() -> None:
    """Its promise, its method, its config with the criteria filled in, and its limit."""
    config = {
        "stages": [{"name": "a", "method": "semantic", "config": {"check_for": "{{acceptance_criteria}}"}}]
    }
    own = CompletionCriteria("MINE", "All of it", "multi_stage", config, 3)
    settings = WorkSettings(agents=RolesSettings(coder=RoleSettings(promise="NOT", max_iterations=9)))
    found = in_force(replace(TASK, completion_spec=replace(SPEC, coder=own)), "coder", settings)
    stages = [{"name": "a", "method": "semantic", "config": JUDGED}]
    assert found == InForce(
        "MINE", "All of it", "multi_stage", {"stages": stages}, 3, is_own=True, is_enabled=True
    )


def test_then_the_settings() -> None:
    """Settings of the role come first, then those for all roles; a role can be disabled."""
    agents = RolesSettings(
        coder=RoleSettings(promise="CODED", verification="string_match", max_iterations=2),
        reviewer=RoleSettings(enabled=False),
    )
    settings = WorkSettings(default_max_iterations=7, default_verification="string_match", agents=agents)
    coder, reviewer = (in_force(TASK, role, settings) for role in ("coder", "reviewer"))
    assert (coder.promise, coder.method, coder.config, coder.max_iterations) == (
        "CODED",
        "string_match",
        {},
        2,
    )
    assert (reviewer.method, reviewer.max_iterations, reviewer.is_enabled) == ("string_match", 7, False)


@pytest.mark.parametrize("method", ["external", "multi_stage", "semantic"])
def test_a_default_method_that_needs_more_is_a_judge(method: str) -> None:
    """Without a command or stages to use, the judge decides."""
    found = in_force(TASK, "qa", WorkSettings(default_verification=method))
    assert (found.method, found.config) == ("semantic", JUDGED)


def test_a_task_without_a_completion_spec() -> None:
    """An old task: only its promise is checked."""
    found = in_force(replace(TASK, completion_spec=None), "tester", WorkSettings())
    assert (found.promise, found.method, found.config) == ("TESTS_PASSED", "string_match", {})
