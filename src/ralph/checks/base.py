"""The interface of a check: its input, its tools and its result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ralph.core.command_output import CommandOutput
from ralph.core.model import Cause, Check, Exit, Verdict


class Shell(Struct, frozen=True):
    """The result of a shell command: its exit, its output (the middle of a very long one is missing), and its log.

    `lost`: why the log is incomplete, so that nobody knows what else was printed. `explanation`: why a
    command failed in a copy of the project and what to do, a sentence without its full stop.
    """

    exit: Exit
    output: CommandOutput
    log: str
    lost: str = ""
    explanation: str = ""

    def because(self, reason: str) -> str:
        """The reason why a check is red, with its explanation. A command that did not run has only that."""
        if not self.explanation:
            return reason
        return self.explanation if self.exit.error is not None else f"{reason}: {self.explanation}"


class JudgeAnswer(Struct, frozen=True):
    """A judge's answer. `problem` says why there is none, `is_final` that asking again would not help.

    `judge` is the name of its agent. `cause`: why a run stops that gets no better answer; None if its own budget is
    used up.
    """

    text: str
    problem: str = ""
    is_final: bool = False
    judge: str = ""
    cause: Cause | None = Cause.JUDGE


class Changed(Struct, frozen=True):
    """A file that differs from its trusted version, with the diff, or a file that must not exist."""

    path: str
    diff: str
    is_new: bool = False


class FilesOfTree(Protocol):
    """The files of a tree of git."""

    @property
    def paths(self) -> Collection[str]: ...

    def text(self, path: str) -> str | None:
        """The content of a regular file; None if there is none with this name, or if it is not text."""

    def target(self, path: str) -> str:
        """The target of a symbolic link; "" otherwise."""


class SinceStart(Struct, frozen=True):
    """The tree when the run started, and the one that is checked: its id, the paths that differ, all files.

    `renamed`: the new path of each renamed file. `project`: the project's directory in the repository. `environment`:
    changed files of the installed environment. `hidden`: files that git no longer has, but that are still there.
    """

    start: str
    changed: tuple[str, ...]
    renamed: Mapping[str, str]
    files: Callable[[], tuple[FilesOfTree, FilesOfTree]]
    project: str = "."
    environment: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


class CheckCopy(Protocol):
    """A fresh copy of the repository, for commands that run on other files than those of the project."""

    def put_back(self, paths: Sequence[str]) -> None:
        """Write these files as they were when the run started."""

    def write(self, path: str, text: str) -> None: ...

    def remove(self, paths: Sequence[str]) -> None: ...

    def shell(self, command: str, timeout: float) -> Shell:
        """Run a command in the project's directory of the copy."""


class CheckContext(Protocol):
    """The tools of a check, passed in by the loop so that checks start no processes themselves."""

    @property
    def truncate(self) -> int:
        """Maximum number of characters of output shown to the agent (0: no limit)."""

    @property
    def answer(self) -> str:
        """The agent's final message; "" if no agent has run."""

    @property
    def is_claimed(self) -> bool:
        """Whether the agent said, with the tag this run expects, that it is done."""

    @property
    def board(self) -> str:
        """The accepted task list of a PRD loop as JSON; "" in other runs."""

    def shell(self, command: str, timeout: float, *, is_clean: bool = False, directory: str = ".") -> Shell:
        """Run a command with `sh -c` in the project. Its whole output goes to the check's log.

        `is_clean` runs it in a fresh copy of the project without git-ignored files. `directory` is a directory
        inside the project; if it is missing, `exit.error` is set. Within an iteration, the same command on the same
        tree runs only once.
        """

    def has_printed(self, done: Shell, text: str) -> bool:
        """Whether the output of a command contains `text`. If its middle is missing, the log is searched too."""

    def diff(self) -> str:
        """All changes since the work started as a unified diff, with new files but without git-ignored ones."""

    def changed(self, globs: Sequence[str], trusted: str, absent: Sequence[str] = ()) -> list[Changed]:
        """Files of the commit `trusted` that match a glob and have changed.

        Also new files if a part of their path has a name in `absent`.
        """

    @property
    def allowed(self) -> Sequence[str]:
        """Globs of tests that may have changed, as the user said when the run was resumed."""

    def since_start(self) -> SinceStart | None:
        """What has changed since the run started; None outside git."""

    def copied(self, *, as_started: bool = False) -> AbstractContextManager[CheckCopy]:
        """A fresh copy of the project without git-ignored files. Its files may be changed before a command runs.

        `as_started`: with the project's environment as it was when the run started.
        """

    def ask(self, prompt: str, model: str) -> JudgeAnswer:
        """Ask the judge in a fresh process and an empty directory (`model` "": a small one).

        Raises `JudgeLimited` if the judge hits a usage limit and `Interrupted` if the run is stopped.
        """

    def inside(self, name: str) -> CheckContext:
        """The context for a stage of this check, whose log has its own name."""

    def together(self, stages: Sequence[tuple[str, Callable[[CheckContext], Verdict]]]) -> list[Verdict]:
        """Run stages in parallel, each with its name and its own context."""


class RunCheck(Protocol):
    def __call__(self, check: Check, context: CheckContext) -> Verdict: ...


Config = Mapping[str, Any]
"""The config of a method as written by the user."""


def _nothing(config: Config) -> Iterator[tuple[str, Any]]:
    return iter(())


class Method(Struct, frozen=True):
    """One verification method, with everything others need to know about it.

    - `config`: the Struct its config is read into; unknown keys are refused.
    - `problem`: returns the problem with a config whose keys and types are right, or "".
    - `summary`: one line on what it proves.
    - `default`: the config for a role that has only acceptance criteria; None if the user must write one.
    - `missing`: keys without which it would prove nothing, and what to write there.
    - `commands`: the commands it runs, each with its directory.
    - `stages`: the methods inside it, each with its config.
    - `reads_tree`: False if it only reads the agent's message.
    """

    config: type[msgspec.Struct]
    run: RunCheck
    problem: FindProblem | None = None
    summary: str = ""
    default: dict[str, Any] | None = {}
    missing: Callable[[Config], Iterator[tuple[str, str]]] = _nothing
    commands: Callable[[Config], Iterator[tuple[str, str]]] = _nothing
    stages: Callable[[Config], Iterator[tuple[str, dict[str, Any]]]] = _nothing
    reads_tree: bool = True


class FindProblem(Protocol):
    def __call__(self, config: Any) -> str: ...


class Interrupted(Exception):
    """The check was stopped before it finished, so there is no verdict."""


class JudgeLimited(Exception):
    """The judge hit a usage limit. No verdict now; the check runs again at `retry_at`, if that is known."""

    def __init__(self, retry_at: float | None) -> None:
        super().__init__("limited")
        self.retry_at = retry_at
