"""Amp. Unverified: written from its documented formats, never tried with a real Amp stream.

The stream has the same shape as Claude Code's. A failed result has its message in `error`, and no cost is
reported. The prompt follows -x, so it is an argument of at most 128 KiB at the end of the command. Without
permissions it asks before it acts, and no one answers. Whether a session can start with a prompt is unknown.
"""

from __future__ import annotations

from ralph.agents.base import About, Agent, Needs, Parser, Prompt, Reading
from ralph.agents.claude import ClaudeParser
from ralph.agents.plain import PlainParser
from ralph.core.model import AgentSpec, Permissions, PromptVia, Purpose

_ALLOW_ALL = "--dangerously-allow-all"
_PERMISSIONS = {Permissions.EDIT: [_ALLOW_ALL], Permissions.BYPASS: [_ALLOW_ALL], Permissions.NONE: []}


class Amp(Agent):
    prompt_via = PromptVia.ARGUMENT
    permissions = _PERMISSIONS
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
        allowed = self.allowed(spec)
        words = [spec.command, *stream, *allowed, *spec.flags, "-x"]
        return words if spec.prompt_via is PromptVia.STDIN else [*words, prompt.text]

    def model_flags(self, model: str) -> list[str]:
        return []

    def parser(self, reading: Reading) -> Parser:
        return ClaudeParser(reading) if reading.purpose is Purpose.WORK else PlainParser(reading)


AGENT: Agent = Amp()
