"""The files that a command deletes, writes, reads or changes the mode of."""

from __future__ import annotations

from ralph.shell.arguments import flags, operands, values_of
from ralph.shell.words import UNKNOWN, Word, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.command import SimpleCommand

_WRITES = (">", ">>", ">|", "&>", "&>>", ">&", "<>")
_READS = ("<",)

# Programs that read the files named in their arguments, some of them after a pattern or a script.
READERS = frozenset(
    words_of(
        "cat tac less more head tail bat batcat nl od xxd hexdump strings base64 cp mv scp rsync tar zip"
        " 7z gzip sort uniq wc cut paste diff cmp install vim vi nano emacs view open xdg-open source . dd"
        " tee split rev fold pr grep egrep fgrep rg ag awk gawk sed jq yq python openssl gpg ln shuf"
        " column ssh-add sqlite3 rclone gsutil xclip pbcopy base32 iconv mapfile expand comm join look"
    )
)


def deleted(command: SimpleCommand) -> list[Word]:
    program = command.program
    if program in words_of(
        "rm grm rmdir unlink srm trash rimraf del del-cli shred wipe trash-put gio Remove-Item ri"
    ):
        names = operands(command, "-n --iterations -s --size" if program == "shred" else "")
        return names[1:] if program == "gio" and names[:1] == ["trash"] else names
    if UNKNOWN in program and {"r", "f"} <= set(flags(command)):
        return operands(command)  # what other program has these options?
    if program == "mv":
        return _sources(command)
    if program == "rsync" and any(word.startswith(("--delete", "--del")) for word in command.args):
        return operands(command, "-e --rsh --exclude --include")[-1:]
    if program == "git" and command.args[:1] and command.args[0] in ("clean", "rm"):
        is_real = "f" in flags(command) or command.args[0] == "rm"
        return operands(command, "-e")[1:] if is_real and "--cached" not in command.args else []
    if program == "truncate":
        return operands(command, "-s --size -r --reference")
    if program == "tar" and "--remove-files" in command.args:
        return operands(command)
    return []


def _sources(command: SimpleCommand) -> list[Word]:
    if any(word.startswith(("-t", "--target-directory")) for word in command.args):
        return operands(command, "-t --target-directory")
    return operands(command, "-S")[:-1]


def written(command: SimpleCommand) -> list[Word]:
    found = [
        target
        for operator, target in command.redirects
        if operator.lstrip("0123456789") in _WRITES and not target.isdecimal()
    ]
    program = command.program
    names: list[Word]
    if program in words_of("tee touch fallocate mkdir truncate sponge mkfifo mknod mktemp"):
        found += operands(command, "-s -r -m -d -t -p -i -l -o")
    elif program in ("patch", "ed", "ex", "nano", "sd") or _is_scripted_editor(command):
        found += operands(command, "-p -i -c --cmd -S -u")
    elif program == "yq" and _is_in_place(command):
        found += operands(command)[1:]
    elif program in ("cp", "mv", "install", "ln", "rsync", "scp", "gcp", "gmv"):
        names = operands(command, "-m -o -g -S -e --rsh --exclude --include -i -P -F")
        target = _target_directory(command)
        found += [target] if target else names[-1:] if len(names) > 1 else []
    elif program in ("sed", "gsed", "perl", "ruby") and _is_in_place(command):
        found += operands(command, "-e -f -E -n" if program == "perl" else "-e -f")[
            0 if "e" in flags(command) else 1 :
        ]
    elif program == "dd":
        found += [Word(word[3:]) for word in command.args if word.startswith("of=")]
    elif program in ("curl", "wget", "aria2c"):
        found += _after(command, ("-o", "--output", "-O", "--output-document", "-P", "--output-dir", "-d"))
    elif program in ("tar", "bsdtar", "gtar") and "x" in flags(command) + "".join(command.args[:1]):
        found += _after(command, ("-C", "--directory"))
    elif program == "unzip":
        found += _after(command, ("-d",))
    elif program in ("awk", "gawk") and "inplace" in command.args:
        found += operands(command)[1:]
    return found + (deleted(command) if program not in ("rsync", "truncate") else [])


def changed(command: SimpleCommand) -> list[Word]:
    """Return the files that a command writes, or whose mode or owner it changes."""
    modes = (
        operands(command)[1:] if command.program in ("chmod", "chown", "chgrp", "chattr", "setfacl") else []
    )
    if command.program == "git" and command.args[:1] and command.args[0] in ("checkout", "restore", "mv"):
        modes = operands(command, "-s --source")[1:]
    return written(command) + (modes or (operands(command) if command.program == "chmod" else []))


def _is_scripted_editor(command: SimpleCommand) -> bool:
    """Whether an editor writes a file without interaction, as in `vim -es -c … -c wq`."""
    return command.program in ("vi", "vim", "nvim") and any(
        value.strip(":").startswith(("w", "x", "up")) for value in values_of(command.args, "-c")
    )


def _is_in_place(command: SimpleCommand) -> bool:
    return any(
        word == "--in-place"
        or word.startswith(("-i", "--in-place="))
        or (word[:1] == "-" and "i" in word[:4] and word[1:2] != "-")
        for word in command.args
    )


def _target_directory(command: SimpleCommand) -> Word | None:
    found = (
        _after(command, ("-t", "--target-directory"))
        if command.program in ("cp", "mv", "install", "ln")
        else []
    )
    return found[0] if found else None


def _after(command: SimpleCommand, names: tuple[str, ...]) -> list[Word]:
    """Return the values of these options. curl's `-O` has none."""
    found: list[Word] = []
    for number, word in enumerate(command.args):
        name, equals, value = word.partition("=")
        if equals and name in names and name.startswith("--"):
            found.append(Word(value))
        elif word in names and number + 1 < len(command.args):
            if command.program == "curl" and word in ("-O", "-d", "-P"):
                continue
            found.append(command.args[number + 1])
    return found


def mounts(command: SimpleCommand) -> list[tuple[Word, str]]:
    """Return the host directories or volumes mounted into a container, and their paths inside."""
    found: list[tuple[Word, str]] = []
    for value in values_of(command.args, "-v --volume"):
        source, _, target = value.removeprefix("=").partition(":")
        found.append((Word(source), target.partition(":")[0]))
    for value in values_of(command.args, "--mount"):
        named = dict(part.partition("=")[::2] for part in value.split(","))
        target = named.get("target") or named.get("dst") or named.get("destination") or ""
        found.append((Word(named.get("source") or named.get("src") or ""), target))
    return found


def read(command: SimpleCommand) -> list[Word]:
    found = [target for operator, target in command.redirects if operator in _READS]
    if command.args[:1] == ["cp"] and command.program in ("docker", "podman", "kubectl", "oc"):
        found += operands(command)[1:]
    if command.program in READERS or command.program.rstrip("0123456789.") == "python":
        found += operands(command)
    return found
