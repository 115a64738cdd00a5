"""Programs that run a command for each of many names: find, fd, xargs, parallel."""

from __future__ import annotations

from ralph.shell.arguments import inner, skip_options
from ralph.shell.words import UNKNOWN, Word, globbing, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.arguments import Wrapper
    from ralph.shell.command import SimpleCommand
    from ralph.shell.reader import ShellReader


def xargs(reader: ShellReader, command: SimpleCommand) -> str:
    reader.record(command)
    valued = "-I -i -n -P -L -d -s -E -a --max-args --max-procs --delimiter --replace --max-lines --arg-file"
    words = skip_options(command.args, valued)
    mark = ""
    for number, word in enumerate(command.args):
        if word in ("-I", "--replace") and number + 1 < len(command.args):
            mark = command.args[number + 1]
        elif word.startswith("-I") and len(word) > 2:
            mark = word[2:]
        elif word in ("-i", "--replace"):
            mark = "{}"
    given = [globbing(each) if "*" in each else Word(each) for each in command.stdin.split()[:200]] or [
        Word(UNKNOWN)
    ]
    if any(word in ("-0", "--null", "-d") or word.startswith(("-0", "-d")) for word in command.args):
        given = [
            globbing(each) if "*" in each else Word(each) for each in command.stdin.split("\n") if each
        ] or given
    if not words:
        return command.stdin
    if mark:
        out = ""
        lines = command.stdin.strip("\n").split("\n")[:50] if command.stdin.strip() else [UNKNOWN]
        for line in lines:
            out += inner(reader, command, [_replaced(word, mark, line) for word in words])
        return out
    return inner(reader, command, [*words, *given])


def _replaced(word: Word, mark: str, value: str) -> Word:
    if mark not in word:
        return word
    new = word.replace(mark, value)
    return globbing(new) if "*" in value and word == mark else Word(new)


def parallel(reader: ShellReader, command: SimpleCommand) -> str:
    reader.record(command)
    words = skip_options(
        command.args, "-j --jobs -a --arg-file -C --colsep -S --sshlogin -N -n -I --delay --timeout"
    )
    at = next((number for number, word in enumerate(words) if word in (":::", "::::", ":::+")), len(words))
    given = (
        [word for word in words[at + 1 :] if not word.startswith(":::")] or command.stdin.split() or [UNKNOWN]
    )
    text = " ".join(words[:at])
    for value in given[:20]:
        if not text:
            reader.read_apart(value)
        else:
            reader.read_apart(text.replace("{}", value) if "{}" in text else f"{text} {value}")
    return UNKNOWN


# ---- find ----

_FILTERS = frozenset(
    words_of(
        "-name -iname -path -ipath -wholename -regex -iregex -empty -newer -mtime -mmin -size -user"
        " -group -perm -atime -ctime -amin -cmin -newermt -links -inum -lname -samefile -nouser -nogroup"
        " -executable"
    )
)
_EVERYTHING = {"*", "?*", "*.*", ".*", "**"}


def find(reader: ShellReader, command: SimpleCommand) -> str:
    reader.record(command)
    words = list(command.args)
    while words and words[0] in ("-H", "-L", "-P", "-E", "-X", "-x", "-s"):
        words = words[1:]
    starts: list[Word] = []
    while words and not words[0].startswith(("-", "(", "!")):
        starts.append(words.pop(0))
    starts = starts or [Word(".")]
    for number, word in enumerate(words):
        tests = _tests(words[:number])
        found = [each for start in starts for each in _found(start, tests)]
        if word == "-delete":
            inner(reader, command, [Word("rm"), Word("-rf"), *found], "find")
        elif word in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next(
                (n for n in range(number + 1, len(words)) if words[n] in (";", "+", "\\;")), len(words)
            )
            for each in found:
                inner(reader, command, [_replaced(w, "{}", each) for w in words[number + 1 : end]], "find")
    tests = _tests(words)
    return "\n".join(each for start in starts for each in _found(start, tests))


def _tests(words: list[Word]) -> list[Word]:
    """Those that must hold for an action behind them: back to the last `-o` that is not in parentheses."""
    depth = 0
    for number in range(len(words) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(words[number], 0)
        if not depth and words[number] in ("-o", "-or", ","):
            return words[number + 1 :]
    return words


def _is_filtered(words: list[Word]) -> bool:
    for number, word in enumerate(words):
        if word in _FILTERS:
            value = words[number + 1] if number + 1 < len(words) else ""
            is_negated = number > 0 and words[number - 1] in ("!", "-not")
            if not is_negated and value.replace("./", "") not in _EVERYTHING:
                return True
    return False


def _found(start: Word, words: list[Word]) -> list[Word]:
    """All of the start, or what is found below it: names if they are asked for."""
    if not _is_filtered(words):
        return [start]
    names = [
        words[number + 1]
        for number, word in enumerate(words[:-1])
        if word in ("-name", "-iname") and not (number and words[number - 1] in ("!", "-not"))
    ]
    names += [
        Word(words[number + 1].removeprefix(start).strip("*").lstrip("/") + "*")
        for number, word in enumerate(words[:-1])
        if word in ("-path", "-wholename", "-ipath") and not (number and words[number - 1] in ("!", "-not"))
    ]
    return [globbing(f"{start.rstrip('/')}/{name}") for name in names] or [
        Word(f"{start.rstrip('/')}/{UNKNOWN}")
    ]


def fd(reader: ShellReader, command: SimpleCommand) -> str:
    reader.record(command)
    for flag in ("-x", "--exec", "-X", "--exec-batch"):
        if flag in command.args:
            at = command.args.index(Word(flag))
            starts = [word for word in command.args[:at] if not word.startswith("-")][1:] or [Word(".")]
            words = command.args[at + 1 :]
            if not any("{" in word for word in words):
                words = [*words, Word("{}")]
            for start in starts:
                inner(
                    reader,
                    command,
                    [_replaced(word, "{}", f"{start.rstrip('/')}/{UNKNOWN}") for word in words],
                )
            return UNKNOWN
    return UNKNOWN


TABLE: dict[str, Wrapper] = {
    **dict.fromkeys(("find", "gfind"), find),
    **dict.fromkeys(("fd", "fdfind"), fd),
    **dict.fromkeys(("xargs", "gxargs"), xargs),
    "parallel": parallel,
}
