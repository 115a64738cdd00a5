"""Deletion of the root directory, home directories, the repository, and anything above or outside it."""

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
    """Return the zones of the paths that a command deletes. In a container, only mounted paths count."""
    if is_harmless(command) and command.program != "rm":
        return []
    if command.mounts is not None:
        return [zone for word in effects.deleted(command) for zone in _mounted(word, command, context)]
    if command.program == "git":
        return []  # the git rules judge it
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
"""Paths that a long-running container or a volume needs."""


def _mounted(word: Word, command: SimpleCommand, context: ShellContext) -> list[str]:
    """Return the host zones of a path deleted in a container. Files of a throwaway container do not count."""
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
    """Whether `mv` moves a file from outside into the project."""
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
    """Return the zone of an unknown entry of a directory."""
    found = paths.zone(parent, context)
    if found in (paths.REPOSITORY, paths.INSIDE) or parent in ("/tmp", "/var/tmp"):
        return paths.INSIDE
    return found


def _in(*zones: str):  # type: ignore[no-untyped-def]
    def match(command: SimpleCommand, context: ShellContext) -> bool:
        return any(zone in zones for zone in _zones(command, context))

    return match


def _truncated(command: SimpleCommand, context: ShellContext) -> bool:
    """`> file` outside the project, with nothing to write to it."""
    if command.program not in (":", "true"):
        return False
    found = (paths.zone_of(word, command.directory, context) for word in effects.written(command))
    return any(zone in (paths.OUTSIDE, paths.HOME) for zone in found)


RULES = (
    DenyRule(
        "delete-root",
        CATEGORY,
        "Deletes the root directory. Name a directory inside the project instead.",
        _in(paths.ROOT),
    ),
    DenyRule(
        "delete-home",
        CATEGORY,
        "Deletes a home directory. Name a directory inside the project instead.",
        _in(paths.HOME),
    ),
    DenyRule(
        "delete-parent",
        CATEGORY,
        "Deletes a directory that contains the project. Name a directory inside the project instead.",
        _in(paths.ABOVE),
    ),
    DenyRule(
        "delete-repository",
        CATEGORY,
        "Deletes the whole repository. Delete individual files by name instead.",
        _in(paths.REPOSITORY),
    ),
    DenyRule(
        "delete-git",
        CATEGORY,
        "Deletes files in .git, which holds the history. Use git commands instead.",
        _in(paths.GIT),
    ),
    DenyRule(
        "delete-system",
        CATEGORY,
        "Deletes system files. Work inside the project or under /tmp.",
        _in(paths.SYSTEM, paths.DEVICE),
    ),
    DenyRule(
        "delete-outside",
        CATEGORY,
        "Deletes files outside the project. Work inside the project or under /tmp.",
        _in(paths.OUTSIDE, paths.STARTUP),
    ),
    DenyRule(
        "empty-outside",
        CATEGORY,
        "Empties a file outside the project. Work inside the project or under /tmp.",
        _truncated,
    ),
)
