"""Determines whether a process name or list covers only the agent's own processes or also Ralph's and others'."""

from __future__ import annotations

from ralph.shell import arguments
from ralph.shell.arguments import has_option
from ralph.shell.words import EVERYONE, UNKNOWN, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.command import SimpleCommand

_HARNESS = ("ralph", "claude", "codex", "gemini", "opencode", "amp")
_BROAD = frozenset(
    words_of(
        "node python python3 bash sh zsh java ruby npm init systemd sshd ssh docker dockerd containerd"
        " xorg gnome-shell tmux screen code launchd finder dock . .* - root user"
    )
)


def is_broad(name: str) -> bool:
    """Whether a pattern matches Ralph, or far more than the agent's own server."""
    bare = name.strip("^$/\"' \\").replace("[", "").replace("]", "").lower()
    if "[0-9]" in name or "\\d" in name:
        return True
    return (
        not bare
        or bare in _BROAD
        or any(bare.rpartition("/")[2].split()[:1] == [each] or bare.startswith(each) for each in _HARNESS)
        or "ralph" in bare
    )


def asks_broadly(command: SimpleCommand) -> bool:
    """Whether pgrep or pkill selects by user, by parent or by a broad pattern."""
    names = arguments.operands(command, "-s --signal -t -g -G -U -u -P")
    by_owner = ("-u", "--euid", "-U", "--uid", "-P", "--parent", "-g", "-s", "-t")
    if command.program == "pkill" and any(has_option(command, each) for each in by_owner):
        return not ("-s" in command.args and names and not is_broad(names[-1]))
    if command.program == "pgrep" and has_option(command, "-P"):
        return any("PPID" in word for word in command.args)
    return not names or is_broad(names[-1])


def listed(command: SimpleCommand) -> str:
    """Return the output of ps, pgrep and pidof, as far as it matters for a kill."""
    if command.program != "ps":
        return EVERYONE if asks_broadly(command) else UNKNOWN
    words = " ".join(command.args)
    if any(has_option(command, each) for each in ("-p", "--pid", "-q", "--ppid")):
        return f"{UNKNOWN}PPID" if "ppid=" in words or "ppid " in words else UNKNOWN
    for number, word in enumerate(command.args[:-1]):
        if word == "-C":
            return EVERYONE if is_broad(command.args[number + 1]) else UNKNOWN
    return EVERYONE


def filtered(text: str, pattern: str) -> str:
    """Filter a list of processes. A narrow pattern limits it to the agent's own."""
    return text if is_broad(pattern) else text.replace(EVERYONE, "")
