"""What simple programs would print: so that a command that is made by others can be read."""

from __future__ import annotations

from ralph.shell.arguments import operands
from ralph.shell.expansion import is_secret_name
from ralph.shell.programs import fetching, processes
from ralph.shell.words import DECODED, EVERYONE, MARKS, NET, SECRET, UNKNOWN, Word, ansi_c

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph.shell.command import SimpleCommand
    from ralph.shell.reader import ShellReader

MAX_TEXT = 20_000


def of(reader: ShellReader, command: SimpleCommand) -> str:
    """What it prints, with marks for what is not known."""
    printer = _TABLE.get(command.program)
    if printer is not None:
        return printer(reader, command)[:MAX_TEXT]
    if command.program in fetching.FETCHERS:
        return fetching.fetched(reader, command)
    known = command.stdin and MARKS.isdisjoint(command.stdin)
    return DECODED if known else kept(command.stdin) or UNKNOWN


def kept(text: str) -> str:
    """The marks that any filter leaves behind."""
    return "".join(mark for mark in (NET, SECRET, DECODED, EVERYONE) if mark in text)


def content(reader: ShellReader, name: Word) -> str:
    """What a file has: known if the command itself has written it."""
    from ralph.shell.paths import HARNESS, is_secret, zone

    path = reader.path(name)
    if path is None:
        return UNKNOWN
    if path in reader.state.files:
        return reader.state.files[path]
    if path.startswith(("/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/")):
        return f'{path} "$@"'  # a copy of a program does what the program does
    if path in ("/dev/null",):
        return ""
    if zone(path, reader.context) == HARNESS:
        return UNKNOWN + EVERYONE  # the number of the harness is in there
    return SECRET if is_secret(path, reader.context) or path.rpartition("/")[2] == ".env" else UNKNOWN


def _echo(reader: ShellReader, command: SimpleCommand) -> str:
    words = list(command.args)
    escapes, end = False, "\n"
    while words and words[0] in ("-n", "-e", "-E", "-ne", "-en", "-nE"):
        escapes = escapes or "e" in words[0]
        end = "" if "n" in words[0] else end
        del words[0]
    text = " ".join(words)
    return (ansi_c(text) if escapes else text) + end


def _printf(reader: ShellReader, command: SimpleCommand) -> str:
    words = list(command.args)
    target = ""
    if words[:1] == ["-v"]:
        target, words = (words[1] if len(words) > 1 else ""), words[2:]
    if words[:1] == ["--"]:
        del words[0]
    if not words:
        return ""
    text = formatted(ansi_c(words[0]), words[1:])
    if target:
        reader.assign(target, text)
        return ""
    return text


def formatted(pattern: str, values: list[Word]) -> str:
    out = ""
    while True:
        used, at = 0, 0
        while at < len(pattern):
            if pattern[at] != "%":
                out += pattern[at]
                at += 1
                continue
            end = at + 1
            while end < len(pattern) and pattern[end] in "-+ #0123456789.*":
                end += 1
            kind = pattern[end : end + 1]
            at = end + 1
            if kind == "%":
                out += "%"
                continue
            value = values[used] if used < len(values) else ""
            used += 1
            if kind == "b":
                out += ansi_c(value)
            elif kind == "c":
                out += chr(int(value)) if value.isdigit() and 1 < len(value) < 4 else value[:1]
            elif kind in ("x", "o", "d"):
                out += format(int(value), kind) if value.isdigit() and len(value) < 12 else value
            else:
                out += value
        values = values[used:]
        if not values or not used or len(out) > MAX_TEXT:
            return out


def _cat(reader: ShellReader, command: SimpleCommand) -> str:
    names = operands(command)
    if not names:
        return command.stdin or UNKNOWN
    return "".join(command.stdin if name == "-" else content(reader, name) for name in names)


def _tee(reader: ShellReader, command: SimpleCommand) -> str:
    for name in operands(command):
        if path := reader.path(name):
            reader.pour(path, command.stdin)
            if command.stdin:
                reader.state.files[path] = command.stdin
    return command.stdin or UNKNOWN


def _copy(reader: ShellReader, command: SimpleCommand) -> str:
    names = operands(command)
    if len(names) == 2 and (target := reader.path(names[1])):
        reader.state.files[target] = content(reader, names[0])
    return ""


