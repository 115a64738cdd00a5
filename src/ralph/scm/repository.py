"""Locates a repository without starting git."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from ralph.files.paths import real


class Repository(Struct, frozen=True):
    """A working tree, its git directory, and the one shared by all its worktrees."""

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
    """The repository whose working tree starts here."""
    dot_git = top / ".git"
    try:
        git_dir = _linked(top, dot_git) if dot_git.is_file() else dot_git
        if git_dir is None or not (git_dir / "HEAD").is_file():
            return None
        shared = git_dir / "commondir"
        common = real(git_dir / shared.read_text().strip()) if shared.is_file() else git_dir
        return Repository(top, git_dir, common)
    except (OSError, ValueError):
        return None


def _linked(top: Path, dot_git: Path) -> Path | None:
    """The git directory of a linked worktree or a submodule, whose `.git` is a file that names it."""
    text = dot_git.read_text()
    return real(top / text.removeprefix("gitdir:").strip()) if text.startswith("gitdir:") else None


def branch_of(repository: Repository) -> str:
    """The current branch, read without starting git; "" if HEAD is detached."""
    try:
        head = (repository.git_dir / "HEAD").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""


def points_back(repository: Repository) -> bool:
    """Whether a git directory outside its working tree points back to that tree, so that it was not swapped."""
    try:
        if repository.git_dir != repository.common:
            known = Path((repository.git_dir / "gitdir").read_text().strip())
            is_below = repository.git_dir.parent.parent == repository.common
            return is_below and real(known) == real(repository.top / ".git")
        lines = (repository.git_dir / "config").read_text(errors="replace").splitlines()
        places = [line.partition("=")[2].strip() for line in lines if line.strip().startswith("worktree")]
        return any(real(repository.git_dir / place) == real(repository.top) for place in places)
    except OSError:
        return False
