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
    """The built-in methods. Packages may add more, so criteria refer to a method by name."""

    STRING_MATCH = "string_match"
    SEMANTIC = "semantic"
    EXTERNAL = "external"
    MULTI_STAGE = "multi_stage"


class RoleDefaults(Struct, frozen=True):
    """Defaults of a role, unless the task or the settings override them."""

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
        "You implement the task. Work in the current directory, a separate git worktree.",
    ),
    "reviewer": RoleDefaults(
        TaskStatus.REVIEWING,
        "REVIEW_PASSED",
        5,
        VerificationMethod.SEMANTIC,
        "You review the implementation: read the changes and judge them against the criteria. Do not rewrite them.",
    ),
    "tester": RoleDefaults(
        TaskStatus.TESTING,
        "TESTS_PASSED",
        10,
        VerificationMethod.EXTERNAL,
        "You test the implementation: write missing tests, run them, and report what fails.",
    ),
    "qa": RoleDefaults(
        TaskStatus.QA,
        "QA_PASSED",
        5,
        VerificationMethod.MULTI_STAGE,
        "You decide whether the task as a whole meets every acceptance criterion from a user's point of view.",
    ),
}
"""The roles in order. A task passes through all enabled ones."""

ACCEPTANCE = "{{acceptance_criteria}}"
"""Placeholder in a verification config for the task's acceptance criteria."""


def injected(config: Mapping[str, Any], criteria: Sequence[str]) -> dict[str, Any]:
    """The config with ACCEPTANCE replaced by the list of criteria, or spliced into a list."""
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
    """The promise of one role, and how it is verified."""

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
        """Roles for which the task itself has criteria."""
        for role in ROLES:
            if criteria := self.criteria_of(role):
                yield role, criteria


class Task(Struct, frozen=True):
    """A task of a project.

    `protect`: globs of files that only the tester may change; None detects them. `attempts`: number of parallel
    coders; the first one whose promise is verified wins.
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
    """The progress of `ralph work` on a task; a restart continues from here.

    `base`: the branch to merge into. `began`: the commit of that branch where the work started. `trusted`: the
    commit whose protected files count: the start of the work, later the tester's result. `attempt`: the winning
    attempt. `merged`: the resulting commit on the base branch. `after`: the last run before the current role; later
    runs belong to that role. `reset`: the last run before `ralph task reset`; its worktree and earlier ones are gone.
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
    reset: str = ""

    def reopened(self) -> TaskProgress:
        """Start again with the first role, keeping the existing work."""
        return replace(self, role="", sent_back=0, merge_retries=0, reason="")
