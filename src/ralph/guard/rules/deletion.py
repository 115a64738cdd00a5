"""Deletion of the root, of homes, of the repository, of what lies above or outside of it."""

from __future__ import annotations

import re

from ralph.guard import effects, paths
from ralph.guard.model import Command, Place, Rule
from ralph.guard.patterns import is_harmless
from ralph.guard.words import UNKNOWN, Word

CATEGORY = "deletion"


def _zones(command: Command, place: Place) -> list[str]:
    """Where what it deletes lies. In a container that is not here."""
    if is_harmless(command) and command.program != "rm":
        return []
    if command.mounts is not None:
        return [zone for word in effects.deleted(command) for zone in _mounted(word, command, place)]
    if command.program == "git":
        return []  # judged by what git makes of it
    if command.program == "rsync" and {"-n"} & set(command.args):
        return []
    found = [_zone(word, command, place) for word in effects.deleted(command)]
    if command.program == "mv" and _comes_in(command, place):
        found = [zone for zone in found if zone != paths.OUTSIDE]
    return found


_KEPT = (
    r"^/(?:bin|boot|etc|home|lib\w*|mnt|opt|root|sbin|srv|usr|var|data\w*)?(?:/\*)?$|^/(?:bin|boot|etc|lib\w*|sbin|data\w*)/"
    r"|^/var/(?:lib|backups)/(?!apt|dpkg)|^/bitnami/"
)
"""What a container that goes on running, or a volume, would miss."""


def _mounted(word: Word, command: Command, place: Place) -> list[str]:
    """Where what is deleted in a container lies on the host; nothing is lost with a container of one's own."""
    path = paths.resolve(word, command.directory, place)
    found: list[str] = []
    for inside, outside in command.mounts or () if path is not None else ():
        path = paths.contents(path or "", word)
        if not outside:
            if paths.is_under(path, inside) and re.search(_KEPT, path):
                found.append(paths.SYSTEM)
        elif paths.is_under(path, inside):
            found.append(paths.zone(outside + path[len(inside) :], place))
        elif paths.is_under(inside, path):
            found.append(paths.zone(outside, place))
    return found


def _comes_in(command: Command, place: Place) -> bool:
    """A file from outside is moved into the project."""
    target = paths.resolve(command.args[-1], command.directory, place) if command.args else None
    return target is not None and paths.is_under(target, place.top)


def _zone(word: Word, command: Command, place: Place) -> str:
    path = paths.resolve(word, command.directory, place)
    if path is None:
        return paths.SOMEWHERE
    whole = paths.contents(path, word)
    takes_all = effects.is_recursive(command) or "xargs" in command.wrappers
    if whole != path and not takes_all and command.program in ("rm", "grm"):
        is_top = whole in ("/", place.top, place.home)
        return paths.INSIDE if is_top and whole == place.top else paths.zone(whole, place)
    if whole.endswith("/" + UNKNOWN):
        return _below(whole[: -len(UNKNOWN) - 1] or "/", place)
    return paths.zone(whole, place)


def _below(parent: str, place: Place) -> str:
    """Some of what lies in a directory."""
    found = paths.zone(parent, place)
    if found in (paths.REPOSITORY, paths.INSIDE) or parent in ("/tmp", "/var/tmp"):
        return paths.INSIDE
    return found


def _in(*zones: str):  # type: ignore[no-untyped-def]
    def match(command: Command, place: Place) -> bool:
        return any(zone in zones for zone in _zones(command, place))

    return match


def _truncated(command: Command, place: Place) -> bool:
    """`> file` outside of the project, with nothing to write into it."""
    if command.program not in (":", "true"):
        return False
    found = (
        paths.zone(paths.resolve(word, command.directory, place), place) for word in effects.written(command)
    )
    return any(zone in (paths.OUTSIDE, paths.HOME) for zone in found)


RULES = (
    Rule(
        "delete-root",
        CATEGORY,
        "It deletes the root directory. Name the directory inside the project that you mean.",
        _in(paths.ROOT),
    ),
    Rule(
        "delete-home",
        CATEGORY,
        "It deletes a home directory. Name the directory inside the project that you mean.",
        _in(paths.HOME),
    ),
    Rule(
        "delete-parent",
        CATEGORY,
        "It deletes a directory that the project lies in. Name the directory inside the project that you mean.",
        _in(paths.ABOVE),
    ),
    Rule(
        "delete-repository",
        CATEGORY,
        "It deletes the whole repository. Delete the files that have to go by their names.",
        _in(paths.REPOSITORY),
    ),
    Rule(
        "delete-git",
        CATEGORY,
        "It deletes in .git, where the history is. Use git commands to change the repository.",
        _in(paths.GIT),
    ),
    Rule(
        "delete-system",
        CATEGORY,
        "It deletes what belongs to the system. Work inside the project, or below /tmp.",
        _in(paths.SYSTEM, paths.DEVICE),
    ),
    Rule(
        "delete-outside",
        CATEGORY,
        "It deletes what lies outside of the project. Work inside the project, or below /tmp.",
        _in(paths.OUTSIDE, paths.STARTUP),
    ),
    Rule(
        "empty-outside",
        CATEGORY,
        "It empties a file outside of the project. Work inside the project, or below /tmp.",
        _truncated,
    ),
)
