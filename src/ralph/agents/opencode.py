"""OpenCode. Seen: 1.18.33.

Quirks that matter here:
- The prompt goes through stdin: an argument with a space in it reaches the model in quotation marks.
- It works in $PWD, wherever it was started.
- Text mode also prints intermediate messages, so the commit message is read from the stream too.
- A tool is reported when it has finished, never when it starts. Subagents and their usage are not reported.
- There is no final event: a step that ends with anything but tool calls was the last one.
- By default it allows everything except directories outside the project. --auto allows those too, and whatever
  the user's configuration sets to `ask`. Without --auto these requests are rejected, and it stops at once with
  exit 0 and no final message. Tools that are denied entirely are never offered to the model.
- As a judge it gets OPENCODE_PERMISSION, which is merged into the user's rules. The last matching key counts, so
  `*` alone is not enough; rules of the agent `build` in the user's configuration still win. It runs in any
  directory. Two --model break it. It has no alias for a small model, so a judge uses the default.
- A failed request is retried five times within a minute, or after `retry-after`, even if that is hours. The
  stream does not show this; the log on stderr has the error, without status and headers.
- The CLI never ends a hang in mid-stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from ralph.agents import limits
from ralph.agents.base import About, Agent, Ends, Needs, Parser, Prompt, Reading, without
from ralph.agents.custom import argument
from ralph.agents.stream import Count, Money, StreamParser, todo_list, whole
from ralph.core.events import (
    AgentError,
    AgentEvent,
    AgentProgress,
    Body,
    Noise,
    Result,
    Retry,
    ToolEnd,
    ToolStart,
)
from ralph.core.model import AgentSpec, Ended, Exit, LimitKind, Permissions, PromptVia, Purpose, Usage

_PERMISSIONS = {Permissions.EDIT: ["--auto"], Permissions.BYPASS: ["--auto"], Permissions.NONE: []}
_PERMISSION_FLAGS = ("--auto", "--no-auto", "--yolo", "--dangerously-skip-permissions")
_OPTIONS = (("--format", "json"), ("--thinking",), ("--print-logs",), ("--log-level", "ERROR"))

_DENIED = ("*", "bash", "edit", "read", "task", "webfetch", "external_directory")
_DISARMED = ("OPENCODE_PERMISSION", msgspec.json.encode(dict.fromkeys(_DENIED, "deny")).decode())
_UNTITLED = ("--title", "judge")

_EDITORS = {"apply_patch", "edit", "multiedit", "patch", "write"}
_SHELL = "bash"
_REJECTED = b'"The user rejected permission to use this specific tool call'
_FORBIDDEN = b'"The user has specified a rule which prevents you from using this specific tool call'

_CONTINUES = ("tool-calls", "unknown")
_MAX_RETRIES = 5
_PATIENCE = 90.0
"""Longer than any of its pauses between retries: after this it must be waiting for a `retry-after`."""


class OpenCode(Agent):
    permissions = _PERMISSIONS
    permission_flags = _PERMISSION_FLAGS
    about = About(
        title="OpenCode",
        seen="1.18.33",
        help=("run", "--help"),
        flags=("--auto", "--model", "--title", *(option[0] for option in _OPTIONS)),
        keys=(
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "GEMINI_API_KEY",
            "OPENROUTER_API_KEY",
            "OPENCODE_API_KEY",
        ),
        logins=(".local/share/opencode/auth.json",),
        login="run `opencode auth login`",
    )
    needs = Needs(
        state=(".local/share/opencode", ".local/state/opencode"),
        pinned=("bin",),
        copied=(".config/opencode", ".cache/opencode"),  # both hold packages that it runs
        variables=(
            *("OPENCODE_*", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
            *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
        ),
        hosts=(
            *("opencode.ai", "models.dev", "api.anthropic.com", "api.openai.com", "openrouter.ai"),
            "generativelanguage.googleapis.com",
        ),
    )

    def argv(self, spec: AgentSpec, purpose: Purpose, prompt: Prompt) -> list[str]:
        """The same for every purpose. A repeated option breaks it, so the user's replaces ours."""
        given = {flag.partition("=")[0] for flag in spec.flags}
        options = [word for option in _OPTIONS if option[0] not in given for word in option]
        words = [
            spec.command,
            "run",
            *options,
            *self.allowed(spec),
            *spec.flags,
        ]
        return words if spec.prompt_via is PromptVia.STDIN else [*words, "--", *argument(spec, prompt)]

    def interactive(self, spec: AgentSpec, prompt: str) -> list[str]:
        return [spec.command, *spec.flags, "--prompt", prompt]

    def disarmed(self, spec: AgentSpec) -> AgentSpec:
        """All tools are denied, since it allows everything by default. With a title it asks no model for one."""
        flags = (*without(spec.flags, (*_PERMISSION_FLAGS, "--title")), *_UNTITLED)
        return replace(spec, flags=flags, env=(*spec.env, _DISARMED))

    def parser(self, reading: Reading) -> Parser:
        return OpenCodeParser(reading)


