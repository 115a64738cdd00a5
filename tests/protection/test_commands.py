"""The simple commands that verification runs, and their directories."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.protection.protect import inside, joined, simple_commands
from ralph.shell.words import UNKNOWN


def words(command: str) -> list[str]:
    """Return the commands as words, with a question mark for unknown text."""
    return [each.words.replace(UNKNOWN, "?") for each in simple_commands(command)]


def places(command: str, directory: str = ".") -> list[tuple[str, str | None]]:
    """Return each command and its directory."""
    found = simple_commands(command, directory)
    return [
        (each.words, inside(each.directory)) for each in found if each.program not in ("cd", "pushd", "popd")
    ]


@pytest.mark.parametrize(
    ("command", "simple"),
    [
        ("a b", ["a b"]),
        ("a && b || c; d | e & f\ng", ["a", "b", "c", "d", "e", "f", "g"]),
        ("a 'x && y' \"p; q\" r\\|s", ["a x && y p; q r|s"]),
        ("a > out 2>&1 < in && b &> log", ["a", "b"]),
        ("! a; if b; then c; else d; fi", ["a", "b", "c", "d"]),
        ("while a; do b; done; { c; }", ["a", "b", "c"]),
        ("(a; b) && c", ["a", "b", "c"]),
        ("x $(a b) y; z", ["a b", "x ? y", "z"]),
        ("diff <(a) b", ["a", "diff /dev/fd/63 b"]),
        ("# don't\na # isn't; b\nc#d", ["a", "c#d"]),
        ("a \\\n  b", ["a b"]),
        ("a 'two\nlines'\nb", ["a two\nlines", "b"]),
        ("", []),
        (" \n;;\n", []),
    ],
)
def test_a_command_is_split_as_a_shell_does(command: str, simple: list[str]) -> None:
    """Operators separate commands unless quoted. Targets, comments and reserved words are left out."""
    assert words(command) == simple


@pytest.mark.parametrize("command", ["echo 'x", 'echo "x', "a && echo \\"])
def test_text_that_cannot_be_split_gives_no_commands(command: str) -> None:
    """An unterminated quotation gives no commands, not half of them."""
    assert simple_commands(command) == []


@pytest.mark.parametrize(
    ("command", "directory"),
    [
        ("x", "."),
        ("cd a && x", "a"),
        ("cd a; cd ../b/c && x", "b/c"),
        ("(cd a && y); x", "."),
        ("cd -P a && x", "a"),
        ("cd .. && x", None),
        ("cd a && cd .. && x", "."),
        ('cd "$HOME" && x', None),
        ("cd && x", None),
        ("cd - && x", None),
        ("cd /tmp && x", None),
        ("cd ~/a && x", None),
        ("pushd a && popd && x", "."),
    ],
)
def test_the_directory_of_a_command_is_known_or_unknown(command: str, directory: str | None) -> None:
    """`cd` is followed as far as its words are known, and only inside its parentheses."""
    assert places(command)[-1] == ("x", directory)


def test_the_first_command_runs_in_the_given_directory() -> None:
    """Without a `cd`, a command runs in the directory that is passed in."""
    assert places("cd b && x", "a") == [("x", "a/b")]


@pytest.mark.parametrize(
    ("directory", "path", "expected"),
    [
        (".", "./a", "a"),
        ("a", "../b", "b"),
        ("a", "", None),
        ("a", f"{UNKNOWN}b", None),
        (None, "a", None),
        ("a", "/b", None),
    ],
)
def test_known_paths_are_joined(directory: str | None, path: str, expected: str | None) -> None:
    """A variable, an absolute path or an unknown directory makes the whole path unknown."""
    assert joined(directory, path) == expected


@given(st.text(alphabet=st.sampled_from("ab;&|<>()$`'\"\\# \n\t{}!*-=./"), max_size=60))
def test_any_text_can_be_split(command: str) -> None:
    """No text raises an error, and every command has a name that a shell could look up."""
    assert not any("\0" in each.name for each in simple_commands(command))


@given(st.lists(st.lists(st.text(alphabet="ab |&;'\n#", min_size=1), min_size=1), min_size=1))
def test_quoted_words_come_back(commands: list[list[str]]) -> None:
    """Quoted text comes back unchanged, in its command."""
    quoted = " && ".join(shlex.join(["run", *command]) for command in commands)
    assert [each.args for each in simple_commands(quoted)] == commands
