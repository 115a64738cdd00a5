"""`ralph init`: inspect a project, and turn the user's answers into a settings file."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ralph.agents.base import Prompt
from ralph.agents.registry import AGENTS, announced_permissions
from ralph.core.model import AgentSpec, Permissions, Purpose
from ralph.errors import RalphError
from ralph.process.client import find_program
from ralph.runs.run_plan import agent_spec, is_protecting
from ralph.scm.repository import find_repository
from ralph.settings import (
    AgentSettings,
    CommandSettings,
    GuardrailSettings,
    ScmSettings,
    Settings,
    to_json,
)
from ralph.setup.proposals import proposed_guardrails
from ralph.store import settings_file
from ralph.store.files import opened_directory

SECRET = "(redacted)"


class ProjectFacts(Struct, frozen=True):
    """What was found: installed agents (command and title), proposed guardrails, version control."""

    agents: dict[str, str]
    guardrails: tuple[str, ...]
    has_git: bool

    @property
    def agent(self) -> str:
        """The default agent; "" if none is installed."""
        return next(iter(self.agents), "")


def look_around(directory: Path) -> ProjectFacts:
    agents = {name: title for name, title in known_agents().items() if not problem_of(name, directory)}
    return ProjectFacts(agents, proposed_guardrails(directory), find_repository(directory) is not None)


def known_agents() -> dict[str, str]:
    """Return the command and title of each supported agent; those that Ralph was tested with come first."""
    known = {name: agent.about for name, agent in AGENTS.items() if agent.about is not None}
    return {name: about.title for name, about in sorted(known.items(), key=lambda entry: not entry[1].seen)}


def problem_of(command: str, directory: Path) -> str:
    """Return why a command cannot be started here, or ""."""
    with opened_directory(str(directory)) as descriptor:
        return find_program(command, os.environ.get("PATH", os.defpath), descriptor)[1]


# ---- the agent ----


def problem_of_agent(agent: CommandSettings, directory: Path) -> str:
    """Return why a run could not start the agent here, or ""."""
    return problem_of(_argv(agent_spec(agent), Permissions.NONE)[0], directory)


def split_agent(text: str, directory: Path) -> tuple[str, tuple[str, ...]]:
    """Split an agent command, with optional flags, as a shell would."""
    if not problem_of(text, directory):
        return text, ()
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise RalphError(f"The agent {text!r}: {error}.", "Quote it as you would in a shell.") from None
    if not words or not words[0].strip():
        raise RalphError("The agent command is empty.", "Name a command, for example claude.")
    return words[0], tuple(shlex.quote(word) for word in words[1:])


def has_permissions(agent: CommandSettings) -> bool:
    """Return whether Ralph sets this agent's permissions: not if its flags do, or if the agent is unknown."""
    return announced_permissions(agent_spec(agent)) is not None


def explained_permissions(agent: CommandSettings) -> dict[Permissions, str]:
    """Return what each choice means for this agent, in plain words."""
    spec = agent_spec(agent)
    edit, bypass = (_argv(spec, each) for each in (Permissions.EDIT, Permissions.BYPASS))
    files_only = "change files here; its own rules apply to everything else"
    return {
        Permissions.EDIT: files_only
        if edit != bypass
        else "same as bypass: this agent has no files-only mode",
        Permissions.BYPASS: "anything, including any command; best inside a sandbox",
        Permissions.NONE: "only what its own configuration allows",
    }


def _argv(spec: AgentSpec, permissions: Permissions) -> list[str]:
    """Return the command line of an iteration."""
    return AGENTS[spec.type].argv(replace(spec, permissions=permissions), Purpose.WORK, Prompt("", ""))


def title_of(agent: CommandSettings) -> str:
    about = AGENTS[agent_spec(agent).type].about
    return about.title if about else agent.command


# ---- answers ----


class Answers(Struct, frozen=True):
    """The user's answers; None for those not given."""

    command: str | None = None
    flags: tuple[str, ...] | None = None
    permissions: Permissions | None = None
    iterations: int | None = None
    response: str | None = None
    guardrails: tuple[GuardrailSettings, ...] | None = None
    scm: ScmSettings | None = None
    protects_tests: bool | None = None


