"""Fresh copies of the checked tree, each with the project's environment, for checks to run in."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from ralph.core.command_output import CommandOutput, shorten
from ralph.core.events import Notice
from ralph.core.model import Ended, Plan
from ralph.environments import prepare, python
from ralph.environments.base import Copy, NotPrepared, ToolOutput
from ralph.errors import RalphError
from ralph.loop.confinement import Confinement
from ralph.loop.run_context import RunContext, Tell
from ralph.process.client import Warden, child_environment, output_of
from ralph.scm.repository import Repository
from ralph.scm.version_control import VersionControl
from ralph.scm.worktrees import own_directory, wipe
from ralph.store.files import opened_directory

MAX_SETUP_OUTPUT = 1500
"""Characters shown of the output of a setup command that failed."""


class NoEnvironment(RalphError):
    """A copy cannot be given its environment."""


class Preparer(Struct, frozen=True):
    """Runs what prepares one copy, in the sandbox if there is one. `whole`: what these commands can write."""

    copy: Copy
    whole: Path | None
    cache: Path
    base: Mapping[str, str]
    warden: Warden
    confinement: Confinement
    tell_user: Tell

    @property
    def environment(self) -> Mapping[str, str]:
        return prepare.variables(self.copy, self.base)

    def tell(self, text: str) -> None:
        self.tell_user(Notice(text))

    def run(self, argv: Sequence[str], directory: Path, variables: Mapping[str, str] = {}) -> ToolOutput:
        merged = {**self.environment, **variables}
        environment = {name: value for name, value in merged.items() if value}

        def watch(seconds: float, idle: float) -> Ended | None:
            return Ended.INTERRUPTED if self.warden.wakeup.count else None

        reads = prepare.reads(self.copy, self.base)
        with opened_directory(str(directory)) as opened:
            inside = self.confinement.check(
                argv, environment, str(directory), str(self.whole or ""), reads=reads
            )
            done = output_of(self.warden, inside.argv, opened, inside.environment, watch=watch)
            self.confinement.after(done.exit, inside)
        if done.exit.ended is Ended.INTERRUPTED:
            raise KeyboardInterrupt
        output = done.problem or (done.err + done.out).decode(errors="replace")
        return ToolOutput(done.exit.code, output.strip())

    def prepare(self, setup: str) -> None:
        """Give the copy its environment. Raises an error that says what to do if that is impossible."""
        try:
            prepare.prepare(self.copy, self, setup, self._set_up)
        except NotPrepared as error:
            raise NoEnvironment(str(error)) from error

    def _set_up(self, setup: str) -> None:
        self.tell(f"Setting up {self.copy.top}: {setup}")
        done = self.run(["/bin/sh", "-c", setup], self.copy.directory)
        if done.code != 0:
            shown = shorten(CommandOutput(done.output), MAX_SETUP_OUTPUT).text
            raise RalphError(f"ralph.setup failed in {self.copy.directory}: {setup}: {shown}")


class PreparedCopy(Struct, frozen=True):
    """A prepared copy: the directory that holds everything of it, and what commands in it need.

    `written`: the size and time of each file as it was written. `leads`: what still leads to the user's checkout.
    """

    whole: Path
    copy: Copy
    environment: Mapping[str, str]
    reads: tuple[str, ...]
    leads: tuple[str, ...]
    written: dict[str, tuple[int, int]]

    def changed(self) -> list[str]:
        """The files of the tree that commands in the copy have changed."""
        return [name for name, stamp in self.written.items() if _stamp(self.copy.top / name) != stamp]


class Copies:
    """The copies of one run. They lie in its state directory, and are removed with their last check."""

    def __init__(self, context: RunContext) -> None:
        self._context, self._plan = context, context.plan
        self._number = 0
        _removed(context.copies)  # a killed run leaves them
        self._shared: tuple[object, PreparedCopy] | None = None

    @contextmanager
    def opened(self, tree: str = "", start_files: Mapping[str, bytes] = {}) -> Iterator[PreparedCopy]:
        """A copy for one command: of a tree, or of the files as they are."""
        made = self._made(tree, start_files)
        try:
            yield made
        finally:
            _removed(made.whole)

    def shared(self, key: object, tree: str) -> PreparedCopy:
        """The copy that all checks of one claim share: one check may build what the next one runs."""
        if self._shared is None or self._shared[0] != key:
            self.close()
            self._shared = (key, self._made(tree))
        return self._shared[1]

    def close(self) -> None:
        if self._shared is not None:
            _removed(self._shared[1].whole)
            self._shared = None
        with suppress(OSError):
            self._context.copies.rmdir()

    def carry_back(self, copy: PreparedCopy) -> None:
        """Put the files that a check has rewritten, such as a formatter, into the worktree too."""
        for name in copy.changed():
            source, target = copy.copy.top / name, self._context.vcs.top / name
            if source.is_file() and not source.is_symlink():
                shutil.copy2(source, target)
            elif not os.path.lexists(source):
                target.unlink(missing_ok=True)
            copy.written[name] = _stamp(source)

    def _made(self, tree: str, start_files: Mapping[str, bytes] = {}) -> PreparedCopy:
        context, vcs = self._context, self._context.vcs
        self._number += 1
        whole = context.copies / str(self._number)
        _removed(whole)
        top = whole / vcs.top.name
        try:
            vcs.write_copy(top, tree)
            return self._prepared(whole, top, vcs, start_files)
        except BaseException:
            _removed(whole)
            raise

    def _prepared(
        self, whole: Path, top: Path, vcs: VersionControl, start_files: Mapping[str, bytes]
    ) -> PreparedCopy:
        context, plan = self._context, self._plan
        _without_bytecode(top)
        written = _written(top)
        project = os.path.relpath(plan.directory, vcs.top)
        copy = Copy(
            top, Path(plan.origin) if plan.origin else vcs.top, project, whole / "environment", start_files
        )
        copy.directory.mkdir(parents=True, exist_ok=True)
        base = child_environment({})
        Preparer(copy, whole, context.cache, base, context.warden, context.confinement, context.tell).prepare(
            plan.setup
        )
        environment = prepare.variables(copy, base)
        reads, leads = prepare.reads(copy, base), prepare.leads_out(copy, environment)
        return PreparedCopy(whole, copy, environment, tuple(reads), tuple(leads), written)


class WorktreeEnvironment(Struct, frozen=True):
    """The variables for commands in a worktree, and the directories outside of it that they read and write."""

    variables: dict[str, str]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


def environment_of(plan: Plan, worktree: Repository) -> WorktreeEnvironment:
    copy, base = worktree_copy(plan, worktree), child_environment({})
    variables = prepare.variables(copy, base)
    own = (str(copy.own),) if copy.own.is_dir() else ()
    return WorktreeEnvironment(variables, tuple(prepare.reads(copy, base)), own)


def worktree_copy(plan: Plan, worktree: Repository) -> Copy:
    """A worktree as a copy of the user's checkout."""
    project = os.path.relpath(plan.directory, worktree.top)
    return Copy(worktree.top, Path(plan.origin), project, own_directory(worktree.top))


