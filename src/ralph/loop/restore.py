"""Restores files that a sandboxed command could change to start programs outside later.

These are git's configuration and hooks, links where git writes, and Ralph's settings. Ralph's own git calls ignore
them and a run does not read settings again, so this protects the user's later commands. Files are restored only after
every process that could change them has exited. A link in place of a file is removed, never followed.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

OF_GIT = ("config", "config.worktree", "commondir", "gitdir", "hooks")
OF_RALPH = ("settings.json", "settings.local.json")


class RestoredFiles:
    """Files of one directory, restored from `copy`."""

    def __init__(self, directory: Path, names: Sequence[str], copy: Path) -> None:
        self._directory = directory
        self._names = names
        self._copy = copy

    def remember(self) -> list[str]:
        """Copy the files before the first command. Before that, restore and return files that a killed run left changed."""
        undone = self.put_back() if self._copy.exists() else []
        self.forget()
        partial = self._copy.with_suffix(".new")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name in self._names:
            _copy(self._directory / name, partial / name)
        partial.rename(self._copy)
        return undone

    def forget(self) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)

    def put_back(self) -> list[str]:
        """Restore and return changed files; if the directory itself was replaced, touch nothing."""
        open_up(self._directory.parent)
        open_up(self._directory)
        if self._directory.is_symlink() or not self._directory.is_dir():
            return []
        pairs = {name: (self._directory / name, self._copy / name) for name in self._names}
        changed = [name for name, (now, then) in pairs.items() if not _is_readable_and_same(now, then)]
        for name in changed:
            now, then = pairs[name]
            _remove(now)
            _copy(then, now)
        return [str(pairs[name][0]) for name in changed]


class RemovedLinks:
    """Removes new links in git's directories: git would write through them to any place."""

    def __init__(self, directories: Sequence[Path], copy: Path) -> None:
        self._directories = directories
        self._copy = copy

    def remember(self) -> list[str]:
        """Like `RestoredFiles.remember`."""
        undone = self.put_back() if self._copy.exists() else []
        self._copy.parent.mkdir(parents=True, exist_ok=True)
        self._copy.write_bytes(b"\0".join(map(os.fsencode, self._links())))
        return undone

    def forget(self) -> None:
        self._copy.unlink(missing_ok=True)

    def put_back(self) -> list[str]:
        known = set(self._copy.read_bytes().split(b"\0"))
        new = [link for link in self._links() if os.fsencode(link) not in known]
        for link in new:
            Path(link).unlink(missing_ok=True)
        return new

    def _links(self) -> list[str]:
        """Links and pipes (git would block on one). Objects are skipped: too many, and git chooses their names."""
        found: list[str] = []
        waiting = [str(directory) for directory in self._directories]
        left_out = {f"{directory}/{name}" for directory in waiting for name in _NOT_SEARCHED}
        while waiting:
            directory = waiting.pop()
            open_up(directory)
            with suppress(OSError), os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting += {entry.path} - left_out
                    elif not entry.is_file(follow_symlinks=False):
                        found.append(entry.path)
        return found


_NOT_SEARCHED = ("objects", "modules", "hooks", "annex", "lfs")


def open_up(path: Path | str) -> None:
    """Restore the owner's access, which a sandboxed command may have removed."""
    with suppress(OSError):
        mode = os.lstat(path).st_mode
        needed = stat.S_IRWXU if stat.S_ISDIR(mode) else stat.S_IRUSR if stat.S_ISREG(mode) else 0
        if mode & needed != needed:
            os.chmod(path, stat.S_IMODE(mode) | needed)


def _open_all(path: Path) -> None:
    open_up(path)
    for root, directories, files in os.walk(path):
        for name in (*directories, *files):
            open_up(os.path.join(root, name))


def take_away(path: Path, target: Path) -> None:
    """Move a path away, whatever its permissions."""
    open_up(path.parent)
    _open_all(path)
    shutil.move(path, target)


def _copy(source: Path, target: Path) -> None:
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
    elif source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    elif source.is_file():
        shutil.copy2(source, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        _open_all(path)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_readable_and_same(now: Path, then: Path) -> bool:
    try:
        return _is_same(now, then)
    except PermissionError:
        return False


def _is_same(now: Path, then: Path) -> bool:
    """Whether both paths have the same content and mode; links are compared as links."""
    if now.is_symlink() or then.is_symlink():
        return now.is_symlink() and then.is_symlink() and os.readlink(now) == os.readlink(then)
    if now.is_dir() and then.is_dir():
        names = os.listdir(now)
        if sorted(names) != sorted(os.listdir(then)):
            return False
        return all(_is_same(now / name, then / name) for name in names)
    if now.is_file() and then.is_file():
        same_mode = now.stat().st_mode == then.stat().st_mode
        return same_mode and filecmp.cmp(now, then, shallow=False)
    return not os.path.lexists(now) and not os.path.lexists(then)
