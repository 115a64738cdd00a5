"""What the loop needs to know of an agent CLI: how to start it, and what its output means."""

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
"""How many characters of an answer's beginning, and of its end, are kept."""


class Prompt(Struct, frozen=True):
    """The prompt of one iteration: its text, and the file it was written to."""

    text: str
    file: str


class Reading(Struct, frozen=True):
    """What a parser has to know: how a claim looks, what the agent was told, whose output it reads."""

    claim: ClaimRule = ClaimRule()
    prompt: str = ""
    spec: AgentSpec = AgentSpec("", "custom", "")
    purpose: Purpose = Purpose.WORK
    now: Callable[[], float] = time.time


class AgentReport(Struct, frozen=True):
    """What an agent process amounts to, read from what it printed and how it ended."""

    ended: Ended
    claim: bool = False
    text: str = ""
    usage: Usage = Usage()
    retry_at: float | None = None
    detail: str = ""
    unread: int = 0


class About(Struct, frozen=True):
    """An agent as a program: all of it can be found out without a call to its provider.

    `seen` is the version that Ralph was tried with, "" if none. `help` are the arguments that print the
    help which names `flags`, those that Ralph may use. `keys` are variables that may hold a key, `logins`
    files below the home directory that a login leaves behind.
    """

    title: str
    seen: str
    help: tuple[str, ...]
    flags: tuple[str, ...]
    keys: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    login: str = ""


class Needs(Struct, frozen=True):
    """What an agent has to be let have in a sandbox. Paths are seen from the home directory.

    `state`: where its login and its sessions are, which it writes to; `moved`: variables that name another place for
    the first of them. `pinned`: what in there makes programs start in later sessions, so it must not change; seen
    from its place, with `*` for what is there. `fresh`: directories in there of which sessions start programs too, but
    which it has to write to: it gets empty ones. `copied`: files and directories that it changes and nobody has to get
    back. `variables`: names, with `*` for any end. `hosts`: its provider's.
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
        """What has been used so far."""

    @property
    def is_over(self) -> bool:
        """Has it given its result? Then it should exit soon."""

    @property
    def is_refused(self) -> bool:
        """Is it refused in a way that no retry of its own can mend? Then it is ended at once."""

    def stdout(self, data: bytes) -> Sequence[AgentEvent]: ...

    def stderr(self, data: bytes) -> Sequence[AgentEvent]: ...

    def finish(self, exit: Exit) -> tuple[Sequence[AgentEvent], AgentReport]: ...


class Agent(ABC):
    """One agent CLI; what its file does not say is as most of them have it."""

    prompt_via = PromptVia.STDIN
    """How the prompt is passed when the settings do not say."""

    idle_seconds = 900.0
    """After how long a silence it is taken to hang, when the settings do not say: no CLI ends its own. 0: never."""

    small_model = ""
    """A cheap model for questions with a short answer; "": the agent's own default."""

    permissions: Mapping[Permissions, Sequence[str]] = {}
    """The flags for what it may do."""

    permission_flags: tuple[str, ...] = ()
    """Its own flags that say what it may do; if the user gives one, Ralph adds none."""

    about: About | None = None
    """What is known of it as a program; None if it is none that a person would install."""

    needs = Needs()
    """What of the user's it needs in a sandbox."""

    @abstractmethod
    def argv(self, spec: AgentSpec, purpose: Purpose, prompt: Prompt) -> list[str]:
        """The command line; the first word is looked up on PATH."""

    @abstractmethod
    def parser(self, reading: Reading) -> Parser: ...

    def interactive(self, spec: AgentSpec, prompt: str) -> list[str]:
        """The command line of a session with a person at the terminal, which begins with this prompt."""
        return [spec.command, *spec.flags, prompt]

    def model_flags(self, model: str) -> list[str]:
        """The words that choose a model; none for "", or if it cannot be told."""
        return ["--model", model] if model else []

    def hooked(self, spec: AgentSpec, path: str) -> AgentSpec | None:
        """The same with hooks from a file, as Claude Code has them; None if it takes none that were seen to hold."""
        return None

    def disarmed(self, spec: AgentSpec) -> AgentSpec:
        """The same without anything that it could do, whatever its flags allow: to read what others wrote."""
        return replace(spec, flags=without(spec.flags, self.permission_flags))

    def has_own_permissions(self, spec: AgentSpec) -> bool:
        """Do the user's own flags say what it may do?"""
        return any(flag.partition("=")[0] in self.permission_flags for flag in spec.flags)

    def allowed(self, spec: AgentSpec) -> Sequence[str]:
        """The flags for what the agent may do, unless the user's own flags say it."""
        return () if self.has_own_permissions(spec) else self.permissions[spec.permissions]


def unkept(spec: AgentSpec, purpose: Purpose, flag: str) -> list[str]:
    """The flag that leaves no session behind where only a short answer is wanted, unless the user gives it."""
    return [] if purpose is Purpose.WORK or flag in spec.flags else [flag]


def without(flags: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The flags without these and their values, which are the words up to the next flag."""
    kept, is_kept = [], True
    for word in flags:
        if word.startswith("-"):
            is_kept = word.partition("=")[0] not in names
        if is_kept:
            kept.append(word)
    return tuple(kept)


MAX_LINE = 16_000


class LineText:
    """Bytes that arrive in pieces, as text in whole lines; an endless line is let go piece by piece."""

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
