"""File modes and owners."""

from __future__ import annotations

from ralph.guard.model import DenyRule
from ralph.guard.patterns import is_harmless
from ralph.shell import arguments, paths
from ralph.shell.command import SimpleCommand
from ralph.shell.context import ShellContext
from ralph.shell.words import Word, words_of

CATEGORY = "permissions"
_FORBIDDEN = (
    *(paths.ROOT, paths.HOME, paths.ABOVE, paths.SYSTEM),
    *(paths.DEVICE, paths.STARTUP, paths.OUTSIDE, paths.GIT),
)


_FOR_ALL = words_of("a+rwx ugo+rwx +rwx a+w o+w ugo+w a=rwx ugo=rwx a-rwx ugo-rwx a-r -rwx o+rwx a+rw u-r a=")


def _targets(command: SimpleCommand) -> tuple[str, list[Word]]:
    """Return the mode or owner, and the files."""
    if any(word.startswith("--reference") for word in command.args):
        return "", arguments.operands(command)
    # a mode like -w or -x looks like an option
    words = [
        word
        for word in command.args
        if not (word.startswith("--") or (word[:1] == "-" and word.strip("-RvfcHLPhn") == ""))
    ]
    return (words[0], words[1:]) if words else ("", [])


def _outside(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program not in words_of("chmod chown chgrp setfacl chattr xattr chflags chcon restorecon"):
        return False
    if is_harmless(command):
        return False
    mode, words = _targets(command)
    if command.program in ("setfacl", "chattr", "xattr", "restorecon"):
        words = arguments.operands(command)
    for word in words:
        path = paths.resolve(word, command.directory, context)
        if path is None:
            continue
        zone = paths.zone(paths.contents(path, word), context)
        if zone == paths.STARTUP and mode.lstrip("0") in ("600", "700", "400", "go-rwx"):
            continue
        if zone == paths.STARTUP and mode in ("644", "640") and not paths.is_secret(path, context):
            continue
        if zone in _FORBIDDEN:
            return True
    return False


def _open_to_all(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether a whole tree is opened to everyone or closed to everyone."""
    if command.program != "chmod":
        return False
    if not arguments.is_recursive(command) and "find" not in command.wrappers:
        return False
    mode, _ = _targets(command)
    return mode.lstrip("0") in ("", "777", "666") or mode in _FOR_ALL


def _set_id(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program == "chmod":
        mode, _ = _targets(command)
        digits = mode.lstrip("0")
        is_octal = len(digits) == 4 and digits.isdecimal() and digits[0] in "2467"
        return is_octal or any("s" in part.partition("+")[2] for part in mode.split(",")) or "=s" in mode
    if command.program == "install":
        at = next((n for n, word in enumerate(command.args) if word in ("-m", "--mode")), -1)
        mode = command.args[at + 1] if 0 <= at < len(command.args) - 1 else Word("")
        return len(mode.lstrip("0")) == 4 and mode.lstrip("0")[0] in "2467"
    return False


def _to_root(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program not in ("chown", "chgrp"):
        return False
    owner, _ = _targets(command)
    is_far = (
        arguments.is_recursive(command) and "sudo" in command.wrappers and not owner.startswith(("$", "…"))
    )
    return owner.partition(":")[0] in ("root", "0", "nobody") or (
        is_far and owner.isalnum() and owner == "www-data"
    )


RULES = (
    DenyRule(
        "permissions-outside",
        CATEGORY,
        "Changes permissions outside the project. Change only files inside the project.",
        _outside,
    ),
    DenyRule(
        "open-to-all",
        CATEGORY,
        "Opens a whole directory tree to everyone, or locks everyone out. Change individual files, and only as needed.",
        _open_to_all,
    ),
    DenyRule(
        "set-id",
        CATEGORY,
        "Makes a program run with the privileges of its owner or group. Do without setuid and setgid.",
        _set_id,
    ),
    DenyRule("to-root", CATEGORY, "Changes file ownership. Leave owners as they are.", _to_root),
    DenyRule(
        "immutable",
        CATEGORY,
        "Changes whether files can be modified or deleted at all. Leave file attributes alone.",
        "chattr ~+i|+a|-i|-a|=i",
    ),
    DenyRule(
        "capabilities",
        CATEGORY,
        "Gives a program root privileges or turns off access control. Leave that to the user.",
        "setcap|setenforce|aa-disable|aa-teardown",
    ),
)
