"""Claude Code. Seen: 2.1.197 and 2.1.325.

Quirks that matter here:
- stream-json needs --verbose, and the prompt goes through stdin (an argument holds 128 KiB).
- One API message arrives as one `assistant` event per content block, with the same message id; Amp has no id.
- Neither the exit code nor `subtype` shows success; `is_error` of the `result` does.
- While a background task runs it prints its result but does not exit; another turn and another result may
  follow. Cost and `modelUsage` are cumulative over these, `usage` is not. `usage` also lacks the tokens of
  subagents, and all tokens if the CLI's own budget was reached.
- The output tokens of a message are reported in the result only.
- A commit message is also requested with a stream: in text mode a limit looks like the answer.
- A rejected key is retried ten times, for minutes. The first rejection may be a token due for renewal, so
  Ralph stops it at the second. A long `retry-after` is not waited for.
- The CLI never ends a hang in mid-stream.
- `permission_denials` includes calls denied by a hook, so a call blocked by the guard says nothing about permissions.
- As root, skipping permissions needs IS_SANDBOX=1.
- As a judge it gets no tools: `--tools ""`, which adds to another --tools instead of replacing it, and
  --strict-mcp-config. `--model haiku` is an alias the CLI resolves. It runs in any directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from ralph.agents import limits
from ralph.agents.base import About, Agent, Needs, Parser, Prompt, Reading, unkept, without
from ralph.agents.stream import Count, Money, StreamParser, seconds_of, todo_list, todo_status, whole
from ralph.core.events import (
    AgentError,
    AgentEvent,
    AgentProgress,
    Body,
    Limited,
    Result,
    Retry,
    Todo,
    TodoItem,
    ToolEnd,
    ToolStart,
)
from ralph.core.model import AgentSpec, LimitKind, Permissions, PromptVia, Purpose, TodoStatus, Usage

_PERMISSIONS = {
    Permissions.EDIT: ["--permission-mode", "acceptEdits"],
    Permissions.BYPASS: ["--dangerously-skip-permissions"],
    Permissions.NONE: [],
}
_PERMISSION_FLAGS = ("--permission-mode", "--dangerously-skip-permissions")
_TOOL_FLAGS = ("--tools", "--mcp-config")
_UNKEPT = "--no-session-persistence"
_NO_TOOLS = ("--tools", "", "--strict-mcp-config")

_EDITORS = {"Edit", "MultiEdit", "NotebookEdit", "Write"}
_SHELL = "Bash"
_STOP_HOOK = "Stop hook feedback:"
_GUARDED = b"Ralph's guard"
_SILENCE = b'"(Bash completed with no output)"'


class Claude(Agent):
    small_model = "haiku"
    permissions = _PERMISSIONS
    permission_flags = _PERMISSION_FLAGS
    about = About(
        title="Claude Code",
        seen="2.1.325",
        help=("--help",),
        flags=(
            *("--print", "--output-format", "--verbose", "--model"),
            *(*_PERMISSION_FLAGS, "--tools", "--strict-mcp-config", _UNKEPT),
        ),
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        logins=(".claude/.credentials.json",),
        login="run `claude` and type /login",
    )
    needs = Needs(
        state=(".claude",),
        moved=("CLAUDE_CONFIG_DIR",),
        pinned=(
            *("settings.json", "settings.local.json", "CLAUDE.md", "agents", "commands", "hooks"),
            *("output-styles", "plugins", "rules", "skills", "workflows", "loop.md", "keybindings.json"),
            *("local", "bin", "scripts", "*.sh", "*.py", "*.js"),  # the CLI itself, and status line scripts
        ),
        fresh=("shell-snapshots", "session-env"),
        copied=(".claude.json",),
        variables=("ANTHROPIC_*", "CLAUDE_*", "DISABLE_*", "API_TIMEOUT_MS", "BASH_*_TIMEOUT_MS"),
        hosts=("api.anthropic.com", "claude.ai", "platform.claude.com", "console.anthropic.com"),
    )

    def argv(self, spec: AgentSpec, purpose: Purpose, prompt: Prompt) -> list[str]:
        """The prompt comes after `--` because some flags take any number of words."""
        allowed = self.allowed(spec)
        options = ["--output-format", "stream-json", "--verbose", *unkept(spec, purpose, _UNKEPT), *allowed]
        words = [spec.command, "-p", *options, *spec.flags]
        return words if spec.prompt_via is PromptVia.STDIN else [*words, "--", prompt.text]

    def interactive(self, spec: AgentSpec, prompt: str) -> list[str]:
        return [spec.command, *spec.flags, "--", prompt]

    def hooked(self, spec: AgentSpec, path: str) -> AgentSpec | None:
        """None with --settings, as only one settings file is read, and with --bare, which turns hooks off."""
        if any(flag.partition("=")[0] in ("--settings", "--bare") for flag in spec.flags):
            return None
        return replace(spec, flags=(*spec.flags, "--settings", path))

    def disarmed(self, spec: AgentSpec) -> AgentSpec:
        """No tools, whatever the permissions, and no MCP servers that would add some."""
        flags = without(spec.flags, (*_PERMISSION_FLAGS, *_TOOL_FLAGS))
        return replace(spec, flags=(*flags, *_NO_TOOLS))

    def parser(self, reading: Reading) -> Parser:
        return ClaudeParser(reading)


AGENT: Agent = Claude()


# ---- its output ----


class _Tokens(Struct):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None


class _ModelTokens(Struct, rename="camel"):
    """The tokens one model has used in the whole process."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_input_tokens: Count = 0
    cache_creation_input_tokens: Count = 0


