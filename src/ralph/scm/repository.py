"""Where a repository is, found without starting git."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Repository:
    """A working tree, its own git directory, and the one that all its worktrees share."""

    top: Path
    git_dir: Path
    common: Path


def find_repository(directory: Path) -> Repository | None:
    """The repository a directory is in."""
    for top in (directory, *directory.parents):
        if found := repository_at(top):
            return found
    return None


def repository_at(top: Path) -> Repository | None:
    """The repository whose working tree begins here."""
    dot_git = top / ".git"
    if (dot_git / "HEAD").is_file():
        return Repository(top, dot_git, dot_git)
    if dot_git.is_file():
        return _linked(top, dot_git)
    return None


def _linked(top: Path, dot_git: Path) -> Repository | None:
    """A linked worktree or a submodule: its `.git` is a file that says where the directory is."""
    try:
        text = dot_git.read_text()
        if not text.startswith("gitdir:"):
            return None
        git_dir = (top / text.removeprefix("gitdir:").strip()).resolve()
        if not (git_dir / "HEAD").is_file():
            return None
        shared = git_dir / "commondir"
        common = (git_dir / shared.read_text().strip()).resolve() if shared.exists() else git_dir
        return Repository(top, git_dir, common)
    except (OSError, UnicodeDecodeError):
        return None
