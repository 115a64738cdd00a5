"""The output of simple programs, so that a command assembled by others can be read."""

from __future__ import annotations

from ralph.shell import paths, processes
from ralph.shell.arguments import operands
from ralph.shell.programs import fetching
from ralph.shell.steps import SetVariable, WriteFile
from ralph.shell.texts import characters, decoded, formatted, kept
from ralph.shell.variables import is_secret_name
from ralph.shell.words import DECODED, EVERYONE, MARKS, NET, SECRET, UNKNOWN, Word, ansi_c, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.command import SimpleCommand
    from ralph.shell.state import ShellState
    from ralph.shell.steps import Emulation, Step, Steps


def of(shell: ShellState, command: SimpleCommand) -> list[Step]:
    """Return the output of a program. For an unknown program, it is the marks of its input."""
    printer = TABLE.get(command.program)
    if printer is not None:
        steps = printer(shell, command)
        return [steps] if isinstance(steps, str) else steps
    known = command.stdin and MARKS.isdisjoint(command.stdin)
    return [DECODED if known else kept(command.stdin) or UNKNOWN]


def _echo(shell: ShellState, command: SimpleCommand) -> str:
    words = list(command.args)
    escapes, end = False, "\n"
    while words and words[0] in ("-n", "-e", "-E", "-ne", "-en", "-nE"):
        escapes = escapes or "e" in words[0]
        end = "" if "n" in words[0] else end
        del words[0]
    text = " ".join(words)
    return (ansi_c(text) if escapes else text) + end


def _printf(shell: ShellState, command: SimpleCommand) -> Steps:
    words = list(command.args)
    target = ""
    if words[:1] == ["-v"]:
        target, words = (words[1] if len(words) > 1 else ""), words[2:]
    if words[:1] == ["--"]:
        del words[0]
    if not words:
        return ""
    text = formatted(ansi_c(words[0]), words[1:])
    return [SetVariable(target, text)] if target else text


def _cat(shell: ShellState, command: SimpleCommand) -> str:
    names = operands(command)
    if not names:
        return command.stdin or UNKNOWN
    return "".join(command.stdin if name == "-" else shell.content(name) for name in names)


def _tee(shell: ShellState, command: SimpleCommand) -> Steps:
    return [*(WriteFile(name, command.stdin) for name in operands(command)), command.stdin or UNKNOWN]


def _copy(shell: ShellState, command: SimpleCommand) -> Steps:
    names = operands(command)
    return [WriteFile(names[1], shell.content(names[0]))] if len(names) == 2 else ""


def _base64(shell: ShellState, command: SimpleCommand) -> str:
    words = set(command.args)
    if not words & {"-d", "-D", "--decode", "-di", "-id"}:
        return kept(command.stdin) or UNKNOWN
    names = [word for word in operands(command, "-w --wrap -i") if word not in ("base64", "enc")]
    text = command.stdin if not names else shell.content(names[0])
    return decoded(text)


def _openssl(shell: ShellState, command: SimpleCommand) -> str:
    if "s_client" in command.args:
        return NET
    if "-d" in command.args and {"base64", "-base64", "-a"} & set(command.args):
        return decoded(command.stdin)
    return DECODED if "-d" in command.args else UNKNOWN


def _tr(shell: ShellState, command: SimpleCommand) -> str:
    words = [word for word in command.args if not word.startswith("-")]
    if not MARKS.isdisjoint(command.stdin) or not command.stdin:
        return kept(command.stdin) or UNKNOWN
    flags = "".join(word[1:] for word in command.args if word.startswith("-"))
    if "d" in flags and words:
        gone = characters(words[0])
        return "".join(char for char in command.stdin if char not in gone)
    if len(words) != 2 or flags:
        return DECODED
    old, new = characters(words[0]), characters(words[1])
    new += new[-1:] * (len(old) - len(new))
    return command.stdin.translate(dict(zip(map(ord, old), new, strict=False)))


def _sed(shell: ShellState, command: SimpleCommand) -> str:
    """Apply `s` to a known text. After anything else, the text is unknown."""
    words = operands(command)
    stdin = command.stdin
    if len(words) != 1 or not stdin or not MARKS.isdisjoint(stdin):
        return kept(stdin) or UNKNOWN
    script = words[0]
    parts = script[2:].split(script[1]) if len(script) > 3 and script[0] == "s" else []
    if len(parts) != 3 or any(char in parts[0] for char in "\\[](){}*+?^$|"):
        return DECODED
    old, new = parts[0], parts[1]
    if "." in old or "&" in new or "\\" in new:
        return DECODED
    count = -1 if "g" in parts[2] else 1
    return "\n".join(line.replace(old, new, count) for line in stdin.split("\n"))


def _pwd(shell: ShellState, command: SimpleCommand) -> str:
    return UNKNOWN if shell.directory is None else shell.directory


