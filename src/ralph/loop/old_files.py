"""A copy of the project in which a check puts other files before its commands run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from ralph.checks.base import Shell

NO_BYTECODE = "PYTHONDONTWRITEBYTECODE=1\nexport PYTHONDONTWRITEBYTECODE\n"
"""Compiled files of one version of a test could be taken for those of another one of the same size and second."""

RunCommand = Callable[[str, float], Shell]
PutBack = Callable[[Sequence[str]], None]


class CopyOfProject(Struct, frozen=True):
    """A copy that nothing has run in yet: its directories are those of the repository, so no link leads out of it.

    `top`: the repository in the copy. `run` runs a command in the project's directory, `restore` writes old files.
    """

    top: Path
    run: RunCommand
    restore: PutBack

    def put_back(self, paths: Sequence[str]) -> None:
        if paths:
            self.restore(paths)

    def write(self, path: str, text: str) -> None:
        target = self.top / path
        target.unlink(missing_ok=True)
        target.write_bytes(text.encode())

    def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            target = self.top / path
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)

    def shell(self, command: str, timeout: float) -> Shell:
        return self.run(NO_BYTECODE + command, timeout)
