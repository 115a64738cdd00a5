"""A simple command that would run. Plain classes: `dataclasses` would double the time to a verdict."""

from __future__ import annotations

from ralph.shell.words import Word

ASSIGNMENT = "\0assignment"
"""The program of a command that only sets a variable: its name and its value are the words."""
FORK_BOMB = "\0fork bomb"
"""The program of a function that calls itself without end. No program can have a NUL in its name."""
UNREADABLE = "\0unreadable"
"""The program of a text that cannot be parsed: the reason is its word."""


class Streams:
    """How a statement is connected: what it reads, who reads it, what ran before it in its pipeline."""

    __slots__ = ("background", "piped", "redirects", "stdin", "upstream")

    def __init__(self) -> None:
        self.stdin = ""
        """What can be read, with marks for what is not known; "": nothing."""
        self.piped = False
        """Does another program read what is printed?"""
        self.background = False
        self.upstream: tuple[SimpleCommand, ...] = ()
        self.redirects: list[tuple[str, Word]] = []

    def but(self, **changes: object) -> Streams:
        new = Streams()
        for name in Streams.__slots__:
            setattr(new, name, changes.get(name, getattr(self, name)))
        return new


class SimpleCommand(Streams):
    """A program, its arguments, and what is known around them."""

    __slots__ = (
        *("args", "assigns", "code", "directory", "is_guess", "is_read", "module", "mounts"),
        *("name", "program", "script", "text", "wrappers"),
    )

    def __init__(self, name: str, args: list[Word], text: str, directory: str | None) -> None:
        super().__init__()
        self.name = name
        """As it is called, maybe with a path."""
        self.program = name
        """The name without the path."""
        self.args = args
        self.text = text
        """Where it stands in the command, as written."""
        self.directory = directory
        """Where it runs, None: nobody knows."""
        self.assigns: dict[str, str] = {}
        self.wrappers: tuple[str, ...] = ()
        """The programs that run it, for example sudo."""
        self.mounts: tuple[tuple[str, str], ...] | None = None
        """In a container: its directories that are the host's, each with the one of the host,
        "" for a volume. Else None."""
        self.code = ""
        """What a shell or an interpreter would run."""
        self.script = Word()
        """The file that a shell or an interpreter would run."""
        self.module = ""
        """The module that an interpreter would run."""
        self.is_read = False
        """Was its code read as a tree, so that each of its calls is judged by itself?"""
        self.is_guess = False
        """Was it made from strings of code that may be no commands at all?"""

    def derived(self, name: str, args: list[Word], wrapper: str = "") -> SimpleCommand:
        """What this one runs in its turn."""
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
        """The file that its input is redirected from, "" if it is not."""
        return next((target for operator, target in reversed(self.redirects) if operator == "<"), Word())

    @property
    def contained(self) -> bool:
        """Does it run in a container?"""
        return self.mounts is not None

    @property
    def words(self) -> str:
        """The normalised command, for patterns and for people."""
        return " ".join([self.program, *self.args])
