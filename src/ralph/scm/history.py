"""The snapshots of a run, and what changed between two of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec import Struct

from ralph.errors import RalphError
from ralph.scm.git import Git, Runner, paths
from ralph.scm.repository import Repository
from ralph.scm.snapshots import ref_of
from ralph.scm.trees import ComparedTrees, compared_trees

_NO_PROGRAMS = ("--no-ext-diff", "--no-textconv")


class Change(Struct, frozen=True):
    """The change of one file: `A` added, `M` modified, `D` removed, `T` type changed."""

    kind: str
    path: str


class Kept(Struct, frozen=True):
    """A snapshot: its commit and its tree."""

    commit: str
    tree: str


class Counted(Struct, frozen=True):
    """The number of lines added to a file and removed from it; None for a binary file."""

    path: str
    added: int | None
    removed: int | None


class History:
    """The snapshots of one run in one repository."""

    def __init__(self, repository: Repository, run: Runner, run_id: str, scratch: Path) -> None:
        self.git = Git(repository, run)
        self._run = run_id
        self._index = scratch / "history-index"
        scratch.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """The names of the snapshots in order, without those of nested repositories."""
        return list(self.kept())

    def kept(self) -> dict[str, Kept]:
        """Each snapshot by its name, in order."""
        prefix = ref_of(self._run, "")
        options = (
            "--sort=creatordate",
            "--sort=version:refname",
            "--format=%(objectname) %(tree) %(refname)",
        )
        lines = self.git.line("for-each-ref", *options, prefix).splitlines()
        found = {
            ref.removeprefix(prefix): Kept(commit, tree)
            for commit, tree, ref in (line.split(" ", 2) for line in lines)
        }
        return {name: found[name] for name in sorted(found, key=_order) if ".nested." not in name}

    def numbered(self) -> list[str]:
        """The snapshots before each iteration, and the one at the end."""
        return [name for name in self.names() if name.isdigit()]

    def changes_of_run(self) -> list[Change] | None:
        """The changes between the first numbered snapshot and the last; None without any."""
        commits = [kept.commit for name, kept in self.kept().items() if name.isdigit()]
        if not commits:
            return None
        return changes_between(self.git, commits[0], commits[-1], self._index)

    def compared(self, old: str, new: str) -> ComparedTrees:
        """Two trees with their files."""
        return compared_trees(self.git, old, new, self._index)

    def commit(self, name: str) -> str:
        found = self.git.value("rev-parse", "-q", "--verify", f"{ref_of(self._run, name)}^{{commit}}")
        if not found:
            known = ", ".join(self.names())
            hint = f"Snapshots: {known}." if known else "Snapshots were off, or were pruned."
            raise RalphError(f"Run {self._run} has no snapshot {name!r}.", hint)
        return found

    def changes(self, old: str, new: str) -> list[Change]:
        return changes_between(self.git, self.commit(old), self.commit(new), self._index)

    def between(self, old: str, new: str) -> list[Change]:
        """The changes between two trees, given by any names."""
        return changes_between(self.git, old, new, self._index)

    def counted(self, trees: Sequence[tuple[str, str]]) -> list[list[Counted]]:
        """The changed lines of each file between the trees of each pair, from one git call."""
        if not trees:
            return []
        asked = "".join(f"{old} {new}\n" for old, new in trees)
        words = ("diff-tree", "--stdin", "-r", "--numstat", "-z", "--no-renames", *_NO_PROGRAMS)
        return _by_pair(self.git(*words, stdin=asked.encode(), index=self._index), trees)

    def diff(self, old: str, new: str, *options: str) -> str:
        """The diff between two snapshots as text."""
        self.git.disarm_filters()
        return self._diff(*options, self.commit(old), self.commit(new))

    def difference(self, old: str, new: str, *paths: str) -> str:
        """The diff between two trees, given by any names, limited to `paths` if given."""
        return self._diff(old, new, "--", *(f":(top,literal){path}" for path in paths))

    def _diff(self, *arguments: str) -> str:
        """A diff without colours, which runs no program of the repository."""
        return self.git("diff", *_NO_PROGRAMS, "--no-color", *arguments, index=self._index).decode(
            errors="replace"
        )

    def touched(self, old: str, new: str, globs: Sequence[str], absent: Sequence[str]) -> list[Change]:
        """Files of the old tree that match a glob and are changed or gone in the new one.

        Also files that only the new one has, if a part of their path is a name in `absent`, ignoring case.
        """
        changes = changes_between(self.git, old, new, self._index)
        plain, unwanted = {glob for glob in globs if _is_plain(glob)}, {name.casefold() for name in absent}
        wild = [glob for glob in globs if glob not in plain]
        matched = self._matched(old, new, wild) if wild and changes else frozenset()
        return [
            change
            for change in changes
            if (change.kind != "A" and (change.path in matched or _is_named(change.path, plain)))
            or (change.kind == "A" and unwanted.intersection(change.path.casefold().split("/")))
        ]

    def files(self, commit: str) -> set[str]:
        """The files of a commit; without one, those of the first snapshot, or of HEAD."""
        commit = commit or next((kept.commit for kept in self.kept().values()), "HEAD")
        words = ("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
        return (
            set(paths(self.git(*words))) if self.git.value("rev-parse", "-q", "--verify", commit) else set()
        )

    def present(self) -> set[str]:
        """The files in the index and the untracked ones that git does not ignore, from the top."""
        words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--full-name", "--", ":/")
        return set(paths(self.git(*words)))

    def removed(self, old: str, new: str) -> list[str]:
        """Files of the old tree that are gone from the new one and were not just renamed."""
        words = ("-r", "-z", "-M", "--diff-filter=D", "--name-only", old, new)
        return paths(self.git("diff-tree", *words, index=self._index))

    def cut(self, old: str, new: str) -> list[str]:
        """Files in both trees that have lost lines in the new one."""
        words = ("-r", "-z", "-M", "--diff-filter=M", "--numstat", old, new)
        rows = (row.split("\t", 2) for row in paths(self.git("diff-tree", *words, index=self._index)))
        return [path for _, gone, path in rows if gone != "0"]

    def _matched(self, old: str, new: str, globs: Sequence[str]) -> frozenset[str]:
        """Paths that differ between two trees and match a glob by git's rules."""
        words = ("--name-only", "-z", "--no-renames", old, new, "--", *map(_pathspec, globs))
        return frozenset(paths(self.git("diff", *words, index=self._index)))

    def forget(self) -> int:
        """Remove the refs of the run, and return how many there were."""
        refs = self.git.line("for-each-ref", "--format=%(refname)", ref_of(self._run, "")).splitlines()
        if refs:
            self.git("update-ref", "--stdin", stdin="".join(f"delete {ref}\n" for ref in refs).encode())
        return len(refs)


