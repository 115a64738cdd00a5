"""Options and operands of a command."""

from __future__ import annotations

from ralph.shell.words import Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from ralph.shell.command import SimpleCommand


def skip_options(words: list[Word], valued: str) -> list[Word]:
    """Return the operands after the leading options."""
    takes = valued.split()
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return words[at + 1 :]
        if not word.startswith("-") or word == "-":
            break
        at += 2 if takes_next(word, takes) else 1
    return words[at:]


def takes_next(word: str, takes: Container[str]) -> bool:
    """Whether an option takes the next word as its value: `-o x`, or a bundle such as `-euo pipefail`."""
    is_cluster = len(word) > 2 and word[0] + word[1:2] not in takes and word[1:].isalpha()
    return word in takes or (is_cluster and word[0] + word[-1] in takes)


def values_of(words: list[Word], options: str) -> Iterator[Word]:
    """Yield the values of these options: `-c x`, `-qc x`, `-cx`, `--command x`, `--command=x`."""
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


def operands(command: SimpleCommand, valued: str = "") -> list[Word]:
    takes = valued.split()
    found: list[Word] = []
    skip = is_rest = False
    for word in command.args:
        if skip:
            skip = False
        elif is_rest or not word.startswith("-") or word == "-":
            found.append(word)
        elif word == "--":
            is_rest = True
        else:
            skip = word in takes
    return found


def flags(command: SimpleCommand) -> str:
    """Return all short options as one string of letters."""
    return "".join(word[1:] for word in command.args if word.startswith("-") and not word.startswith("--"))


def is_recursive(command: SimpleCommand) -> bool:
    return any(letter in flags(command) for letter in "rR") or "--recursive" in command.args


def has_option(command: SimpleCommand, option: str) -> bool:
    """Whether a command has an option. `-f` matches in `-rf`, `--a=b` matches `--a b`, and `-x*` is a glob.

    Git accepts abbreviations, so `--forc` counts as `--force`.
    """
    words = command.args
    if "*" in option:
        from fnmatch import fnmatchcase

        return any(fnmatchcase(word, option) for word in words)
    name, equals, value = option.partition("=")
    for number, word in enumerate(words):
        if word == "--":
            return False
        has_value = not equals and option.startswith("--") and word.startswith(option + "=")
        is_short = command.program == "git" and len(word) > 3 and option.startswith(word) and word[:2] == "--"
        if word == option or is_short or (has_value and not word.endswith("=false")):
            return True
        if equals and word == name and number + 1 < len(words) and words[number + 1] == value:
            return True
        if (
            len(option) == 2
            and word[:1] == "-"
            and word[1:2] != "-"
            and option[1] in word[1:]
            and word[1:].isalpha()
        ):
            return True
    return False
