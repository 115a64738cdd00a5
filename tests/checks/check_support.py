"""A check context for tests of single checks: its answers are fixed, and its calls are recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ralph.checks.base import Changed, CheckContext, JudgeAnswer, Shell, SinceStart
from ralph.core.command_output import CommandOutput, Gap
from ralph.core.model import Exit, Verdict

LOG = ".ralph/guardrail_001_make_test.log"


@dataclass
class Copy:
    """A copy in which commands end as their name and the files in it say: `shells[command, is_old]`."""

    bench: Bench
    done: list[tuple[str, object]] = field(default_factory=list)

    def put_back(self, paths: Sequence[str]) -> None:
        self.done.append(("put back", tuple(paths)))

    def write(self, path: str, text: str) -> None:
        self.done.append(("write", (path, text)))

    def remove(self, paths: Sequence[str]) -> None:
        self.done.append(("remove", tuple(paths)))

    def shell(self, command: str, timeout: float) -> Shell:
        self.done.append(("run", (command, timeout)))
        prefix = "old: " if any(what != "run" for what, _ in self.done) else "new: "
        return self.bench.shell(prefix + command, timeout)


@dataclass
class Bench:
    """The context of a check, without any process."""

    exit: Exit = field(default_factory=lambda: Exit(0))
    output: str = ""
    truncate: int = 5000
    gap: Gap | None = None
    answer: str = ""
    is_claimed: bool = True
    board: str = ""
    difference: str = ""
    changes: list[Changed] = field(default_factory=list)
    answers: list[JudgeAnswer] = field(default_factory=list)
    asked: list[tuple[str, float]] = field(default_factory=list)
    prompts: list[tuple[str, str]] = field(default_factory=list)
    shells: dict[str, Shell] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    directories: list[str] = field(default_factory=list)
    looked: list[tuple[object, ...]] = field(default_factory=list)
    paths: list[tuple[str, ...]] = field(default_factory=list)
    path: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    since: SinceStart | None = None
    copies: list[Copy] = field(default_factory=list)

    def since_start(self) -> SinceStart | None:
        return self.since

    @contextmanager
    def copied(self, *, as_started: bool = False) -> Iterator[Copy]:
        self.copies.append(Copy(self))
        yield self.copies[-1]

    def shell(self, command: str, timeout: float, *, is_clean: bool = False, directory: str = ".") -> Shell:
        self.asked.append((command, timeout))
        self.directories.append(directory)
        self.paths.append(self.path)
        return self.shells.get(command) or Shell(self.exit, CommandOutput(self.output, gap=self.gap), LOG)

    def has_printed(self, done: Shell, text: str) -> bool:
        return text in (self.logs.get(done.log, "") if done.output.gap else done.output.head)

    def diff(self) -> str:
        return self.difference

    def changed(self, globs: Sequence[str], trusted: str, absent: Sequence[str] = ()) -> list[Changed]:
        self.looked.append((tuple(globs), trusted, *([tuple(absent)] if absent else [])))
        return self.changes

    def ask(self, prompt: str, model: str) -> JudgeAnswer:
        self.prompts.append((prompt, model))
        return self.answers.pop(0)

    def inside(self, name: str) -> Bench:
        return replace(self, path=(*self.path, name))

    def together(self, stages: Sequence[tuple[str, Callable[[CheckContext], Verdict]]]) -> list[Verdict]:
        return [run(self.inside(name)) for name, run in stages]
