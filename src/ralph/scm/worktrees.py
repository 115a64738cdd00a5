"""Worktrees and branches of Ralph's own, and how what was made in one gets into the user's branch."""

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
"""In a worktree's git directory: it was made and set up to the end."""

_LIST = threading.RLock()
"""Whoever reads the list of worktrees or changes it: git fails where it meets one that another git is making."""


def branch_of(task: str, attempt: int = 1) -> str:
    """No id of a task has a plus in it."""
    return f"ralph/{task}" if attempt == 1 else f"ralph/{task}+{attempt}"


def task_of(branch: str) -> str:
    """The task that a branch would be of; "" if of none."""
    return branch.removeprefix("ralph/").partition("+")[0] if branch.startswith("ralph/") else ""


def mark_ready(repository: Repository) -> None:
    (repository.git_dir / _READY).touch()


class Worktrees:
    """The worktrees of one repository, seen from the user's own checkout."""

    def __init__(self, repository: Repository, run: Runner, baseline: Baseline) -> None:
        self.git = Git(repository, run)
        self._user_git = UserGit(repository, run, baseline)

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

    def branch_commits(self, *branches: str) -> list[str]:
        """The same for several."""
        refs = [f"refs/heads/{branch}" for branch in branches]
        listing = self.git.line("for-each-ref", "--format=%(objectname) %(refname)", *refs).splitlines()
        commits = {ref: commit for commit, _, ref in (line.partition(" ") for line in listing)}
        return [commits.get(ref, "") for ref in refs]

    def is_ancestor(self, old: str, new: str) -> bool:
        return self.git.attempt("merge-base", "--is-ancestor", old, new).code == 0

    def is_next(self, old: str, new: str) -> bool:
        """Is this the one commit that follows on another?"""
        return self.git.line("rev-parse", f"{new}^@") == old

    def brought(self, tip: str, base: str) -> str:
        """The commit by which a branch that contains a tip has got it."""
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

    # ---- who commits ----

    def identity_problem(self) -> str:
        """Why git would not let the user commit; "" if it would."""
        for who in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
            done = self._user_git("var", who)
            if done.code:
                return self._user_git.failure("commit", done)
        return ""

    def signing_problem(self) -> str:
        """Why git could not sign a commit, where the user wants all of them to be signed; "" if it could."""
        wanted = self.git.attempt("config", "--type=bool", "commit.gpgSign").out.strip() == b"true"
        if not wanted:
            return ""
        done = self._user_git("commit-tree", "-S", "-m", "Can this be signed?", "HEAD^{tree}")
        return self._user_git.failure("commit", done) if done.code else ""

    # ---- making and removing ----

    def found(self, path: Path) -> Repository | None:
        """A worktree that was made to the end, wherever an agent has moved its HEAD."""
        there = repository_at(path)
        if there is None or real(there.common) != real(self.git.repository.common):
            return None
        return there if (there.git_dir / _READY).exists() else None

    def add(self, path: Path, branch: str, start: str) -> Repository:
        """A worktree on a branch, which is made if there is none."""
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
            raise GitError(f"{path} is no worktree any more.")
        return found

    def remove(self, path: Path) -> None:
        """Whatever is in it goes, and what git has noted of it; what was committed stays on its branch.

        Not `git worktree prune`: the user may have worktrees on disks that are not there now.
        """
        _wipe(path)
        with _LIST:
            for entry in self._noted(path):
                _wipe(entry)

    def _noted(self, path: Path) -> list[Path]:
        """What git has noted of a worktree there; a git that was killed may have left a note that leads nowhere."""
        places = {entry: _place(entry) for entry in (self.git.repository.common / "worktrees").glob("*")}
        named_so = re.compile(rf"{re.escape(path.name)}\d*")
        return [
            entry
            for entry, place in places.items()
            if place == path or (place is None and named_so.fullmatch(entry.name))
        ]

    def delete_refs(self, *refs: str) -> None:
        """Those that are not there need not be deleted."""
        self.git.attempt("update-ref", "--stdin", "-z", stdin=listed(f"delete {ref}\0" for ref in refs))


def _place(entry: Path) -> Path | None:
    """Where the worktree is that an entry of git's list is about."""
    try:
        return Path(os.fsdecode((entry / "gitdir").read_bytes()).strip()).parent
    except OSError:
        return None


