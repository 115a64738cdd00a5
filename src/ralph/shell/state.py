"""The state of a shell between its commands."""

from __future__ import annotations

from ralph.shell import paths
from ralph.shell.variables import inherited
from ralph.shell.words import EVERYONE, SECRET, UNKNOWN, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node

    from ralph.shell.context import ShellContext


class ShellState:
    """The state of one shell. A subshell gets a copy, with shared files and remotes."""

    def __init__(self, context: ShellContext) -> None:
        self.context = context
        self.directory: str | None = context.directory
        self.before: str | None = context.env.get("OLDPWD") or context.directory
        self.mounts: tuple[tuple[str, str], ...] | None = None
        """Mounts of the container that the shell runs in, see `SimpleCommand`."""
        self.variables: dict[str, str] = {}
        self.arrays: dict[str, list[Word]] = {}
        self.functions: dict[str, Node] = {}
        self.aliases: dict[str, str] = {}
        self.positional: list[Word] | None = []
        self.files: dict[str, str] = {}
        """Files that the command itself has written, with their content."""
        self.remotes: dict[str, str] = {}

    def copy(self) -> ShellState:
        new = ShellState.__new__(ShellState)
        new.__dict__.update(self.__dict__)
        for name in ("variables", "arrays", "functions", "aliases"):
            setattr(new, name, dict(getattr(self, name)))
        return new

    def path(self, name: str) -> str | None:
        """Return the absolute path, or None if it is unknown."""
        if name.startswith("/"):
            return paths.normal(name)
        return None if self.directory is None else paths.normal(f"{self.directory}/{name}")

    def content(self, name: str) -> str:
        """Return the content of a file, which is known if the command itself has written it."""
        path = self.path(name)
        if path is None:
            return UNKNOWN
        if path in self.files:
            return self.files[path]
        if path.startswith(("/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/")):
            return f'{path} "$@"'  # a copy of a program does what the program does
        if path == "/dev/null":
            return ""
        if paths.zone(path, self.context) == paths.HARNESS:
            return UNKNOWN + EVERYONE  # it contains Ralph's PID
        is_secret = paths.is_secret(path, self.context) or path.rpartition("/")[2] == ".env"
        return SECRET if is_secret else UNKNOWN

    def variable(self, name: str) -> str:
        """Return the value of a variable, with marks for unknown parts."""
        if name in self.variables:
            return self.variables[name]
        if name in ("PWD", "OLDPWD"):
            known = self.directory if name == "PWD" else self.before
            return UNKNOWN if known is None else known
        return inherited(name, self.context)
