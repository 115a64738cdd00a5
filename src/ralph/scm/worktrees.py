"""Ralph's own worktrees and branches, seen from the user's repository."""

from __future__ import annotations

import os
import re
import shutil
import threading
from pathlib import Path

from ralph.core.text import clean
from ralph.files.paths import real
from ralph.scm.baseline import Baseline
from ralph.scm.git import Git, GitError, Runner, listed, paths
from ralph.scm.repository import Repository, repository_at
from ralph.scm.user_git import UserGit

_READY = "ralph-ready"
"""A file in a worktree's git directory which marks that it was created completely; it holds a hash of its setup."""

_LIST = threading.RLock()
"""Held while the list of worktrees is read or changed: git fails on one that another git is creating."""


def branch_of(task: str, attempt: int = 1) -> str:
    """The branch of an attempt at a task. Task ids never contain a plus."""
    return f"ralph/{task}" if attempt == 1 else f"ralph/{task}+{attempt}"


def task_of(branch: str) -> str:
    """The task that a branch belongs to; "" if none."""
    return branch.removeprefix("ralph/").partition("+")[0] if branch.startswith("ralph/") else ""


def own_directory(worktree: Path) -> Path:
    """The directory next to a worktree for what it needs outside its tree. It is removed with the worktree."""
    return worktree.parent / ".own" / worktree.name


def mark_ready(repository: Repository) -> None:
    (repository.git_dir / _READY).touch()


