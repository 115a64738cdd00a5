"""Split a shell command into the simple commands that it runs, as far as that shows without running it."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

_OPERATORS = "();<>|&\n"
_HIDDEN = "".join(chr(0xE000 + number) for number in range(len(_OPERATORS)))
_HIDE = str.maketrans(_OPERATORS, _HIDDEN)
_SHOW = str.maketrans(_HIDDEN, _OPERATORS)

_QUOTED = re.compile(
    r"""(?P<joined>\\\n)                      # a line that goes on
      | \\. | '[^']*' | "(?:\\.|[^"\\])*"     # quoted: operators in it are none
      | (?P<comment>(?<![^\s;&|()])\#[^\n]*)
    """,
    re.VERBOSE | re.DOTALL,
)
_OPERATOR = re.compile(r"[<>]?\(|\)|&?[<>]+[&|]?|[;&|\n]+")
_RESERVED = frozenset({"!", "{", "}", "if", "then", "elif", "else", "fi", "while", "until", "do", "done"})
_UNKNOWN = re.compile(r"[$`]|^[/~]|^-$")


@dataclass(frozen=True, slots=True)
class Simple:
    """A program with its arguments. `directory`: where it runs, from where all began; None: nobody knows."""

    words: tuple[str, ...]
    directory: str | None


def simple_commands(command: str, directory: str | None = ".") -> list[Simple]:
    """The simple commands in their order; none if the command cannot be split."""
    try:
        return list(_Reader(directory).read(_tokens(command)))
    except ValueError:
        return []


def joined(directory: str | None, path: str) -> str | None:
    """A path from where all began, None where only running the command would tell."""
    if directory is None or not path or _UNKNOWN.search(path):
        return None
    return posixpath.normpath(posixpath.join(directory, path))


def _tokens(command: str) -> Iterator[str]:
    """Words and operators; operators that are quoted stay hidden inside of words."""
    lexer = shlex.shlex(_QUOTED.sub(_hidden, command), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    return iter(lexer)


def _hidden(match: re.Match[str]) -> str:
    return "" if match["joined"] or match["comment"] else match[0].translate(_HIDE)


class _Reader:
    """Collects words up to an operator; what stands in parentheses is a command of its own."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._words: list[str] = []
        self._outside: list[tuple[list[str], str | None]] = []
        self._is_target = False

    def read(self, tokens: Iterator[str]) -> Iterator[Simple]:
        for token in tokens:
            if token and token[0] in _OPERATORS:
                for operator in _OPERATOR.findall(token):
                    yield from self._operator(operator)
            elif self._is_target:
                self._is_target = False
            else:
                self._words.append(token.translate(_SHOW))
        yield from self._end()

    def _operator(self, operator: str) -> Iterator[Simple]:
        self._is_target = False
        if operator.endswith("("):
            self._outside.append((self._words, self._directory))
            self._words = []
        elif operator == ")":
            yield from self._end()
            if self._outside:
                self._words, self._directory = self._outside.pop()
        elif "<" in operator or ">" in operator:
            if self._words and self._words[-1].isdigit():
                del self._words[-1]  # 2>&1
            self._is_target = True
        else:
            yield from self._end()

    def _end(self) -> Iterator[Simple]:
        words, self._words = self._words, []
        while words and words[0] in _RESERVED:
            del words[0]
        if not words:
            return
        if words[0] in ("cd", "pushd", "popd"):
            targets = [word for word in words[1:] if word == "-" or not word.startswith("-")]
            self._directory = joined(self._directory, targets[0]) if len(targets) == 1 else None
        else:
            yield Simple(tuple(words), self._directory)
