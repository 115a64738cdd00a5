"""`ralph run`: makes the Plan of a plain loop from settings, a prompt and options."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ralph.agents.registry import AGENTS, type_of
from ralph.checks import command as command_check
from ralph.core.model import (
    NO_SANDBOX,
    AgentSpec,
    Check,
    ClaimRule,
    Flow,
    Guarding,
    GuardPattern,
    Limits,
    Permissions,
    Plan,
    PromptSource,
    SandboxSpec,
    Scm,
    When,
)
from ralph.errors import RalphError
from ralph.files.textfile import read_text
from ralph.loop.driver import MAX_PROMPT_BYTES
from ralph.runs.files_on_disk import FilesOnDisk
from ralph.scm.repository import find_repository
from ralph.settings import AgentSettings, CommandSettings, GuardrailSettings, Settings

if TYPE_CHECKING:
    from ralph.checks.old_tests import Config


class RunInputs(Struct, frozen=True):
    """The prompt options of the command line, of which exactly one must be set, and globs of tests that may change."""

    prompt: str | None
    prompt_file: str | None
    allow: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self.prompt is None and self.prompt_file is None


def check_inputs(inputs: RunInputs, directory: Path) -> None:
    """Check the prompt before anything is started."""
    if inputs.is_empty:
        raise RalphError("No prompt.", 'Say what to do: ralph run -p "…", or ralph run -f PROMPT.md.')
    if inputs.prompt is not None and inputs.prompt_file is not None:
        raise RalphError("--prompt and --prompt-file cannot be used together.", "Leave one of them out.")
    if inputs.prompt_file == "-":
        raise RalphError(
            "The prompt cannot be read from stdin: the prompt file is read again in each iteration.",
            "Write it to a file: -f PROMPT.md.",
        )
    if inputs.prompt_file is not None:
        path = str(directory / inputs.prompt_file)
        text = read_text(path, most=MAX_PROMPT_BYTES, what="prompt file")
    else:
        path, text = "The prompt", inputs.prompt or ""
    if not text.strip():
        raise RalphError(f"{path} is empty.", "Say what the agent should do.")


def plan(settings: Settings, inputs: RunInputs, directory: Path, sandbox: SandboxSpec = NO_SANDBOX) -> Plan:
    return Plan(
        run="",
        flow=Flow.RUN,
        directory=str(directory),
        agents=agent_specs(settings.agent, settings.idle_timeout_seconds, default_permissions(sandbox)),
        prompt=PromptSource(
            text=inputs.prompt or "",
            file=inputs.prompt_file or "",
            instruction=settings.include_completion_instruction,
            count=settings.include_iteration_count_in_prompt,
            truncate=settings.output_truncate_chars,
        ),
        claim=ClaimRule(text=settings.completion_response),
        checks=(*guardrails(settings.guardrails), *_old_tests(settings, inputs.allow, directory)),
        limits=limits(settings, settings.maximum_iterations, settings.iteration_timeout_seconds),
        scm=Scm(settings.scm.command, settings.scm.tasks) if settings.scm else None,
        snapshots=settings.snapshots,
        guard=guarding(settings),
        sandbox=sandbox,
        setup=settings.ralph.setup,
    )


OLD_TESTS = "old tests"


def _old_tests(settings: Settings, allow: tuple[str, ...], directory: Path) -> tuple[Check, ...]:
    """The check that old tests pass too, if a guardrail may run tests and git knows how they were."""
    if not is_protecting(settings, [each.command for each in settings.guardrails], directory):
        return ()
    from ralph.checks.old_tests import Config, TestCommand  # not every run has tests

    commands = [TestCommand(each.command, each.timeout_seconds) for each in settings.guardrails]
    return (old_tests_check(Config(tuple(commands), 0.0, settings.protected, allow, may_refuse=True)),)


def old_tests_check(config: Config, *, required: bool = True) -> Check:
    from ralph.checks.old_tests import configure

    return Check(OLD_TESTS, "old_tests", configure(config), required=required, when=When.PROVED)


def is_protecting(settings: Settings, commands: Sequence[str], directory: Path) -> bool:
    """Whether tests that existed at the start of a run are compared with those at its end."""
    repository = find_repository(directory) if commands and settings.protected != () else None
    if repository is None:
        return False
    from ralph.protection.old_tests import may_run_tests

    project = Path(os.path.realpath(directory)).relative_to(os.path.realpath(repository.top)).as_posix()
    return may_run_tests(commands, FilesOnDisk(repository.top), project)


def guarding(settings: Settings) -> Guarding:
    """The guard's rules at the start of the run."""
    allow, deny = (
        tuple(GuardPattern(rule.pattern, rule.reason) for rule in rules)
        for rules in (settings.guard.allow, settings.guard.deny)
    )
    return Guarding(settings.guard.enabled, allow, deny)


