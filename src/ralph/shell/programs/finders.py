"""Programs that run a command for each of many names: find, fd, xargs, parallel."""

from __future__ import annotations

from ralph.shell.arguments import skip_options, values_of
from ralph.shell.steps import inner, read_aside
from ralph.shell.words import UNKNOWN, Word, globbing, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.command import SimpleCommand
    from ralph.shell.state import ShellState
    from ralph.shell.steps import Emulation, Step, Steps


def _xargs(shell: ShellState, command: SimpleCommand) -> Steps:
    valued = "-I -i -n -P -L -d -s -E -a --max-args --max-procs --delimiter --replace --max-lines --arg-file"
    words = skip_options(command.args, valued)
    if not words:
        return command.stdin
    options = command.args[: len(command.args) - len(words)]
    mark = next(values_of(options, "-I --replace"), "{}" if "-i" in options else "")
    if mark:
        lines = command.stdin.strip("\n").split("\n")[:50] if command.stdin.strip() else [UNKNOWN]
        return [step for line in lines for step in inner(command, [_replaced(w, mark, line) for w in words])]
    by_line = any(word == "--null" or word.startswith(("-0", "-d")) for word in options)
    given = [each for each in command.stdin.split("\n") if each] if by_line else command.stdin.split()[:200]
    return inner(
        command, [*words, *(globbing(each) if "*" in each else Word(each) for each in given or [UNKNOWN])]
    )


def _replaced(word: Word, mark: str, value: str) -> Word:
    if mark not in word:
        return word
    new = word.replace(mark, value)
    return globbing(new) if "*" in value and word == mark else Word(new)


def _parallel(shell: ShellState, command: SimpleCommand) -> Steps:
    words = skip_options(
        command.args, "-j --jobs -a --arg-file -C --colsep -S --sshlogin -N -n -I --delay --timeout"
    )
    at = next((number for number, word in enumerate(words) if word in (":::", "::::", ":::+")), len(words))
    given = (
        [word for word in words[at + 1 :] if not word.startswith(":::")] or command.stdin.split() or [UNKNOWN]
    )
    text = " ".join(words[:at])
    lines = [text.replace("{}", value) if "{}" in text else f"{text} {value}" for value in given[:20]]
    return [*read_aside(*lines), UNKNOWN]


# ---- find ----

_FILTERS = frozenset(
    words_of(
        "-name -iname -path -ipath -wholename -regex -iregex -empty -newer -mtime -mmin -size -user"
        " -group -perm -atime -ctime -amin -cmin -newermt -links -inum -lname -samefile -nouser -nogroup"
        " -executable"
    )
)
_EVERYTHING = {"*", "?*", "*.*", ".*", "**"}


def _find(shell: ShellState, command: SimpleCommand) -> Steps:
    words = list(command.args)
    while words and words[0] in ("-H", "-L", "-P", "-E", "-X", "-x", "-s"):
        words = words[1:]
    starts: list[Word] = []
    while words and not words[0].startswith(("-", "(", "!")):
        starts.append(words.pop(0))
    starts = starts or [Word(".")]
    steps: list[Step] = []
    for number, word in enumerate(words):
        if word not in ("-delete", "-exec", "-execdir", "-ok", "-okdir"):
            continue
        found = [each for start in starts for each in _found(start, _tests(words[:number]))]
        if word == "-delete":
            steps += inner(command, [Word("rm"), Word("-rf"), *found], "find")
            continue
        ends = (n for n in range(number + 1, len(words)) if words[n] in (";", "+", "\\;"))
        template = words[number + 1 : next(ends, len(words))]
        for each in found:
            steps += inner(command, [_replaced(word, "{}", each) for word in template], "find")
    tests = _tests(words)
    return [*steps, "\n".join(each for start in starts for each in _found(start, tests))]


def _tests(words: list[Word]) -> list[Word]:
    """Return the tests that apply to an action after them: back to the last `-o` outside parentheses."""
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
    """Return the paths found: the start itself, or entries below it, by name if names are given."""
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


def _fd(shell: ShellState, command: SimpleCommand) -> Steps:
    at = next(
        (n for n, word in enumerate(command.args) if word in ("-x", "--exec", "-X", "--exec-batch")), -1
    )
    if at < 0:
        return UNKNOWN
    starts = [word for word in command.args[:at] if not word.startswith("-")][1:] or [Word(".")]
    words = command.args[at + 1 :]
    if not any("{" in word for word in words):
        words = [*words, Word("{}")]
    found = [f"{start.rstrip('/')}/{UNKNOWN}" for start in starts]
    return [
        step for each in found for step in inner(command, [_replaced(word, "{}", each) for word in words])
    ]


TABLE: dict[str, Emulation] = {
    **dict.fromkeys(("find", "gfind"), _find),
    **dict.fromkeys(("fd", "fdfind"), _fd),
    **dict.fromkeys(("xargs", "gxargs"), _xargs),
    "parallel": _parallel,
}
