"""Makes the Plan of a loop from a task and a role: its promise, its checks, its agent."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ralph.agents.registry import with_model
from ralph.checks.registry import commands_of, config_problem, find_method
from ralph.core.model import (
    NO_SANDBOX,
    AgentSpec,
    Check,
    ClaimKind,
    ClaimRule,
    Flow,
    Limits,
    Permissions,
    Plan,
    PromptSource,
    SandboxSpec,
    Scm,
    TaskBrief,
    When,
)
from ralph.core.task_model import (
    ROLES,
    Task,
    TaskProgress,
    injected,
)
from ralph.errors import RalphError
from ralph.protection.protect import Protection, protection
from ralph.runs.run_plan import agent_spec, agent_specs, default_permissions, guarding, guardrails, limits
from ralph.settings import CommandSettings, Settings
from ralph.tasks.criteria import InForce, criteria_of, in_force, role_settings

MERGE = "merge"
"""The run that proves a merged tree, without an agent."""


class BudgetLeft(Struct, frozen=True):
    """The remaining budget (0: no limit)."""

    cost_usd: float = 0.0
    tokens: int = 0
    seconds: float = 0.0


class Place(Struct, frozen=True):
    """A worktree, the user's checkout that it stands for, and where the project lies in both."""

    worktree: Path
    origin: Path
    project: str = "."

    @property
    def directory(self) -> Path:
        return Path(os.path.normpath(self.worktree / self.project))


class Assignment(Struct, frozen=True):
    """One role's turn at a task. `told` is why the task came back; `tracked` are the files of the trusted commit."""

    task: Task
    role: str
    place: Place
    progress: TaskProgress
    told: str = ""
    tracked: Collection[str] = ()
    budget: BudgetLeft = BudgetLeft()
    attempt: int = 1

    @property
    def worktree(self) -> Path:
        return self.place.worktree


def roles_of(settings: Settings) -> tuple[str, ...]:
    """The enabled roles, in the order that tasks go through them."""
    roles = tuple(role for role in ROLES if role_settings(role, settings.ralph).enabled)
    if not roles:
        raise RalphError("All roles are disabled.", "Enable one in the settings, under ralph.agents.")
    return roles


# ---- the duty of a role ----


def problems(task: Task, roles: Sequence[str], settings: Settings) -> list[str]:
    """The problems that would prevent these roles from working on a task."""
    found = []
    texts = task.completion_spec.acceptance_criteria if task.completion_spec else ()
    samples = tuple(sorted({"a criterion" if text.strip() else "" for text in texts}))
    for role in roles:
        criteria = criteria_of(task, role, settings.ralph)
        config = msgspec.json.encode(criteria.verification_config)
        if problem := _problem(criteria.verification_method, config, samples):
            found.append(f"{role}: {problem}")
    return found


@cache
def _problem(method: str, config: bytes, criteria: tuple[str, ...]) -> str:
    """The problem with a config, or "". Cached, because thousands of tasks may share one config."""
    try:
        return config_problem(method, injected(msgspec.json.decode(config), criteria))
    except RalphError as error:
        return error.message


# ---- the plan ----


def plan(settings: Settings, assignment: Assignment, sandbox: SandboxSpec = NO_SANDBOX) -> Plan:
    """The plan for one role's loop."""
    task, role = assignment.task, assignment.role
    criteria = in_force(task, role, settings.ralph)
    spec = task.completion_spec
    agents = agents_of(settings, role, default_permissions(sandbox))
    brief = TaskBrief(
        id=task.id,
        title=task.title,
        description=task.description,
        outcome=spec.outcome if spec else "Complete the assigned task.",
        acceptance_criteria=spec.acceptance_criteria if spec else (),
        role=role,
        duty=ROLES[role].duty,
        criteria=criteria.description,
        method=criteria.method,
        may_refuse=role != roles_of(settings)[0],
        told=assignment.told,
    )
    return Plan(
        run="",
        flow=Flow.WORK,
        directory=str(assignment.place.directory),
        agents=agents,
        prompt=PromptSource(instruction=False, truncate=settings.output_truncate_chars, task=brief),
        claim=ClaimRule(tag="promise", text=criteria.promise, strict=True),
        checks=_checks(settings, assignment, criteria),
        limits=_limits(settings, assignment, criteria.max_iterations),
        role=role,
        scm=Scm("git", ("commit",), f"{task.id}: {task.title} ({role})"),
        allow_degraded=settings.ralph.allow_degraded,
        snapshots=settings.snapshots,
        task_id=task.id,
        base=assignment.progress.began,
        judge=judge_of(settings, agents[0]),
        guard=guarding(settings),
        sandbox=sandbox,
        origin=str(assignment.place.origin),
        setup=settings.ralph.setup,
    )


def setup_plan(settings: Settings, place: Place, sandbox: SandboxSpec) -> Plan:
    """The plan for preparing a worktree before a run exists: with agent work in it, it needs the sandbox here too."""
    return Plan(
        run="setup",
        flow=Flow.WORK,
        directory=str(place.directory),
        agents=agents_of(settings, roles_of(settings)[0]),
        prompt=PromptSource(),
        sandbox=sandbox,
        origin=str(place.origin),
        setup=settings.ralph.setup,
    )


