"""Ralph's own worktrees and branches, and how their work gets into the user's branch."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

from ralph.files.paths import real
from ralph.scm.baseline import Baseline, add_all
from ralph.scm.git import Git, GitError, Runner, listed, paths
from ralph.scm.repository import Repository, repository_at
from ralph.scm.user_git import UserGit

_READY = "ralph-ready"
"""A file in a worktree's git directory which marks that it was created completely."""

_LIST = threading.RLock()
"""Held while the list of worktrees is read or changed: git fails on one that another git is creating."""


def branch_of(task: str, attempt: int = 1) -> str:
    """The branch of an attempt at a task. Task ids never contain a plus."""
    return f"ralph/{task}" if attempt == 1 else f"ralph/{task}+{attempt}"


def task_of(branch: str) -> str:
    """The task that a branch belongs to; "" if none."""
    return branch.removeprefix("ralph/").partition("+")[0] if branch.startswith("ralph/") else ""


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
        return self.git.attempt("symbolic-ref", "-q", "--short", "HEAD").out.decode().strip()

    def commit(self, name: str) -> str:
        """The commit of a branch or any other name; "" if there is none."""
        found = self.git.attempt("rev-parse", "-q", "--verify", f"{name}^{{commit}}")
        return found.out.decode().strip() if found.code == 0 else ""

    def branch_commit(self, branch: str) -> str:
        return self.commit(f"refs/heads/{branch}")

    def branch_commits(self, *branches: str) -> list[str]:
        """The same for several branches."""
        refs = [f"refs/heads/{branch}" for branch in branches]
        listing = self.git.line("for-each-ref", "--format=%(objectname) %(refname)", *refs).splitlines()
        commits = {ref: commit for commit, _, ref in (line.partition(" ") for line in listing)}
        return [commits.get(ref, "") for ref in refs]

    def is_ancestor(self, old: str, new: str) -> bool:
        return self.git.attempt("merge-base", "--is-ancestor", old, new).code == 0

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
        wanted = self.git.attempt("config", "--type=bool", "commit.gpgSign").out.strip() == b"true"
        if not wanted:
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
            raise GitError.of("worktree add", done.err, self.git.repository)
        return self.at(path)

    def at(self, path: Path) -> Repository:
        found = repository_at(path)
        if found is None:
            raise GitError(f"{path} is no longer a worktree.")
        return found

    def remove(self, path: Path) -> None:
        """Remove a worktree with everything in it, and git's record of it. Its commits stay on its branch.

        Not with `git worktree prune`, because the user may have worktrees on disks that are not mounted.
        """
        _wipe(path)
        with _LIST:
            for entry in self._noted(path):
                _wipe(entry)

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
        self.git.attempt("update-ref", "--stdin", "-z", stdin=listed(f"delete {ref}\0" for ref in refs))


def _place(entry: Path) -> Path | None:
    """The path of the worktree that an entry of git's list refers to."""
    try:
        return Path(os.fsdecode((entry / "gitdir").read_bytes()).strip()).parent
    except OSError:
        return None


def _wipe(path: Path) -> None:
    """Remove a directory, even one that an agent has made read-only."""
    shutil.rmtree(path, ignore_errors=True)
    if not path.exists():
        return
    for directory, _, _ in os.walk(path):
        os.chmod(directory, 0o700)
    shutil.rmtree(path, ignore_errors=True)


