"""Writing what is not the agent's: devices, the system, start-up files, git's own files, the harness, the agents."""

from __future__ import annotations

from ralph.guard.model import DenyRule
from ralph.guard.patterns import is_harmless
from ralph.shell import effects, paths
from ralph.shell.command import ASSIGNMENT, SimpleCommand
from ralph.shell.context import ShellContext
from ralph.shell.words import words_of

HARNESS = "harness"
SYSTEM = "system"
DISKS = "disks"
GIT = "git"


def writes(*zones: str):  # type: ignore[no-untyped-def]
    """Does it write a file in one of these zones? Of those that are nobody's to change, not even the mode."""
    is_own = bool({paths.HARNESS, paths.AGENT, paths.GIT} & set(zones))

    def match(command: SimpleCommand, context: ShellContext) -> bool:
        if is_harmless(command) and not command.redirects:
            return False
        for word in effects.changed(command) if is_own else effects.written(command):
            path = paths.resolve(word, command.directory, context)
            if path is None or path in ("/tmp", "/var/tmp"):
                continue
            found = paths.zone(paths.contents(path, word), context)
            if found in zones and not _is_usual(command, path):
                return True
        return False

    return match


def _is_usual(command: SimpleCommand, path: str) -> bool:
    return (
        command.program == "mkdir"
        and "-p" in command.args
        and path.rstrip("/").endswith((".ssh", ".docker", ".aws"))
    )


_OWN_VARIABLES = ("RALPH_", "CLAUDE_CODE_STOP_HOOK", "GIT_CONFIG", "BASH_ENV", "LD_PRELOAD", "PROMPT_COMMAND")


def _own_variables(command: SimpleCommand, context: ShellContext) -> bool:
    names = list(command.assigns)
    if command.program == ASSIGNMENT:
        names.append(command.args[0])
    elif command.program in ("unset", "export", "declare"):
        names += [word.partition("=")[0] for word in command.args]
    elif command.program == "env":
        for number, word in enumerate(command.args):
            if word in ("-u", "--unset") and number + 1 < len(command.args):
                names.append(command.args[number + 1])
            elif word.startswith("--unset="):
                names.append(word.partition("=")[2])
    return any(name.startswith(("RALPH_", "CLAUDE_CODE_STOP_HOOK")) for name in names)


def _preload(command: SimpleCommand, context: ShellContext) -> bool:
    names = (
        [*command.assigns, *command.args[:1]]
        if command.program in (ASSIGNMENT, "export")
        else list(command.assigns)
    )
    return any(
        name.partition("=")[0] in ("LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "PROMPT_COMMAND")
        for name in names
    )


def _own_command(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program == "ralph":
        return bool(command.args) and command.args[0] in words_of(
            "cancel prune rewind pause resume steer init"
        )
    words = command.args
    removes = {"uninstall", "remove", "upgrade"} & set(words)
    return bool(removes) and any("ralph-harness" in word for word in words)


def _agent_command(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program not in ("claude", "codex", "gemini", "opencode"):
        return False
    return bool(command.args) and command.args[0] in words_of(
        "config mcp plugin hooks login logout setup-token"
    )


RULES = (
    DenyRule(
        "harness-files",
        HARNESS,
        "These are Ralph's own files: the run is judged by them. Leave them as they are.",
        writes(paths.HARNESS),
    ),
    DenyRule(
        "agent-settings",
        HARNESS,
        "These are the settings and hooks of an agent. Leave them to the user; say in your answer what should change.",
        writes(paths.AGENT),
    ),
    DenyRule(
        "harness-variables",
        HARNESS,
        "Variables of the harness are not yours to change. Run the command without it.",
        _own_variables,
    ),
    DenyRule(
        "harness-commands",
        HARNESS,
        "It stops or changes the run that you are part of. Finish your work; the harness decides what follows.",
        _own_command,
    ),
    DenyRule(
        "agent-commands",
        HARNESS,
        "It changes how an agent is set up. Leave that to the user; say in your answer what should change.",
        _agent_command,
    ),
    DenyRule(
        "git-files",
        GIT,
        "It writes into .git directly. Use git commands; hooks and configuration are the user's.",
        writes(paths.GIT),
    ),
    DenyRule(
        "raw-device",
        DISKS,
        "It writes to a device. Write to a file inside the project.",
        writes(paths.DEVICE),
    ),
    DenyRule(
        "system-files",
        SYSTEM,
        "It writes files of the system. Work inside the project, or below /tmp.",
        writes(paths.SYSTEM, paths.ROOT),
    ),
    DenyRule(
        "startup-files",
        SYSTEM,
        "It changes what the user's shell or tools start with. Set it for the command alone, or tell the user.",
        writes(paths.STARTUP),
    ),
    DenyRule(
        "preload",
        SYSTEM,
        "It loads code into every program that is started. Run the command without it.",
        _preload,
    ),
)