def _base64(reader: ShellReader, command: SimpleCommand) -> str:
    words = set(command.args)
    if not words & {"-d", "-D", "--decode", "-di", "-id"}:
        return kept(command.stdin) or UNKNOWN
    names = [word for word in operands(command, "-w --wrap -i") if word not in ("base64", "enc")]
    text = command.stdin if not names else content(reader, names[0])
    return decoded(text)


def decoded(text: str) -> str:
    """Base64 as text; a mark if it is not known or makes no text."""
    if not MARKS.isdisjoint(text):
        return DECODED + kept(text)
    import binascii

    try:
        return binascii.a2b_base64("".join(text.split()) + "==").decode()
    except (ValueError, UnicodeDecodeError):
        return DECODED


def _openssl(reader: ShellReader, command: SimpleCommand) -> str:
    if "s_client" in command.args:
        return NET
    if "-d" in command.args and {"base64", "-base64", "-a"} & set(command.args):
        return decoded(command.stdin)
    return DECODED if "-d" in command.args else UNKNOWN


def _xxd(reader: ShellReader, command: SimpleCommand) -> str:
    if not any(word.startswith("-") and "r" in word for word in command.args):
        return UNKNOWN
    try:
        return bytes.fromhex("".join(command.stdin.split())).decode()
    except (ValueError, UnicodeDecodeError):
        return DECODED


def _rev(reader: ShellReader, command: SimpleCommand) -> str:
    if not MARKS.isdisjoint(command.stdin) or not command.stdin:
        return DECODED
    return "\n".join(line[::-1] for line in command.stdin.split("\n"))


def _tr(reader: ShellReader, command: SimpleCommand) -> str:
    words = [word for word in command.args if not word.startswith("-")]
    if not MARKS.isdisjoint(command.stdin) or not command.stdin:
        return kept(command.stdin) or UNKNOWN
    flags = "".join(word[1:] for word in command.args if word.startswith("-"))
    if "d" in flags and words:
        gone = _characters(words[0])
        return "".join(char for char in command.stdin if char not in gone)
    if len(words) != 2 or flags:
        return DECODED
    old, new = _characters(words[0]), _characters(words[1])
    new += new[-1:] * (len(old) - len(new))
    return command.stdin.translate(dict(zip(map(ord, old), new, strict=False)))


def _characters(text: str) -> str:
    text = ansi_c(text).replace("[:upper:]", "A-Z").replace("[:lower:]", "a-z").replace("[:space:]", " \n\t")
    out, at = "", 0
    while at < len(text):
        if at + 2 < len(text) and text[at + 1] == "-" and text[at] <= text[at + 2]:
            out += "".join(chr(n) for n in range(ord(text[at]), ord(text[at + 2]) + 1))
            at += 3
        else:
            out += text[at]
            at += 1
    return out[:5000]


def _sed(reader: ShellReader, command: SimpleCommand) -> str:
    """`s` on a known text; anything else leaves a text that is not known."""
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


def _pwd(reader: ShellReader, command: SimpleCommand) -> str:
    return UNKNOWN if reader.state.directory is None else reader.state.directory


def _dirname(reader: ShellReader, command: SimpleCommand) -> str:
    names = operands(command)
    if not names:
        return UNKNOWN
    head, slash, _ = names[0].rstrip("/").rpartition("/")
    return (head or "/") if slash else "."


def _basename(reader: ShellReader, command: SimpleCommand) -> str:
    names = operands(command)
    return names[0].rstrip("/").rpartition("/")[2] if names else UNKNOWN


def _realpath(reader: ShellReader, command: SimpleCommand) -> str:
    names = operands(command)
    return (reader.path(names[0]) or UNKNOWN) if names else UNKNOWN


def _git(reader: ShellReader, command: SimpleCommand) -> str:
    if "--show-toplevel" in command.args:
        return reader.context.top
    if {"--git-dir", "--absolute-git-dir", "--git-common-dir"} & set(command.args):
        return f"{reader.context.top}/.git"
    if command.args[:2] == ["rev-parse", "--git-path"]:
        return f"{reader.context.top}/.git/{command.args[-1]}"
    if "--show-cdup" in command.args:
        return "."
    if "ls-files" in command.args and all(
        word.startswith("-") or word == "ls-files" for word in command.args
    ):
        return "*"
    return UNKNOWN