def with_defaults(answers: Answers, found: ProjectFacts) -> Answers:
    """Fill in the defaults, as if the user pressed Enter at every question."""
    if answers.command is None and not found.agent:
        raise RalphError(
            f"No agent found: none of {', '.join(known_agents())} is on PATH.",
            "Install one, or name another: ralph init --yes --agent COMMAND",
        )
    proposed = tuple(GuardrailSettings(command) for command in found.guardrails)
    return replace(
        answers,
        command=answers.command or found.agent,
        guardrails=proposed if answers.guardrails is None else answers.guardrails,
    )


def agent_of(answers: Answers) -> AgentSettings:
    """Return the agent's settings; raise an error if its flags cannot be split."""
    agent = AgentSettings(command=answers.command or "", flags=answers.flags or ())
    agent_spec(agent)
    if answers.permissions is None:
        return agent
    if not has_permissions(agent):
        raise RalphError(
            f"--permissions has no effect for {agent.command}: Ralph does not know this agent,"
            " or its flags already set the permissions.",
            "Remove --permissions, and pass the agent's own flags with --flag.",
        )
    return replace(agent, permissions=answers.permissions)


def has_protected_tests(guardrails: Sequence[GuardrailSettings], directory: Path) -> bool:
    """Return whether a run with these guardrails compares tests with those at its start."""
    return is_protecting(Settings(), [each.command for each in guardrails], directory)


def to_settings(answers: Answers) -> Settings:
    usual = Settings()
    return Settings(
        maximum_iterations=answers.iterations or usual.maximum_iterations,
        completion_response=answers.response or usual.completion_response,
        agent=agent_of(answers),
        guardrails=answers.guardrails or (),
        protect=False if answers.protects_tests is False else usual.protect,
        scm=answers.scm,
    )


# ---- the file ----


def scm_of(command: str | None, tasks: tuple[str, ...], found: ProjectFacts) -> ScmSettings | None:
    """Return the version control settings from the options; a missing half defaults to `git` or `commit`."""
    if command is None and not tasks:
        return None
    if command is None and not found.has_git:
        raise RalphError("--scm-task: this is not a git repository.", "Add the command too: --scm COMMAND")
    if not tasks and command != "git":
        raise RalphError(f"--scm {command}: no task given.", "Add one, for example: --scm-task commit")
    return ScmSettings(command or "git", tasks or ("commit",))


def readable(settings: Settings) -> dict[str, Any]:
    """Return the settings as a person would write them: the usual keys, and others that differ from the default."""
    values, defaults = to_json(settings), to_json(Settings())
    agent = _without_defaults(values["agent"], defaults["agent"], ("command", "flags"))
    plain = to_json(Settings(guardrails=(GuardrailSettings("-"),)))["guardrails"][0]
    guardrails = [_without_defaults(each, plain, ("command", "failAction")) for each in values["guardrails"]]
    return _without_defaults(values | {"agent": agent, "guardrails": guardrails}, defaults, _USUAL)


_USUAL = (
    "maximumIterations",
    "completionResponse",
    "outputTruncateChars",
    "streamAgentOutput",
    "includeIterationCountInPrompt",
    "agent",
    "guardrails",
)


def _without_defaults(
    values: dict[str, Any], defaults: dict[str, Any], always: tuple[str, ...]
) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key in always or value != defaults[key]}


def without_secrets(document: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with the agents' variables redacted, since they may hold keys."""
    agent = dict(document["agent"])
    for each in (agent, *agent.get("fallbacks", ())):
        if "env" in each:
            each["env"] = dict.fromkeys(each["env"], SECRET)
    return document | {"agent": agent}


def to_text(value: Any, indent: str = "") -> str:
    """Return JSON with one key per line; a list of plain values stays on one line."""
    inner = f"{indent}  "
    if isinstance(value, dict) and value:
        rows = [f"{inner}{json.dumps(key)}: {to_text(each, inner)}" for key, each in value.items()]
        return "\n".join(["{", ",\n".join(rows), f"{indent}}}"])
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        return "\n".join(["[", ",\n".join(f"{inner}{to_text(each, inner)}" for each in value), f"{indent}]"])
    return json.dumps(value, ensure_ascii=False)


def write(project: Path, settings: Settings) -> str | None:
    """Write the settings file atomically; return the path of the backup if a different file existed."""
    return settings_file.write(project, f"{to_text(readable(settings))}\n".encode())
