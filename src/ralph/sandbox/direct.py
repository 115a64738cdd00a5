"""No sandbox: commands run as if the user had started them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ralph.core.model import Exit
from ralph.sandbox.base import Boundary, Mounts, Root, RunCommand, Sandbox, Tell, WrappedCommand


class NoSandbox:
    name = "direct"
    root = Root.OURS

    def problem(self, run: RunCommand) -> str:
        return ""

    @contextmanager
    def opened(self, boundary: Boundary, run: RunCommand, tell: Tell) -> Iterator[Sandbox]:
        yield NoWalls()


class NoWalls:
    def wrap(self, argv: Sequence[str], environment: Mapping[str, str], mounts: Mounts) -> WrappedCommand:
        return WrappedCommand(argv, environment)

    def after(self, exit: Exit, wrapped: WrappedCommand) -> Exit:
        return exit
