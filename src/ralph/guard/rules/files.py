"""Writes to devices, system files, startup files, .git, and the files of Ralph and of the agents."""

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
    """Match commands that write a file in one of these zones. For Ralph, agent and git files, modes count too."""
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
        "Writes to Ralph's own files, which decide how the run is judged. Leave them unchanged.",
        writes(paths.HARNESS),
    ),
    DenyRule(
        "agent-settings",
        HARNESS,
        "Changes an agent's settings or hooks. Leave them to the user and say in your answer what should change.",
        writes(paths.AGENT),
    ),
    DenyRule(
        "harness-variables",
        HARNESS,
        "Changes a variable that belongs to Ralph. Run the command without setting it.",
        _own_variables,
    ),
    DenyRule(
        "harness-commands",
        HARNESS,
        "Stops or changes the run that you are part of. Finish your work; Ralph decides what comes next.",
        _own_command,
    ),
    DenyRule(
        "agent-commands",
        HARNESS,
        "Changes an agent's configuration. Leave it to the user and say in your answer what should change.",
        _agent_command,
    ),
    DenyRule(
        "git-files",
        GIT,
        "Writes to .git directly. Use git commands, and leave hooks and configuration to the user.",
        writes(paths.GIT),
    ),
    DenyRule(
        "raw-device",
        DISKS,
        "Writes to a device. Write to a file inside the project instead.",
        writes(paths.DEVICE),
    ),
    DenyRule(
        "system-files",
        SYSTEM,
        "Writes system files. Work inside the project or under /tmp.",
        writes(paths.SYSTEM, paths.ROOT),
    ),
    DenyRule(
        "startup-files",
        SYSTEM,
        "Changes a startup file of the user's shell or tools. Set it for this command only, or ask the user.",
        writes(paths.STARTUP),
    ),
    DenyRule(
        "preload",
        SYSTEM,
        "Loads code into every program that starts. Run the command without it.",
        _preload,
    ),
)
