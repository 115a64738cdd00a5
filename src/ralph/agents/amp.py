"""Amp. Unverified: no stream of a real Amp could be had, this is built to its documented formats.

Its stream is shaped like that of Claude Code; a failed result has its words in `error`, and no money is
reported. The prompt follows -x, so it is an argument of at most 128 KiB, at the end of the command.
"""

from __future__ import annotations

from msgspec.structs import replace

from ralph.agents.base import (
    About,
    Agent,
    Needs,
    Parser,
    Prompt,
    Reading,
    no_hooks,
    no_model_option,
    permissions,
    without,
)
from ralph.agents.claude import ClaudeParser
from ralph.agents.plain import PlainParser
from ralph.agents.stream import IDLE_SECONDS
from ralph.core.model import AgentSpec, Permissions, PromptVia, Purpose

_ALLOW_ALL = "--dangerously-allow-all"
_PERMISSIONS = {Permissions.EDIT: [_ALLOW_ALL], Permissions.BYPASS: [_ALLOW_ALL], Permissions.NONE: []}


class Amp:
    prompt_via = PromptVia.ARGUMENT
    idle_seconds = IDLE_SECONDS
    small_model = ""
    model_flags = staticmethod(no_model_option)
    hooked = staticmethod(no_hooks)
    permission_flags = (_ALLOW_ALL,)
    about = About(
        title="Amp",
        seen="",
        help=("--help",),
        flags=("--execute", "--stream-json", _ALLOW_ALL),
        keys=("AMP_API_KEY",),
        logins=(".config/amp/settings.json",),
        login="run `amp login`",
    )
    needs = Needs(
        state=(".local/share/amp",),
        pinned=("bin",),
        copied=(".config/amp", ".cache/amp"),
        variables=("AMP_*",),
        hosts=("ampcode.com",),
    )

    def argv(self, spec: AgentSpec, purpose: Purpose, prompt: Prompt) -> list[str]:
        stream = ["--stream-json"] if purpose is Purpose.WORK else []
        allowed = permissions(spec, _PERMISSIONS, self.permission_flags)
        words = [spec.command, *stream, *allowed, *spec.flags, "-x"]
        return words if spec.prompt_via is PromptVia.STDIN else [*words, prompt.text]

    def interactive(self, spec: AgentSpec, prompt: str) -> list[str]:
        """Unverified, like the rest: whether a session can begin with a prompt is not known."""
        return [spec.command, *spec.flags, prompt]

    def disarmed(self, spec: AgentSpec) -> AgentSpec:
        """As far as is known: it asks before it acts, and nobody answers."""
        return replace(spec, flags=without(spec.flags, self.permission_flags))

    def parser(self, reading: Reading) -> Parser:
        return ClaudeParser(reading) if reading.purpose is Purpose.WORK else PlainParser(reading)


AGENT: Agent = Amp()