def _wipe(path: Path) -> None:
    """Remove a directory, also one that an agent has made read-only."""
    shutil.rmtree(path, ignore_errors=True)
    if not path.exists():
        return
    for directory, _, _ in os.walk(path):
        os.chmod(directory, 0o700)
    shutil.rmtree(path, ignore_errors=True)


class Tree:
    """A working tree that Ralph merges in. All but `advance` and `take_back` is only for Ralph's own."""

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
        """HEAD is on the branch, and both on the commit, else where HEAD was, whatever an agent has done to them.

        A branch that was deleted comes back where HEAD was last.
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
        """Where HEAD was before the branch that it is on was deleted; that is noted as a move to nowhere."""
        try:
            notes = (self.repository.git_dir / "logs" / "HEAD").read_text(errors="replace").splitlines()
        except OSError:
            return ""
        commits = (commit for note in reversed(notes) for commit in reversed(note.split()[:2]))
        return next((commit for commit in commits if commit.strip("0")), "")

    def put_on(self, commit: str, message: str) -> None:
        """What HEAD has becomes a commit after another one that HEAD has lost."""
        if not self.has(commit):
            tree = self.git.line("rev-parse", "HEAD^{tree}")
            self.git("update-ref", "HEAD", self.git.line("commit-tree", tree, "-p", commit, "-m", message))

    # ---- committing and merging ----

    def keep(self, message: str, left_out: Iterable[str]) -> None:
        """Commit what is there, so that it lies on the branch; no hook and no missing key can refuse that."""
        add_all(self.git.attempt, self.git, left_out)
        self.git("commit", "-q", "--no-verify", "--no-gpg-sign", "--allow-empty", "-m", message)

    def is_merging(self) -> bool:
        return (self.repository.git_dir / "MERGE_HEAD").exists()

    def merge(self, other: str, message: str, *options: str) -> list[str]:
        """Merge another commit in; returns the files that have a conflict, and leaves them so."""
        done = self._user_git("merge", "--no-ff", "--no-edit", *options, "-m", message, other)
        if done.code == 0:
            return []
        unmerged = self._unmerged()
        if not unmerged:
            raise GitError(self._user_git.failure("merge", done))
        return unmerged

    def bring_in(self, other: str, message: str, *, is_clean: bool) -> None:
        """Merge another commit in, for an agent to resolve what conflicts; no hook can refuse that.

        Files that are changed already are those of a merge that was begun before: the merge goes on with them.
        """
        if self.is_merging():
            return
        if is_clean:
            self.merge(other, message, "--no-verify", "--no-gpg-sign")
        else:
            self.git("update-ref", "MERGE_HEAD", other)
            (self.repository.git_dir / "MERGE_MSG").write_text(f"{message}\n")

    def trusted(self, brought: str) -> str:
        """What may be trusted while a commit is brought in: both sides, and where they conflict, what was brought."""
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
        return self.git.line("commit-tree", tree, *parents, "-m", "What may be trusted")

    def _unmerged(self) -> list[str]:
        return paths(self.git("diff", "--name-only", "-z", "--diff-filter=U", "--ignore-submodules=dirty"))

    # ---- the user's checkout ----

    def advance(self, commit: str) -> str:
        """Fast-forward what is checked out here; returns why that is refused, "" if it was done.

        Files that somebody has changed are never overwritten: then git refuses.
        """
        done = self._user_git("merge", "--ff-only", "-q", commit)
        return self._user_git.failure("merge --ff-only", done) if done.code else ""

    def take_back(self, commit: str) -> None:
        """Undo what a fast-forward to a commit had written when it was killed: its files, or beginnings of them."""
        written = {path for path, blob in self._changes_of(commit) if self._is_begun(path, blob)}
        tracked = written.intersection(paths(self.git("ls-files", "-z")))
        self._user_git("checkout-index", "-f", "-z", "--stdin", stdin=listed(sorted(tracked)))
        for path in written - tracked:
            (self.repository.top / path).unlink()

    def _changes_of(self, commit: str) -> list[tuple[str, str]]:
        """The files that a commit has added or changed, each with its blob."""
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
