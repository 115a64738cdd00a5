"""Commands that change the shell itself."""

from __future__ import annotations

from ralph.shell.arguments import operands
from ralph.shell.words import DECODED, MARKS, NET, SECRET, UNKNOWN, UNSET, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph.shell.command import SimpleCommand
    from ralph.shell.reader import ShellReader


def _cd(reader: ShellReader, command: SimpleCommand) -> str:
    """The directory may not be there: then `&&` ends the chain, and with `;` what follows runs where we are."""
    state = reader.state
    targets = operands(command)
    if len(targets) > 1:
        return ""
    target: str = targets[0] if targets else reader.context.home
    if target == "-":
        state.directory, state.before = state.before, state.directory
        return ""
    state.before = state.directory
    if target.startswith("/"):
        path: str | None = target
    elif state.directory is None or not target or target[0] in MARKS:
        path = None
    else:
        path = f"{state.directory}/{target}"
    from ralph.shell.paths import is_temp, normal

    path = None if path is None else normal(path)
    is_scratch = path is not None and UNSET not in path and is_temp(path, reader.context)
    state.directory = path if is_scratch or (path is not None and Word(path).is_known) else None
    return ""


def _popd(reader: ShellReader, command: SimpleCommand) -> str:
    reader.state.directory, reader.state.before = reader.state.before, reader.state.directory
    return ""


def _eval(reader: ShellReader, command: SimpleCommand) -> str:
    command.code = " ".join(command.args)
    reader.record(command)
    return _read(reader, command.code)


def _source(reader: ShellReader, command: SimpleCommand) -> str:
    from ralph.shell.programs.outputs import content

    name = command.args[0] if command.args else Word("")
    command.code = command.stdin if name in ("/dev/stdin", "-") else content(reader, name)
    reader.record(command)
    return _read(reader, command.code)


def _read(reader: ShellReader, text: str) -> str:
    """Unknown programs that print shell code for `eval` are everyday: nothing can be said of them."""
    if not text.strip() or text.strip() == UNKNOWN or NET in text or DECODED in text:
        return UNKNOWN
    return reader.read(text)


def _alias(reader: ShellReader, command: SimpleCommand) -> str:
    for word in command.args:
        name, equals, value = word.partition("=")
        if equals:
            reader.state.aliases[name] = value
            reader.read_apart(value) if value.strip() else None
    return ""


def _export(reader: ShellReader, command: SimpleCommand) -> str:
    for word in command.args:
        name, equals, value = word.partition("=")
        if equals:
            reader.assign(name, value)
    return ""


def _unset(reader: ShellReader, command: SimpleCommand) -> str:
    for word in command.args:
        reader.state.variables.pop(word, None)
    return ""


def _read_line(reader: ShellReader, command: SimpleCommand) -> str:
    names = [word for word in operands(command) if word.isidentifier()] or [Word("REPLY")]
    text = command.stdin.strip("\n") or UNKNOWN
    words = text.split(None, len(names) - 1) if len(names) > 1 else [text]
    for name, value in zip(names, [*words, *[""] * len(names)], strict=False):
        reader.state.variables[name] = value
    return ""


def _mapfile(reader: ShellReader, command: SimpleCommand) -> str:
    for name in operands(command)[-1:]:
        reader.state.arrays[name] = [Word(each) for each in (command.stdin or UNKNOWN).splitlines()]
        reader.state.variables.pop(name, None)
    return ""


def _set(reader: ShellReader, command: SimpleCommand) -> str:
    if not command.args:
        return SECRET
    if "--" in command.args:
        reader.state.positional = command.args[command.args.index(Word("--")) + 1 :]
    elif command.args and not command.args[0].startswith(("-", "+")):
        reader.state.positional = list(command.args)
    return ""


def _shift(reader: ShellReader, command: SimpleCommand) -> str:
    if reader.state.positional:
        many = int(command.args[0]) if command.args and command.args[0].isdigit() else 1
        reader.state.positional = reader.state.positional[many:]
    return ""


def _trap(reader: ShellReader, command: SimpleCommand) -> str:
    words = [word for word in command.args if word not in ("--", "-p", "-l")]
    if len(words) > 1 and words[0] not in ("-", ""):
        reader.read_apart(words[0])
    return ""


def _hash(reader: ShellReader, command: SimpleCommand) -> str:
    """`hash -p /bin/rm x`: from now on x is rm."""
    if command.args[:1] == ["-p"] and len(command.args) > 2:
        reader.state.aliases[command.args[2]] = command.args[1]
    return ""


def _nothing(reader: ShellReader, command: SimpleCommand) -> str:
    return ""


RECORD_THEMSELVES = ("eval", ".", "source")

TABLE: dict[str, Callable[[ShellReader, SimpleCommand], str]] = {
    "cd": _cd,
    "chdir": _cd,
    "pushd": _cd,
    "popd": _popd,
    "eval": _eval,
    ".": _source,
    "source": _source,
    "alias": _alias,
    "export": _export,
    "declare": _export,
    "typeset": _export,
    "local": _export,
    "readonly": _export,
    "unset": _unset,
    "read": _read_line,
    "mapfile": _mapfile,
    "readarray": _mapfile,
    "set": _set,
    "shift": _shift,
    "trap": _trap,
    "hash": _hash,
    ":": _nothing,
    "true": _nothing,
    "false": _nothing,
}
