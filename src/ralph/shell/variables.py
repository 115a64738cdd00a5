"""The values of variables that the command itself has not set."""

from __future__ import annotations

from ralph.shell.words import SECRET, UNKNOWN, UNSET, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.context import ShellContext

COMMAND_VARIABLES = frozenset(
    words_of(
        "GIT_SSH_COMMAND GIT_SSH GIT_PAGER GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_EXTERNAL_DIFF GIT_ASKPASS"
        " GIT_PROXY_COMMAND PAGER MANPAGER EDITOR VISUAL FCEDIT BROWSER LESSOPEN LESSCLOSE SSH_ASKPASS"
        " RSYNC_RSH CVS_RSH"
    )
)
"""Variables whose value is a command that some program runs."""
_USUAL = {
    "IFS": " \t\n",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "SHELL": "/bin/bash",
    "BASH": "/bin/bash",
    "OSTYPE": "linux-gnu",
    "0": "bash",
    "#": "0",
    "?": "0",
    "-": "hB",
    "PPID": UNKNOWN + "PPID",
    "$": UNKNOWN + "$$",
    **dict.fromkeys(words_of("! _ RANDOM SECONDS HOSTNAME UID EUID LINENO REPLY"), UNKNOWN),
}
_STATE = {"RALPH_STATE_DIR": "/.local/state/ralph", "XDG_STATE_HOME": "/.local/state"}
_SECRET_PARTS = words_of(
    "TOKEN SECRET PASSWORD PASSWD API_KEY APIKEY ACCESS_KEY PRIVATE_KEY CREDENTIAL _PAT DATABASE_URL AUTH_KEY"
)


def is_secret_name(name: str) -> bool:
    upper = name.upper()
    return any(part in upper for part in _SECRET_PARTS) and not upper.endswith(("_FILE", "_PATH", "TOKENS"))


def inherited(name: str, context: ShellContext) -> str:
    """Return the value of an environment variable, with marks for unknown parts."""
    if name == "HOME":
        return context.home
    if is_secret_name(name):
        return SECRET
    if name in context.env:
        return context.env[name]
    if name in _STATE:
        return context.home + _STATE[name]
    if name in ("USER", "LOGNAME"):
        return context.home.rpartition("/")[2]
    return _USUAL.get(name, UNSET)
