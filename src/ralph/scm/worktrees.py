"""Worktrees and branches of Ralph's own, and how what was made in one gets into the user's branch."""

from __future__ import annotations

import shutil
from pathlib import Path

from ralph.scm.git import Git, GitError, Runner, paths
from ralph.scm.repository import Repository, repository_at
from ralph.scm.start import Recorded
from ralph.scm.user_git import UserGit


def branch_of(task: str, attempt: int = 1) -> str:
    """No task can have an `@` in its id, so no attempt has the branch of another task."""
    return f"ralph/{task}" if attempt == 1 else f"ralph/{task}@{attempt}"


class Worktrees:
    """The worktrees of one repository, seen from the user's own checkout."""

    def __init__(self, repository: Repository, run: Runner, recorded: Recorded) -> None:
        self.git = Git(repository, run)
        self._user_git = UserGit(repository, run, recorded)

    # ---- what is there ----

    def current_branch(self) -> str:
        """The branch that is checked out; "" if none is."""
        return self.git.attempt("symbolic-ref", "-q", "--short", "HEAD").out.decode().strip()

    def commit(self, name: str) -> str:
        """The commit of a branch or of anything else; "" if there is none."""
        found = self.git.attempt("rev-parse", "-q", "--verify", f"{name}^{{commit}}")
        return found.out.decode().strip() if found.code == 0 else ""

    def branch_commit(self, branch: str) -> str:
        return self.commit(f"refs/heads/{branch}")

    def is_ancestor(self, old: str, new: str) -> bool:
        return self.git.attempt("merge-base", "--is-ancestor", old, new).code == 0

    def files(self, commit: str) -> list[str]:
        return paths(self.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit))

    def checkout_of(self, branch: str) -> Path | None:
        """Where a branch is checked out, if anywhere."""
        top = None
        for line in (
            self.git("worktree", "list", "--porcelain", "-z").decode(errors="surrogateescape").split("\0")
        ):
            if line.startswith("worktree "):
                top = Path(line.removeprefix("worktree "))
            elif line == f"branch refs/heads/{branch}":
                return top
        return None

    # ---- making and removing ----

    def add(self, path: Path, branch: str, start: str) -> Repository:
        """A worktree on a branch, which is made if there is none; one that is there already is kept."""
        if self.checkout_of(branch) == path and (found := repository_at(path)):
            return found
        new = [] if self.branch_commit(branch) else ["-b", branch]
        return self._add(path, *new, str(path), *([start] if new else [branch]))

    def add_detached(self, path: Path, commit: str) -> Repository:
        return self._add(path, "--detach", str(path), commit)

    def _add(self, path: Path, *words: str) -> Repository:
        self.remove(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        done = self._user_git("worktree", "add", "-q", *words)
        if done.code:
            raise GitError.of("worktree add", done.err, self.git.repository)
        return self.at(path)

    def at(self, path: Path) -> Repository:
        found = repository_at(path)
        if found is None:
            raise GitError(f"{path} is no worktree any more.")
        return found

    def remove(self, path: Path) -> None:
        """Whatever is in it goes; what was committed stays on its branch."""
        self.git.attempt("worktree", "remove", "--force", "--force", str(path))
        shutil.rmtree(path, ignore_errors=True)
        self.git.attempt("worktree", "prune")

    def delete_branch(self, branch: str) -> None:
        self.git.attempt("update-ref", "-d", f"refs/heads/{branch}")

    def move_branch(self, branch: str, commit: str) -> None:
        self.git("update-ref", f"refs/heads/{branch}", commit)


class Tree:
    """One worktree of Ralph's own: it may be reset and merged in at will."""

    def __init__(self, repository: Repository, run: Runner, recorded: Recorded) -> None:
        self.repository = repository
        self.git = Git(repository, run)
        self._user_git = UserGit(repository, run, recorded)

    def head(self) -> str:
        return self.git.line("rev-parse", "HEAD")

    def is_clean(self) -> bool:
        self.git.disarm_filters()
        return not self.git("status", "--porcelain=v1", "-z", "-uall", "--no-renames")

    def keep(self, message: str) -> None:
        """Commit whatever is there, so that it lies on the branch; no hook can refuse that."""
        self.git.disarm_filters()
        if not self.is_clean():
            self.git("add", "-A", "--ignore-errors")
            self.git("commit", "-q", "--no-verify", "-m", message)

    def merge(self, other: str, message: str) -> list[str]:
        """Merge another commit in; returns the files that have a conflict, and leaves them so."""
        self.git.disarm_filters()
        done = self._user_git("merge", "--no-ff", "--no-edit", "-m", message, other)
        if done.code == 0:
            return []
        unmerged = paths(self.git("diff", "--name-only", "-z", "--diff-filter=U"))
        if not unmerged:
            raise GitError(self._user_git.failure("merge", done))
        return unmerged

    def put_back(self, commit: str) -> None:
        """HEAD, and the branch that it is on, go to a commit; index and files stay as they are."""
        self.git("update-ref", "HEAD", commit)

    def advance(self, commit: str) -> str:
        """Fast-forward what is checked out here; returns why that is refused, "" if it was done.

        Files that somebody has changed are never overwritten: then git refuses.
        """
        done = self._user_git("merge", "--ff-only", "-q", commit)
        return self._user_git.failure("merge --ff-only", done) if done.code else ""