def check_compiled(
    copy: Copy, environment: Mapping[str, str], missing: Callable[[list[str]], list[str]]
) -> None:
    """Raise an error if the project has compiled extensions in its sources that copies of it lack."""
    found = missing(names) if (names := python.compiled(copy, environment)) else []
    if found:
        raise RalphError(
            f"{found[0]} is compiled in the source tree and not tracked by git, so copies of the project lack it.",
            "Set ralph.setup to the command that builds it, for example `pip install -e .`.",
        )


def _without_bytecode(top: Path) -> None:
    """Remove committed bytecode: it could differ from its source."""
    for directory, names, _ in os.walk(top):
        if "__pycache__" in names:
            shutil.rmtree(os.path.join(directory, "__pycache__"), ignore_errors=True)
        names[:] = [name for name in names if name not in ("__pycache__", ".git")]


def _written(top: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for directory, names, files in os.walk(top):
        names[:] = [name for name in names if name != ".git"]
        for name in files:
            path = os.path.join(directory, name)
            found[os.path.relpath(path, top)] = _stamp(path)
    return found


def _stamp(path: str | Path) -> tuple[int, int]:
    try:
        status = os.lstat(path)
    except OSError:
        return (-1, 0)
    return (status.st_size if stat.S_ISREG(status.st_mode) else 0, status.st_mtime_ns)


def _removed(path: Path) -> None:
    """Remove a copy; what cannot be removed is left to the end of the run."""
    with suppress(RalphError):
        wipe(path)