AGENT: Agent = OpenCode()


# ---- its output ----


class _Time(Struct):
    start: float | None = None
    end: float | None = None


class _Metadata(Struct):
    exit: Any = None


class _State(Struct):
    """The result of a tool call."""

    status: str = ""
    input: Raw = field(default_factory=lambda: Raw(b"{}"))
    output: Raw = field(default_factory=lambda: Raw(b'""'))
    error: Raw = field(default_factory=lambda: Raw(b'""'))
    metadata: _Metadata | None = None
    time: _Time = field(default_factory=_Time)


class _Cache(Struct):
    read: Count = 0
    write: Count = 0


class _Tokens(Struct):
    input: Count = 0
    output: Count = 0
    reasoning: Count = 0
    cache: _Cache = field(default_factory=_Cache)


class _Origin(Struct):
    is_provider: bool = field(default=False, name="providerExecuted")


class _Part(Struct):
    """One part of a message: text, reasoning, a tool call, or the end of a step."""

    text: str = ""
    tool: str = ""
    call_id: str = field(default="", name="callID")
    state: _State = field(default_factory=_State)
    metadata: _Origin | None = None
    reason: str = ""
    tokens: _Tokens = field(default_factory=_Tokens)
    cost: Money = 0.0


class _ErrorData(Struct, rename="camel"):
    message: str = ""
    status_code: int | None = None
    response_headers: dict[str, Any] = {}
    response_body: str | None = None


class _Error(Struct):
    name: str = ""
    data: _ErrorData = field(default_factory=_ErrorData)


class _Line(Struct):
    """Any line of the stream. Fields that a type does not have keep their defaults."""

    type: str
    timestamp: float | None = None
    session: str = field(default="", name="sessionID")
    part: _Part = field(default_factory=_Part)
    error: _Error = field(default_factory=_Error)


_DECODE = msgspec.json.Decoder(_Line).decode

_LOGGED = re.compile(
    r'timestamp=\S+ level=ERROR .*? message=(?P<what>"stream error" .*? small=false|failed) .*?'
    r' error(?:\.error)?="(?:\w+: )?(?P<text>(?:[^"\\]|\\.)*)"'
)


# ---- the parser ----