def _used(tokens: _Tokens | _ModelTokens) -> Usage:
    return Usage(
        0.0,
        tokens.input_tokens or 0,
        tokens.output_tokens or 0,
        tokens.cache_read_input_tokens or 0,
        tokens.cache_creation_input_tokens or 0,
    )


class _Block(Struct):
    """One content block of a message: text, thinking, a tool call or a tool result."""

    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: Raw = field(default_factory=lambda: Raw(b"{}"))
    tool_use_id: str = ""
    content: Raw = field(default_factory=lambda: Raw(b'""'))
    is_error: bool | None = None


class _Message(Struct):
    content: list[_Block] | str = ""
    id: str = ""
    model: str = ""
    usage: _Tokens | None = None


class _RateLimit(Struct, rename="camel"):
    status: str = ""
    resets_at: float | None = None


class _ErrorDetails(Struct):
    rate_limit_info: _RateLimit | None = None


class _Denial(Struct):
    tool_name: str = ""
    tool_use_id: str = ""


class _Line(Struct):
    """Any line of the stream. Fields that a type does not have keep their defaults."""

    type: str
    subtype: str = ""
    message: _Message | str | None = None
    parent_tool_use_id: str | None = None
    timestamp: str | None = None
    session_id: str = ""
    model: str = ""
    error: Any = None
    is_api_error_message: bool = False
    api_error: str | None = None
    api_error_status: int | None = None
    api_error_type: str | None = None
    api_error_params: _ErrorDetails | None = None
    rate_limit_info: _RateLimit | None = None
    attempt: Count = 0
    max_retries: Count = 0
    retry_delay_ms: float | None = None
    error_status: int | None = None
    is_error: bool = False
    result: str | None = None
    errors: list[str] = []
    total_cost_usd: Money | None = None
    usage: _Tokens | None = None
    model_usage: dict[str, _ModelTokens] = field(default_factory=dict, name="modelUsage")
    permission_denials: list[_Denial] = []


_DECODE = msgspec.json.Decoder(_Line).decode
_NO_TOKENS = _Tokens()


# ---- the parser ----


