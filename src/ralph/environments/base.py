"""The interface of an ecosystem: what it gets, and what it does for a copy of a project."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

MAX_DEPTH = 4
"""How deep in a checkout environments are searched for. Below, a project sets `ralph.setup`."""


class Copy(Struct, frozen=True):
    """A copy of a repository, and the checkout of the user that it must not lead back to.

    `top` and `origin` are their top directories. `project`: the project's directory in both of them, "." for the top.
    `own`: a directory outside the tree, removed with the copy, for what an ecosystem keeps. `start_files`: if given, the
    environments in the checkout are used as they were (`as_started`).
    """

    top: Path
    origin: Path
    project: str
    own: Path
    start_files: Mapping[str, bytes] = {}

    @property
    def directory(self) -> Path:
        """The project in the copy."""
        return self.top / self.project

    @property
    def origin_directory(self) -> Path:
        """The project in the user's checkout."""
        return self.origin / self.project

    def moved(self, path: str | Path) -> str:
        """The same path in the copy, if it lies in the user's checkout."""
        relative = inside(path, self.origin)
        return str(path) if relative is None else os.path.normpath(self.top / relative)

    def repointed(self, text: str) -> str:
        """A text in which all paths of the user's checkout lead to the copy."""
        return self._origins.sub(lambda _: str(self.top), text)

    def leads_back(self, text: str) -> bool:
        """Whether a text names the user's checkout."""
        return self._origins.search(text) is not None

    @property
    def _origins(self) -> re.Pattern[str]:
        """The path of the user's checkout, as it was given and without links."""
        names = {str(self.origin), os.path.realpath(self.origin)}
        return re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, names))})(?![\w.-])")


class ToolOutput(Struct, frozen=True):
    """A command of an ecosystem that has ended, with its output. No code: it could not be started or was stopped."""

    code: int | None
    output: str


class Tools(Protocol):
    """What an ecosystem may use to prepare a copy.

    `cache`: a directory for what copies share. `environment`: the variables of a command in the copy.
    """

    @property
    def cache(self) -> Path: ...

    @property
    def environment(self) -> Mapping[str, str]: ...

    def run(self, argv: Sequence[str], directory: Path, variables: Mapping[str, str] = {}) -> ToolOutput:
        """Run a command, in the sandbox if there is one, with these variables in addition to `environment`.

        It can write in the copy and in `own`, so what goes to the cache is made there first.
        """

    def tell(self, text: str) -> None:
        """Tell the user what takes time, or what is missing."""


class Ecosystem(Protocol):
    """One way to install what a project needs. Each is a module with these functions.

    `sources`: the endings of its source files.
    """

    name: str
    sources: Sequence[str]

    def detect(self, copy: Copy, environment: Mapping[str, str]) -> bool:
        """Whether the user's checkout has something of this ecosystem that a copy needs."""

    def prepare(self, copy: Copy, tools: Tools) -> None:
        """Make what the copy lacks. What `ralph.setup` or an earlier call has made stays.

        Raises `NotPrepared` if the copy cannot be given what it needs.
        """

    def variables(self, copy: Copy, environment: Mapping[str, str]) -> Mapping[str, str]:
        """The variables of `environment` that have to be different in the copy ("" unsets one)."""

    def leads_out(self, copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
        """What still leads from the copy back to the user's checkout, for the user to read."""

    def describe(self, copy: Copy, environment: Mapping[str, str]) -> str:
        """What was found in the user's checkout and what a copy gets of it, in one line for `ralph doctor`."""

    def reads(self, copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
        """Directories outside the copy that its commands read, with the user's `environment`.

        Nothing in a worktree may add to them: its agent can have written it.
        """


class NotPrepared(Exception):
    """A copy cannot be given its environment; the message is one sentence for the user."""


# ---- paths ----


def inside(path: str | Path, directory: Path) -> Path | None:
    """The path relative to a directory that contains it, by name or by its real path; None if outside."""
    for each, base in (
        (Path(os.path.normpath(path)), directory),
        (Path(os.path.realpath(path)), Path(os.path.realpath(directory))),
    ):
        if each.is_relative_to(base):
            return each.relative_to(base)
    return None


def repointed_list(copy: Copy, value: str, separator: str = os.pathsep) -> str:
    """A list of paths, such as PYTHONPATH, with those of the user's checkout led to the copy."""
    return separator.join(copy.moved(path) if path else path for path in value.split(separator))


def directories(top: Path, skipped: frozenset[str]) -> Iterator[Path]:
    """The directories of a checkout down to `MAX_DEPTH`, from above, without what is below a skipped name."""
    level = [top]
    for _ in range(MAX_DEPTH):
        yield from level
        level = [
            Path(entry.path)
            for each in level
            if each.name not in skipped
            for entry in entries_of(each)
            if entry.is_dir(follow_symlinks=False) and entry.name != ".git"
        ]


def entries_of(directory: Path) -> list[os.DirEntry[str]]:
    """What lies in a directory, sorted; nothing if it cannot be read."""
    try:
        return sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return []
