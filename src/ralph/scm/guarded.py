"""What makes git start programs, in a repository that sandboxed commands can write to: put back after each of them.

The harness's own git runs none of it anyway; this is for the user's, later. Looked at only when everything that could
change it meanwhile has ended. A link in its place is removed, never followed.
"""

from __future__ import annotations

import filecmp
import os
import shutil
from pathlib import Path

_FILES = ("config", "config.worktree", "commondir")
_HOOKS = "hooks"


class GuardedGit:
    """The configuration and the hooks of one git directory; `copy`: how they were."""

    def __init__(self, git_dir: Path, copy: Path) -> None:
        self._git_dir = git_dir
        self._copy = copy

    def remember(self) -> list[str]:
        """Before the first command. What a killed ralph could not put back is put back now; returns that."""
        undone = self.put_back() if self._copy.exists() else []
        self.forget()
        partial = self._copy.with_suffix(".new")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name in _FILES:
            if (self._git_dir / name).is_file():
                shutil.copy2(self._git_dir / name, partial / name)
        if (self._git_dir / _HOOKS).is_dir():
            shutil.copytree(self._git_dir / _HOOKS, partial / _HOOKS, symlinks=True)
        partial.rename(self._copy)
        return undone

    def forget(self) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)

    def put_back(self) -> list[str]:
        """Returns what had been changed."""
        if self._git_dir.is_symlink() or not self._git_dir.is_dir():
            return []  # another one is there, and the harness refuses to use that
        changed = [
            name for name in (*_FILES, _HOOKS) if not _is_same(self._git_dir / name, self._copy / name)
        ]
        for name in changed:
            _remove(self._git_dir / name)
            if (self._copy / name).is_dir():
                shutil.copytree(self._copy / name, self._git_dir / name, symlinks=True)
            elif (self._copy / name).is_file():
                shutil.copy2(self._copy / name, self._git_dir / name)
        return changed


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_same(now: Path, then: Path) -> bool:
    """Links are compared as links."""
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
