"""Which commands a text would run, and what is known of them."""

from __future__ import annotations

import pytest

from guard.guard_support import CONTEXT, GUARD, denied_by
from ralph.guard.judge import Guard
from ralph.shell.command import ASSIGNMENT, SimpleCommand
from ralph.shell.reader import ShellReader
from ralph.shell.state import ShellContext
from ralph.shell.words import UNKNOWN, brace_expansion


def run(text: str) -> list[tuple[str, ...]]:
    """The simple commands as words; what is not known is a question mark."""
    ran: list[SimpleCommand] = []
    reader = ShellReader(CONTEXT, ran.append)
    reader.read(text)
    reader.finish()
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
    ],
)
def test_commands(text: str, expected: list[tuple[str, ...]]) -> None:
    """In their order, expanded as a shell would."""
    assert run(text) == expected


def test_braces() -> None:
    """Lists, ranges, nesting; what is none stays."""
    assert brace_expansion("a{b,c{d,e}}f") == ["abf", "acdf", "acef"]
    assert brace_expansion("{1..3}") == ["1", "2", "3"]
    assert brace_expansion("{x} {}") == ["{x} {}"]


def test_two_here_documents_in_a_line() -> None:
    """The grammar cannot read that, bash can."""
    text = "cat <<'A' > x && cat <<'B' > y\none\nA\ntwo\nB\nrm -rf /"
    assert denied_by(text) == "delete-root"
    assert denied_by(text.removesuffix("rm -rf /")) == ""


def test_a_run_in_a_worktree_of_the_state_directory() -> None:
    """`ralph work` has its worktrees there: they are the agent's, what is around them is not."""
    home = "/home/dev"
    context = ShellContext(f"{home}/.local/state/ralph/worktrees/app-1/T1", home)
    assert denied_by("rm -rf build; echo x > src/y", context) == ""
    assert denied_by("rm -rf ../T2", context) == "harness-files"
    assert denied_by("rm -rf .", context) == "delete-repository"


def test_in_a_directory_of_the_repository() -> None:
    """Its top is what must not go."""
    context = ShellContext("/home/dev/work/app/src", "/home/dev", "/home/dev/work/app")
    assert denied_by("rm -rf ../build *", context) == ""
    assert denied_by("rm -rf ..", context) == "delete-repository"


def test_rules_of_ones_own() -> None:
    """An allowed part does not allow the others."""
    guard = Guard([("git push --force*", "")], [("curl *", "No network.")])
    assert guard.judge("git push --force origin x", CONTEXT).allowed
    assert not guard.judge("git push --force; rm -rf /", CONTEXT).allowed
    assert guard.judge("sh -c 'curl https://x'", CONTEXT).reason == "No network."


def test_a_denial_names_the_part() -> None:
    """The simple command, as written."""
    verdict = GUARD.judge("make && sh -c 'rm -rf \"$HOME\"'", CONTEXT)
    assert (verdict.rule, verdict.category, verdict.part) == ("delete-home", "deletion", 'rm -rf "$HOME"')
