"""`ralph init`: what is found in a project, and answers that become a settings file."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ralph.agents.base import Prompt
from ralph.agents.registry import AGENTS, announced_permissions
from ralph.core.model import AgentSpec, Permissions, Purpose
from ralph.errors import RalphError
from ralph.process.client import find_program
from ralph.runs.run_plan import agent_spec
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
    """What is there already: agents by their command and title, guardrails, version control."""

    agents: dict[str, str]
    guardrails: tuple[str, ...]
    has_git: bool

    @property
    def agent(self) -> str:
        """The one to take when the user does not care; "" if there is none."""
        return next(iter(self.agents), "")


def look_around(directory: Path) -> ProjectFacts:
    agents = {name: title for name, title in known_agents().items() if not problem_of(name, directory)}
    return ProjectFacts(agents, proposed_guardrails(directory), find_repository(directory) is not None)


def known_agents() -> dict[str, str]:
    """Command and title of each; those that Ralph was tried with come first."""
    known = {name: agent.about for name, agent in AGENTS.items() if agent.about is not None}
    return {name: about.title for name, about in sorted(known.items(), key=lambda entry: not entry[1].seen)}


def problem_of(command: str, directory: Path) -> str:
    """Why a command could not be started here; "" if it could."""
    with opened_directory(str(directory)) as descriptor:
        return find_program(command, os.environ.get("PATH", os.defpath), descriptor)[1]


# ---- the agent ----


def problem_of_agent(agent: CommandSettings, directory: Path) -> str:
    """Why the agent could not be started here: what is looked for is what a run would start."""
    return problem_of(_argv(agent_spec(agent), Permissions.NONE)[0], directory)


def split_agent(text: str, directory: Path) -> tuple[str, tuple[str, ...]]:
    """A command, perhaps with flags, as a user would type it in a shell."""
    if not problem_of(text, directory):
        return text, ()
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise RalphError(f"The agent {text!r}: {error}.", "It is split as a shell would split it.") from None
    if not words or not words[0].strip():
        raise RalphError("The agent's command is empty.", "Name a command, for example claude.")
    return words[0], tuple(shlex.quote(word) for word in words[1:])


def has_permissions(agent: CommandSettings) -> bool:
    """Does Ralph have a say in what this agent may do? Not if its flags say it, or if it is unknown."""
    return announced_permissions(agent_spec(agent)) is not None


def explained_permissions(agent: CommandSettings) -> dict[Permissions, str]:
    """What each choice means for this agent, in plain words."""
    spec = agent_spec(agent)
    edit, bypass = (_argv(spec, each) for each in (Permissions.EDIT, Permissions.BYPASS))
    files_only = "change files here; for anything else its own rules hold"
    return {
        Permissions.EDIT: files_only
        if edit != bypass
        else "the same as bypass: it has no mode for files only",
        Permissions.BYPASS: "everything, any command too; best inside a container",
        Permissions.NONE: "no more than its own configuration allows",
    }


def _argv(spec: AgentSpec, permissions: Permissions) -> list[str]:
    """The command line of an iteration."""
    return AGENTS[spec.type].argv(replace(spec, permissions=permissions), Purpose.WORK, Prompt("", ""))


def title_of(agent: CommandSettings) -> str:
    about = AGENTS[agent_spec(agent).type].about
    return about.title if about else agent.command


# ---- answers ----


class Answers(Struct, frozen=True):
    """What the user has said; None where nothing was said."""

    command: str | None = None
    flags: tuple[str, ...] | None = None
    permissions: Permissions | None = None
    iterations: int | None = None
    response: str | None = None
    guardrails: tuple[GuardrailSettings, ...] | None = None
    scm: ScmSettings | None = None


def with_defaults(answers: Answers, found: ProjectFacts) -> Answers:
    """The answers of somebody who only presses Enter."""
    if answers.command is None and not found.agent:
        raise RalphError(
            f"No agent was found: none of {', '.join(known_agents())} is on PATH.",
            "Install one, or name another: ralph init --yes --agent COMMAND",
        )
    proposed = tuple(GuardrailSettings(command) for command in found.guardrails)
    return replace(
        answers,
        command=answers.command or found.agent,
        guardrails=proposed if answers.guardrails is None else answers.guardrails,
    )


def agent_of(answers: Answers) -> AgentSettings:
    """The agent as far as it is known; flags that no shell could split are refused."""
    agent = AgentSettings(command=answers.command or "", flags=answers.flags or ())
    agent_spec(agent)
    if answers.permissions is None:
        return agent
    if not has_permissions(agent):
        raise RalphError(
            f"--permissions: Ralph has no say in what {agent.command} may do:"
            " it knows no such agent, or flags of its own say it.",
            "Leave --permissions out; the agent's own flags can be given with --flag.",
        )
    return replace(agent, permissions=answers.permissions)


def to_settings(answers: Answers) -> Settings:
    usual = Settings()
    return Settings(
        maximum_iterations=answers.iterations or usual.maximum_iterations,
        completion_response=answers.response or usual.completion_response,
        agent=agent_of(answers),
        guardrails=answers.guardrails or (),
        scm=answers.scm,
    )


# ---- the file ----


def scm_of(command: str | None, tasks: tuple[str, ...], found: ProjectFacts) -> ScmSettings | None:
    """Version control as the options say; `git` and `commit` where they say half of it."""
    if command is None and not tasks:
        return None
    if command is None and not found.has_git:
        raise RalphError("--scm-task: this is no git repository.", "Name the command too: --scm COMMAND")
    if not tasks and command != "git":
        raise RalphError(f"--scm {command}: there is no task for it.", "Name one: --scm-task commit")
    return ScmSettings(command or "git", tasks or ("commit",))


def readable(settings: Settings) -> dict[str, Any]:
    """Settings as a person would write them: the usual keys, and of the others those that say something."""
    values, defaults = to_json(settings), to_json(Settings())
    agent = _told(values["agent"], defaults["agent"], ("command", "flags"))
    plain = to_json(Settings(guardrails=(GuardrailSettings("-"),)))["guardrails"][0]
    guardrails = [_told(each, plain, ("command", "failAction")) for each in values["guardrails"]]
    return _told(values | {"agent": agent, "guardrails": guardrails}, defaults, _USUAL)


_USUAL = (
    "maximumIterations",
    "completionResponse",
    "outputTruncateChars",
    "streamAgentOutput",
    "includeIterationCountInPrompt",
    "agent",
    "guardrails",
)


def _told(values: dict[str, Any], defaults: dict[str, Any], always: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key in always or value != defaults[key]}


def without_secrets(document: dict[str, Any]) -> dict[str, Any]:
    """The same, fit for a screen: variables may hold keys."""
    agent = dict(document["agent"])
    for each in (agent, *agent.get("fallbacks", ())):
        if "env" in each:
            each["env"] = dict.fromkeys(each["env"], SECRET)
    return document | {"agent": agent}


def to_text(value: Any, indent: str = "") -> str:
    """JSON with one key in a line; a list of plain values stays in its line."""
    inner = f"{indent}  "
    if isinstance(value, dict) and value:
        rows = [f"{inner}{json.dumps(key)}: {to_text(each, inner)}" for key, each in value.items()]
        return "\n".join(["{", ",\n".join(rows), f"{indent}}}"])
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        return "\n".join(["[", ",\n".join(f"{inner}{to_text(each, inner)}" for each in value), f"{indent}]"])
    return json.dumps(value, ensure_ascii=False)


def write(project: Path, settings: Settings) -> str | None:
    """Write the settings file at once; returns where the earlier one is kept, if there was another."""
    return settings_file.write(project, f"{to_text(readable(settings))}\n".encode())
