"""Any command: it gets the prompt as its last argument unless told otherwise, and prints plain text."""

from __future__ import annotations

from ralph.agents.base import Agent, Needs, Prompt, Reading, model_option, no_hooks
from ralph.agents.plain import PlainParser
from ralph.core.model import AgentSpec, PromptVia, Purpose


class Custom:
    prompt_via = PromptVia.ARGUMENT
    idle_seconds = 0.0
    small_model = ""
    model_flags = staticmethod(model_option)
    hooked = staticmethod(no_hooks)
    permission_flags = ()
    about = None
    needs = Needs()

    def argv(self, spec: AgentSpec, purpose: Purpose, prompt: Prompt) -> list[str]:
        return [spec.command, *spec.flags, *argument(spec, prompt)]

    def interactive(self, spec: AgentSpec, prompt: str) -> list[str]:
        return [spec.command, *spec.flags, prompt]

    def disarmed(self, spec: AgentSpec) -> AgentSpec:
        """Nothing is known of what it can do."""
        return spec

    def parser(self, reading: Reading) -> PlainParser:
        return PlainParser(reading)


AGENT: Agent = Custom()


def argument(spec: AgentSpec, prompt: Prompt) -> list[str]:
    """The prompt's place on the command line, if it has one."""
    if spec.prompt_via is PromptVia.ARGUMENT:
        return [prompt.text]
    return [prompt.file] if spec.prompt_via is PromptVia.FILE else []
