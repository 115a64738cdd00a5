"""The questions of `ralph init`, and the settings it writes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
from msgspec.structs import replace

from ralph.commands.ask import ask, count, is_yes, listed, one_of, required, say
from ralph.core.model import FailAction, Permissions
from ralph.core.text import clean
from ralph.errors import RalphError
from ralph.settings import AgentSettings, GuardrailSettings, ScmSettings, Settings, load
from ralph.setup import init
from ralph.setup.init import Answers, ProjectFacts
from ralph.store import settings_file

PATH = settings_file.PATH
NEXT = 'Next: ralph run -p "What the agent should do"'


def write_without_asking(directory: Path, said: Answers, found: ProjectFacts, *, is_in_the_way: bool) -> int:
    """Write settings from the options and the defaults, and print them since the user has not seen them."""
    if is_in_the_way:
        raise RalphError(f"{PATH} already exists.", "To overwrite it and keep a backup, add --force.")
    settings = init.to_settings(init.with_defaults(said, found))
    written = write(directory, settings)
    _show(settings)
    if problem := init.problem_of_agent(settings.agent, directory):
        click.echo(f"ralph: warning: {settings.agent.command}: {problem}.", err=True)
    click.echo(written)
    return 0


def ask_settings(
    directory: Path, said: Answers, found: ProjectFacts, *, is_in_the_way: bool
) -> Settings | None:
    """Ask for the settings; return None if the user keeps the existing ones."""
    with _on_signals(signal.default_int_handler):
        if is_in_the_way and not _may_overwrite():
            return None
        return init.to_settings(_Questions(found, directory).asked(said))


def write(directory: Path, settings: Settings) -> str:
    """Write the settings file and return the message for the user."""
    with _on_signals(signal.SIG_IGN):
        kept = init.write(directory, settings)
    note = f"Old settings saved as {kept}\n" if kept else ""
    return f"Settings written to {PATH}\n{note}{NEXT}"


@contextmanager
def _on_signals(handler: signal.Handlers | Callable[[int, FrameType | None], object]) -> Iterator[None]:
    earlier = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in earlier.items():
            signal.signal(number, old)


def _show(settings: Settings) -> None:
    click.echo(clean(init.to_text(init.without_secrets(init.readable(settings)))))


def _may_overwrite() -> bool:
    try:
        loaded = load()
    except RalphError as error:
        say(f"The existing settings are invalid: {error.message}")
    else:
        _show(loaded.settings)
        overlay = f" (with local overlay from {loaded.files[1].name})" if len(loaded.files) > 1 else ""
        click.echo(f"Loaded from {PATH}{overlay}")
    return ask("Overwrite? (y/N)", is_yes)


class _Questions:
    """The questions. Values given on the command line skip their question."""

    def __init__(self, found: ProjectFacts, directory: Path) -> None:
        self._found = found
        self._directory = directory

    def asked(self, said: Answers) -> Answers:
        if said.command is None:
            command, words = self._agent()
            said = replace(said, command=command, flags=(*words, *(said.flags or ())) or None)
        if said.flags is None:
            said = replace(said, flags=ask("Agent flags (comma-separated, optional)", self._flags))
        agent = init.agent_of(said)
        if said.permissions is None:
            said = replace(said, permissions=self._permissions(agent))
        if said.iterations is None:
            said = replace(said, iterations=ask("Maximum iterations", count, "10"))
        if said.response is None:
            said = replace(said, response=ask("Completion response", str, "DONE"))
        if said.guardrails is None:
            said = replace(said, guardrails=tuple(self._guardrails()))
        if said.protects_tests is None and init.has_protected_tests(said.guardrails or (), self._directory):
            said = replace(said, protects_tests=not ask("May the agent change existing tests? (y/N)", is_yes))
        return said if said.scm else replace(said, scm=self._scm())

    def _agent(self) -> tuple[str, tuple[str, ...]]:
        if self._found.agents:
            listed = ", ".join(f"{name} ({title})" for name, title in self._found.agents.items())
            say(f"Installed here: {listed}")
        text = "Agent command (e.g., claude, codex, amp, or other LLM CLI)"
        command, words = ask(text, self._split, self._found.agent)
        if problem := init.problem_of_agent(AgentSettings(command=command), self._directory):
            say(f"  {command}: {problem}. Install it before you start `ralph run`.")
        return command, words

    def _split(self, answer: str) -> tuple[str, tuple[str, ...]]:
        try:
            return init.split_agent(required("the agent command")(answer), self._directory)
        except RalphError as error:
            raise click.UsageError(error.message) from None

    def _flags(self, answer: str) -> tuple[str, ...]:
        flags = listed(answer)
        try:
            init.agent_of(Answers("agent", flags))
        except RalphError as error:
            raise click.UsageError(error.message) from None
        return flags

    def _permissions(self, agent: AgentSettings) -> Permissions | None:
        if not init.has_permissions(agent):
            return None
        say(f"What may {init.title_of(agent)} do without asking?")
        for each, meaning in init.explained_permissions(agent).items():
            say(f"  {each.value:<7} {meaning}")
        chosen = ask("Permissions (edit|bypass|none)", one_of(Permissions), Permissions.EDIT.value)
        return (
            None if chosen is Permissions.EDIT else chosen
        )  # None, the default, takes the sandbox into account

    def _guardrails(self) -> Iterator[GuardrailSettings]:
        proposals = list(self._found.guardrails)
        if proposals:
            say('Checks found in this project: Enter adds one, "-" skips it, another command replaces it.')
        while proposals:
            proposal = proposals.pop(0)
            answer = ask(f"Add guardrail command [{proposal}]", str)
            if answer.lower() in ("", "y", "yes"):
                yield GuardrailSettings(proposal)
            elif answer.lower() not in ("-", "n", "no"):
                yield self._guardrail(answer)
                proposals = [each for each in proposals if each != answer]
        while (answer := ask("Add guardrail command (leave blank to finish)", str)) not in ("", "-"):
            yield self._guardrail(answer)

    def _guardrail(self, command: str) -> GuardrailSettings:
        action = ask("  Fail action (APPEND|PREPEND|REPLACE)", one_of(FailAction))
        return GuardrailSettings(
            command, action, ask("  Hint (optional, guidance for agent on failure)", str)
        )

    def _scm(self) -> ScmSettings | None:
        if not ask("Configure SCM? (y/N)", is_yes):
            return None
        git, commit = ("git", "commit") if self._found.has_git else ("", "")
        command = ask("  SCM command (e.g., git)", required("the command"), git)
        return ScmSettings(command, ask("  SCM tasks (comma-separated, e.g., commit,push)", _tasks, commit))


def _tasks(answer: str) -> tuple[str, ...]:
    return listed(required("a task")(answer.strip(" ,")))
