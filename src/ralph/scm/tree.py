"""A working tree of Ralph's own: its HEAD, its commits, and merges into it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ralph.scm.baseline import Baseline, add_all
from ralph.scm.git import Git, GitError, GitOutput, Runner, listed, paths
from ralph.scm.overwrites import already_there, in_the_way, incoming, remove
from ralph.scm.repository import Repository
from ralph.scm.user_git import UserGit

_BRINGING = "ralph-bringing"
"""A file in a worktree's git directory while a commit is merged in. If it is left, git was cut off halfway."""

_DIFFERENCES = ("--name-only", "-z", "--no-renames", "--no-ext-diff", "--ignore-submodules=dirty")


class Tree:
    """A worktree that Ralph has made."""

    def __init__(self, repository: Repository, run: Runner, baseline: Baseline) -> None:
        self.repository = repository
        self.runner = run
        self.git = Git(repository, run)
        self._user_git = UserGit(repository, run, baseline)

    def user_git(self, *words: str, stdin: bytes = b"", codes: tuple[int, ...] = (0,)) -> GitOutput:
        """Run git as the user configured it; any other exit code is an error."""
        done = self._user_git(*words, stdin=stdin)
        if done.died or done.code not in codes:
            raise self.git.error(words[0], done)
        return done

    # ---- where HEAD is ----

    def head(self) -> str:
        return self.git.line("rev-parse", "HEAD")

    def has(self, commit: str) -> bool:
        return self.git.asks("merge-base", "--is-ancestor", commit, "HEAD")

    def attach(self, branch: str, commit: str = "") -> None:
        """Put HEAD on the branch, and both on the commit (by default where HEAD is), whatever an agent did to them.

        A deleted branch is restored where HEAD was last.
        """
        ref = f"refs/heads/{branch}"
        head = self.git.value("rev-parse", "-q", "--verify", "HEAD^{commit}")
        is_attached = self.git.value("symbolic-ref", "-q", "HEAD") == ref
        wanted = commit or head or self.last_head()
        if wanted and (not is_attached or wanted != head):
            self.git("update-ref", ref, wanted)
            self.git("symbolic-ref", "HEAD", ref)

    def last_head(self) -> str:
        """Where HEAD was before its branch was deleted, which the reflog records as a move to zeros."""
        try:
            notes = (self.repository.git_dir / "logs" / "HEAD").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        commits = (commit for note in reversed(notes) for commit in reversed(note.split()[:2]))
        return next((commit for commit in commits if commit.strip("0")), "")

    def put_on(self, commit: str, message: str) -> None:
        """Commit the tree of HEAD on top of a commit that HEAD has lost."""
        if not self.has(commit):
            tree = self.git.line("rev-parse", "HEAD^{tree}")
            self.git("update-ref", "HEAD", self.git.line("commit-tree", tree, "-p", commit, "-m", message))

    # ---- the files of a commit ----

    def restore(self, commit: str) -> list[str]:
        """Put HEAD, the index and all tracked files on a commit; returns the files that were changed or gone."""
        self.git("update-ref", "--no-deref", "HEAD", commit)
        self.git("read-tree", commit)
        self.user_git("update-index", "-q", "--refresh", codes=(0, 1))
        changed = self.differences(commit)
        if changed:
            self.user_git("checkout-index", "-f", "-u", "-z", "--stdin", stdin=listed(changed))
        return changed

    def differences(self, commit: str) -> list[str]:
        """Tracked files whose content is not that of the commit."""
        return paths(self.user_git("diff", *_DIFFERENCES, commit).out)

    # ---- committing and merging ----

    def keep(self, message: str, left_out: Iterable[str]) -> bool:
        """Commit the current state to the branch. No hook and no missing signing key can refuse that.

        False if it is that of HEAD already: a file with a filter may only seem to be changed.
        """
        added = add_all(self.git.attempt, self.git, left_out)
        if added.died or added.code not in (0, 1):  # 1: some files cannot be read
            raise self.git.error("add", added)
        is_same = self.git.line("write-tree") == self.git.line("rev-parse", "HEAD^{tree}")
        if is_same and added.code == 0 and not self.is_merging():
            return False
        self.git("commit", "-q", "--no-verify", "--no-gpg-sign", "--allow-empty", "-m", message)
        return True

    def is_merging(self) -> bool:
        return (self.repository.git_dir / "MERGE_HEAD").exists()

    def merge(self, other: str, message: str, *options: str) -> list[str]:
        """Merge another commit, and return the files with conflicts, which are left as they are."""
        done = self._user_git("merge", "--no-ff", "--no-edit", *options, "-m", message, other)
        if done.died:
            raise self.git.error("merge", done)
        if done.code == 0:
            return []
        unmerged = self._unmerged() if done.code == 1 else []
        if not unmerged:
            raise GitError(self._user_git.failure("merge", done))
        return unmerged

    def bring_in(self, other: str, message: str, *, is_clean: bool) -> None:
        """Merge another commit, leaving conflicts for an agent to resolve. No hook can refuse that.

        Files that are already changed belong to an earlier unfinished merge, which continues with them; but if git was
        cut off in the middle of it, it is repeated from the start.
        """
        begun = self.repository.git_dir / _BRINGING
        if begun.exists():
            self.user_git("read-tree", "--reset", "-u", "HEAD")
            (self.repository.git_dir / "MERGE_HEAD").unlink(missing_ok=True)
        elif self.is_merging():
            return
        elif not is_clean:
            self._note_merge(other, message)
            return
        begun.unlink(missing_ok=True)  # it may be a link to anywhere
        begun.touch(exist_ok=False)
        self._clear_way(other)
        self.merge(other, message, "--no-verify", "--no-gpg-sign")
        begun.unlink()

    def _clear_way(self, commit: str) -> None:
        """Remove untracked files that git would refuse to replace."""
        top, files, tracked = self.repository.top, incoming(self.git, "HEAD", commit), self.tracked()
        remove(top, in_the_way(top, files, tracked))
        remove(top, [file.path for file in already_there(top, files, tracked)])

    def tracked(self) -> set[str]:
        return set(paths(self.git("ls-files", "-z")))

    def _note_merge(self, other: str, message: str) -> None:
        self.git("update-ref", "MERGE_HEAD", other)
        note = self.repository.git_dir / "MERGE_MSG"
        note.unlink(missing_ok=True)  # it may be a link to anywhere
        note.write_text(f"{message}\n")

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
