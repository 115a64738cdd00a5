"""Writes a project's settings file, and keeps a backup of the previous one."""

from __future__ import annotations

import itertools
import os
import stat
from contextlib import suppress
from pathlib import Path

from ralph.errors import RalphError
from ralph.store import files
from ralph.store.runtime import DIRECTORY, ignore_runtime_files

NAME = "settings.json"
PATH = f"{DIRECTORY}/{NAME}"


def check_writable(project: Path) -> None:
    """Fail early where `write` would fail, without creating anything."""
    with files.opened_directory(str(project)) as parent:
        inside = files.status_of(parent, DIRECTORY) is not None
        if inside:
            with files.opened_directory(DIRECTORY, parent) as directory:
                _check_old(files.status_of(directory, NAME))
        place = project / DIRECTORY if inside else project
        if not os.access(place, os.W_OK | os.X_OK):
            raise RalphError(f"{place} is not writable.", "Check its owner and mode.")


def exists(project: Path) -> bool:
    return os.path.lexists(project / PATH)


def write(project: Path, data: bytes) -> str | None:
    """Replace the settings file. An error leaves everything as it was.

    Returns the path of the backup if the previous file was different.
    """
    try:
        with files.opened_directory(str(project)) as parent:
            is_new = files.status_of(parent, DIRECTORY) is None
            try:
                with files.opened_directory(DIRECTORY, parent, make=True) as directory:
                    ignore_runtime_files(directory)
                    kept = _replace(directory, data)
            except BaseException:
                if is_new:
                    _remove(parent)
                raise
    except OSError as error:
        raise RalphError(f"{PATH} cannot be written: {error.strerror}.") from None
    return f"{DIRECTORY}/{kept}" if kept else None


def _replace(directory: int, data: bytes) -> str | None:
    old = files.status_of(directory, NAME)
    _check_old(old)
    mode = stat.S_IMODE(old.st_mode) if old and stat.S_ISREG(old.st_mode) else 0o644
    if old is None or (stat.S_ISREG(old.st_mode) and _holds(directory, data)):
        files.write(directory, NAME, data, mode=mode)
        return None
    kept = _keep(directory)
    try:
        files.write(directory, NAME, data, mode=mode)
    except BaseException:
        os.rename(kept, NAME, src_dir_fd=directory, dst_dir_fd=directory)
        with suppress(FileNotFoundError):  # if both names are the same file, renaming does nothing
            os.unlink(kept, dir_fd=directory)
        raise
    return kept


def _keep(directory: int) -> str:
    """Back up the old file, even a link or an unreadable one, without overwriting an earlier backup."""
    names = (f"{NAME}.bak{suffix}" for suffix in itertools.chain([""], (f".{n}" for n in itertools.count(2))))
    name = next(name for name in names if files.status_of(directory, name) is None)
    try:
        os.link(NAME, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError:  # a file system without hard links, or another user's file
        os.rename(NAME, name, src_dir_fd=directory, dst_dir_fd=directory)
    return name


def _remove(parent: int) -> None:
    """Remove the directory that was created for a file which could not be written."""
    with suppress(OSError, RalphError), files.opened_directory(DIRECTORY, parent) as directory:
        os.unlink(".gitignore", dir_fd=directory)
    with suppress(OSError):
        os.rmdir(DIRECTORY, dir_fd=parent)


def _holds(directory: int, data: bytes) -> bool:
    try:
        descriptor = os.open(NAME, files.OLD_FILE, dir_fd=directory)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        return file.read(len(data) + 1) == data


def _check_old(old: os.stat_result | None) -> None:
    if old is not None and not (stat.S_ISREG(old.st_mode) or stat.S_ISLNK(old.st_mode)):
        kind = "a directory" if stat.S_ISDIR(old.st_mode) else "not a regular file"
        raise RalphError(f"{PATH} is {kind}.", f"Move it away: mv {PATH} {PATH}.old")
