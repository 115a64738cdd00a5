"""Commands that change the shell itself."""

from __future__ import annotations

from ralph.shell.arguments import operands
from ralph.shell.paths import is_temp, normal
from ralph.shell.steps import EvaluatedText, SetVariable, read_aside
from ralph.shell.words import DECODED, MARKS, NET, SECRET, UNKNOWN, UNSET, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.command import SimpleCommand
    from ralph.shell.state import ShellState
    from ralph.shell.steps import Emulation, Steps


def _cd(shell: ShellState, command: SimpleCommand) -> Steps:
    """Change the directory. If it does not exist, `&&` stops there, but `;` continues in the old directory."""
    targets = operands(command)
    if len(targets) > 1:
        return ""
    target: str = targets[0] if targets else shell.context.home
    if target == "-":
        return _popd(shell, command)
    shell.before = shell.directory
    if target.startswith("/"):
        path: str | None = normal(target)
    elif shell.directory is None or not target or target[0] in MARKS:
        path = None
    else:
        path = normal(f"{shell.directory}/{target}")
    is_scratch = path is not None and UNSET not in path and is_temp(path, shell.context)
    shell.directory = path if is_scratch or (path is not None and Word(path).is_known) else None
    return ""


def _popd(shell: ShellState, command: SimpleCommand) -> Steps:
    shell.directory, shell.before = shell.before, shell.directory
    return ""


def _eval(shell: ShellState, command: SimpleCommand) -> Steps:
    command.code = " ".join(command.args)
    return _evaluated(command.code)


def _source(shell: ShellState, command: SimpleCommand) -> Steps:
    command.script = command.args[0] if command.args else Word()
    is_stdin = command.script in ("/dev/stdin", "-")
    command.code = command.stdin if is_stdin else shell.content(command.script)
    return _evaluated(command.code)


def _evaluated(text: str) -> Steps:
    """Return the steps of an evaluated text. Unknown text is common, as in `eval "$(tool init)"`, and is ignored."""
    if not text.strip() or text.strip() == UNKNOWN or NET in text or DECODED in text:
        return UNKNOWN
    return [EvaluatedText(text)]


def _alias(shell: ShellState, command: SimpleCommand) -> Steps:
    given = dict(word.split("=", 1) for word in command.args if "=" in word)
    shell.aliases.update(given)
    return read_aside(*given.values())


def _export(shell: ShellState, command: SimpleCommand) -> Steps:
    pairs = [word.split("=", 1) for word in command.args if "=" in word]
    return [SetVariable(name, value) for name, value in pairs]


def _read_line(shell: ShellState, command: SimpleCommand) -> Steps:
    names = [word for word in operands(command) if word.isidentifier()] or [Word("REPLY")]
    text = command.stdin.strip("\n") or UNKNOWN
    words = text.split(None, len(names) - 1) if len(names) > 1 else [text]
    shell.variables.update(zip(names, [*words, *[""] * len(names)], strict=False))
    return ""


def _mapfile(shell: ShellState, command: SimpleCommand) -> Steps:
    for name in operands(command)[-1:]:
        shell.arrays[name] = [Word(each) for each in (command.stdin or UNKNOWN).splitlines()]
        shell.variables[name] = " ".join(shell.arrays[name])
    return ""


def _set(shell: ShellState, command: SimpleCommand) -> Steps:
    if not command.args:
        return SECRET
    if "--" in command.args:
        shell.positional = command.args[command.args.index(Word("--")) + 1 :]
    elif not command.args[0].startswith(("-", "+")):
        shell.positional = list(command.args)
    return ""


def _shift(shell: ShellState, command: SimpleCommand) -> Steps:
    if shell.positional:
        many = int(command.args[0]) if command.args and command.args[0].isdecimal() else 1
        shell.positional = shell.positional[many:]
    return ""


def _trap(shell: ShellState, command: SimpleCommand) -> Steps:
    words = [word for word in command.args if word not in ("--", "-p", "-l")]
    return read_aside(words[0]) if len(words) > 1 and words[0] != "-" else ""


def _hash(shell: ShellState, command: SimpleCommand) -> Steps:
    """Handle `hash -p /bin/rm x`, after which x is rm."""
    if command.args[:1] == ["-p"] and len(command.args) > 2:
        shell.aliases[command.args[2]] = command.args[1]
    return ""


def _nothing(shell: ShellState, command: SimpleCommand) -> Steps:
    return ""


TABLE: dict[str, Emulation] = {
    **dict.fromkeys(("cd", "chdir", "pushd"), _cd),
    "popd": _popd,
    "eval": _eval,
    **dict.fromkeys((".", "source"), _source),
    "alias": _alias,
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), _export),
    "read": _read_line,
    **dict.fromkeys(("mapfile", "readarray"), _mapfile),
    "set": _set,
    "shift": _shift,
    "trap": _trap,
    "hash": _hash,
    **dict.fromkeys((":", "true", "false"), _nothing),
}