class ClaudeParser(StreamParser):
    _editors, _shell = _EDITORS, _SHELL

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading, _DECODE)
        self._message_id = ""
        self._settled = self._before = Usage()
        self._current: dict[str, tuple[str, _Tokens]] = {}
        self._tools: dict[str, str] = {}
        self._guarded: set[str] = set()
        self._tasks = _Tasks()
        self._known_limit: _RateLimit | None = None
        self._handlers = {
            "system": self._system,
            "assistant": self._assistant,
            "user": self._user,
            "rate_limit_event": self._rate_limit,
            "result": self._result,
            "stream_event": self._nothing,
            "tool_progress": self._nothing,
        }

    def stdout(self, data: bytes) -> Sequence[AgentEvent]:
        events = super().stdout(data)
        self._sum_up()
        return events

    def _nothing(self, line: _Line) -> Iterator[AgentEvent]:
        return iter(())

    def _system(self, line: _Line) -> Iterator[AgentEvent]:
        if line.subtype == "init":
            yield AgentProgress(", ".join(filter(None, (f"session {line.session_id}", line.model))))
        elif line.subtype == "api_retry":
            yield self._retry(line)

    def _retry(self, line: _Line) -> Retry | Limited:
        name = line.error if isinstance(line.error, str) else "error"
        why = f"{name} ({line.error_status})" if line.error_status else name
        if line.attempt > 1 and limits.by_status(line.error_status, name) is LimitKind.AUTH:
            self.is_refused = True
            return self._refuse(LimitKind.AUTH, f"API key or login rejected: {why}")
        seconds = None if line.retry_delay_ms is None else line.retry_delay_ms / 1000
        return Retry(why, line.attempt, line.max_retries, seconds)

    def _assistant(self, line: _Line) -> Iterator[AgentEvent]:
        message = line.message
        if not isinstance(message, _Message):
            return
        if line.is_api_error_message or message.model == "<synthetic>":
            yield from self._api_error(line, _text_of(message))
            return
        self._count(line.parent_tool_use_id or "", message)
        is_top = line.parent_tool_use_id is None
        if is_top and (not message.id or message.id != self._message_id):
            self._begin()
            self._message_id = message.id
        at = seconds_of(line.timestamp)
        blocks = message.content if isinstance(message.content, list) else []
        for block in blocks:
            if block.type == "text":
                if is_top:
                    self._say(block.text)
                yield whole(block.text, at=at)
            elif block.type == "thinking" and block.thinking:
                yield whole(block.thinking, thinking=True, at=at)
            elif block.type in ("tool_use", "server_tool_use"):
                if is_top:
                    self._act()
                self._tools[block.id] = block.name
                if todo := self._tasks.called(block):
                    yield todo
                yield ToolStart(block.id, block.name, Body(block.input), line.parent_tool_use_id or "", at)

    def _user(self, line: _Line) -> Iterator[AgentEvent]:
        message = line.message
        blocks = message.content if isinstance(message, _Message) else ""
        at = seconds_of(line.timestamp)
        for block in blocks if isinstance(blocks, list) else []:
            if block.type == "tool_result":
                name = self._tools.pop(block.tool_use_id, "")
                is_error = bool(block.is_error)
                if name in _EDITORS and not is_error:
                    self._writes.done += 1
                elif name == _SHELL and bytes(block.content) == _SILENCE:
                    self._writes.silent_commands += 1
                elif is_error and _GUARDED in bytes(block.content):
                    self._guarded.add(block.tool_use_id)
                output = Body(block.content)
                yield ToolEnd(block.tool_use_id, output, is_error, at)
                if todo := self._tasks.answered(block.tool_use_id, output, is_error):
                    yield todo
            elif block.type == "text" and block.text.startswith(_STOP_HOOK):
                yield AgentProgress(block.text)

    # ---- refusals ----

    def _rate_limit(self, line: _Line) -> Iterator[AgentEvent]:
        info = line.rate_limit_info
        self._known_limit = info if info and info.status == "rejected" else None
        return iter(())

    def _api_error(self, line: _Line, text: str) -> Iterator[AgentEvent]:
        yield self._refusal(line, text) or AgentError(text)

    def _refusal(self, line: _Line, text: str) -> Limited | None:
        details = line.api_error_params.rate_limit_info if line.api_error_params else None
        known = details or self._known_limit
        if known is not None and known.status == "rejected":
            return self._refuse(LimitKind.USAGE, text, known.resets_at)
        names = (line.api_error, line.error, line.api_error_type)
        named = (limits.by_status(None, name) for name in names if isinstance(name, str))
        kind = next(filter(None, named), None) or limits.by_status(line.api_error_status)
        if kind in (None, LimitKind.RATE):
            kind = limits.by_wording(text) or kind
        return self._refuse(kind, text) if kind else None

    # ---- the result ----

    def _result(self, line: _Line) -> Iterator[AgentEvent]:
        self._settle(line)
        error = line.error if isinstance(line.error, str) else ""
        text = line.result or "; ".join(line.errors) or error
        if not line.is_error:
            for denial in line.permission_denials:
                if denial.tool_use_id not in self._guarded:
                    self._writes.deny(denial.tool_name)
            if line.result and line.result not in self._final.text:
                self._begin()
                self._say(line.result)
            self._succeed()
        else:
            if self._limit is None:
                refusal = self._refusal(line, text)
                if refusal is not None:
                    yield refusal
            self._fail(text or line.subtype)
        yield Result(self.usage, line.is_error, seconds_of(line.timestamp))

    def _count(self, talk: str, message: _Message) -> None:
        """Count a message's tokens. Each of its blocks reports them again, so the last report counts.

        `talk` is the conversation the message belongs to, as subagents work at the same time.
        """
        known, tokens = self._current.get(talk, ("", _NO_TOKENS))
        if not message.id or message.id != known:
            self._before, tokens = self._before + _used(tokens), _NO_TOKENS
        self._current[talk] = message.id, message.usage or tokens

    def _sum_up(self) -> None:
        total = sum((_used(tokens) for _, tokens in self._current.values()), self._before)
        if total != self.usage:
            self.usage = total

    def _settle(self, line: _Line) -> None:
        """Replace the sums of the messages by the totals of the result."""
        if line.model_usage:
            self._settled = sum((_used(tokens) for tokens in line.model_usage.values()), Usage())
        elif line.usage is not None:
            self._settled = self._settled + _used(line.usage)
        cost = self._before.cost_usd if line.total_cost_usd is None else line.total_cost_usd
        if line.model_usage or line.usage is not None:
            self._before, self._current = self._settled, {}
        self._before = replace(self._before, cost_usd=cost)
        self._sum_up()


