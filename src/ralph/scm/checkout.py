"""The user's own checkout of a branch: the one working tree that Ralph moves forward and that is not its own."""

from __future__ import annotations

import os
from collections.abc import Collection

from ralph.scm.baseline import Baseline
from ralph.scm.git import CHANGES, Git, Runner, listed, paths
from ralph.scm.overwrites import Incoming, already_there, in_the_way, incoming, is_behind_link
from ralph.scm.repository import Repository
from ralph.scm.tree import Tree

_LINK = "120000"


class Checkout(Tree):
    """A working tree of the user."""

    def __init__(self, repository: Repository, run: Runner, baseline: Baseline) -> None:
        super().__init__(repository, run, baseline)
        self._disarmed = Git(repository, run)

    def in_the_way(self, commit: str) -> list[str]:
        """Files that git does not track here, ignored or not, and that this commit would replace or remove."""
        return in_the_way(self.repository.top, incoming(self.git, "HEAD", commit), self.tracked())

    def advance(self, commit: str) -> str:
        """Fast-forward the checkout, and return why git refused, or "".

        Locally changed files are never overwritten: git refuses instead, and also for untracked files, ignored or not.
        Those that are the same as the commit's are added to the index, so that git does not refuse because of them.
        If git fails halfway, the files that it has written are reset.
        """
        files, changed = incoming(self.git, "HEAD", commit), self._changed()
        same = already_there(self.repository.top, files, self.tracked())
        if same:
            entries = (f"{file.mode} {file.blob}\t{file.path}" for file in same)
            self.git("update-index", "--add", "-z", "--index-info", stdin=listed(entries))
        done = self._user_git("merge", "--ff-only", "--no-overwrite-ignore", "-q", commit)
        if done.code == 0:
            return ""
        if same:
            names = listed(file.path for file in same)
            self.git("update-index", "--force-remove", "-z", "--stdin", stdin=names)
        self.take_back(commit, {*changed, *(file.path for file in same)})
        if done.died:
            raise self.git.error("merge --ff-only", done)
        return self._user_git.failure("merge --ff-only", done)

    def _changed(self) -> set[str]:
        """Tracked files with uncommitted changes."""
        self._disarmed.disarm_filters()
        return {entry[3:] for entry in paths(self._disarmed("status", *CHANGES, "-uno"))}

    def take_back(self, commit: str, before: Collection[str] | None = None) -> None:
        """Undo a fast-forward that was cut off, by resetting files that git wrote completely or in part.

        Files that git ignores stay: they may be the user's. `before` are the files that the user had changed, if known:
        they stay too, and other missing files are restored, because git removes a file before it writes it.
        """
        tracked, modified = self.tracked(), set(paths(self.git("diff-files", "--name-only", "-z")))
        files = [
            file
            for file in incoming(self.git, f"{commit}^1", commit)
            if file.path not in (before or ()) and (file.path in modified or file.path not in tracked)
        ]
        written = {file.path for file in files if self._is_begun(file)}
        if before is not None:
            written |= {
                file.path for file in files if not os.path.lexists(self.repository.top / file.path)
            } & tracked
        if reset := sorted(written & tracked):
            self.user_git("checkout-index", "-f", "-z", "--stdin", stdin=listed(reset))
        added = written - tracked
        for path in added - self.git.ignored(added):
            (self.repository.top / path).unlink()

    def _is_begun(self, file: Incoming) -> bool:
        """Whether git has written a file, at least in part."""
        place = self.repository.top / file.path
        if is_behind_link(self.repository.top, file.path):
            return False
        if place.is_symlink():
            return file.mode == _LINK and bool(already_there(self.repository.top, [file], ()))
        if not place.is_file():
            return False
        if self.git("cat-file", "blob", file.blob).startswith(place.read_bytes()):
            return True
        found = self.user_git("hash-object", f"--path={file.path}", "--", str(place))
        return found.out.decode().strip() == file.blob
