"""Remote code, remote shells and tunnels."""

from __future__ import annotations

import re

from ralph.guard.model import DenyRule
from ralph.guard.patterns import is_harmless, operands
from ralph.shell import paths
from ralph.shell.arguments import has_option, values_of
from ralph.shell.code.languages import SHELLS, language
from ralph.shell.command import SimpleCommand
from ralph.shell.context import ShellContext
from ralph.shell.words import DECODED, NET, Word, strip_marks, words_of

CODE = "remote-code"
SHELL = "remote-shell"
_SOCKET = r"(?i)socket|fsockopen|TCPSocket|/inet/tcp|Net::Socket|net\.connect|net\.Socket|['\"]net['\"]\)|TCPClient|create_connection"
_GIVES_SHELL = r"(?i)dup2|subprocess|pty\.spawn|/bin/(?:ba|z|da)?sh|child_process|exec|spawn|\bsystem\b|popen|\bsh -i|getline|cmd\.exe"
_FETCHES = r"(?i)['\"]https?['\"]\)|urlopen|urlretrieve|requests\.get|httpx\.get|fetch\(|https?\.get|Net::HTTP|open-uri|URI\.open|LWP|file_get_contents\(['\"]http|DownloadString|Invoke-WebRequest|\biwr\b|aiohttp|axios"
_EXECUTES = r"(?i)\bexec\(|\beval\(|\beval\b|os\.system|subprocess|execSync|child_process|new Function|iex|Invoke-Expression|`|system\(|runpy|compile\("

_LOCAL = ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")


def _from_net(command: SimpleCommand, context: ShellContext) -> bool:
    if NET in command.code or NET in command.program:
        return True
    if not command.code or not language(command.program) or command.is_read:
        return False
    text = " ".join(command.args) + command.code
    hosts = re.findall(r"https?://([^/'\"`\s]+)", text)
    if hosts and all(host.startswith(_LOCAL) for host in hosts):
        return False
    return bool(re.search(_FETCHES, text)) and bool(re.search(_EXECUTES, text))