def _text_of(message: _Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n".join(block.text for block in message.content if block.type == "text")


# ---- task lists: TodoWrite sends the whole list, the task tools change one entry each ----


class _Tasks:
    def __init__(self) -> None:
        self._items: dict[str, TodoItem] = {}
        self._creating: dict[str, str] = {}

    def called(self, block: _Block) -> Todo | None:
        if block.name == "TodoWrite":
            return todo_list(Body(block.input).value)
        if block.name == "TaskCreate":
            values = Body(block.input).value
            self._creating[block.id] = str(values.get("subject", "")) if isinstance(values, dict) else ""
        elif block.name == "TaskUpdate":
            return self._updated(Body(block.input).value)
        return None

    def answered(self, tool_id: str, output: Body, is_error: bool) -> Todo | None:
        """A new task gets its id from `Task #1 created successfully: …`."""
        subject = self._creating.pop(tool_id, None)
        if subject is None or is_error:
            return None
        number = output.text.partition("#")[2].partition(" ")[0] or str(len(self._items) + 1)
        self._items[number] = TodoItem(subject, TodoStatus.PENDING)
        return self._list()

    def _updated(self, values: Any) -> Todo | None:
        known = self._items.get(str(values.get("taskId"))) if isinstance(values, dict) else None
        if known is None:
            return None
        if values.get("status") == "deleted":
            del self._items[str(values["taskId"])]
        else:
            text = str(values.get("subject") or known.text)
            self._items[str(values["taskId"])] = TodoItem(
                text, todo_status(values.get("status"), known.status)
            )
        return self._list()

    def _list(self) -> Todo:
        return Todo(tuple(self._items.values()))
