"""What the guard's parts hand to each other. Plain classes: `dataclasses` would double the time to a verdict."""

from __future__ import annotations

from ralph.guard.words import Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


ASSIGNMENT = "\0assignment"
"""The program of a command that only sets a variable: its name and its value are the words."""
FORK_BOMB = "\0fork bomb"
"""The program of a function that calls itself without end. No program can have a NUL in its name."""


class Place:
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


class Command:
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
        self.upstream: tuple[Command, ...] = ()
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

    def derived(self, program: str, args: list[Word], wrapper: str = "") -> Command:
        """What this one runs in its turn."""
        inner = Command(program, args, self.text, self.directory)
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


class Rule:
    """One thing that is denied. `match`: patterns (see `patterns`), or a function of the command and its place."""

    __slots__ = ("category", "match", "name", "reason")

    def __init__(
        self,
        name: str,
        category: str,
        reason: str,
        match: str | tuple[str, ...] | Callable[[Command, Place], bool],
    ) -> None:
        self.name = name
        self.category = category
        self.reason = reason
        self.match = match


class Verdict:
    """Allowed, or denied by a rule, and because of which part."""

    __slots__ = ("allowed", "category", "part", "reason", "rule")

    def __init__(
        self, allowed: bool, rule: str = "", category: str = "", reason: str = "", part: str = ""
    ) -> None:
        self.allowed = allowed
        self.rule = rule
        self.category = category
        self.reason = reason
        self.part = part


class Denied(Exception):
    """A rule has matched: nothing more needs to be read."""

    def __init__(self, rule: Rule, part: str) -> None:
        super().__init__(rule.name)
        self.rule = rule
        self.part = part