def _decoded(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program in ("powershell", "pwsh") and any(word.lower()[:4] == "-enc" for word in command.args):
        return True
    return DECODED in command.code or DECODED in command.program


def _from_address(command: SimpleCommand, context: ShellContext) -> bool:
    """Interpreters and installers that take a URL."""
    has_address = any(word.startswith(("http://", "https://")) for word in command.args)
    if command.program in ("deno", "bun") and has_address:
        return command.args[0] in ("run", "install", "eval", "x")
    if command.program in SHELLS or command.program in ("pwsh", "powershell"):
        return has_address
    if command.program in ("rpm", "dpkg", "npx", "bunx"):
        return has_address
    return command.program in ("mshta", "regsvr32")


_NETWORK_FILES = ("/dev/tcp/", "/dev/udp/")
_MENTIONING = ("echo", "grep", "rg", "printf", "git", "sed", "timeout", "time", "env", "xargs", "watch")
"""Programs whose arguments are text, or a command that is judged separately."""


def _is_here(word: str) -> bool:
    return any(f"/{host}/" in word for host in ("127.0.0.1", "localhost", "0.0.0.0", "::1"))


def _reverse(command: SimpleCommand, context: ShellContext) -> bool:
    """Match a shell or a file connected to the network. Probing a port and talking to localhost are allowed."""
    is_shell = command.program in SHELLS
    for operator, target in command.redirects:
        if is_shell and operator == "<&" and target.isdecimal() and int(target) > 2:
            return True
        if target.startswith(_NETWORK_FILES):
            is_trial = command.program in (":", "true") or _is_here(target)
            return is_shell or not is_trial
    if any(part in word and not _is_here(word) for word in command.args for part in _NETWORK_FILES):
        return not is_shell and command.program not in _MENTIONING
    return (
        bool(language(command.program))
        and not command.is_read
        and bool(re.search(_SOCKET, command.code))
        and bool(re.search(_GIVES_SHELL, command.code))
    )


_TALKERS = ("telnet", "openssl", "websocat", "nc", "ncat", "netcat", "socat")
_CATS = ("nc", "ncat", "netcat", "nc.traditional", "nc.openbsd", "pwncat")


def _is_open(command: SimpleCommand) -> bool:
    """Whether it is a shell that reads its commands from stdin."""
    return command.program in SHELLS and not strip_marks(command.code).strip()


def _netcat(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program in _TALKERS and any(_is_open(each) for each in command.upstream):
        return True
    if command.program not in _CATS or (is_harmless(command) and "-e" not in command.args):
        return False
    runs = ("-e", "-c", "--exec", "--sh-exec", "--lua-exec", "--listen", "-l")
    if any(has_option(command, each) for each in runs):
        return True
    return any(each.program in SHELLS for each in command.upstream)


def _socat(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program != "socat":
        return False
    text = " ".join(command.args).lower()
    return any(
        part in text for part in ("exec:", "system:", "listen", "tcp", "udp", "openssl", "shell:", "pty")
    )


def _ssh(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program not in ("ssh", "autossh", "plink"):
        return False
    if command.program == "autossh":
        return True
    for word in command.args:
        if word[:1] == "-" and word[1:].lstrip("46AaCfGgKkMNnqsTtVvXxYy")[:1] in ("R", "L", "D", "w"):
            return True
        if word.startswith("-o") or "=" in word:
            key = word.removeprefix("-o").strip().partition("=")[0].lower()
            if key in words_of("remoteforward localforward dynamicforward proxycommand localcommand tunnel"):
                return True
        if any(host in word for host in ("serveo.net", "localhost.run", "pinggy.io", "tunnel.us")):
            return True
    return False


_SERVERS = words_of("http.server SimpleHTTPServer serve http-server php ruby darkhttpd miniserve")


def _serves(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether a file server serves more than the project."""
    if command.program not in _SERVERS or (command.program == "php" and "-S" not in command.args):
        return False
    named = [*values_of(command.args, "-t -d --directory")]
    if command.program in ("serve", "http-server", "darkhttpd", "miniserve"):
        named += operands(command)
    zones = [paths.zone_of(word, command.directory, context) for word in named or [Word(".")]]
    return any(zone in (paths.ROOT, paths.HOME, paths.ABOVE, paths.STARTUP) for zone in zones)


_TUNNEL = "Opens this machine to others. Use localhost instead."

RULES = (
    DenyRule(
        "remote-code",
        CODE,
        "Runs code straight from the network. Download it to a file, read it, and ask the user before running it.",
        _from_net,
    ),
    DenyRule(
        "hidden-code",
        CODE,
        "Runs code that is encoded or obfuscated. Write the command in plain text.",
        _decoded,
    ),
    DenyRule(
        "code-by-address",
        CODE,
        "Runs code straight from the network. Download it to a file and read it first.",
        _from_address,
    ),
    DenyRule(
        "reverse-shell",
        SHELL,
        "Connects a shell or a file to the network. Use curl to fetch a page.",
        _reverse,
    ),
    DenyRule("netcat", SHELL, "Opens a shell or a port to others. Use `nc -z` to test a port.", _netcat),
    DenyRule("socat", SHELL, _TUNNEL, _socat),
    DenyRule(
        "serve-files",
        SHELL,
        "Serves the user's files to others. Serve a directory inside the project instead.",
        _serves,
    ),
    DenyRule("ssh-tunnel", SHELL, _TUNNEL, _ssh),
    DenyRule(
        "tunnel",
        SHELL,
        _TUNNEL,
        (
            "ngrok|cloudflared|localtunnel|lt|bore|frpc|frps|chisel|sshuttle|gost|tmate|ttyd|gotty|gs-netcat|rathole|pagekite"
            "|ztcp|localxpose|loophole|zrok|expose|wg-quick|openvpn|tor|ligolo|pwncat-cs|msfvenom|msfconsole|telebit|devtunnel|inlets|upterm",
            "tailscale funnel|serve|up|set",
            "code tunnel",
            "xterm|rxvt -display|--display",
            "vncserver|x11vnc|teamviewer|anydesk|sshd|telnetd|in.telnetd|vsftpd",
        ),
    ),
)
