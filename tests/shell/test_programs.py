"""Emulations of programs: the steps that they return, without the reader."""

from __future__ import annotations

import pytest

from ralph.shell.command import SimpleCommand
from ralph.shell.context import ShellContext
from ralph.shell.programs.table import emulation
from ralph.shell.state import ShellState
from ralph.shell.steps import EvaluatedText, Guess, SetVariable, ShellScript, ShellText, WriteFile
from ralph.shell.words import UNKNOWN, Word


def steps(line: str, stdin: str = "") -> list[str]:
    """Return the steps of a command, whose words contain no spaces, in a comparable form."""
    program, *words = line.split()
    command = SimpleCommand(program, [Word(word) for word in words], line, "/home/dev/app")
    command.stdin = stdin
    found = emulation(program)(ShellState(ShellContext("/home/dev/app", "/home/dev")), command)
    return [told(step) for step in ([found] if isinstance(found, str) else found)]


def told(step: object) -> str:
    match step:
        case SimpleCommand():
            return f"run {step.words} in {step.directory}"
        case ShellText() | ShellScript() | EvaluatedText():
            return f"{type(step).__name__} {step.text}"
        case SetVariable():
            return f"set {step.name}={step.value}"
        case WriteFile():
            return f"write {step.name}: {step.text}"
        case Guess():
            return f"maybe {told(step.step)}"
        case _:
            return f"print {step}".replace(UNKNOWN, "?")


@pytest.mark.parametrize(
    ("line", "stdin", "expected"),
    [
        ("timeout -k 5 10 pytest -q", "", ["run pytest -q in /home/dev/app"]),
        ("env -C web A=1 make", "", ["run make in /home/dev/app/web"]),
        ("uv run --directory web x.py", "", ["run python x.py in /home/dev/app/web"]),
        ("xargs -I{} rm {}", "a\nb\n", ["run rm a in /home/dev/app", "run rm b in /home/dev/app"]),
        ("sh -euo pipefail -c ls", "", ["ShellScript ls"]),
        ("eval ls -la", "", ["EvaluatedText ls -la"]),
        ("watch -n 2 ls", "", ["ShellText ls", "print ?"]),
        ("printf -v x %03d 7", "", ["set x=7"]),
        ("tee out", "text", ["write out: text", "print text"]),
        ("python -m pytest tests", "", ["run pytest tests in /home/dev/app"]),
        ("node -e require('fs').rmSync('/x')", "", ["maybe run rm -rf /x in /home/dev/app"]),
        ("unheard-of x", "", ["print ?"]),
    ],
)
def test_a_program_says_what_it_does(line: str, stdin: str, expected: list[str]) -> None:
    """Commands that it runs, texts that it passes to a shell, files that it writes, its output."""
    assert steps(line, stdin)[: len(expected)] == expected


def test_a_program_says_what_it_runs() -> None:
    """The command names the script or module that it runs."""
    state = ShellState(ShellContext("/home/dev/app", "/home/dev"))
    for line, script, module in (
        ("sh -e check.sh --all", "check.sh", ""),
        ("node --require ts x.js", "x.js", ""),
        ("node --check x.js", "", ""),
        ("python -um pytest", "", "pytest"),
    ):
        program, *words = line.split()
        command = SimpleCommand(program, [Word(word) for word in words], line, state.directory)
        emulation(program)(state, command)
        assert (command.script, command.module) == (script, module)