def changes_between(git: Git, old: str, new: str, index: Path) -> list[Change]:
    """The changes between two trees. `index` is a scratch file, so that a broken index does not matter."""
    fields = paths(git("diff-tree", "-r", "-z", "--no-renames", "--name-status", old, new, index=index))
    return [Change(kind[0], path) for kind, path in zip(fields[::2], fields[1::2], strict=True)]


def _pathspec(glob: str) -> str:
    """The pathspec of a glob. One without a slash matches in any directory; a directory matches everything in it."""
    where = glob.rstrip("/")
    anywhere = "" if "/" in where else "**/"
    return f":(top,glob){anywhere}{where}" + ("/**" if glob.endswith("/") else "")


def _is_plain(glob: str) -> bool:
    """Whether a glob has no special characters. Thousands of these are matched without git."""
    return not re.search(r"[*?[\\]|/$", glob)


def _is_named(path: str, plain: Collection[str]) -> bool:
    """Whether a path matches. A name without a slash matches in any directory, others from the top."""
    parts = path.split("/")
    return parts[-1] in plain or any("/".join(parts[:n]) in plain for n in range(2, len(parts) + 1))


def _order(name: str) -> tuple[bool, int, int, str]:
    number, _, again = name.partition("-")
    if number.isdigit():
        return (False, int(number), int(again) if again.isdigit() else 0, "")
    return (True, 0, 0, name)


def _by_pair(out: bytes, trees: Sequence[tuple[str, str]]) -> list[list[Counted]]:
    """Parse the output of `diff-tree --stdin --numstat -z`: a line with both trees, then their differences."""
    heads = [f"{old} {new}\n".encode() for old, new in trees]
    found: list[list[Counted]] = [[] for _ in trees]
    at, pair = 0, -1
    while at < len(out):
        if pair + 1 < len(heads) and out.startswith(heads[pair + 1], at):
            at, pair = at + len(heads[pair + 1]), pair + 1
            continue
        end = out.find(b"\0", at)
        if end < 0:
            break
        added, removed, path = out[at:end].split(b"\t", 2)
        found[pair].append(Counted(path.decode(errors="replace"), _number(added), _number(removed)))
        at = end + 1
    return found


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None
