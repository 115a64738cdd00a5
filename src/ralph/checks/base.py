"""What a check gets to work with, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ralph.core.model import Check, Exit, Verdict


@dataclass(frozen=True, slots=True)
class Shell:
    """What a shell command did: how it ended, the beginning of its output, and where all of it is."""

    exit: Exit
    output: str
    is_cut: bool
    log: str


class Workbench(Protocol):
    """The means of a check: the loop hands them in, so that checks start no process themselves."""

    @property
    def truncate(self) -> int:
        """How many characters of output an agent is shown."""

    def shell(self, command: str, timeout: float, *, is_clean: bool = False) -> Shell:
        """Run a command by `sh -c` in the project; its whole output goes to the check's log.

        `is_clean`: in a fresh copy of it, without what git ignores.
        """


class Method(Protocol):
    def __call__(self, check: Check, bench: Workbench) -> Verdict: ...


class Interrupted(Exception):
    """The check was ended before it could find out anything: no verdict."""
