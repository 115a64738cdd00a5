"""What all programs that run another one have in common."""

from __future__ import annotations

from ralph.guard.words import UNKNOWN, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ralph.guard.model import Command
    from ralph.guard.reader import Reader

    Wrapper = Callable[[Reader, Command], str]

SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash", "fish", "csh", "tcsh", "yash", "elvish"}


def inner(reader: Reader, command: Command, words: list[Word], wrapper: str = "") -> str:
    """Run what a wrapper runs."""
    if not words:
        return UNKNOWN
    return reader.run(command.derived(words[0], words[1:], wrapper or command.program))


def skip_options(words: list[Word], valued: str) -> list[Word]:
    """The operands behind the options."""
    takes = valued.split()
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return words[at + 1 :]
        if not word.startswith("-") or word == "-":
            break
        at += 2 if word in takes else 1
    return words[at:]


def values_of(words: list[Word], options: str) -> Iterator[Word]:
    """The values of options: `-c x`, `-qc x`, `-cx`, `--command x`, `--command=x`."""
    names = options.split()
    letters = [name[1] for name in names if len(name) == 2]
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        behind = words[number + 1] if number + 1 < len(words) else Word("")
        if word in names:
            yield behind
        elif equals and name in names:
            yield Word(value)
        elif word[:1] == "-" and word[1:2] in letters and word[2:]:
            yield Word(word[2:])
        elif word[:1] == "-" and word[1:].isalpha() and word[-1] in letters:
            yield behind
