"""What a check gets to work with, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ralph.core.model import Check, Exit, Verdict


class Shell(Struct, frozen=True):
    """What a shell command did: how it ended, the beginning of its output, and where all of it is."""

    exit: Exit
    output: str
    is_cut: bool
    log: str


class JudgeAnswer(Struct, frozen=True):
    """What a judge said. `problem`: why there is no answer; `is_final`: asking again would not help."""

    text: str
    problem: str = ""
    is_final: bool = False


class Changed(Struct, frozen=True):
    """A file that differs from the trusted one, and how; or one that should not be there."""

    path: str
    diff: str
    is_new: bool = False


class CheckContext(Protocol):
    """The means of a check: the loop hands them in, so that checks start no process themselves."""

    @property
    def truncate(self) -> int:
        """How many characters of output an agent is shown."""

    @property
    def answer(self) -> str:
        """The final message of the agent; "" where no agent has run."""

    @property
    def is_claimed(self) -> bool:
        """Did the agent say, by the tag that this run expects, that it is done?"""

    @property
    def board(self) -> str:
        """The task list of a PRD loop as it may be, as JSON; "" elsewhere."""

    def shell(self, command: str, timeout: float, *, is_clean: bool = False, directory: str = ".") -> Shell:
        """Run a command by `sh -c` in the project; its whole output goes to the check's log.

        `is_clean`: in a fresh copy of it, without what git ignores. `directory`: a directory inside of it; where
        it is missing, `exit.error` says so. The same command on the same tree is run once in an iteration.
        """

    def has_printed(self, done: Shell, text: str) -> bool:
        """Is `text` anywhere in what a command printed? Where the output was cut, its log is looked at."""

    def diff(self) -> str:
        """All changes since the work began, as a unified diff; new files too, ignored ones not."""

    def changed(self, globs: Sequence[str], trusted: str, absent: Sequence[str] = ()) -> list[Changed]:
        """Files of the commit `trusted` that match a glob and are not the same any more.

        And files that are not in it, if a part of their path has a name that is to be `absent`.
        """

    def ask(self, prompt: str, model: str) -> JudgeAnswer:
        """Ask the judge, in a fresh process and an empty directory; `model` "": a small one.

        Raises `JudgeLimited` when it meets a limit and `Interrupted` when the run is ended.
        """

    def inside(self, name: str) -> CheckContext:
        """The same for a stage of this check: its log has its own name."""

    def together(self, stages: Sequence[tuple[str, Callable[[CheckContext], Verdict]]]) -> list[Verdict]:
        """Run stages at once, each by its name and with its own context."""


class RunCheck(Protocol):
    def __call__(self, check: Check, context: CheckContext) -> Verdict: ...


Config = Mapping[str, Any]
"""The config of a method as people write it."""


def _nothing(config: Config) -> Iterator[tuple[str, Any]]:
    return iter(())


class Method(Struct, frozen=True):
    """One way of checking, and all that others have to know of it.

    `config` is the Struct that its config is read into: unknown keys are refused. `problem` says what is wrong with a
    config whose keys and types are right, "" if nothing is. `summary`: what it proves, in one line. `default`: the
    config for a role of which only the acceptance criteria are known; None: people have to write one. `missing`: keys
    without which it would prove nothing, and what to write there. `commands`: what it runs, each with its directory.
    `stages`: the methods inside of it, each with its config. `reads_tree`: False if it only hears what the agent says.
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
    """The check was ended before it could find out anything: no verdict."""


class JudgeLimited(Exception):
    """The judge is limited: no verdict now, the check is due again at `retry_at`, if that is known."""

    def __init__(self, retry_at: float | None) -> None:
        super().__init__("limited")
        self.retry_at = retry_at
