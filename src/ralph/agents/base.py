"""The interface to an agent CLI: how to start it, and what its output means."""

from __future__ import annotations

import codecs
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from ralph.core.events import AgentEvent
from ralph.core.model import AgentSpec, ClaimRule, Ended, Exit, Permissions, PromptVia, Purpose, Usage

MAX_TEXT = 128_000
"""Number of characters kept from the start of an answer, and from its end."""


class Prompt(Struct, frozen=True):
    """The prompt of one iteration: its text, and the file it was written to."""

    text: str
    file: str


class Reading(Struct, frozen=True):
    """Input for a parser: the claim format, the prompt, and which agent's output it reads."""

    claim: ClaimRule = ClaimRule()
    prompt: str = ""
    spec: AgentSpec = AgentSpec("", "custom", "")
    purpose: Purpose = Purpose.WORK
    now: Callable[[], float] = time.time


class AgentReport(Struct, frozen=True):
    """The result of an agent process, from its output and its exit.

    `unclaimed`: why the tag in its final message is not a claim, "" without a tag or with a claim.
    """

    ended: Ended
    claim: bool = False
    text: str = ""
    usage: Usage = Usage()
    retry_at: float | None = None
    detail: str = ""
    unread: int = 0
    unclaimed: str = ""


class About(Struct, frozen=True):
    """Facts about an agent as a program, all of which can be checked without calling its provider.

    `seen` is the version Ralph was tested with, "" if none. `help` holds the arguments that print the help
    text, and `flags` the flags Ralph may use, which that text must name. `keys` lists variables that may hold
    an API key, `logins` the files in the home directory that a login creates.
    """

    title: str
    seen: str
    help: tuple[str, ...]
    flags: tuple[str, ...]
    keys: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    login: str = ""


class Needs(Struct, frozen=True):
    """What an agent needs in a sandbox. Paths are relative to the home directory.

    - `state`: directories with its login and sessions, which it writes to.
    - `moved`: variables that set another path for the first of them.
    - `pinned`: entries in there that start programs in later sessions and so must not change. Relative to the
      state directory; `*` matches what exists.
    - `fresh`: directories in there from which sessions start programs too, but which it must write to. The
      agent gets empty ones.
    - `copied`: files and directories it gets a copy of; its changes to them are discarded.
    - `variables`: names of environment variables, with `*` for any ending.
    - `hosts`: the hosts of its provider.
    """

    state: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


class Parser(Protocol):
    """Reads one agent process from its first byte to its exit."""

    @property
    def usage(self) -> Usage:
        """Usage so far."""

    @property
    def is_over(self) -> bool:
        """Whether the agent has printed its result and should exit soon."""

    @property
    def is_refused(self) -> bool:
        """Whether its provider refuses it in a way that no retry can fix. It is then stopped at once."""

    def stdout(self, data: bytes) -> Sequence[AgentEvent]: ...

    def stderr(self, data: bytes) -> Sequence[AgentEvent]: ...

    def finish(self, exit: Exit) -> tuple[Sequence[AgentEvent], AgentReport]: ...


class Agent(ABC):
    """One agent CLI. The defaults here fit most of them."""

    prompt_via = PromptVia.STDIN
    """How the prompt is passed if the settings do not specify it."""

    idle_seconds = 900.0
    """Seconds without output after which it counts as hung, if the settings do not specify it (0: never). No CLI
    recovers from a hang by itself."""

    small_model = ""
    """A cheap model for questions with a short answer ("": the agent's default)."""

    permissions: Mapping[Permissions, Sequence[str]] = {}
    """The flags for each permission level."""

    permission_flags: tuple[str, ...] = ()
    """The CLI's permission flags. If the user passes one of them, Ralph adds none."""

    about: About | None = None
    """Facts about the program; None if it is not one that people install."""

    needs = Needs()
    """What it needs in a sandbox."""

    @abstractmethod
    def argv(self, spec: AgentSpec, purpose: Purpose, prompt: Prompt) -> list[str]:
        """The command line; the first word is looked up on PATH."""

    @abstractmethod
    def parser(self, reading: Reading) -> Parser: ...

    def interactive(self, spec: AgentSpec, prompt: str) -> list[str]:
        """The command line of an interactive session that starts with this prompt."""
        return [spec.command, *spec.flags, prompt]

    def model_flags(self, model: str) -> list[str]:
        """The arguments that select a model; none for "", or if the CLI has no option for it."""
        return ["--model", model] if model else []

    def hooked(self, spec: AgentSpec, path: str) -> AgentSpec | None:
        """The same spec with hooks from a file in Claude Code's format; None if the CLI has no reliable hooks."""
        return None

    def disarmed(self, spec: AgentSpec) -> AgentSpec:
        """The same spec with no way to act, whatever its flags allow, so that it can read untrusted work."""
        return replace(spec, flags=without(spec.flags, self.permission_flags))

    def has_own_permissions(self, spec: AgentSpec) -> bool:
        """Whether the user's flags set its permissions."""
        return any(flag.partition("=")[0] in self.permission_flags for flag in spec.flags)

    def allowed(self, spec: AgentSpec) -> Sequence[str]:
        """The permission flags, unless the user's flags set them."""
        return () if self.has_own_permissions(spec) else self.permissions[spec.permissions]


def unkept(spec: AgentSpec, purpose: Purpose, flag: str) -> list[str]:
    """The flag that keeps no session, for short questions only and unless the user already passes it."""
    return [] if purpose is Purpose.WORK or flag in spec.flags else [flag]


def without(flags: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The flags without the named ones and their values. Values are the words up to the next flag."""
    kept, is_kept = [], True
    for word in flags:
        if word.startswith("-"):
            is_kept = word.partition("=")[0] not in names
        if is_kept:
            kept.append(word)
    return tuple(kept)


MAX_LINE = 16_000


class LineText:
    """Turns bytes that arrive in pieces into text in whole lines. A very long line is passed on in pieces."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> str:
        text = self._decoder.decode(data)
        whole, newline, rest = text.rpartition("\n")
        if not newline:
            self._rest += rest
            if len(self._rest) < MAX_LINE:
                return ""
            text, self._rest = self._rest, ""
            return text
        text, self._rest = self._rest + whole + newline, rest
        return text

    def finish(self) -> str:
        return self._rest + self._decoder.decode(b"", final=True)


class Ends:
    """The beginning and the end of a long text."""

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""

    def add(self, text: str) -> None:
        if len(self._head) < MAX_TEXT:
            room = MAX_TEXT - len(self._head)
            self._head += text[:room]
            text = text[room:]
        if text:
            self._tail = (self._tail + text[-MAX_TEXT:])[-MAX_TEXT:]

    @property
    def text(self) -> str:
        gap = "\n[...]\n" if len(self._tail) == MAX_TEXT else ""
        return self._head + gap + self._tail
