"""A simple command that would run. These are plain classes because `dataclasses` would double the time to a verdict."""

from __future__ import annotations

from ralph.shell.words import Word

ASSIGNMENT = "\0assignment"
"""Pseudo-program that sets a variable. Its arguments are the name and the value."""
FORK_BOMB = "\0fork bomb"
"""Pseudo-program for a function that calls itself without end. No real program can have a NUL in its name."""
UNREADABLE = "\0unreadable"
"""Pseudo-program for a text that cannot be parsed. Its argument is the reason."""


class Streams:
    """The connections of a statement: its input, whether its output is read, and the earlier stages of its pipeline."""

    __slots__ = ("background", "piped", "redirects", "stdin", "upstream")

    def __init__(self) -> None:
        self.stdin = ""
        """The text on stdin, with marks for unknown parts, or "" for none."""
        self.piped = False
        """Whether another program reads the output."""
        self.background = False
        self.upstream: tuple[SimpleCommand, ...] = ()
        self.redirects: list[tuple[str, Word]] = []

    def but(self, **changes: object) -> Streams:
        new = Streams()
        for name in Streams.__slots__:
            setattr(new, name, changes.get(name, getattr(self, name)))
        return new


class SimpleCommand(Streams):
    """A program, its arguments and their context."""

    __slots__ = (
        *("args", "assigns", "code", "directory", "is_guess", "is_read", "module", "mounts"),
        *("name", "program", "script", "text", "wrappers"),
    )

    def __init__(self, name: str, args: list[Word], text: str, directory: str | None) -> None:
        super().__init__()
        self.name = name
        """The name as written, possibly with a path."""
        self.program = name
        """The name without the path."""
        self.args = args
        self.text = text
        """The part of the command text that it comes from."""
        self.directory = directory
        """The working directory, or None if unknown."""
        self.assigns: dict[str, str] = {}
        self.wrappers: tuple[str, ...] = ()
        """The programs that run it, for example sudo."""
        self.mounts: tuple[tuple[str, str], ...] | None = None
        """In a container, its mounted directories, each with the directory on the host or "" for a volume.
        Otherwise None."""
        self.code = ""
        """The code that a shell or an interpreter would run."""
        self.script = Word()
        """The file that a shell or an interpreter would run."""
        self.module = ""
        """The module that an interpreter would run."""
        self.is_read = False
        """Whether its code was parsed, so that each call in it is judged separately."""
        self.is_guess = False
        """Whether it was guessed from strings in code, which might not be commands at all."""

    def derived(self, name: str, args: list[Word], wrapper: str = "") -> SimpleCommand:
        """Return a command that this one runs in turn."""
        inner = SimpleCommand(name, args, self.text, self.directory)
        for field in (*Streams.__slots__, "assigns", "mounts", "is_guess"):
            setattr(inner, field, getattr(self, field))
        inner.wrappers = (*self.wrappers, wrapper) if wrapper else self.wrappers
        return inner

    def connect(self, streams: Streams) -> None:
        for field in Streams.__slots__:
            setattr(self, field, getattr(streams, field))

    @property
    def read_from(self) -> Word:
        """The file that stdin is redirected from, or "" if it is not."""
        return next((target for operator, target in reversed(self.redirects) if operator == "<"), Word())

    @property
    def contained(self) -> bool:
        """Whether it runs in a container."""
        return self.mounts is not None

    @property
    def words(self) -> str:
        """The normalised command, for patterns and for display."""
        return " ".join([self.program, *self.args])