def merge_plan(settings: Settings, assignment: Assignment, sandbox: SandboxSpec = NO_SANDBOX) -> Plan:
    """The plan for a merge: no agent, only checks. Everything the roles proved must hold on the merged tree too."""
    task = assignment.task
    checks: dict[str, Check] = {check.name: check for check in guardrails(settings.guardrails)}
    for role in roles_of(settings):
        for check in _verification(role, in_force(task, role, settings.ralph), When.ALWAYS):
            known = {(each.method, each.config) for each in checks.values()}
            if find_method(check.method).reads_tree and (check.method, check.config) not in known:
                checks[check.name] = check
    agents = agents_of(settings, roles_of(settings)[0])
    return Plan(
        run="",
        flow=Flow.WORK,
        directory=str(assignment.place.directory),
        agents=agents,
        prompt=PromptSource(instruction=False, truncate=settings.output_truncate_chars),
        claim=ClaimRule(kind=ClaimKind.GIVEN),
        checks=tuple(checks.values()),
        limits=_limits(settings, assignment, 1),
        role=MERGE,
        allow_degraded=settings.ralph.allow_degraded,
        snapshots=False,
        task_id=task.id,
        base=assignment.progress.began,
        judge=judge_of(settings, agents[0]),
        sandbox=sandbox,
        origin=str(assignment.place.origin),
        setup=settings.ralph.setup,
    )


def _limits(settings: Settings, assignment: Assignment, iterations: int) -> Limits:
    budget = assignment.budget
    return replace(
        limits(settings, iterations, settings.iteration_timeout_seconds),
        cost_usd=budget.cost_usd,
        tokens=budget.tokens,
        seconds=budget.seconds,
    )


def _checks(settings: Settings, assignment: Assignment, criteria: InForce) -> tuple[Check, ...]:
    """The project's guardrails, the protected files, and the role's own verification."""
    checks = [*guardrails(settings.guardrails)]
    role, trusted = assignment.role, assignment.progress.trusted
    kept = protected(settings, assignment)
    globs = dict.fromkeys((*kept.executed, *kept.by_custom))
    if (globs or kept.absent) and role != "tester":
        config = json.dumps({"globs": list(globs), "trusted": trusted, "absent": kept.absent})
        checks.append(Check("protected files", "protected", config))
    if role == roles_of(settings)[0]:
        checks.append(Check("changes", "changes", when=When.CLAIMED))
    return (*checks, *_verification(role, criteria, When.CLAIMED))


def _verification(role: str, criteria: InForce, when: When) -> Iterator[Check]:
    yield Check(
        name=f"{role}: {criteria.method}",
        method=criteria.method,
        config=json.dumps(criteria.config, ensure_ascii=False),
        when=when,
    )


def is_verified_as_now(plan: Plan, task: Task, settings: Settings) -> bool:
    """Whether a role's run verifies its work as the task and the settings now say."""
    criteria = in_force(task, plan.role, settings.ralph)
    return all(check in plan.checks for check in _verification(plan.role, criteria, When.CLAIMED))


def protected(settings: Settings, assignment: Assignment) -> Protection:
    """The protected files: from the task, the settings, or by default the files its verification commands execute."""
    given = assignment.task.protect if assignment.task.protect is not None else settings.protected
    if given is not None:
        return Protection(given)
    commands = [(guardrail.command, ".") for guardrail in settings.guardrails]
    for role in roles_of(settings):
        criteria = in_force(assignment.task, role, settings.ralph)
        commands += commands_of(criteria.method, criteria.config)
    project = assignment.place.project
    placed = ((command, posixpath.join(project, directory)) for command, directory in commands)
    return protection(placed, assignment.tracked)


# ---- the agents ----


def agents_of(settings: Settings, role: str, may: Permissions = Permissions.EDIT) -> tuple[AgentSpec, ...]:
    """The agent of a role, or the configured agent with its fallbacks if the role has none."""
    given, idle = role_settings(role, settings.ralph), settings.idle_timeout_seconds
    specs = (
        agent_specs(settings.agent, idle, may)
        if given.agent is None
        else (_named(settings, given.agent, may),)
    )
    return tuple(with_model(spec, given.model) for spec in specs) if given.model else specs


def judge_of(settings: Settings, agent: AgentSpec) -> AgentSpec:
    judge = settings.ralph.judge
    spec = agent if judge.agent is None else _named(settings, judge.agent)
    return with_model(spec, judge.model) if judge.model else spec


def _named(
    settings: Settings, agent: str | CommandSettings, may: Permissions = Permissions.EDIT
) -> AgentSpec:
    """The agent named for a role or the judge. The configured agent keeps its flags."""
    if isinstance(agent, str):
        agent = settings.agent if agent == settings.agent.command else CommandSettings(command=agent)
    return agent_spec(agent, settings.idle_timeout_seconds, may)
