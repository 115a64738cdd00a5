"""The promise of a role and its verification: from the task, the settings, or the defaults."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ralph.checks.registry import METHODS
from ralph.core.task_model import ROLES, CompletionCriteria, Task, VerificationMethod, injected
from ralph.settings import RoleSettings, WorkSettings


class InForce(Struct, frozen=True):
    """The complete criteria of one role of a task. `is_own` says whether the task itself defines them.

    With the loop disabled, every role gets one verified pass.
    """

    promise: str
    description: str
    method: str
    config: dict[str, Any]
    max_iterations: int
    is_own: bool
    is_enabled: bool


def in_force(task: Task, role: str, settings: WorkSettings) -> InForce:
    """The criteria in effect, in this order: task, role settings, the user's defaults, the role's defaults."""
    spec, of_role = task.completion_spec, role_settings(role, settings)
    criteria, own = criteria_of(task, role, settings), spec.criteria_of(role) if spec else None
    most = criteria.max_iterations or of_role.max_iterations or settings.default_max_iterations
    return InForce(
        promise=criteria.promise,
        description=criteria.description or f"Complete {role} stage for: {task.title}",
        method=str(criteria.verification_method),
        config=injected(criteria.verification_config, spec.acceptance_criteria if spec else ()),
        max_iterations=(most or ROLES[role].max_iterations) if settings.enabled else 1,
        is_own=own is not None,
        is_enabled=of_role.enabled,
    )


def criteria_of(task: Task, role: str, settings: WorkSettings) -> CompletionCriteria:
    """The criteria as written in the task, or the defaults, without filling in what they leave open."""
    own = task.completion_spec.criteria_of(role) if task.completion_spec else None
    return own or _by_default(task, role, settings)


def _by_default(task: Task, role: str, settings: WorkSettings) -> CompletionCriteria:
    promise = default_promise(role, settings)
    if task.completion_spec is None:
        return CompletionCriteria(promise)
    method, config = default_verification(role, settings)
    return CompletionCriteria(promise, "", method, config)


def default_promise(role: str, settings: WorkSettings) -> str:
    return role_settings(role, settings).promise or ROLES[role].promise


def default_verification(role: str, settings: WorkSettings) -> tuple[str, dict[str, Any]]:
    """The method and config for a role with nothing but acceptance criteria."""
    chosen = role_settings(role, settings).verification or settings.default_verification
    method = chosen or ROLES[role].verification
    config = METHODS[method].default if method in METHODS else {}
    if config is None:
        method, config = VerificationMethod.SEMANTIC, METHODS[VerificationMethod.SEMANTIC].default or {}
    return str(method), dict(config)


def role_settings(role: str, settings: WorkSettings) -> RoleSettings:
    found: RoleSettings = getattr(settings.agents, role)
    return found
