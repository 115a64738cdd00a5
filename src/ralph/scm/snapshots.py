"""Snapshots of the tree before every iteration, saved as commits under `refs/ralph/<run>/<name>`.

They contain tracked and untracked files, but no git-ignored files and no message buses. Nested repositories and
submodules are included as plain files of the same tree. HEAD, the index and the files stay untouched: everything
happens in a copy of the index.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from ralph.core.model import OURS
from ralph.errors import RalphError
from ralph.files.paths import real
from ralph.scm.caches import cache_of, caches
from ralph.scm.copies import make_repository
from ralph.scm.git import Git, GitDied, GitError, Runner, listed, paths
from ralph.scm.repository import Repository, repository_at

HUGE_FILE = 50 << 20
"""Untracked files larger than this are left out, with a note."""

HUGE_NESTED = 200 << 20
"""Nested repositories with more packed data than this are left out, with a note."""

_MAX_UNREADABLE = 20

_HIDDEN = "hidden"
"""The list of the files that the user had hidden from git when the run started."""

_DAMAGED = "index file"
"""In every message of git about an index that it cannot read."""


class LeftOut(Struct, frozen=True):
    """A path that is not in a tree, and why: `is larger than 50 MB`."""

    path: str
    why: str

    @property
    def text(self) -> str:
        return f"{self.path} {self.why} and is left out"


class Snapshot(Struct, frozen=True):
    """A saved tree. `tree` is the same without untracked caches: equal as long as nothing of the work changes."""

    ref: str
    commit: str
    tree: str
    left_out: tuple[LeftOut, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(each.text for each in self.left_out)


class WorkTree(Struct, frozen=True):
    """The working tree as a git tree, without git-ignored files and untracked caches, and what else it lacks.

    `nested`: repositories inside it, whose files it includes.
    """

    tree: str
    nested: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


class _Copy(Struct):
    """A copy of the index, updated from the working tree. `staged` is the tree of the original index."""

    index: Path
    staged: str = ""
    caches: list[str] = field(default_factory=list)
    nested: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def leave_out(self, path: str, why: str) -> None:
        self.left_out.append(LeftOut(path, why))


class _Change(Struct, frozen=True):
    """One entry of `git status`: HEAD against the index, and the index against the working tree."""

    in_index: str
    in_tree: str
    path: str


def snapshot_name(iteration: int, again: int) -> str:
    """The name for the tree before the next iteration. A repeated iteration keeps its first snapshot."""
    return f"{iteration + 1}-{again + 1}" if again else str(iteration + 1)


def ref_of(run: str, name: str | int) -> str:
    return f"refs/ralph/{run}/{name}"


class Snapshots:
    """Takes snapshots of one repository for one run.

    `scratch` holds the copy of the index, `config` returns configuration that overrides the repository's.
    """

    def __init__(
        self,
        repository: Repository,
        run: Runner,
        run_id: str,
        scratch: Path,
        config: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._git = Git(repository, run)
        self._config = config
        self._runner = run
        self._run = run_id
        self._scratch = scratch
        self._hidden: tuple[object, list[str]] = (None, [])

    def take(self, name: str | int) -> Snapshot:
        """Save the tree under a name."""
        copy = self._updated(name)
        tree = self._git.line("write-tree", index=copy.index)
        head = self._git.value("rev-parse", "-q", "--verify", "HEAD")
        parents = [head] if head else []
        if copy.staged:
            message = f"The index of ralph run {self._run}, {name}"
            parents.append(self._git.line("commit-tree", copy.staged, "-m", message))
        arguments = [part for parent in parents for part in ("-p", parent)]
        message = f"ralph run {self._run}, {name}\n\nHead: {head or 'unborn'}\n"
        commit = self._git.line("commit-tree", tree, *arguments, "-m", message)
        ref = ref_of(self._run, name)
        self._git("update-ref", "--no-deref", ref, commit)
        return Snapshot(ref, commit, self._without_caches(copy, tree), tuple(copy.left_out))

    def whole_tree(self) -> str:
        """The id of the current tree with untracked caches, without saving a snapshot."""
        return self._git.line("write-tree", index=self._updated("now").index)

    def work_tree(self) -> WorkTree:
        """The current tree, without saving a snapshot."""
        copy = self._updated("now", with_caches=False)
        tree = self._git.line("write-tree", index=copy.index)
        return WorkTree(tree, tuple(copy.nested), tuple(copy.left_out))

    def write(self, directory: Path, tree: str = "") -> None:
        """Write a tree into an empty directory, as a separate repository.

        By default the current tree, without git-ignored files and untracked caches.
        """
        index = self._index_of(tree) if tree else self._updated("now", with_caches=False).index
        self._git("checkout-index", "--all", "--force", f"--prefix={directory}/", index=index)
        if self._git.has_filters:
            self._copy_filtered(paths(self._git("ls-files", "-z", index=index)), directory)
        make_repository(self._git, index, directory)

    def _index_of(self, tree: str) -> Path:
        """An index with a tree that was looked at before."""
        self._git.pinned = self._config()
        self._git.disarm_filters()
        index = self._scratch / "index.tree"
        index.unlink(missing_ok=True)
        self._git("read-tree", tree, index=index)
        return index

    def write_some(self, tree: str, names: Sequence[str], directory: Path) -> None:
        """Write these files of a tree into a directory, also over what is there."""
        index = self._scratch / "old-index"
        index.unlink(missing_ok=True)
        self._git("read-tree", tree, index=index)
        words = ("checkout-index", "--force", "-z", "--stdin", f"--prefix={directory}/")
        self._git(*words, index=index, stdin=listed(names))

    def _copy_filtered(self, names: Sequence[str], directory: Path) -> None:
        """Copy files with a filter (Git LFS, for example), which git would write as it stores them."""
        for path in self._git.filtered(names):
            target = directory / path
            if target.is_file() and not target.is_symlink():
                shutil.copyfile(self._git.repository.top / path, target, follow_symlinks=False)

    def _without_caches(self, copy: _Copy, tree: str) -> str:
        if not copy.caches:
            return tree
        self._remove(copy, copy.caches)
        return self._git.line("write-tree", index=copy.index)

    def _remove(self, copy: _Copy, names: Sequence[str]) -> None:
        self._git("update-index", "--force-remove", "-z", "--stdin", index=copy.index, stdin=listed(names))

    def _updated(self, name: str | int, *, with_caches: bool = True) -> _Copy:
        """A copy of the index, updated from the working tree."""
        self._git.pinned = self._config()
        self._git.disarm_filters()
        try:
            copy, changes = self._copy_index()
            copy.caches = self._caches(changes)
            if not with_caches:
                dropped = set(copy.caches)
                changes = [change for change in changes if change.path not in dropped]
            copy.nested = self._update(copy, changes)
            for number, path in enumerate(copy.nested):
                self._embed(copy, path, f"{name}.nested.{number}")
        except OSError as error:
            raise GitError(f"Snapshot failed: {error}") from error
        return copy

    def _caches(self, changes: Sequence[_Change]) -> list[str]:
        """The untracked files in caches."""
        untracked = [change.path for change in changes if change.in_tree == "?"]
        roots = set(caches(self._git, untracked))
        return [path for path in untracked if cache_of(path) in roots]

    def _copy_index(self) -> tuple[_Copy, list[_Change]]:
        """A copy of the index and the changes. A damaged index counts as missing."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        copy = _Copy(self._scratch / "index")
        copy.index.unlink(missing_ok=True)
        index = self._git.repository.git_dir / "index"
        if index.is_file():
            shutil.copy2(index, copy.index)  # git needs its mtime to notice changed files
        elif os.path.lexists(index):
            copy.leave_out("the index", "is not a regular file")
        try:
            self._show_hidden(copy.index)
            changes = self._changes(copy.index)
        except GitError:
            if not self._is_damaged(copy.index):
                raise
            copy.index.unlink()
            changes = self._changes(copy.index)
        if any(change.in_index not in " ?" for change in changes):
            copy.staged = self._staged(copy.index)
        return copy, changes

    def _show_hidden(self, index: Path) -> None:
        """Make git look at files that were hidden from it (`git update-index --assume-unchanged`) since the start.

        What the user had hidden before stays hidden, so that it is not committed.
        """
        if not index.exists():
            return
        known = self._scratch / _HIDDEN
        status = index.stat()
        version = (status.st_mtime_ns, status.st_size)
        if self._hidden[0] != version:
            self._hidden = (version, self._hidden_in(index))
        if not known.exists():
            known.write_bytes(listed(self._hidden[1]))
        before = set(paths(known.read_bytes())) if self._hidden[1] else set()
        if names := [name for name in self._hidden[1] if name not in before]:
            for option in ("--no-assume-unchanged", "--no-skip-worktree"):  # git takes one at a time
                self._git("update-index", option, "-z", "--stdin", index=index, stdin=listed(names))

    def _hidden_in(self, index: Path) -> list[str]:
        entries = paths(self._git("ls-files", "-v", "-z", index=index))
        return [entry[2:] for entry in entries if entry[0].islower() or entry[0] == "S"]

    def _staged(self, index: Path) -> str:
        """The tree of an index; "" if it has unmerged files, of which git makes none."""
        done = self._git.attempt("write-tree", index=index)
        if done.died:
            raise self._git.error("write-tree", done)
        return done.out.decode().strip()

    def _is_damaged(self, index: Path) -> bool:
        """Whether git cannot even list this index. Anything else that fails is an error, not a missing index."""
        return index.exists() and _DAMAGED in self._git.attempt("ls-files", "--cached", index=index).err

    def _changes(self, index: Path) -> list[_Change]:
        options = ("--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=all")
        return [_Change(e[0], e[1], e[3:]) for e in paths(self._git("status", *options, index=index))]

    def _update(self, copy: _Copy, changes: list[_Change]) -> list[str]:
        """Update the copy from the working tree, and return the nested repositories."""
        top = self._git.repository.top
        changed, nested = [], self._submodules(copy.index)
        for change in changes:
            path = change.path
            if os.path.basename(path) in OURS:
                continue
            if path.endswith("/") or (change.in_tree == "?" and _is_nested(top / path)):
                nested.append(path.rstrip("/"))
            elif change.in_tree == "?" and _size(top / path) > HUGE_FILE:
                copy.leave_out(path, f"is larger than {HUGE_FILE >> 20} MB")
            elif change.in_tree != " ":
                changed.append(path)
        if nested:
            self._remove(copy, nested)
        self._add(copy, changed)
        return sorted(set(nested))

    def _submodules(self, index: Path) -> list[str]:
        repository = self._git.repository
        if not (repository.top / ".gitmodules").exists() and not (repository.common / "modules").exists():
            return []
        return [path for path in self._git.nested(index) if _is_nested(repository.top / path)]

    def _add(self, copy: _Copy, changed: list[str]) -> None:
        """Add files to the copy. Unreadable files are left out, with a note."""
        for _ in range(_MAX_UNREADABLE):
            if not changed:
                return
            done = self._git.attempt(
                "update-index", "--add", "--remove", "-z", "--stdin", index=copy.index, stdin=listed(changed)
            )
            if done.code == 0:
                return
            bad = next((path for path in changed if _is_unreadable(path, done.err)), None)
            if bad is None:
                raise self._git.error("update-index", done)
            copy.leave_out(bad, "cannot be read")
            changed = [path for path in changed if path != bad]
        raise GitError(f"More than {_MAX_UNREADABLE} files cannot be read.")

    def _embed(self, copy: _Copy, path: str, name: str) -> None:
        """Add the files of a nested repository to the tree as plain files."""
        repository = repository_at(self._git.repository.top / path)
        if repository is None:
            copy.leave_out(f"the nested repository {path}", "cannot be read")
            return
        if not self._holds(repository):
            copy.leave_out(path, "points to a repository somewhere else")
            return
        if _packed_size(repository) > HUGE_NESTED:
            copy.leave_out(f"the nested repository {path}", "is too large")
            return
        for is_last in (False, True):
            try:
                self._include(copy, path, repository, name)
                return
            except GitDied:
                raise
            except RalphError as error:
                if is_last:
                    copy.leave_out(f"the nested repository {path}", f"cannot be included ({error.message})")

    def _include(self, copy: _Copy, path: str, repository: Repository, name: str) -> None:
        inner = Snapshots(repository, self._runner, self._run, self._scratch / name).take(name)
        ref = ref_of(self._run, name)
        self._git(
            "fetch", "-q", "--no-tags", "--no-write-fetch-head", str(repository.git_dir), f"+{ref}:{ref}"
        )
        self._git("read-tree", f"--prefix={path}/", inner.tree, index=copy.index)
        copy.left_out += [LeftOut(f"{path}/{each.path}", each.why) for each in inner.left_out]

    def _holds(self, nested: Repository) -> bool:
        """Whether everything git would write to is inside our repository, with links resolved."""
        ours = [real(each) for each in (self._git.repository.top, self._git.repository.common)]
        shared = (nested.common, nested.common / "objects", nested.common / "refs")
        written = (nested.top, nested.git_dir, *shared)
        return all(any(real(each).is_relative_to(place) for place in ours) for each in written)


def _is_nested(path: Path) -> bool:
    """Whether a directory is a repository. A link to one is saved as a link."""
    return os.path.isdir(path) and not os.path.islink(path) and repository_at(path) is not None


def _is_unreadable(path: str, error: str) -> bool:
    """Whether git failed because of this file. It quotes the name then, but not if it could not store the content."""
    return any(name in error for name in (f'("{path}")', f" '{path}' ", f"while indexing {path}\n"))


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _packed_size(repository: Repository) -> int:
    try:
        return sum(entry.stat().st_size for entry in (repository.common / "objects" / "pack").iterdir())
    except OSError:
        return 0