class Worktrees:
    """The worktrees of one repository, seen from the user's own checkout."""

    def __init__(self, repository: Repository, run: Runner, baseline: Baseline) -> None:
        self.git = Git(repository, run)
        self._user_git = UserGit(repository, run, baseline)

    # ---- reading ----

    def current_branch(self) -> str:
        """The branch that is checked out; "" if HEAD is detached."""
        return self.git.value("symbolic-ref", "-q", "--short", "HEAD")

    def commit(self, name: str) -> str:
        """The commit of a branch or any other name; "" if there is none."""
        return self.git.value("rev-parse", "-q", "--verify", f"{name}^{{commit}}")

    def branch_commit(self, branch: str) -> str:
        return self.commit(f"refs/heads/{branch}")

    def branch_commits(self, *branches: str) -> list[str]:
        """The same for several branches."""
        refs = [f"refs/heads/{branch}" for branch in branches]
        listing = self.git.line("for-each-ref", "--format=%(objectname) %(refname)", *refs).splitlines()
        commits = {ref: commit for commit, _, ref in (line.partition(" ") for line in listing)}
        return [commits.get(ref, "") for ref in refs]

    def is_ancestor(self, old: str, new: str) -> bool:
        return self.git.asks("merge-base", "--is-ancestor", old, new)

    def is_next(self, old: str, new: str) -> bool:
        """Whether `old` is the only parent of `new`."""
        return self.git.line("rev-parse", f"{new}^@") == old

    def brought(self, tip: str, base: str) -> str:
        """The commit that brought `tip` into a branch which contains it."""
        between = self.git.line("rev-list", "--first-parent", "--ancestry-path", f"{tip}..{base}").split()
        return between[-1] if between else tip

    def files(self, commit: str) -> list[str]:
        return paths(self.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit))

    def checkout_of(self, branch: str) -> Path | None:
        """Where a branch is checked out, if anywhere."""
        top = None
        with _LIST:
            listing = self.git("worktree", "list", "--porcelain", "-z").decode(errors="surrogateescape")
        for line in listing.split("\0"):
            if line.startswith("worktree "):
                top = Path(line.removeprefix("worktree "))
            elif line == f"branch refs/heads/{branch}":
                return top
        return None

    # ---- identity and signing ----

    def identity_problem(self) -> str:
        """Why git would refuse a commit by the user; "" if it would not."""
        for who in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
            done = self._user_git("var", who)
            if done.code:
                return self._user_git.failure("commit", done)
        return ""

    def signing_problem(self) -> str:
        """Why git could not sign a commit; "" if it could, or if the user does not sign commits."""
        if self.git.value("config", "--type=bool", "commit.gpgSign") != "true":
            return ""
        done = self._user_git("commit-tree", "-S", "-m", "Signing test", "HEAD^{tree}")
        return self._user_git.failure("commit", done) if done.code else ""

    # ---- making and removing ----

    def found(self, path: Path) -> Repository | None:
        """A completely created worktree, wherever an agent has moved its HEAD; None if there is none."""
        there = repository_at(path)
        if there is None or real(there.common) != real(self.git.repository.common):
            return None
        return there if (there.git_dir / _READY).exists() else None

    def add(self, path: Path, branch: str, start: str) -> Repository:
        """Add a worktree on a branch, which is created at `start` if it does not exist."""
        new = [] if self.branch_commit(branch) else ["-b", branch]
        return self._add(path, *new, str(path), *([start] if new else [branch]))

    def add_detached(self, path: Path, commit: str) -> Repository:
        return self._add(path, "--detach", str(path), commit)

    def _add(self, path: Path, *words: str) -> Repository:
        with _LIST:
            self.remove(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            done = self._user_git("worktree", "add", "-q", *words)
        if done.code:
            raise self.git.error("worktree add", done)
        return self.at(path)

    def branches_of(self, task: str) -> dict[str, str]:
        """The branches of all attempts at a task, with their commits."""
        first = f"refs/heads/{branch_of(task)}"
        listing = self.git.line("for-each-ref", "--format=%(objectname) %(refname)", first, f"{first}+*")
        pairs = (line.split(" ", 1) for line in listing.splitlines())
        return {ref.removeprefix("refs/heads/"): commit for commit, ref in pairs}

    def unmerged(self, commit: str, task: str) -> int:
        """The number of commits that only the branches of this task contain."""
        own = (f"--exclude={branch_of(task)}", f"--exclude={branch_of(task)}+*")
        return int(self.git.line("rev-list", "--count", commit, "--not", *own, "--branches", "--remotes"))

    def at(self, path: Path) -> Repository:
        found = repository_at(path)
        if found is None:
            raise GitError(f"{path} is no longer a worktree.")
        return found

    def remove(self, path: Path) -> None:
        """Remove a worktree with everything in it, and git's record of it. Its commits stay on its branch.

        Not with `git worktree prune`, because the user may have worktrees on disks that are not mounted.
        """
        wipe(path)
        wipe(own_directory(path))
        with _LIST:
            for entry in self._noted(path):
                wipe(entry)

    def _noted(self, path: Path) -> list[Path]:
        """Git's records of a worktree at this path, including incomplete ones that a killed git has left."""
        places = {entry: _place(entry) for entry in (self.git.repository.common / "worktrees").glob("*")}
        named_so = re.compile(rf"{re.escape(path.name)}\d*")
        return [
            entry
            for entry, place in places.items()
            if place == path or (place is None and named_so.fullmatch(entry.name))
        ]

    def delete_refs(self, *refs: str) -> None:
        """Delete these refs. Missing ones are ignored."""
        self.git("update-ref", "--stdin", "-z", stdin=listed(f"delete {ref}\0" for ref in refs))


def _place(entry: Path) -> Path | None:
    """The path of the worktree that an entry of git's list refers to; None if git was killed before it wrote it."""
    try:
        return Path(os.fsdecode((entry / "gitdir").read_bytes()).strip()).parent
    except (FileNotFoundError, NotADirectoryError):
        return None


def wipe(path: Path) -> None:
    """Remove a directory, even one that an agent has made read-only, or raise."""
    shutil.rmtree(path, ignore_errors=True)
    if not os.path.lexists(path):
        return
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            return
        for directory, _, _ in os.walk(path):
            os.chmod(directory, 0o700)
        shutil.rmtree(path)
    except OSError as error:
        where = os.fsdecode(error.filename) if error.filename else path
        raise GitError(
            f"{path} cannot be removed: {clean(str(where))}: {error.strerror}.", "Remove it yourself."
        ) from error
