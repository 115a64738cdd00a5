"""What a commit of a checked tree contains: the tree without everything that is not the agent's work.

Left out are files that were untracked or ignored at the start and are unchanged, runtime files of Ralph, and the files
of nested repositories, of which git records only the commit. Everything is computed from the checked tree, never from
the working tree, which may have changed since; only an ignored file is known to be unchanged by its time there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from ralph.scm.baseline import MARKER, Baseline
from ralph.scm.git import Git, GitError, listed, paths
from ralph.scm.history import Change, changes_between
from ralph.scm.user_git import UserGit


class Delivery(Struct, frozen=True):
    """The tree to commit on top of `head` ("": the first commit), and the paths of the checked tree not in it.

    `is_new` is False if `head` has this tree already.
    """

    tree: str
    head: str
    left_out: tuple[str, ...] = ()
    is_new: bool = True


class Head(Struct, frozen=True):
    """The commit of HEAD ("" if there is none), and its tree."""

    commit: str
    tree: str


class Deliverer:
    """Makes deliveries in one repository. `scratch` holds its index."""

    def __init__(self, git: Git, user_git: UserGit, baseline: Baseline, scratch: Path) -> None:
        self._git = git
        self._user_git = user_git
        self._baseline = baseline
        self._index = scratch / "delivery-index"

    def of(self, checked: str, nested: Sequence[str]) -> Delivery:
        """The delivery of a checked tree with these nested repositories."""
        self._git.disarm_filters()
        head = self.head()
        changes = changes_between(self._git, head.tree, checked, self._index)
        left_out = [*self._not_work(checked, changes), *self._nested_files(checked, nested)]
        tree = self._built(checked, left_out, self._git.nested())
        dropped = set(left_out)
        changed = [change.path for change in changes if change.kind != "D" and change.path not in dropped]
        tree = self._cleaned(tree, changed) if self._git.has_filters else tree
        return Delivery(tree, head.commit, tuple(left_out), is_new=tree != head.tree)

    def head(self) -> Head:
        """HEAD, with the empty tree on a branch without commits."""
        asked = b"HEAD^{commit}\nHEAD^{tree}\n"
        commit, tree = self._git.line("cat-file", "--batch-check=%(objectname)", stdin=asked).splitlines()
        if commit.endswith(" missing"):
            return Head("", self._git.line("mktree"))
        return Head(commit, tree)

    def tree_of(self, commit: str) -> str:
        return self._git.line("rev-parse", f"{commit}^{{tree}}")

    # ---- what is left out ----

    def _not_work(self, checked: str, changes: Iterable[Change]) -> list[str]:
        """New files that were there at the start, untracked or ignored, and are unchanged, and markers of Ralph."""
        start = self._baseline.load()
        added = [change.path for change in changes if change.kind == "A"]
        old = [path for path in added if path in start.untracked]
        if old and start.tree:
            since = {change.path for change in changes_between(self._git, start.tree, checked, self._index)}
            unchanged = {path for path in old if path not in since}
        else:  # recorded by an older version
            unchanged = set(self._baseline.unchanged(old))
        unchanged.update(self._baseline.unignored(added))
        return [path for path in added if path in unchanged or os.path.basename(path) == MARKER]

    def _nested_files(self, checked: str, nested: Sequence[str]) -> list[str]:
        """The files of nested repositories, which a snapshot includes as plain files."""
        if not nested:
            return []
        return paths(self._git("ls-tree", "-r", "-z", "--name-only", "--full-tree", "--", checked, *nested))

    # ---- the tree ----

    def _built(self, checked: str, left_out: list[str], links: list[str]) -> str:
        """The checked tree without these paths, and with the commits of nested repositories that git tracks."""
        if not left_out and not links:
            return checked
        self._git("read-tree", checked, index=self._index)
        if left_out:
            self._update("--force-remove", left_out)
        if links:
            self._update("--add", links)
        return self._git.line("write-tree", index=self._index)

    def _update(self, how: str, names: list[str]) -> None:
        self._git("update-index", how, "--remove", "-z", "--stdin", index=self._index, stdin=listed(names))

    def _cleaned(self, tree: str, changed: list[str]) -> str:
        """The tree with changed files as the user's filters store them (Git LFS, for example)."""
        entries = self._filtered(tree, changed)
        if not entries:
            return tree
        self._git("read-tree", tree, index=self._index)
        lines = []
        for mode, blob, path in entries:
            content = self._git("cat-file", "blob", blob)
            done = self._user_git("hash-object", "-w", "--stdin", f"--path={path}", stdin=content)
            if done.code:
                raise GitError(self._user_git.failure("hash-object", done))
            lines.append(f"{mode} {done.out.decode().strip()}\t{path}")
        self._git("update-index", "-z", "--index-info", index=self._index, stdin=listed(lines))
        return self._git.line("write-tree", index=self._index)

    def _filtered(self, tree: str, changed: list[str]) -> list[tuple[str, str, str]]:
        """The regular files among these that have a filter: mode, blob and path."""
        if not changed:
            return []
        names = self._git.filtered(changed)
        if not names:
            return []
        entries = paths(self._git("ls-tree", "-r", "-z", "--full-tree", tree))
        found = [
            (*about.split()[:3], path) for about, _, path in (entry.partition("\t") for entry in entries)
        ]
        return [
            (mode, blob, path) for mode, _, blob, path in found if path in names and mode.startswith("100")
        ]
