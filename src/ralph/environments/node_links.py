"""Links and paths in installed packages: led from the user's checkout to a copy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ralph.environments.base import Copy, inside
from ralph.environments.copying import repoint_file, text_of

_STORES = {".pnpm", ".bun", ".store"}
"""Directories of node_modules where a package manager keeps the packages that links lead to."""

_MAX_SHIM_BYTES = 100_000


def repoint_modules(copy: Copy, modules: Path, was: Path) -> None:
    """Lead the links, command shims and state files of a node_modules that was made at `was` to the copy."""
    for entry in _entries(modules):
        path = Path(entry.path)
        if entry.is_symlink():
            _repoint_link(copy, path, was / path.relative_to(modules).parent)
        elif entry.stat().st_size <= _MAX_SHIM_BYTES:
            repoint_file(copy, path)
    for entry in os.scandir(modules):
        if entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
            repoint_file(copy, Path(entry.path))


def _repoint_link(copy: Copy, link: Path, was_in: Path) -> None:
    """Lead an absolute link to the copy. A relative one that leaves the checkout becomes absolute."""
    target = os.readlink(link)
    if os.path.isabs(target):
        wanted = copy.moved(target)
    else:
        reached = os.path.normpath(was_in / target)
        wanted = target if inside(reached, copy.origin) is not None else reached
    if wanted != target:
        link.unlink()
        link.symlink_to(wanted)


def _entries(modules: Path) -> Iterator[os.DirEntry[str]]:
    """The links to packages and the commands in a node_modules, with those of the packages in it."""
    pending = [str(modules)]
    while pending:
        for entry in _scanned(pending.pop()):
            if entry.is_symlink():
                yield entry
            elif not entry.is_dir():
                continue
            elif entry.name == ".bin":
                yield from _scanned(entry.path)
            elif entry.name in _STORES:
                kept = [entry.path, *(stored.path for stored in _scanned(entry.path))]
                pending += [os.path.join(each, "node_modules") for each in kept]
            elif entry.name.startswith("@"):
                pending.append(entry.path)
            else:
                pending.append(os.path.join(entry.path, "node_modules"))


def _scanned(directory: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(directory))
    except OSError:
        return []


def links_outside(copy: Copy, modules: Path) -> Iterator[tuple[Path, str]]:
    """The links in the first levels of a node_modules of the copy that leave it, with their real paths."""
    for entry in _first_levels(modules):
        if entry.is_symlink():
            real = os.path.realpath(entry.path)
            if inside(real, copy.top) is None:
                yield Path(entry.path), real


def _first_levels(modules: Path) -> Iterator[os.DirEntry[str]]:
    for entry in _scanned(str(modules)):
        yield entry
        if entry.name == ".bin" or entry.name.startswith("@"):
            yield from _scanned(entry.path)


# ---- Yarn Plug'n'Play ----


_LOCATION = re.compile(r'(?<="packageLocation": ")[^"\\]*(?=")')
_VIRTUAL = re.compile(r"(?P<above>(?:.*/)?)(?P<name>__virtual__/[^/]+)/(?P<steps>\d+)/(?P<rest>.*)")


def repoint_plug_and_play(copy: Copy, file: Path, was: Path, becomes: Path) -> None:
    """Rewrite the package locations outside the project, which are relative to it, for the copy's directory."""
    text = file.read_text()
    file.write_text(_LOCATION.sub(lambda match: _location(copy, match[0], was, becomes), text))
    repoint_file(copy, file)


def locations(file: Path) -> list[str]:
    """The directories and archives that a Plug'n'Play file leads to."""
    found = _LOCATION.findall(text_of(file))
    return [os.path.normpath(file.parent / _devirtualized(location)) for location in found]


def _location(copy: Copy, location: str, was: Path, becomes: Path) -> str:
    reached = os.path.normpath(was / _devirtualized(location))
    if inside(reached, copy.origin) is not None:
        return location
    end = "/" * location.endswith("/")
    virtual = _VIRTUAL.fullmatch(location)
    if virtual is None:
        return os.path.relpath(reached, becomes) + end
    relative = os.path.relpath(reached, becomes / virtual["above"])
    steps = relative.split("/").count("..")
    return f"{virtual['above']}{virtual['name']}/{steps}/{relative.removeprefix('../' * steps)}{end}"


def _devirtualized(location: str) -> str:
    """The path that a location of a virtual package stands for: up by some directories, then down."""
    virtual = _VIRTUAL.fullmatch(location)
    return f"{virtual['above']}{'../' * int(virtual['steps'])}{virtual['rest']}" if virtual else location
