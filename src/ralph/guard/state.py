"""What a shell remembers between its commands, and how they are connected."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node

    from ralph.guard.model import Command, Place
    from ralph.guard.words import Word


class State:
    """What a shell remembers; a subshell has a copy."""

    def __init__(self, place: Place) -> None:
        self.directory: str | None = place.directory
        self.before: str | None = place.env.get("OLDPWD") or place.directory
        self.variables: dict[str, str] = {}
        self.arrays: dict[str, list[Word]] = {}
        self.functions: dict[str, Node] = {}
        self.aliases: dict[str, str] = {}
        self.positional: list[Word] | None = []
        self.files: dict[str, str] = {}
        self.remotes: dict[str, str] = {}

    def copy(self) -> State:
        new = State.__new__(State)
        new.directory, new.before, new.positional = self.directory, self.before, self.positional
        new.variables, new.arrays = dict(self.variables), dict(self.arrays)
        new.functions, new.aliases = dict(self.functions), dict(self.aliases)
        new.files, new.remotes = self.files, self.remotes
        return new


class Flow:
    """How a statement is connected: what it reads, who reads it, what ran before it in its pipeline."""

    __slots__ = ("background", "piped", "redirects", "stdin", "upstream")

    def __init__(self) -> None:
        self.stdin = ""
        self.piped = self.background = False
        self.upstream: tuple[Command, ...] = ()
        self.redirects: list[tuple[str, Word]] = []

    def but(self, **changes: object) -> Flow:
        new = Flow()
        for name in Flow.__slots__:
            setattr(new, name, changes.get(name, getattr(self, name)))
        return new
