"""Codex. Seen: 0.166.0.

Quirks that matter here:
- A positional argument is prompt text, `-` is stdin. It comes after `--` because `-i` takes any number of
  words. `--full-auto` was removed.
- Without --json the whole conversation goes to stderr and no tokens are reported, so a commit message is
  requested with --json too.
- A tool call that Codex itself refuses produces no event, only a line on stderr. A refusal by its sandbox
  looks like any command output, often with exit code 0. The default sandbox is read-only.
- Each `agent_message` is a whole message; the last one is the answer.
- `error` "Reconnecting... n/m" is not a failure; any other `error` is followed by `turn.failed`.
- Errors are text without a code. Without a network it retries forever and prints that every few seconds.
- Tokens are those of the whole thread without its subagents; cached ones are part of the input. The stream
  has no cost and no timestamps.
- As a judge it has no shell (`-c features.shell_tool=false`; an unknown feature only causes a warning) and a
  read-only sandbox, which wins over `-c sandbox_mode` but not over the bypass flag. With --skip-git-repo-check it
  runs in any directory. Two --sandbox or two --model are refused. It has no alias for a small model, so a judge
  uses the default.
- The default provider takes its key from CODEX_API_KEY or a login; OPENAI_API_KEY alone is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ralph.agents import limits
from ralph.agents.base import About, Agent, Needs, Parser, Prompt, Reading, unkept, without
from ralph.agents.stream import Count, StreamParser, whole
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

_BYPASS = "--dangerously-bypass-approvals-and-sandbox"
_PERMISSIONS = {
    Permissions.EDIT: ["--sandbox", "workspace-write"],
    Permissions.BYPASS: [_BYPASS],
    Permissions.NONE: [],
}
_PERMISSION_FLAGS = (
    *("--sandbox", "-s", "--approve-for-me", _BYPASS, "--yolo", "--full-auto"),
    *("sandbox_mode", "default_permissions"),  # -c sandbox_mode=…
)

_STATUS = re.compile(r"(?:unexpected|exceeded retry limit, last) status:? (\d{3})\b")
_RECONNECTING = re.compile(r"Reconnecting\.\.\. (?:(\d{1,9})/(\d{1,9}) ?)?(.*)", re.DOTALL)
_WORDS = {
    "experiencing high demand": LimitKind.OVERLOAD,
    "to use codex with your chatgpt plan": LimitKind.CREDIT,
    "hit your spend cap": LimitKind.CREDIT,
    "log out and sign in again": LimitKind.AUTH,
    "missing environment variable": LimitKind.AUTH,
}
_UNKEPT = "--ephemeral"
_DISARMED = ("--sandbox", "read-only", "-c", "features.shell_tool=false")

_REJECTED = "error=patch rejected:"
_READ_ONLY = (b"Read-only file system", b"Operation not permitted")


class Codex(Agent):
    permissions = _PERMISSIONS
    permission_flags = _PERMISSION_FLAGS
    about = About(
        title="Codex",
        seen="0.166.0",
        help=("exec", "--help"),
        flags=("--json", "--skip-git-repo-check", "--sandbox", _BYPASS, "--model", "--config", _UNKEPT),
        keys=("CODEX_API_KEY", "CODEX_ACCESS_TOKEN"),
        logins=(".codex/auth.json",),
        login="run `codex login`",
    )
    needs = Needs(
        state=(".codex",),
        moved=("CODEX_HOME",),
        pinned=(
            *("config.toml", "AGENTS.md", "AGENTS.override.md", ".env", "hooks.json", "plugins", "prompts"),
            *("rules", "skills", "packages", "bin", "*.sh", "*.py", "*.js"),
        ),
        fresh=("shell_snapshots", "tmp", ".tmp"),
        variables=("CODEX_*", "OPENAI_*"),
        hosts=("api.openai.com", "auth.openai.com", "chatgpt.com"),
    )

    def argv(self, spec: AgentSpec, purpose: Purpose, prompt: Prompt) -> list[str]:
        allowed = self.allowed(spec)
        last = "-" if spec.prompt_via is PromptVia.STDIN else prompt.text
        return [
            *(spec.command, "exec", "--json", "--skip-git-repo-check", *unkept(spec, purpose, _UNKEPT)),
            *(*allowed, *spec.flags, "--", last),
        ]

    def interactive(self, spec: AgentSpec, prompt: str) -> list[str]:
        return [spec.command, *spec.flags, "--", prompt]

    def disarmed(self, spec: AgentSpec) -> AgentSpec:
        """No shell, and a sandbox that refuses patches, even if its configuration allows more."""
        return replace(spec, flags=(*without(spec.flags, _PERMISSION_FLAGS), *_DISARMED))

    def parser(self, reading: Reading) -> Parser:
        return CodexParser(reading)


AGENT: Agent = Codex()


# ---- its output ----


_EMPTY = Raw(b'""')


class _Tokens(Struct):
    input_tokens: Count = 0
    cached_input_tokens: Count = 0
    cache_write_input_tokens: Count = 0
    output_tokens: Count = 0

    @property
    def usage(self) -> Usage:
        cached = self.cached_input_tokens + self.cache_write_input_tokens
        return Usage(
            0.0,
            max(0, self.input_tokens - cached),
            self.output_tokens,
            self.cached_input_tokens,
            self.cache_write_input_tokens,
        )


class _Step(Struct):
    text: str = ""
    completed: bool = False


class _McpResult(Struct):
    content: Raw = _EMPTY


class _Item(Struct):
    """One item of a turn: a message, a tool call, a task list, a warning."""

    type: str
    id: str = ""
    text: str = ""
    message: str = ""
    status: str = ""
    server: str = ""
    tool: str = ""
    exit_code: int | None = None
    items: list[_Step] = []
    command: Raw = _EMPTY
    aggregated_output: Raw = _EMPTY
    changes: Raw = _EMPTY
    arguments: Raw = _EMPTY
    result: _McpResult | None = None
    error: Raw = _EMPTY
    prompt: Raw = _EMPTY
    agents_states: Raw = _EMPTY
    query: Raw = _EMPTY

    @property
    def is_error(self) -> bool:
        return self.status in ("failed", "declined") or bool(self.exit_code)


class _Error(Struct):
    message: str = ""


class _Line(Struct):
    """Any line of the stream. Fields that a type does not have keep their defaults."""

    type: str
    thread_id: str = ""
    item: _Item | None = None
    message: str = ""
    error: _Error | None = None
    usage: _Tokens | None = None


_DECODE = msgspec.json.Decoder(_Line).decode


# ---- the parser ----


class CodexParser(StreamParser):
    def __init__(self, reading: Reading) -> None:
        super().__init__(reading, _DECODE)
        has_own = Codex().has_own_permissions(reading.spec)
        self._is_read_only = reading.spec.permissions is Permissions.NONE and not has_own
        self._open: set[str] = set()
        self._todo: Todo | None = None
        self._handlers = {
            "thread.started": self._thread,
            "turn.started": self._turn_started,
            "turn.completed": self._turn_completed,
            "turn.failed": self._turn_failed,
            "item.started": self._item,
            "item.updated": self._item,
            "item.completed": self._item,
            "error": self._error,
        }
        self._items = {
            "agent_message": self._message,
            "reasoning": self._reasoning,
            "todo_list": self._todo_list,
            "error": self._warning,
            "command_execution": self._command,
            "file_change": self._change,
            "mcp_tool_call": self._mcp,
            "collab_tool_call": self._collab,
            "web_search": self._search,
        }

    def stderr(self, data: bytes) -> Sequence[AgentEvent]:
        events = super().stderr(data)
        rejected = sum(getattr(event, "text", "").count(_REJECTED) for event in events)
        self._writes.denied_edits += ["apply_patch"] * rejected
        return events

    # ---- threads and turns ----

    def _thread(self, line: _Line) -> Iterator[AgentEvent]:
        yield AgentProgress(f"session {line.thread_id}")

    def _turn_started(self, line: _Line) -> Iterator[AgentEvent]:
        self.is_over = self._has_succeeded = False
        return iter(())

    def _turn_completed(self, line: _Line) -> Iterator[AgentEvent]:
        if line.usage is not None:
            self.usage = line.usage.usage
        self._succeed()
        yield Result(self.usage)

    def _turn_failed(self, line: _Line) -> Iterator[AgentEvent]:
        text = line.error.message if line.error else ""
        if text and text != self._failure:
            yield self._refusal(text) or AgentError(text)
        self._fail(text or self._failure or "the turn failed")
        yield Result(self.usage, is_error=True)

    # ---- errors ----

    def _error(self, line: _Line) -> Iterator[AgentEvent]:
        if found := _RECONNECTING.match(line.message):
            why = found[3].removeprefix("(").removesuffix(")") if found[1] else found[3]
            yield Retry(why, int(found[1] or 0), int(found[2] or 0))
        elif line.message:
            self._failure = line.message
            yield self._refusal(line.message) or AgentError(line.message)

    def _refusal(self, text: str) -> Limited | None:
        status = _STATUS.match(text)
        kind = limits.by_status(int(status[1])) if status else None
        if kind in (None, LimitKind.RATE):
            kind = _by_own_words(text) or limits.by_wording(text) or kind
        return self._refuse(kind, text) if kind else None

    # ---- items ----

    def _item(self, line: _Line) -> Iterator[AgentEvent]:
        item = line.item
        handler = self._items.get(item.type) if item else None
        if item is None or handler is None:
            raise msgspec.DecodeError(f"unknown item {item.type!r}" if item else "no item")
        return handler(item, line.type.removeprefix("item."))

    def _message(self, item: _Item, state: str) -> Iterator[AgentEvent]:
        if state == "completed" and item.text.strip():
            self._act()
            self._say(item.text)
            yield whole(item.text)

    def _reasoning(self, item: _Item, state: str) -> Iterator[AgentEvent]:
        if state == "completed" and item.text.strip():
            yield whole(item.text, thinking=True)

    def _todo_list(self, item: _Item, state: str) -> Iterator[AgentEvent]:
        """A new event only if the list has changed: Codex repeats it at the end of the turn."""
        status = {True: TodoStatus.DONE, False: TodoStatus.PENDING}
        todo = Todo(tuple(TodoItem(step.text, status[step.completed]) for step in item.items))
        if todo != self._todo:
            self._todo = todo
            yield todo

    def _warning(self, item: _Item, state: str) -> Iterator[AgentEvent]:
        yield AgentError(item.message)

    def _command(self, item: _Item, state: str) -> Iterator[AgentEvent]:
        if state == "completed":
            self._ran(item)
        return self._tool(item, state, "shell", item.command, item.aggregated_output)

    def _change(self, item: _Item, state: str) -> Iterator[AgentEvent]:
        if state == "completed" and not item.is_error:
            self._writes.done += 1
        return self._tool(item, state, "apply_patch", item.changes, _EMPTY)

    def _mcp(self, item: _Item, state: str) -> Iterator[AgentEvent]:
        output = item.result.content if item.result else item.error
        return self._tool(item, state, f"{item.server}.{item.tool}", item.arguments, output)

    def _collab(self, item: _Item, state: str) -> Iterator[AgentEvent]:
        return self._tool(item, state, item.tool, item.prompt, item.agents_states)

    def _search(self, item: _Item, state: str) -> Iterator[AgentEvent]:
        return self._tool(item, state, "web_search", item.query, _EMPTY)

    def _tool(self, item: _Item, state: str, name: str, input: Raw, output: Raw) -> Iterator[AgentEvent]:
        if state != "updated" and item.id not in self._open:
            self._act()
            self._open.add(item.id)
            yield ToolStart(item.id, name, Body(input))
        if state == "completed":
            self._open.discard(item.id)
            yield ToolEnd(item.id, Body(output), item.is_error)

    def _ran(self, item: _Item) -> None:
        """Count a command. In a writable sandbox, one that succeeded may have written something."""
        if not self._is_read_only:
            self._writes.done += item.exit_code == 0
        elif any(words in bytes(item.aggregated_output) for words in _READ_ONLY):
            self._writes.denied_commands.append("shell")


def _by_own_words(text: str) -> LimitKind | None:
    plain = text.casefold()
    return next((kind for words, kind in _WORDS.items() if words in plain), None)