def _which(reader: ShellReader, command: SimpleCommand) -> str:
    names = operands(command)
    return f"/usr/bin/{names[0]}" if names else UNKNOWN


def _ls(reader: ShellReader, command: SimpleCommand) -> str:
    names = operands(command, "-I")
    if not names:
        return "*"
    if "/proc" in names:
        return EVERYONE
    return "\n".join(name if name.glob else f"{name.rstrip('/')}/{UNKNOWN}" for name in names)


def _mktemp(reader: ShellReader, command: SimpleCommand) -> str:
    return f"/tmp/tmp.{UNKNOWN}"


def _printenv(reader: ShellReader, command: SimpleCommand) -> str:
    names = operands(command)
    if not names:
        return SECRET
    return SECRET if is_secret_name(names[0]) else reader.variable(names[0])


def _dump(reader: ShellReader, command: SimpleCommand) -> str:
    return SECRET if not operands(command) else UNKNOWN


def _yes(reader: ShellReader, command: SimpleCommand) -> str:
    return " ".join(command.args) or "y"


def _pass(reader: ShellReader, command: SimpleCommand) -> str:
    """Filters that leave a text about as it is."""
    names = [word for word in operands(command, "-n -c -k -t") if not word.isdigit()]
    text = "".join(content(reader, name) for name in names) or command.stdin or UNKNOWN
    return text if text.strip() != "*" or command.program in ("sort", "uniq") else UNKNOWN


def _grep(reader: ShellReader, command: SimpleCommand) -> str:
    pattern, *names = operands(command, "-A -B -C -m --include --exclude") or [Word("")]
    text = command.stdin + "".join(content(reader, name) for name in names)
    if not any(word.startswith("-") and "v" in word for word in command.args):
        text = processes.filtered(text, pattern)
    return kept(text) or UNKNOWN


def _jq(reader: ShellReader, command: SimpleCommand) -> str:
    text = command.stdin + "".join(content(reader, name) for name in operands(command)[1:])
    return kept(text) or UNKNOWN


def _processes(reader: ShellReader, command: SimpleCommand) -> str:
    return processes.listed(command)


def _unpacked(reader: ShellReader, command: SimpleCommand) -> str:
    return DECODED + kept(command.stdin)


def _packed(reader: ShellReader, command: SimpleCommand) -> str:
    """An archive of a home directory, or of all, has secrets in it."""
    from ralph.shell import paths

    for name in operands(command, "-f -C"):
        path = paths.resolve(name, reader.state.directory, reader.context)
        if path is not None and (
            paths.zone(path, reader.context) in (paths.ROOT, paths.HOME, paths.ABOVE, paths.REPOSITORY)
            or paths.is_secret(path, reader.context)
            or paths.is_project_secret(path)
        ):
            return SECRET
    return UNKNOWN


def _hidden(reader: ShellReader, command: SimpleCommand) -> str:
    return SECRET


_TABLE: dict[str, Callable[[ShellReader, SimpleCommand], str]] = {
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "tac": _cat,
    "tee": _tee,
    "cp": _copy,
    "mv": _copy,
    "ln": _copy,
    "base64": _base64,
    "base32": _unpacked,
    "openssl": _openssl,
    "xxd": _xxd,
    "rev": _rev,
    "tr": _tr,
    "sed": _sed,
    "pwd": _pwd,
    "dirname": _dirname,
    "basename": _basename,
    "realpath": _realpath,
    "readlink": _realpath,
    "git": _git,
    "which": _which,
    "type": _which,
    "ls": _ls,
    "mktemp": _mktemp,
    "printenv": _printenv,
    "env": _dump,
    "export": _dump,
    "declare": _dump,
    "set": _dump,
    "yes": _yes,
    "head": _pass,
    "tail": _pass,
    "sort": _pass,
    "uniq": _pass,
    "grep": _grep,
    "egrep": _grep,
    **dict.fromkeys(("ps", "pgrep", "pidof"), _processes),
    "rg": _grep,
    "jq": _jq,
    "gunzip": _unpacked,
    "zcat": _unpacked,
    "gzip": _unpacked,
    "bunzip2": _unpacked,
    "xzcat": _unpacked,
    "unxz": _unpacked,
    "gpg": _unpacked,
    "uudecode": _unpacked,
    "tar": _packed,
    "zip": _packed,
    "security": _hidden,
}
