"""`ralph supervise`: makes the Plan of a restart loop from a task folder and a command."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ralph.core.model import (
    NO_SANDBOX,
    AgentSpec,
    ClaimKind,
    ClaimRule,
    Flow,
    Plan,
    PromptSource,
    PromptVia,
    Restart,
    SandboxSpec,
    TaskFolder,
)
from ralph.errors import RalphError
from ralph.files.paths import real
from ralph.runs.location import Location, here
from ralph.runs.run_plan import RunInputs, agent_specs, check_inputs, default_permissions, guarding, limits
from ralph.settings import Settings
from ralph.store.bus import check_folder, task_name


class SupervisedTask(Struct, frozen=True):
    """The command line: the folder, its project and task names, and either a command or a prompt."""

    folder: Path
    project: str
    name: str
    command: tuple[str, ...]
    inputs: RunInputs


def make_task(
    folder: Path, project: str | None, name: str | None, command: tuple[str, ...], inputs: RunInputs
) -> SupervisedTask:
    """Check the command line before anything starts."""
    check_folder(folder)
    if command and (inputs.prompt is not None or inputs.prompt_file is not None):
        raise RalphError(
            "A custom command cannot have a prompt.", "Leave out --prompt, or the command after `--`."
        )
    if not command and inputs.is_empty:
        raise RalphError(
            "No command and no prompt.",
            f"Name a command: ralph supervise {folder} -- COMMAND…, or give the configured agent a prompt:"
            ' -p "…" or -f PROMPT.md.',
        )
    if not command:
        check_inputs(inputs, Path.cwd())
    resolved = real(folder)
    return SupervisedTask(
        resolved, project or task_name(resolved.parent), name or task_name(resolved), command, inputs
    )


def where(task: SupervisedTask, directory: Path) -> Location:
    """The location of a supervise run: it works in the caller's directory and locks only its task folder."""
    return Location(real(directory), task.folder, here(directory).project)


def plan(
    settings: Settings, task: SupervisedTask, directory: Path, sandbox: SandboxSpec = NO_SANDBOX
) -> Plan:
    supervise, idle = settings.supervise, settings.idle_timeout_seconds
    configured = () if task.command else agent_specs(settings.agent, idle, default_permissions(sandbox))
    agents = configured or (_command(task.command, idle),)
    usual = limits(settings, supervise.max_restarts, supervise.agent_timeout_seconds)
    return Plan(
        run="",
        flow=Flow.SUPERVISE,
        directory=str(directory),
        agents=agents,
        prompt=PromptSource(
            text=task.inputs.prompt or "",
            file=task.inputs.prompt_file or "",
            instruction=False,
            count=settings.include_iteration_count_in_prompt,
        ),
        claim=ClaimRule(kind=ClaimKind.DONE),
        limits=replace(usual, children_seconds=supervise.wait_timeout_seconds),
        restart=Restart(supervise.restart_policy, supervise.restart_delay_seconds),
        snapshots=settings.snapshots,
        guard=guarding(settings),
        task=TaskFolder(str(task.folder), task.project, task.name, supervise.poll_interval_seconds),
        sandbox=sandbox,
    )


def _command(words: tuple[str, ...], idle: float | None) -> AgentSpec:
    program, *flags = words
    name = os.path.basename(program)
    return AgentSpec(
        name, "custom", program, tuple(flags), prompt_via=PromptVia.NONE, idle_seconds=idle or 0.0
    )