def limits(settings: Settings, iterations: int, iteration_seconds: float) -> Limits:
    """The limits of a run: its iterations and their timeout, and the limits that all flows share."""
    return Limits(
        iterations=iterations,
        cost_usd=settings.max_cost_usd,
        tokens=settings.max_tokens,
        seconds=settings.max_duration_seconds,
        iteration_seconds=iteration_seconds,
        exit_grace_seconds=settings.exit_grace_seconds,
        stagnation=settings.stagnation_limit,
        limit_wait_seconds=settings.max_limit_wait_seconds,
    )


def agent_specs(
    agent: AgentSettings, idle: float | None, may: Permissions = Permissions.EDIT
) -> tuple[AgentSpec, ...]:
    """The agent and its fallbacks; repeated names get a number."""
    specs: dict[str, AgentSpec] = {}
    for each in (agent, *agent.fallbacks):
        spec = agent_spec(each, idle, may)
        name = _unused(spec.name, specs)
        specs[name] = replace(spec, name=name)
    return tuple(specs.values())


def _unused(name: str, names: Collection[str]) -> str:
    numbered = (f"{name} #{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if each not in names)


def default_permissions(sandbox: SandboxSpec) -> Permissions:
    """The default permissions of an agent: everything in a sandbox, otherwise only edits."""
    return Permissions.BYPASS if sandbox.is_real else Permissions.EDIT


def agent_spec(
    agent: CommandSettings, idle: float | None = None, may: Permissions = Permissions.EDIT
) -> AgentSpec:
    """One agent from its settings. `may` is the default for its permissions."""
    if not agent.command.strip():
        raise RalphError(
            "No agent is configured.",
            'Run `ralph init`, or set "agent": {"command": …} in .ralph/settings.json.',
        )
    kind = agent.type or type_of(agent.command)
    if kind not in AGENTS:
        raise RalphError(f"agent.type: unknown agent {kind!r}.", f"Known: {', '.join(sorted(AGENTS))}.")
    try:
        flags = tuple(word for flag in agent.flags for word in shlex.split(flag))
    except ValueError as error:
        raise RalphError(f"agent.flags: {error}.", "Each entry is split like a shell command line.") from None
    return AgentSpec(
        name=agent.command,
        type=kind,
        command=agent.command,
        flags=flags,
        env=tuple(agent.env.items()),
        prompt_via=agent.prompt_via or AGENTS[kind].prompt_via,
        permissions=agent.permissions or may,
        idle_seconds=AGENTS[kind].idle_seconds if idle is None else idle,
    )


def guardrails(settings: tuple[GuardrailSettings, ...]) -> tuple[Check, ...]:
    """Each guardrail as a check; repeated commands get a number."""
    checks: dict[str, Check] = {}
    for guardrail in settings:
        name = _unused(guardrail.command, checks)
        checks[name] = Check(
            name=name,
            method="command",
            config=command_check.configure(
                guardrail.command, guardrail.timeout_seconds, is_clean=guardrail.clean
            ),
            fail_action=guardrail.fail_action,
            hint=guardrail.hint,
        )
    return tuple(checks.values())