def _dirname(shell: ShellState, command: SimpleCommand) -> str:
    names = operands(command)
    if not names:
        return UNKNOWN
    head, slash, _ = names[0].rstrip("/").rpartition("/")
    return (head or "/") if slash else "."


def _basename(shell: ShellState, command: SimpleCommand) -> str:
    names = operands(command)
    return names[0].rstrip("/").rpartition("/")[2] if names else UNKNOWN


def _realpath(shell: ShellState, command: SimpleCommand) -> str:
    names = operands(command)
    return (shell.path(names[0]) or UNKNOWN) if names else UNKNOWN


def _git(shell: ShellState, command: SimpleCommand) -> str:
    if "--show-toplevel" in command.args:
        return shell.context.top
    if {"--git-dir", "--absolute-git-dir", "--git-common-dir"} & set(command.args):
        return f"{shell.context.top}/.git"
    if command.args[:2] == ["rev-parse", "--git-path"]:
        return f"{shell.context.top}/.git/{command.args[-1]}"
    if "ls-files" in command.args and all(
        word.startswith("-") or word == "ls-files" for word in command.args
    ):
        return "*"
    return UNKNOWN


def _which(shell: ShellState, command: SimpleCommand) -> str:
    names = operands(command)
    return f"/usr/bin/{names[0]}" if names else UNKNOWN


def _ls(shell: ShellState, command: SimpleCommand) -> str:
    names = operands(command, "-I")
    if not names:
        return "*"
    if "/proc" in names:
        return EVERYONE
    return "\n".join(name if name.glob else f"{name.rstrip('/')}/{UNKNOWN}" for name in names)


def _mktemp(shell: ShellState, command: SimpleCommand) -> str:
    return f"/tmp/tmp.{UNKNOWN}"


def _printenv(shell: ShellState, command: SimpleCommand) -> str:
    names = operands(command)
    if not names:
        return SECRET
    return SECRET if is_secret_name(names[0]) else shell.variable(names[0])


def _pass(shell: ShellState, command: SimpleCommand) -> str:
    """Emulate filters that leave a text mostly unchanged."""
    names = [word for word in operands(command, "-n -c -k -t") if not word.isdecimal()]
    text = "".join(shell.content(name) for name in names) or command.stdin or UNKNOWN
    return text if text.strip() != "*" or command.program in ("sort", "uniq") else UNKNOWN


def _grep(shell: ShellState, command: SimpleCommand) -> str:
    pattern, *names = operands(command, "-A -B -C -m --include --exclude") or [Word("")]
    text = command.stdin + "".join(shell.content(name) for name in names)
    if not any(word.startswith("-") and "v" in word for word in command.args):
        text = processes.filtered(text, pattern)
    return kept(text) or UNKNOWN


def _jq(shell: ShellState, command: SimpleCommand) -> str:
    text = command.stdin + "".join(shell.content(name) for name in operands(command)[1:])
    return kept(text) or UNKNOWN


def _processes(shell: ShellState, command: SimpleCommand) -> str:
    return processes.listed(command)


def _unpacked(shell: ShellState, command: SimpleCommand) -> str:
    return DECODED + kept(command.stdin)


def _packed(shell: ShellState, command: SimpleCommand) -> str:
    """Return SECRET for an archive that contains secrets, such as that of a home directory."""
    whole = (paths.ROOT, paths.HOME, paths.ABOVE, paths.REPOSITORY)
    for name in operands(command, "-f -C"):
        path = paths.resolve(name, shell.directory, shell.context)
        if path is not None and (
            paths.zone(path, shell.context) in whole
            or paths.is_secret(path, shell.context)
            or paths.is_project_secret(path)
        ):
            return SECRET
    return UNKNOWN


TABLE: dict[str, Emulation] = {
    **fetching.TABLE,
    "echo": _echo,
    "printf": _printf,
    **dict.fromkeys(("cat", "tac"), _cat),
    "tee": _tee,
    **dict.fromkeys(("cp", "mv", "ln"), _copy),
    "base64": _base64,
    "openssl": _openssl,
    "tr": _tr,
    "sed": _sed,
    "pwd": _pwd,
    "dirname": _dirname,
    "basename": _basename,
    **dict.fromkeys(("realpath", "readlink"), _realpath),
    "git": _git,
    **dict.fromkeys(("which", "type"), _which),
    "ls": _ls,
    "mktemp": _mktemp,
    "printenv": _printenv,
    **dict.fromkeys(("head", "tail", "sort", "uniq"), _pass),
    **dict.fromkeys(("grep", "egrep", "rg"), _grep),
    **dict.fromkeys(("ps", "pgrep", "pidof"), _processes),
    "jq": _jq,
    **dict.fromkeys(words_of("gunzip zcat gzip bunzip2 xzcat unxz gpg uudecode base32"), _unpacked),
    **dict.fromkeys(("tar", "zip"), _packed),
}