class OpenCodeParser(StreamParser):
    _editors, _shell = _EDITORS, _SHELL

    def __init__(self, reading: Reading) -> None:
        self._is_over = False
        self._refused_at: float | None = None
        super().__init__(reading, _DECODE)
        self._session = self._why = ""
        self._refusals = 0
        self._has_called = self._is_rejected = False
        self._handlers = {
            "step_start": self._step_start,
            "text": self._text,
            "reasoning": self._reasoning,
            "tool_use": self._tool_use,
            "step_finish": self._step_finish,
            "error": self._error,
        }

    @property
    def is_over(self) -> bool:
        """Whether the agent has a result, or waits longer than Ralph allows."""
        waits = self._refused_at is not None and self._reading.now() - self._refused_at > _PATIENCE
        return self._is_over or waits

    @is_over.setter
    def is_over(self, value: bool) -> None:
        self._is_over = value

    def _step_start(self, line: _Line) -> Iterator[AgentEvent]:
        """The provider answers again, so earlier text is not the final message."""
        self._final = Ends()
        self._limit, self._refused_at, self._refusals = None, None, 0
        self._has_called = self._is_rejected = self._has_succeeded = self.is_over = False
        if line.session != self._session:
            self._session = line.session
            yield AgentProgress(f"session {line.session}")

    def _text(self, line: _Line) -> Iterator[AgentEvent]:
        text = whole(line.part.text, at=_seconds(line.timestamp))
        self._say(text.text)
        yield text

    def _reasoning(self, line: _Line) -> Iterator[AgentEvent]:
        if line.part.text.strip():
            yield whole(line.part.text, thinking=True, at=_seconds(line.timestamp))

    def _tool_use(self, line: _Line) -> Iterator[AgentEvent]:
        self._act()
        part, state = line.part, line.part.state
        self._has_called = self._has_called or not (part.metadata and part.metadata.is_provider)
        has_failed = state.status == "error"
        if has_failed:
            self._denied(part.tool, bytes(state.error))
        elif part.tool in _EDITORS:
            self._writes.done += 1
        if part.tool == "todowrite" and (todo := todo_list(Body(state.input).value)):
            yield todo
        yield ToolStart(part.call_id, part.tool, Body(state.input), at=_seconds(state.time.start))
        exit = state.metadata.exit if state.metadata and part.tool == _SHELL else None
        output = Body(state.error if has_failed else state.output)
        yield ToolEnd(part.call_id, output, has_failed or bool(exit), _seconds(state.time.end))

    def _denied(self, tool: str, error: bytes) -> None:
        is_rejected = error.startswith(_REJECTED)
        self._is_rejected = self._is_rejected or is_rejected
        if is_rejected or error.startswith(_FORBIDDEN):
            self._writes.deny(tool)

    def _step_finish(self, line: _Line) -> Iterator[AgentEvent]:
        self.usage = self.usage + _usage(line.part)
        continues = line.part.reason in _CONTINUES or self._has_called
        if self._is_rejected or not continues:
            self._succeed()
            yield Result(self.usage, at=_seconds(line.timestamp))

    # ---- refusals ----

    def _error(self, line: _Line) -> Iterator[AgentEvent]:
        error = line.error
        text = error.data.message or error.name
        if error.name == "UnknownError":
            text = self._why or text
        if kind := _kind(error):
            told = self._limit if self._refused_at is None else None
            limited = self._refuse(kind, text, _retry_at(line))
            if told is None or told.kind is not kind:
                yield limited
        else:
            self._limit = None
            yield AgentError(text)
        self._fail(text)
        yield Result(self.usage, is_error=True, at=_seconds(line.timestamp))

    def stderr(self, data: bytes) -> Sequence[AgentEvent]:
        text = self._err.feed(data)
        self._complaint.add(text)
        return [self._logged(line) for line in text.splitlines(keepends=True)]

    def _logged(self, line: str) -> AgentEvent:
        """The log reports a failed request at once, the stream only after all retries have failed."""
        found = _LOGGED.match(line)
        if not found:
            return Noise(line)
        text = found["text"].replace('\\"', '"').replace("\\n", "\n")
        if found["what"] == "failed":
            self._why = text
        kind = limits.by_wording(text)
        if kind is None or self._is_over:
            return Noise(f"{text}\n")
        if kind not in (LimitKind.RATE, LimitKind.OVERLOAD):
            self._fail(text)
            return self._refuse(kind, text)
        if " mode=primary " in line:  # not a subagent's request: the stream is silent while one works
            self._refuse(kind, text)
            self._refused_at = self._reading.now()
        self._refusals += 1
        return Retry(text, self._refusals, _MAX_RETRIES)

    def _detail(self, ended: Ended, exit: Exit) -> str:
        """With --auto, only one of the user's rules can have denied it."""
        if ended is Ended.DENIED and self._reading.spec.permissions is not Permissions.NONE:
            return 'every change the agent tried was denied: see "permission" in its opencode.json'
        return super()._detail(ended, exit)


def _kind(error: _Error) -> LimitKind | None:
    """The limit an error means: by status first, then by wording if the status alone is not specific."""
    if error.name == "ProviderAuthError":
        return LimitKind.AUTH
    data = error.data
    kind = limits.by_status(data.status_code)
    if kind is LimitKind.RATE:
        return limits.by_wording(data.message) or limits.by_wording(data.response_body or "") or kind
    return kind or limits.by_wording(data.message)


def _retry_at(line: _Line) -> float | None:
    """The time in `retry-after`, counted from the answer. A date there is left to the wording."""
    after = str(line.error.data.response_headers.get("retry-after", ""))
    if line.timestamp is None or not after.isdecimal() or len(after) > 9:
        return None
    return line.timestamp / 1000 + int(after)


def _usage(part: _Part) -> Usage:
    tokens = part.tokens
    output = tokens.output + tokens.reasoning
    return Usage(part.cost, tokens.input, output, tokens.cache.read, tokens.cache.write)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
