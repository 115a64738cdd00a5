"""Deletion of the root, of homes, of the repository, of what lies above or outside of it."""

from __future__ import annotations

import re

from ralph.guard.model import DenyRule
from ralph.guard.patterns import is_harmless
from ralph.shell import arguments, effects, paths
from ralph.shell.command import SimpleCommand
from ralph.shell.context import ShellContext
from ralph.shell.words import UNKNOWN, Word

CATEGORY = "deletion"


def _zones(command: SimpleCommand, context: ShellContext) -> list[str]:
    """Where what it deletes lies. In a container that is not here."""
    if is_harmless(command) and command.program != "rm":
        return []
    if command.mounts is not None:
        return [zone for word in effects.deleted(command) for zone in _mounted(word, command, context)]
    if command.program == "git":
        return []  # judged by what git makes of it
    if command.program == "rsync" and {"-n"} & set(command.args):
        return []
    found = [_zone(word, command, context) for word in effects.deleted(command)]
    if command.program == "mv" and _comes_in(command, context):
        found = [zone for zone in found if zone != paths.OUTSIDE]
    return found


_KEPT = (
    r"^/(?:bin|boot|etc|home|lib\w*|mnt|opt|root|sbin|srv|usr|var|data\w*)?(?:/\*)?$|^/(?:bin|boot|etc|lib\w*|sbin|data\w*)/"
    r"|^/var/(?:lib|backups)/(?!apt|dpkg)|^/bitnami/"
)
"""What a container that goes on running, or a volume, would miss."""


def _mounted(word: Word, command: SimpleCommand, context: ShellContext) -> list[str]:
    """Where what is deleted in a container lies on the host; nothing is lost with a container of one's own."""
    path = paths.resolve(word, command.directory, context)
    found: list[str] = []
    for inside, outside in command.mounts or () if path is not None else ():
        path = paths.contents(path or "", word)
        if not outside:
            if paths.is_under(path, inside) and re.search(_KEPT, path):
                found.append(paths.SYSTEM)
        elif paths.is_under(path, inside):
            found.append(paths.zone(outside + path[len(inside) :], context))
        elif paths.is_under(inside, path):
            found.append(paths.zone(outside, context))
    return found


def _comes_in(command: SimpleCommand, context: ShellContext) -> bool:
    """A file from outside is moved into the project."""
    target = paths.resolve(command.args[-1], command.directory, context) if command.args else None
    return target is not None and paths.is_under(target, context.top)


def _zone(word: Word, command: SimpleCommand, context: ShellContext) -> str:
    path = paths.resolve(word, command.directory, context)
    if path is None:
        return paths.SOMEWHERE
    whole = paths.contents(path, word)
    takes_all = arguments.is_recursive(command) or "xargs" in command.wrappers
    if whole != path and not takes_all and command.program in ("rm", "grm"):
        is_top = whole in ("/", context.top, context.home)
        return paths.INSIDE if is_top and whole == context.top else paths.zone(whole, context)
    if whole.endswith("/" + UNKNOWN):
        return _below(whole[: -len(UNKNOWN) - 1] or "/", context)
    return paths.zone(whole, context)


def _below(parent: str, context: ShellContext) -> str:
    """Some of what lies in a directory."""
    found = paths.zone(parent, context)
    if found in (paths.REPOSITORY, paths.INSIDE) or parent in ("/tmp", "/var/tmp"):
        return paths.INSIDE
    return found


def _in(*zones: str):  # type: ignore[no-untyped-def]
    def match(command: SimpleCommand, context: ShellContext) -> bool:
        return any(zone in zones for zone in _zones(command, context))

    return match


def _truncated(command: SimpleCommand, context: ShellContext) -> bool:
    """`> file` outside of the project, with nothing to write into it."""
    if command.program not in (":", "true"):
        return False
    found = (paths.zone_of(word, command.directory, context) for word in effects.written(command))
    return any(zone in (paths.OUTSIDE, paths.HOME) for zone in found)


RULES = (
    DenyRule(
        "delete-root",
        CATEGORY,
        "It deletes the root directory. Name the directory inside the project that you mean.",
        _in(paths.ROOT),
    ),
    DenyRule(
        "delete-home",
        CATEGORY,
        "It deletes a home directory. Name the directory inside the project that you mean.",
        _in(paths.HOME),
    ),
    DenyRule(
        "delete-parent",
        CATEGORY,
        "It deletes a directory that the project lies in. Name the directory inside the project that you mean.",
        _in(paths.ABOVE),
    ),
    DenyRule(
        "delete-repository",
        CATEGORY,
        "It deletes the whole repository. Delete the files that have to go by their names.",
        _in(paths.REPOSITORY),
    ),
    DenyRule(
        "delete-git",
        CATEGORY,
        "It deletes in .git, where the history is. Use git commands to change the repository.",
        _in(paths.GIT),
    ),
    DenyRule(
        "delete-system",
        CATEGORY,
        "It deletes what belongs to the system. Work inside the project, or below /tmp.",
        _in(paths.SYSTEM, paths.DEVICE),
    ),
    DenyRule(
        "delete-outside",
        CATEGORY,
        "It deletes what lies outside of the project. Work inside the project, or below /tmp.",
        _in(paths.OUTSIDE, paths.STARTUP),
    ),
    DenyRule(
        "empty-outside",
        CATEGORY,
        "It empties a file outside of the project. Work inside the project, or below /tmp.",
        _truncated,
    ),
)
