"""Machine state: services, schedules, packages, users, the kernel, processes, daemons."""

from __future__ import annotations

import re

from ralph.guard.model import DenyRule
from ralph.guard.patterns import is_harmless
from ralph.shell.arguments import has_option
from ralph.shell.code.languages import language
from ralph.shell.command import FORK_BOMB, SimpleCommand
from ralph.shell.context import ShellContext
from ralph.shell.processes import asks_broadly
from ralph.shell.words import EVERYONE, UNKNOWN, words_of

CATEGORY = "system"
_AS_ROOT = ("sudo", "doas", "pkexec")
_MANAGERS = words_of(
    "apt apt-get aptitude dnf yum zypper pacman apk emerge snap flatpak port nix-env dpkg rpm brew"
    " pip pip3 npm gem yarn pnpm make cargo add-apt-repository tdnf opkg"
)


def _kill(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program not in ("kill", "pkill", "killall", "skill", "killall5", "tkill"):
        return False
    if is_harmless(command) or {"-l", "-L", "--list"} & set(command.args):
        return False
    if command.program in ("killall", "killall5", "skill"):
        return "-0" not in command.args
    return _kills_many(command) if command.program == "kill" else asks_broadly(command)


def _kills_many(command: SimpleCommand) -> bool:
    words = list(command.args)
    if words and words[0] in ("-s", "-n", "--signal"):
        words = words[2:]
    elif (words and words[0].startswith("-") and words[0] not in ("-1", "--")) or (
        len(words) > 1 and words[0] == "-1"
    ):
        words = words[1:]
    return any(
        word in ("-1", "1", "0", "-0") or EVERYONE in word or "PPID" in word or "*" in word
        for word in words
        if word != "--"
    ) or any(word == f"-{UNKNOWN}$$" for word in words)


def _root_packages(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether packages are installed system-wide as root."""
    if is_harmless(command) or not set(_AS_ROOT) & set(command.wrappers):
        return False
    if command.program not in _MANAGERS:
        return False
    reading = frozenset(words_of("update list search show info -l -s --list policy check-update build test"))
    return not reading & set(command.args[:2]) and bool(command.args)


def _daemon(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether it starts a process that outlives the iteration."""
    if command.program == "nohup":
        return command.background
    if language(command.program) and ("setsid" in command.code or "daemon(" in command.code):
        return True
    if command.program == "setsid":
        return bool(command.args) and not has_option(command, "-w") and not is_harmless(command)
    return False


def _root_shell(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program in ("sudo", "doas"):
        from ralph.shell.arguments import skip_options
        from ralph.shell.code.languages import SHELLS

        rest = skip_options(command.args, "-u -g -h -p -C -D -R -T -U --user --group")
        if not rest:
            return any(has_option(command, each) for each in ("-i", "-s", "--login", "--shell"))
        return (rest[0].rpartition("/")[2] in SHELLS and len(rest) == 1 and not command.stdin) or (
            rest[0] == "su" and len(rest) < 3
        )
    return (
        command.program == "su"
        and not has_option(command, "-c")
        and "--command" not in command.args
        and not is_harmless(command)
    )


def _fork_bomb(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program == FORK_BOMB:
        return True
    return bool(command.code) and bool(
        re.search(
            r"fork\(?\)?\s+while|while[^;\n]*:?[^;\n]*\bfork\b|fork\s+until|loop\s*\{?\s*fork", command.code
        )
    )


def _sysctl(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program != "sysctl" or is_harmless(command):
        return False
    return any(word in ("-w", "--write", "-p", "--load", "--system") or "=" in word for word in command.args)


def _crontab(command: SimpleCommand, context: ShellContext) -> bool:
    return command.program == "crontab" and {"-l"} != set(command.args) and not is_harmless(command)


def _firewall(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program not in words_of("iptables ip6tables ufw nft firewall-cmd pfctl ebtables ipset"):
        return False
    reading = {"-L", "--list", "-S", "status", "list", "--list-all", "-nL", "--state", "-nvL", "-sr"}
    return not reading & set(command.args) and not is_harmless(command)


def _network(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program == "ip":
        return bool({"add", "del", "delete", "set", "flush", "replace", "change"} & set(command.args))
    if command.program in ("ifconfig", "route"):
        return bool({"up", "down", "add", "del", "delete", "flush", "netmask"} & set(command.args))
    return False


_STOP = "Shuts down, restarts or suspends the machine. Leave that to the user."
_SERVICE = "Changes system services. Start the program you need as a child process of your command."
_USERS = "Changes user accounts. Leave that to the user."
_PACKAGES = "Changes system packages. Install into the project instead."
_DAEMON = "Starts a process that outlives the iteration. Run it in the foreground, or as a job that you stop."
_LATER = "Schedules a command to run after this iteration. Run it now, or leave it to the user."
_KERNEL = "Changes the kernel or its settings. Leave that to the user."

RULES = (
    DenyRule(
        "services",
        CATEGORY,
        _SERVICE,
        (
            "systemctl start|stop|restart|reload|enable|disable|mask|unmask|kill|isolate|daemon-reload|set-default|edit|revert|link|daemon-reexec|try-restart|set-property|reset-failed",
            "service|rc-service|invoke-rc.d|sv|initctl * stop|start|restart|reload|down|up|force-reload",
            "initctl stop|start|restart|reload",
            "update-rc.d|insserv",
            "chkconfig|rc-update ~on|off|reset|add|del|delete !--list|show",
            "supervisorctl|monit start|stop|restart|reload|shutdown|remove|update|reread|quit|unmonitor",
            "loginctl terminate-*|kill-*|lock-*|enable-linger|disable-linger|flush-devices",
            "launchctl load|unload|bootout|bootstrap|remove|disable|enable|kickstart|kill|stop|start",
            "brew services start|stop|restart|run|kill",
        ),
    ),
    DenyRule(
        "power",
        CATEGORY,
        _STOP,
        (
            "systemctl poweroff|reboot|halt|suspend|hibernate|kexec|rescue|emergency|soft-reboot",
            "shutdown|reboot|halt|poweroff|kexec",
            "init|telinit 0|1|6",
        ),
    ),
    DenyRule("crontab", CATEGORY, _LATER, _crontab),
    DenyRule(
        "run-later",
        CATEGORY,
        _LATER,
        (
            "at|batch !-l|-c|-V",
            "atrm|anacron",
            "systemd-run",
            "git maintenance start|register",
        ),
    ),
    DenyRule(
        "packages",
        CATEGORY,
        _PACKAGES,
        (
            "apt|apt-get|aptitude|dnf|yum|zypper|brew|snap|flatpak|apk|tdnf remove|purge|autoremove|uninstall|erase|autopurge|del|rm|dist-upgrade|full-upgrade|downgrade|distro-sync !-s|--simulate",
            "pip|pip3 install|uninstall --break-system-packages",
            "snap install|refresh|revert|disable",
            "pacman -R*|-Rns|-Rs|-Syu|-Su",
            "dpkg -r|-P|--remove|--purge|--force-all|-i|--install|--configure",
            "rpm -e|--erase|-U|-i|--install|-F",
        ),
    ),
    DenyRule("root-packages", CATEGORY, _PACKAGES, _root_packages),
    DenyRule(
        "users",
        CATEGORY,
        _USERS,
        "useradd|userdel|usermod|adduser|deluser|groupadd|groupdel|groupmod|addgroup|delgroup|passwd|chpasswd|chsh|chfn|gpasswd|vipw|vigr|visudo|chage|sudoedit|newusers|dscl|sysadminctl|dseditgroup",
    ),
    DenyRule(
        "kernel",
        CATEGORY,
        _KERNEL,
        (
            "insmod|rmmod|modprobe|kmod|depmod|dkms|kextload|kextunload !-n|--show|-l|--list",
            "bpftool|csrutil|nvram|spctl|grubby|kpatch",
        ),
    ),
    DenyRule("sysctl", CATEGORY, _KERNEL, _sysctl),
    DenyRule("firewall", CATEGORY, "Changes the firewall. Leave that to the user.", _firewall),
    DenyRule(
        "network-setup", CATEGORY, "Changes the network configuration. Leave that to the user.", _network
    ),
    DenyRule(
        "machine-settings",
        CATEGORY,
        "Changes system settings. Leave that to the user.",
        (
            "rfkill block",
            "hostname ~*",
            "nmcli networking|radio|n|r ~off",
            "dmesg -C|-c|--clear",
            "update-alternatives|alternatives --set|--install|--remove|--remove-all|--config|--auto",
            "hostnamectl|timedatectl|localectl|dpkg-reconfigure|networksetup|scutil|systemsetup|pmset|tmutil|authconfig|nmcli|resolvectl|raspi-config|defaults set-*|set|write|delete|-set*|config|*--set*|disable*|modify|down|up|connection|revert",
        ),
    ),
    DenyRule(
        "clock",
        CATEGORY,
        "Sets the system clock. Leave that to the user.",
        (
            "date -s|--set",
            "hwclock|ntpdate",
        ),
    ),
    DenyRule(
        "kill-many",
        CATEGORY,
        "Kills Ralph, all processes, or processes that you did not start. Kill your own by PID or job: `kill %1`.",
        _kill,
    ),
    DenyRule(
        "fork-bomb",
        CATEGORY,
        "Starts copies of itself until the machine stops responding. Do not run it.",
        _fork_bomb,
    ),
    DenyRule("daemon", CATEGORY, _DAEMON, _daemon),
    DenyRule(
        "daemon-tools",
        CATEGORY,
        _DAEMON,
        (
            "disown",
            "daemonize|daemon|start-stop-daemon",
            "tmux new|new-session -d",
            "screen -d|-dm|-dmS",
            "pm2|forever start|startup|restart|kill",
        ),
    ),
    DenyRule(
        "root-shell",
        CATEGORY,
        "Opens a shell as another user. Run single commands as the current user.",
        _root_shell,
    ),
    DenyRule(
        "logs",
        CATEGORY,
        "Deletes system logs. Leave them to the user.",
        "journalctl --vacuum-size|--vacuum-time|--rotate|--flush|--vacuum-files",
    ),
)
