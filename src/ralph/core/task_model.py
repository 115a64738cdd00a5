"""Tasks: what "done" means for each, which roles take part, and how each role proves its part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace


class TaskStatus(StrEnum):
    TODO = "todo"
    IMPLEMENTING = "implementing"
    REVIEWING = "reviewing"
    TESTING = "testing"
    QA = "qa"
    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"


class VerificationMethod(StrEnum):
    """The methods that come with Ralph; packages may bring more, so criteria hold a method by its name."""

    STRING_MATCH = "string_match"
    SEMANTIC = "semantic"
    EXTERNAL = "external"
    MULTI_STAGE = "multi_stage"


class RoleDefaults(Struct, frozen=True):
    """What a role is when neither the task nor the settings say otherwise."""

    status: TaskStatus
    promise: str
    max_iterations: int
    verification: VerificationMethod
    duty: str


ROLES: dict[str, RoleDefaults] = {
    "coder": RoleDefaults(
        TaskStatus.IMPLEMENTING,
        "IMPLEMENTATION_COMPLETE",
        15,
        VerificationMethod.EXTERNAL,
        "You implement the task. Work in the current directory; it is a git worktree of its own.",
    ),
    "reviewer": RoleDefaults(
        TaskStatus.REVIEWING,
        "REVIEW_PASSED",
        5,
        VerificationMethod.SEMANTIC,
        "You review what was implemented: read the changes, judge them against the criteria. Do not rewrite them.",
    ),
    "tester": RoleDefaults(
        TaskStatus.TESTING,
        "TESTS_PASSED",
        10,
        VerificationMethod.EXTERNAL,
        "You test what was implemented: write the tests that are missing, run them, and report what fails.",
    ),
    "qa": RoleDefaults(
        TaskStatus.QA,
        "QA_PASSED",
        5,
        VerificationMethod.MULTI_STAGE,
        "You decide whether the task as a whole meets every acceptance criterion, as a user would meet it.",
    ),
}
"""The roles in their order. A task goes through all that are enabled."""

ACCEPTANCE = "{{acceptance_criteria}}"
"""Stands in a verification config for the list of the task's acceptance criteria."""


def injected(config: Mapping[str, Any], criteria: Sequence[str]) -> dict[str, Any]:
    """The config with the criteria in the place of ACCEPTANCE: the list of them, or spliced into a list."""
    return {key: _injected(value, criteria) for key, value in config.items()}


def _injected(value: Any, criteria: Sequence[str]) -> Any:
    if value == ACCEPTANCE:
        return list(criteria)
    if isinstance(value, Mapping):
        return injected(value, criteria)
    if isinstance(value, list | tuple):
        parts = (criteria if each == ACCEPTANCE else [_injected(each, criteria)] for each in value)
        return [part for several in parts for part in several]
    return value


class CompletionCriteria(Struct, frozen=True):
    """What one role promises, and how the promise is verified."""

    promise: str
    description: str = ""
    verification_method: str = VerificationMethod.STRING_MATCH
    verification_config: dict[str, Any] = field(default_factory=dict)
    max_iterations: int | None = None


class TaskCompletionSpec(Struct, frozen=True):
    """What "done" means for a task."""

    outcome: str
    acceptance_criteria: tuple[str, ...]
    coder: CompletionCriteria | None = None
    reviewer: CompletionCriteria | None = None
    tester: CompletionCriteria | None = None
    qa: CompletionCriteria | None = None

    def criteria_of(self, role: str) -> CompletionCriteria | None:
        criteria: CompletionCriteria | None = getattr(self, role)
        return criteria

    @property
    def criteria(self) -> Iterator[tuple[str, CompletionCriteria]]:
        """The roles for which the task has criteria of its own."""
        for role in ROLES:
            if criteria := self.criteria_of(role):
                yield role, criteria


class Task(Struct, frozen=True):
    """A task of a project.

    `protect`: globs of files that no role but the tester may change; None: found out. `attempts`: so many coders
    work on it side by side, and the first one whose promise is verified is taken.
    """

    id: str
    spec_id: str
    title: str
    description: str = ""
    status: TaskStatus = TaskStatus.TODO
    priority: int = 0
    dependencies: tuple[str, ...] = ()
    assignee: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    metadata: dict[str, Any] = field(default_factory=dict)
    iteration: int = 0
    completion_spec: TaskCompletionSpec | None = None
    protect: tuple[str, ...] | None = None
    attempts: int = 1


class TaskProgress(Struct, frozen=True):
    """How far `ralph work` has come with a task; a restart goes on from here.

    `base`: the branch it goes into. `began`: the commit of it that the work began from. `trusted`: the commit
    whose protected files count: where the work began, later what the tester has left. `attempt`: the one that was
    taken. `merged`: the commit that the base branch got. `after`: the last run before the role in hand; those that
    follow belong to it.
    """

    base: str = ""
    began: str = ""
    trusted: str = ""
    role: str = ""
    sent_back: int = 0
    merge_retries: int = 0
    reason: str = ""
    attempt: int = 1
    merged: str = ""
    after: str = ""

    def reopened(self) -> TaskProgress:
        """The work begins anew with the first role, in what is there already."""
        return replace(self, role="", sent_back=0, merge_retries=0, reason="")
