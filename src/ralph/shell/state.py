"""Where a command would run, what its shell remembers, and how statements are connected."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tree_sitter import Node

    from ralph.shell.command import SimpleCommand
    from ralph.shell.words import Word


class ShellContext:
    """Where a command would run. `own`: directories of the harness itself."""

    __slots__ = ("directory", "env", "home", "own", "temp", "top")

    def __init__(
        self,
        directory: str,
        home: str,
        top: str = "",
        env: Mapping[str, str] | None = None,
        own: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.home = home
        self.top = top or directory
        self.env = env or {}
        self.own = tuple(own)
        self.temp = self.env.get("TMPDIR", "").rstrip("/")


class ShellState:
    """What a shell remembers; a subshell has a copy."""

    def __init__(self, context: ShellContext) -> None:
        self.directory: str | None = context.directory
        self.before: str | None = context.env.get("OLDPWD") or context.directory
        self.variables: dict[str, str] = {}
        self.arrays: dict[str, list[Word]] = {}
        self.functions: dict[str, Node] = {}
        self.aliases: dict[str, str] = {}
        self.positional: list[Word] | None = []
        self.files: dict[str, str] = {}
        self.remotes: dict[str, str] = {}

    def copy(self) -> ShellState:
        new = ShellState.__new__(ShellState)
        new.directory, new.before, new.positional = self.directory, self.before, self.positional
        new.variables, new.arrays = dict(self.variables), dict(self.arrays)
        new.functions, new.aliases = dict(self.functions), dict(self.aliases)
        new.files, new.remotes = self.files, self.remotes
        return new


class Streams:
    """How a statement is connected: what it reads, who reads it, what ran before it in its pipeline."""

    __slots__ = ("background", "piped", "redirects", "stdin", "upstream")

    def __init__(self) -> None:
        self.stdin = ""
        self.piped = self.background = False
        self.upstream: tuple[SimpleCommand, ...] = ()
        self.redirects: list[tuple[str, Word]] = []

    def but(self, **changes: object) -> Streams:
        new = Streams()
        for name in Streams.__slots__:
            setattr(new, name, changes.get(name, getattr(self, name)))
        return new
