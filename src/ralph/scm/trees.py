"""Two trees of a repository, and the files of each, read when they are needed."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec import Struct

from ralph.scm.git import Git, paths

_LINK = "120000"
_FILES = ("100644", "100755")

_RAW = re.compile(r":(\d+) (\d+) ([0-9a-f]+) ([0-9a-f]+) ([A-Z])\d*")


class TreeEntry(Struct, frozen=True):
    """A file of a tree: its mode and the id of its content."""

    mode: str
    blob: str


class TreeFiles:
    """The files of one tree."""

    def __init__(self, git: Git, entries: Mapping[str, TreeEntry]) -> None:
        self._git = git
        self._entries = entries
        self._contents: dict[str, str | None] = {}

    @property
    def paths(self) -> Collection[str]:
        return self._entries.keys()

    def text(self, path: str) -> str | None:
        """The content of a regular file; None if there is none with this name, or if it is not text."""
        entry = self._entries.get(path)
        return self._content(entry) if entry is not None and entry.mode in _FILES else None

    def target(self, path: str) -> str:
        """The target of a symbolic link; "" otherwise."""
        entry = self._entries.get(path)
        return (self._content(entry) or "") if entry is not None and entry.mode == _LINK else ""

    def _content(self, entry: TreeEntry) -> str | None:
        if entry.blob not in self._contents:
            data = self._git("cat-file", "blob", entry.blob)
            try:
                self._contents[entry.blob] = data.decode()
            except UnicodeDecodeError:
                self._contents[entry.blob] = None
        return self._contents[entry.blob]


class ComparedTrees:
    """An old and a new tree. `changed`: the paths that differ; `renamed`: new paths of old files."""

    def __init__(self, git: Git, old: str, differences: bytes) -> None:
        self._git = git
        self._old = old
        self._new_entries: dict[str, TreeEntry | None] = {}
        self.renamed: dict[str, str] = {}
        self._read(paths(differences))
        self.changed = tuple(sorted(self._new_entries))
        self.deleted = tuple(path for path in self.changed if self._new_entries[path] is None)
        self._files: tuple[TreeFiles, TreeFiles] | None = None

    def files(self) -> tuple[TreeFiles, TreeFiles]:
        """The files of the old tree and of the new one."""
        if self._files is None:
            old = _entries(self._git, self._old)
            merged: dict[str, TreeEntry | None] = {**old, **self._new_entries}
            new = {path: entry for path, entry in merged.items() if entry is not None}
            self._files = TreeFiles(self._git, old), TreeFiles(self._git, new)
        return self._files

    def _read(self, fields: list[str]) -> None:
        rest = iter(fields)
        for field in rest:
            found = _RAW.fullmatch(field)
            assert found is not None, field
            path = next(rest)
            entry = TreeEntry(found[2], found[4])
            if found[5] == "R":
                target = next(rest)
                self.renamed[path] = target
                self._new_entries |= {path: None, target: entry}
            else:
                self._new_entries[path] = None if found[5] == "D" else entry


def compared_trees(git: Git, old: str, new: str, index: Path) -> ComparedTrees:
    """Compare two trees. `index` is a scratch file, so that a broken index does not matter."""
    words = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "-M", old, new)
    return ComparedTrees(git, old, git(*words, index=index))


def _entries(git: Git, tree: str) -> dict[str, TreeEntry]:
    found = {}
    for line in paths(git("ls-tree", "-r", "-z", "--full-tree", tree)):
        about, _, path = line.partition("\t")
        mode, _, blob = about.split(" ")
        found[path] = TreeEntry(mode, blob)
    return found
