"""Gemini CLI. Seen: 0.61.0.

Quirks that matter here:
- In an untrusted folder it exits with code 55; --skip-trust trusts the folder for this session.
- It takes --yolo or one --approval-mode, never both and never two. Without a terminal it does not offer the
  model any tool that needs approval: in auto_edit no shell, by default nothing that writes. A model that calls
  one anyway gets the answer that there is no such tool.
- The answer arrives in deltas without an id. The final message is the text after the last tool call.
- A command that fails is a `tool_result` with status success. Thinking and subagents are not in the stream.
- After an empty answer it asks again for 7 s, then the result is an error with exit code 0. An empty answer
  after a tool call is a success.
- Errors are text without a code. After an API error the exit code is the lower byte of the HTTP status.
- 429 and 503 are retried 10 times in four minutes, which only stderr shows. It never ends a hang.
- Tokens are reported only with the result. Thinking tokens are included only in the total. The counts are
  those of this process, even after --resume. No cost.
- In the prompt, @path becomes the content of that file, and `a@b` becomes `a @b`.
- As a judge it gets `--approval-mode default` and a separate policy: the default mode alone would allow what the
  user's settings allow by name (`tools.allowed`). A missing policy file is ignored silently.
  `--model flash-lite` is an alias the CLI resolves. With --skip-trust it runs in any directory.
- It mistakes a repetitive answer for a loop, drops it and asks again.
- It runs as two processes; the outer one ignores signals. Background processes of a tool outlive them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from ralph.agents import limits
from ralph.agents.base import MAX_LINE, About, Agent, AgentReport, Needs, Parser, Prompt, Reading, without
from ralph.agents.stream import Count, StreamParser, seconds_of, todo_list, whole
from ralph.core.events import (
    AgentError,
    AgentEvent,
    AgentProgress,
    Body,
    Limited,
    Result,
    Retry,
    Text,
    ToolEnd,
    ToolStart,
)
from ralph.core.model import AgentSpec, Exit, LimitKind, Permissions, PromptVia, Purpose, Usage
from ralph.core.text import clean

_PERMISSIONS = {
    Permissions.EDIT: ["--approval-mode", "auto_edit"],
    Permissions.BYPASS: ["--approval-mode", "yolo"],
    Permissions.NONE: [],
}
_PERMISSION_FLAGS = ("--approval-mode", "--yolo", "-y")

_POLICY = str(Path(__file__).with_name("gemini_judge.toml"))
_DISARMED = ("--approval-mode", "default", "--admin-policy", _POLICY)

_EDITORS = {"write_file", "replace"}
_SHELL = "run_shell_command"
_DENIALS = {"policy_violation", "tool_not_registered"}

_NO_AUTH = 41
_EXITS = {_NO_AUTH: 401} | {status & 0xFF: status for status in (401, 402, 403, 429, 503)}
_STATUS = re.compile(r'\[API Error: \{"error":\{"code":(\d{3})\b')
_TOO_MANY = re.compile(r"\]\n(?:Please wait and try again later\.|Possible quota limitations in place)")
_NO_QUOTA = re.compile(r"\blimit:\s*0(?![\d.]*\d)")
_DAILY, _DAILY_RESET = "daily quota", "resets at 12am (America/Los_Angeles)"
_EMPTY = ("returned an empty response", "no final response text")
_RETRYING = re.compile(
    r"^Attempt (\d+) failed(?: with status (\d+)|: (.{0,1000}?))\. Retrying (?:with backoff|after (\d+)ms)",
    re.MULTILINE | re.DOTALL,
)


class Gemini(Agent):
    small_model = "flash-lite"
    permissions = _PERMISSIONS
    permission_flags = _PERMISSION_FLAGS
    about = About(
        title="Gemini CLI",
        seen="0.61.0",
        help=("--help",),
        flags=(
            *("--prompt", "--output-format", "--skip-trust", "--approval-mode"),
            *("--model", "--admin-policy"),
        ),
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        logins=(".gemini/oauth_creds.json",),
        login="run `gemini` and choose how to log in",
    )
    needs = Needs(
        state=(".gemini",),
        pinned=(
            "settings.json",
            "GEMINI.md",
            ".env",
            "commands",
            "extensions",
            "policies",
            "trustedFolders.json",
            *("agents", "skills", "hooks", "trusted_hooks.json", "keybindings.json", "*.sh", "*.py", "*.js"),
        ),
        fresh=("tmp",),  # it keeps programs in tmp/bin
        variables=("GEMINI_*", "GOOGLE_*"),
        hosts=(
            *("generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"),
            *("accounts.google.com", "www.googleapis.com"),
        ),
    )

    def argv(self, spec: AgentSpec, purpose: Purpose, prompt: Prompt) -> list[str]:
        """The same for a commit message, because only the stream reports tokens and limits."""
        text = "" if spec.prompt_via is PromptVia.STDIN else prompt.text
        return [
            *(spec.command, f"--prompt={text}", "--output-format", "stream-json", "--skip-trust"),
            *(*self.allowed(spec), *spec.flags),
        ]

    def interactive(self, spec: AgentSpec, prompt: str) -> list[str]:
        return [spec.command, *spec.flags, "-i", prompt]

    def disarmed(self, spec: AgentSpec) -> AgentSpec:
        """All tools but one are denied, overriding whatever the user's settings and policies allow."""
        return replace(spec, flags=(*without(spec.flags, _PERMISSION_FLAGS), *_DISARMED))

    def parser(self, reading: Reading) -> Parser:
        return GeminiParser(reading)


