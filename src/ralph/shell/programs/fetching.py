"""Programs that fetch text from the network, and the files that they write it to."""

from __future__ import annotations

from ralph.shell.steps import WriteFile
from ralph.shell.words import NET, Word, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.command import SimpleCommand
    from ralph.shell.state import ShellState
    from ralph.shell.steps import Emulation, Steps

_FETCHERS = words_of(
    "curl wget fetch http https xh aria2c lynx nc ncat netcat telnet socat ftp tftp dig host nslookup"
    " lwp-request GET w3m links elinks axel"
)


def _fetched(shell: ShellState, command: SimpleCommand) -> Steps:
    """Return text from the network, or write it to the file that the program creates."""
    words = command.args
    urls = [
        word for word in words if "://" in word or (not word.startswith("-") and "." in word and "/" in word)
    ]
    target = ""
    letter = "O" if command.program == "wget" else "o"
    for number, word in enumerate(words):
        is_cluster = word[:1] == "-" and word[1:].isalpha() and word.endswith(letter)
        if (word in ("--output", "--output-document") or is_cluster) and number + 1 < len(words):
            target = words[number + 1]
        elif word.startswith(("--output=", "--output-document=")):
            target = word.partition("=")[2]
    is_short = [word for word in words if word.startswith("-") and not word.startswith("--")]
    if command.program in ("wget", "aria2c", "axel") and not target:
        target = next(("-" for word in is_short if word.endswith("O-")), "")
    keeps_name = command.program in ("wget", "aria2c", "axel") or (
        command.program == "curl" and _keeps_name(words)
    )
    if not target.strip("-") and urls and target != "-" and keeps_name:
        target = urls[0].rstrip("/").rpartition("/")[2].partition("?")[0]
    if command.program == "curl" and target and any(word in ("-O", "--remote-name") for word in words):
        target = urls[0].rstrip("/").rpartition("/")[2].partition("?")[0] if urls else target
    for flag in ("-P", "--directory-prefix", "--output-dir"):
        if target and "/" not in target and flag in words[:-1]:
            target = f"{words[words.index(Word(flag)) + 1].rstrip('/')}/{target}"
    if target and target not in ("-", "/dev/stdout"):
        return [WriteFile(target, NET)]
    return NET


def _keeps_name(words: list[Word]) -> bool:
    return any(
        word == "--remote-name" or (word.startswith("-") and not word.startswith("--") and "O" in word)
        for word in words
    )


TABLE: dict[str, Emulation] = dict.fromkeys(_FETCHERS, _fetched)
