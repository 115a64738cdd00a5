"""Where a repository is, found without starting git."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from ralph.files.paths import real


class Repository(Struct, frozen=True):
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
    """A linked worktree or a submodule: its `.git` is a file that says where the directory is."""
    text = dot_git.read_text()
    return real(top / text.removeprefix("gitdir:").strip()) if text.startswith("gitdir:") else None


def branch_of(repository: Repository) -> str:
    """What is checked out, found without starting git; "" where that is no branch."""
    try:
        head = (repository.git_dir / "HEAD").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""


def points_back(repository: Repository) -> bool:
    """Does a git directory outside of its working tree know that tree as its own? Then nobody has swapped it."""
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