AGENT: Agent = Gemini()


# ---- its output ----


def _nothing() -> Raw:
    return Raw(b'""')


class _Error(Struct):
    type: str = ""
    message: Raw = field(default_factory=_nothing)


class _Stats(Struct):
    total_tokens: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cached: Count = 0

    @property
    def usage(self) -> Usage:
        """Cached tokens are part of the input; thinking tokens are the rest of the total."""
        output = max(self.output_tokens, self.total_tokens - self.input_tokens)
        return Usage(0.0, max(0, self.input_tokens - self.cached), output, self.cached)


class _Line(Struct):
    """Any line of the stream. Fields that a type does not have keep their defaults."""

    type: str
    timestamp: str | None = None
    session_id: str = ""
    model: str = ""
    role: str = ""
    content: str = ""
    tool_name: str = ""
    tool_id: str = ""
    parameters: Raw = field(default_factory=_nothing)
    output: Raw = field(default_factory=Raw)
    status: str = ""
    error: _Error | None = None
    message: str = ""
    stats: _Stats | None = None

    @property
    def at(self) -> float | None:
        return seconds_of(self.timestamp)


_DECODE = msgspec.json.Decoder(_Line).decode


# ---- the parser ----


class GeminiParser(StreamParser):
    _editors, _shell = _EDITORS, _SHELL

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading, _DECODE)
        self._open = ""
        self._problem = ""
        self._tools: dict[str, str] = {}
        self._handlers = {
            "init": self._init,
            "message": self._message,
            "tool_use": self._tool_use,
            "tool_result": self._tool_result,
            "error": self._error,
            "result": self._result,
        }

    def stderr(self, data: bytes) -> Sequence[AgentEvent]:
        noise = super().stderr(data)
        return [*noise, *(retry for event in noise for retry in _retries(getattr(event, "text", "")))]

    def finish(self, exit: Exit) -> tuple[Sequence[AgentEvent], AgentReport]:
        events, report = super().finish(exit)
        return [*self._close(), *events], report

    def _init(self, line: _Line) -> Iterator[AgentEvent]:
        yield AgentProgress(f"session {line.session_id}, {line.model}")

    # ---- text ----

    def _message(self, line: _Line) -> Iterator[AgentEvent]:
        """A piece of the answer. Messages of the user only repeat the prompt."""
        if line.role != "assistant":
            return
        self._say(line.content)
        lines, newline, self._open = (self._open + line.content).rpartition("\n")
        if newline:
            yield Text(lines + newline, at=line.at)
        if len(self._open) > MAX_LINE:
            yield from self._close(line.at)

    def _close(self, at: float | None = None) -> Iterator[AgentEvent]:
        """End the current unfinished line."""
        if self._open:
            yield whole(self._open, at=at)
            self._open = ""

    # ---- tools ----

    def _tool_use(self, line: _Line) -> Iterator[AgentEvent]:
        yield from self._close(line.at)
        self._act()
        self._tools[line.tool_id] = line.tool_name
        if line.tool_name == "write_todos" and (
            todo := todo_list(Body(line.parameters).value, "description")
        ):
            yield todo
        yield ToolStart(line.tool_id, line.tool_name, Body(line.parameters), at=line.at)

    def _tool_result(self, line: _Line) -> Iterator[AgentEvent]:
        yield from self._close(line.at)
        name = self._tools.pop(line.tool_id, "")
        if line.error and line.error.type in _DENIALS:
            self._writes.deny(name)
        elif line.status == "success" and (name in _EDITORS or name == _SHELL):
            self._writes.done += 1
        output = line.output or (line.error.message if line.error else _nothing())
        yield ToolEnd(line.tool_id, Body(output), line.status != "success", line.at)

    # ---- the result ----

    def _error(self, line: _Line) -> Iterator[AgentEvent]:
        """A warning or a problem with the answer; the result follows."""
        yield from self._close(line.at)
        self._problem = line.message
        yield AgentError(line.message)

    def _result(self, line: _Line) -> Iterator[AgentEvent]:
        yield from self._close(line.at)
        if line.stats is not None:
            self.usage = line.stats.usage
        text = Body(line.error.message).text if line.error else ""
        if line.status == "success" or (not text and self._is_empty):
            self._succeed()
        else:
            self._fail(text or self._problem or "an error without a message")
            if text:
                yield self._refusal(text, _status(text)) or AgentError(text)
        yield Result(self.usage, line.status != "success", line.at)

    @property
    def _is_empty(self) -> bool:
        return not self._has_answered and any(words in self._problem for words in _EMPTY)

    def _refusal(self, text: str, status: int | None) -> Limited | None:
        kind = _kind(text, status)
        reset = limits.reset_at(_DAILY_RESET, self._reading.now()) if _DAILY in text else None
        return self._refuse(kind, text, reset) if kind else None

    def _limit_by_wording(self, exit: Exit) -> Iterator[AgentEvent]:
        """The limit by exit code, if the text of the result did not show it."""
        status = _EXITS.get(exit.code) if exit.code is not None else None
        if status is not None and exit.ended is None and (self._failure or exit.code == _NO_AUTH):
            text = self._failure or clean(self._complaint.text).strip()[:500]
            if refusal := self._refusal(text, status):
                yield refusal


def _retries(noise: str) -> Iterator[Retry]:
    for attempt, status, why, milliseconds in _RETRYING.findall(noise):
        seconds = int(milliseconds) / 1000 if milliseconds else None
        yield Retry(why or f"status {status}", int(attempt), seconds=seconds)


def _status(text: str) -> int | None:
    """The HTTP status of an error, if its text shows it."""
    if found := _STATUS.match(text):
        return int(found[1])
    return 429 if _TOO_MANY.search(text) else None


def _kind(text: str, status: int | None) -> LimitKind | None:
    """The status comes first: the text is the same for a quota per minute, a quota per day and no quota at all."""
    worded = limits.by_wording(text)
    if status == 429:
        if _NO_QUOTA.search(text):
            return LimitKind.CREDIT
        return LimitKind.USAGE if worded in (LimitKind.USAGE, LimitKind.CREDIT) else LimitKind.RATE
    if worded is LimitKind.AUTH or "API_KEY_INVALID" in text:
        return LimitKind.AUTH
    return worded if status is None else limits.by_status(status)
