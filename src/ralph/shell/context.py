"""The context that a command would run in."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ShellContext:
    """The directories and the environment that a shell starts with. `own`: Ralph's own directories."""

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
