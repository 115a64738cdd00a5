"""The commands that a text would run, and their details."""

from __future__ import annotations

import pytest

from ralph.shell.command import ASSIGNMENT, SimpleCommand
from ralph.shell.context import ShellContext
from ralph.shell.reader import read
from ralph.shell.words import UNKNOWN, brace_expansion

CONTEXT = ShellContext("/home/dev/work/app", "/home/dev")


def run(text: str) -> list[tuple[str, ...]]:
    """Return the simple commands as words, with a question mark for unknown text."""
    ran: list[SimpleCommand] = []
    read(text, CONTEXT, ran.append)
    return [
        tuple(word.replace(UNKNOWN, "?") for word in (each.program, *each.args))
        for each in ran
        if each.program != ASSIGNMENT
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ls -la", [("ls", "-la")]),
        ("a; b && c || d", [("a",), ("b",), ("c",), ("d",)]),
        ("echo $HOME ~ ~/x", [("echo", "/home/dev", "/home/dev", "/home/dev/x")]),
        ("x='a b'; echo $x \"$x\"", [("echo", "a", "b", "a b")]),
        ("echo {a,b}c", [("echo", "ac", "bc")]),
        ("echo a\\ b 'c'\"d\"", [("echo", "a b", "cd")]),
        ("echo $'\\x61\\n'", [("echo", "a\n")]),
        ("echo $(pwd)", [("pwd",), ("echo", "/home/dev/work/app")]),
        ("cd /tmp; echo $PWD $(pwd)", [("cd", "/tmp"), ("pwd",), ("echo", "/tmp", "/tmp")]),
        ("(cd /tmp); echo $PWD", [("cd", "/tmp"), ("echo", "/home/dev/work/app")]),
        ("f() { echo $1; }; f x", [("echo", "x")]),
        ("for i in a b; do echo $i; done", [("echo", "a"), ("echo", "b")]),
        ("sh -c 'echo $1' _ x", [("sh", "-c", "echo $1", "_", "x"), ("echo", "x")]),
        ("echo ${x:-y} ${HOME%/*} ${HOME##*/}", [("echo", "y", "/home", "dev")]),
        ("cat <<< $(echo hi)", [("echo", "hi"), ("cat",)]),
        ('a=(x y); echo ${a[1]} "${a[@]}"', [("echo", "y", "x", "y")]),
        ("set -- p q; echo $2", [("set", "--", "p", "q"), ("echo", "q")]),
        ("echo a > x b", [("echo", "a", "b")]),
        ('echo {🎉,b} "{🎉" {1..🎉}', [("echo", "🎉", "b", "{🎉", "{1..🎉}")]),
        ("c#d; echo a#b", [("c#d",), ("echo", "a#b")]),
        ("set -- a; shift ²; echo $000${x[²]}", [("set", "--", "a"), ("shift", "²"), ("echo", "?")]),
    ],
)
def test_commands(text: str, expected: list[tuple[str, ...]]) -> None:
    """The commands come in order, expanded as a shell would."""
    assert run(text) == expected


def test_braces() -> None:
    """Lists, ranges and nesting are expanded. Anything else stays unchanged."""
    assert brace_expansion("a{b,c{d,e}}f") == ["abf", "acdf", "acef"]
    assert brace_expansion("{1..3}") == ["1", "2", "3"]
    assert brace_expansion("{x} {}") == ["{x} {}"]