class Tree:
    """A working tree that Ralph merges in. Only `advance` and `take_back` are for the user's checkout."""

    def __init__(self, repository: Repository, run: Runner, baseline: Baseline) -> None:
        self.repository = repository
        self.git = Git(repository, run)
        self._user_git = UserGit(repository, run, baseline)

    # ---- where HEAD is ----

    def head(self) -> str:
        return self.git.line("rev-parse", "HEAD")

    def has(self, commit: str) -> bool:
        return self.git.attempt("merge-base", "--is-ancestor", commit, "HEAD").code == 0

    def attach(self, branch: str, commit: str = "") -> None:
        """Put HEAD on the branch, and both on the commit (by default where HEAD is), whatever an agent did to them.

        A deleted branch is restored where HEAD was last.
        """
        ref = f"refs/heads/{branch}"
        found = self.git.attempt("rev-parse", "HEAD", "--symbolic-full-name", "HEAD")
        head, name = found.out.decode().split() if found.code == 0 else ("", "")
        is_attached = name == ref
        wanted = commit or head or self.last_head()
        if wanted and (not is_attached or wanted != head):
            self.git("update-ref", ref, wanted)
            self.git("symbolic-ref", "HEAD", ref)

    def last_head(self) -> str:
        """Where HEAD was before its branch was deleted, which the reflog records as a move to zeros."""
        try:
            notes = (self.repository.git_dir / "logs" / "HEAD").read_text(errors="replace").splitlines()
        except OSError:
            return ""
        commits = (commit for note in reversed(notes) for commit in reversed(note.split()[:2]))
        return next((commit for commit in commits if commit.strip("0")), "")

    def put_on(self, commit: str, message: str) -> None:
        """Commit the tree of HEAD on top of a commit that HEAD has lost."""
        if not self.has(commit):
            tree = self.git.line("rev-parse", "HEAD^{tree}")
            self.git("update-ref", "HEAD", self.git.line("commit-tree", tree, "-p", commit, "-m", message))

    # ---- committing and merging ----

    def keep(self, message: str, left_out: Iterable[str]) -> None:
        """Commit the current state to the branch. No hook and no missing signing key can refuse that."""
        add_all(self.git.attempt, self.git, left_out)
        self.git("commit", "-q", "--no-verify", "--no-gpg-sign", "--allow-empty", "-m", message)

    def is_merging(self) -> bool:
        return (self.repository.git_dir / "MERGE_HEAD").exists()

    def merge(self, other: str, message: str, *options: str) -> list[str]:
        """Merge another commit, and return the files with conflicts, which are left as they are."""
        done = self._user_git("merge", "--no-ff", "--no-edit", *options, "-m", message, other)
        if done.code == 0:
            return []
        unmerged = self._unmerged()
        if not unmerged:
            raise GitError(self._user_git.failure("merge", done))
        return unmerged

    def bring_in(self, other: str, message: str, *, is_clean: bool) -> None:
        """Merge another commit, leaving conflicts for an agent to resolve. No hook can refuse that.

        Files that are already changed belong to an earlier unfinished merge, which continues with them.
        """
        if self.is_merging():
            return
        if is_clean:
            self.merge(other, message, "--no-verify", "--no-gpg-sign")
        else:
            self.git("update-ref", "MERGE_HEAD", other)
            (self.repository.git_dir / "MERGE_MSG").write_text(f"{message}\n")

    def trusted(self, brought: str) -> str:
        """The commit to trust while a commit is merged in: both sides, and the merged-in side for conflicts."""
        if not (unmerged := self._unmerged()):
            return self.head()
        with tempfile.TemporaryDirectory() as scratch:
            index = Path(scratch) / "index"
            shutil.copy2(self.repository.git_dir / "index", index)
            self.git("update-index", "--force-remove", "-z", "--stdin", index=index, stdin=listed(unmerged))
            entries = paths(self.git("ls-tree", "-r", "-z", "--full-tree", brought))
            theirs = [entry for entry in entries if entry.partition("\t")[2] in unmerged]
            self.git("update-index", "-z", "--index-info", index=index, stdin=listed(theirs))
            tree = self.git.line("write-tree", index=index)
        parents = ("-p", self.head(), "-p", brought)
        return self.git.line("commit-tree", tree, *parents, "-m", "Trusted versions")

    def _unmerged(self) -> list[str]:
        return paths(self.git("diff", "--name-only", "-z", "--diff-filter=U", "--ignore-submodules=dirty"))

    # ---- the user's checkout ----

    def advance(self, commit: str) -> str:
        """Fast-forward the checkout, and return why git refused, or "".

        Locally changed files are never overwritten: git refuses instead.
        """
        done = self._user_git("merge", "--ff-only", "-q", commit)
        return self._user_git.failure("merge --ff-only", done) if done.code else ""

    def take_back(self, commit: str) -> None:
        """Undo a fast-forward that was killed halfway, by resetting files it wrote completely or in part."""
        written = {path for path, blob in self._changes_of(commit) if self._is_begun(path, blob)}
        tracked = written.intersection(paths(self.git("ls-files", "-z")))
        self._user_git("checkout-index", "-f", "-z", "--stdin", stdin=listed(sorted(tracked)))
        for path in written - tracked:
            (self.repository.top / path).unlink()

    def _changes_of(self, commit: str) -> list[tuple[str, str]]:
        """The files a commit added or changed, each with its blob."""
        fields = paths(
            self.git("diff-tree", "-r", "-z", "--no-renames", "--diff-filter=AM", f"{commit}^1", commit)
        )
        return [(path, about.split()[3]) for about, path in zip(fields[::2], fields[1::2], strict=True)]

    def _is_begun(self, path: str, blob: str) -> bool:
        file = self.repository.top / path
        if file.is_symlink() or not file.is_file():
            return False
        if self.git("cat-file", "blob", blob).startswith(file.read_bytes()):
            return True
        return self._user_git("hash-object", f"--path={path}", str(file)).out.decode().strip() == blob
