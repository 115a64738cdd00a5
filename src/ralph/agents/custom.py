"""Any command. It gets the prompt as its last argument by default, and prints plain text."""

from __future__ import annotations

from ralph.agents.base import Agent, Prompt, Reading
from ralph.agents.plain import PlainParser
from ralph.core.model import AgentSpec, PromptVia, Purpose


class Custom(Agent):
    """An unknown command, whose permissions cannot be restricted."""

    prompt_via = PromptVia.ARGUMENT
    idle_seconds = 0.0

    def argv(self, spec: AgentSpec, purpose: Purpose, prompt: Prompt) -> list[str]:
        return [spec.command, *spec.flags, *argument(spec, prompt)]

    def parser(self, reading: Reading) -> PlainParser:
        return PlainParser(reading)


AGENT: Agent = Custom()


def argument(spec: AgentSpec, prompt: Prompt) -> list[str]:
    """The prompt as a command-line argument, if it is passed as one."""
    if spec.prompt_via is PromptVia.ARGUMENT:
        return [prompt.text]
    return [prompt.file] if spec.prompt_via is PromptVia.FILE else []
