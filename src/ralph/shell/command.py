"""A simple command that would run. Plain classes: `dataclasses` would double the time to a verdict."""

from __future__ import annotations

from ralph.shell.words import Word

ASSIGNMENT = "\0assignment"
"""The program of a command that only sets a variable: its name and its value are the words."""
FORK_BOMB = "\0fork bomb"
"""The program of a function that calls itself without end. No program can have a NUL in its name."""


class SimpleCommand:
    """A simple command that would run: a program, its arguments, and what is known around them."""

    __slots__ = (
        "args",
        "assigns",
        "background",
        "code",
        "directory",
        "is_read",
        "mounts",
        "piped",
        "program",
        "redirects",
        "stdin",
        "text",
        "upstream",
        "wrappers",
    )

    def __init__(self, program: str, args: list[Word], text: str, directory: str | None) -> None:
        self.program = program
        self.args = args
        self.text = text
        """Where it stands in the command, as written."""
        self.directory = directory
        """Where it runs, None: nobody knows."""
        self.assigns: dict[str, str] = {}
        self.redirects: list[tuple[str, Word]] = []
        self.stdin = ""
        """What it can read, with marks for what is not known; "": nothing."""
        self.piped = False
        """Does another program read what it prints?"""
        self.background = False
        self.upstream: tuple[SimpleCommand, ...] = ()
        """What stands before it in its pipeline."""
        self.wrappers: tuple[str, ...] = ()
        """The programs that run it, for example sudo."""
        self.mounts: tuple[tuple[str, str], ...] | None = None
        """In a container: its directories that are the host's, each with the one of the host,
        "" for a volume. Else None."""
        self.code = ""
        """What a shell or an interpreter would run."""
        self.is_read = False
        """Was its code read as a tree, so that each of its calls is judged by itself?"""

    def derived(self, program: str, args: list[Word], wrapper: str = "") -> SimpleCommand:
        """What this one runs in its turn."""
        inner = SimpleCommand(program, args, self.text, self.directory)
        for name in ("assigns", "redirects", "stdin", "piped", "background", "upstream", "mounts"):
            setattr(inner, name, getattr(self, name))
        inner.wrappers = (*self.wrappers, wrapper) if wrapper else self.wrappers
        return inner

    @property
    def contained(self) -> bool:
        """Does it run in a container?"""
        return self.mounts is not None

    @property
    def words(self) -> str:
        """The normalised command, for patterns and for people."""
        return " ".join([self.program, *self.args])
