"""Git, and any other version control command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Repository:
    """A git working tree, and the directory that all its worktrees share."""

    top: Path
    common: Path


def find_repository(directory: Path) -> Repository | None:
    """The repository a directory is in, found without starting git."""
    for top in (directory, *directory.parents):
        dot_git = top / ".git"
        if dot_git.is_dir() and (dot_git / "HEAD").exists():
            return Repository(top, dot_git)
        if dot_git.is_file() and (common := _linked(top, dot_git)):
            return Repository(top, common)
    return None


def _linked(top: Path, dot_git: Path) -> Path | None:
    """The shared directory of a linked worktree or a submodule, whose `.git` is a file."""
    try:
        text = dot_git.read_text()
        if not text.startswith("gitdir:"):
            return None
        git_dir = (top / text.removeprefix("gitdir:").strip()).resolve()
        common = git_dir / "commondir"
        return (git_dir / common.read_text().strip()).resolve() if common.exists() else git_dir
    except (OSError, UnicodeDecodeError):
        return None
