"""Go back to a snapshot: put its files and its index back. HEAD and the branches stay where they are."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from ralph.scm.git import Git, Runner, listed, paths
from ralph.scm.history import Change, History, changes_between
from ralph.scm.repository import Repository, repository_at
from ralph.scm.snapshots import Snapshot, Snapshots


class Rewind(Struct, frozen=True):
    """What would happen: from the tree as it is now, which was kept first, to the target.

    A change of kind `A` brings a file back, `D` removes one. `moved_head`: where HEAD was then, if it has moved.
    """

    now: Snapshot
    target: str
    changes: tuple[Change, ...]
    moved_head: str = ""


class Rewinder:
    def __init__(self, repository: Repository, run: Runner, run_id: str, scratch: Path) -> None:
        self._git = Git(repository, run)
        self._snapshots = Snapshots(repository, run, run_id, scratch)
        self.history = History(repository, run, run_id, scratch)
        self._index = scratch / "rewind-index"

    def prepare(self, name: str) -> Rewind:
        """Keep what is there now, under a name of its own, and find out what would change."""
        commit = self.history.commit(name)
        number = sum(known.startswith("rewind-") for known in self.history.names()) + 1
        kept = self._snapshots.take(f"rewind-{number}")
        changes = tuple(changes_between(self._git, kept.commit, commit, self._index))
        return Rewind(kept, commit, changes, self._moved_head(commit))

    def _moved_head(self, commit: str) -> str:
        """Where HEAD was then, if it is elsewhere now."""
        message = self._git.line("log", "-1", "--format=%B", commit)
        then = next((line.split()[1] for line in message.splitlines() if line.startswith("Head:")), "")
        now = self._git.attempt("rev-parse", "-q", "--verify", "HEAD").out.decode().strip()
        return then if then not in ("", "unborn", now) else ""

    def apply(self, rewind: Rewind) -> list[str]:
        """Do it; returns what could not be put back, in words.

        What stands in the way goes first, then the files come back, `.gitignore` among them, and only then
        the rest goes: a file that was ignored at that time is none of ours.
        """
        self._git.disarm_filters()
        wanted = [change.path for change in rewind.changes if change.kind != "D"]
        unwanted = [change.path for change in rewind.changes if change.kind == "D"]
        in_the_way = _conflicts(unwanted, wanted)
        problems = [problem for path in in_the_way for problem in self._remove(path)]
        blocked = [
            path for path in wanted if (self._top / path).is_dir() and not (self._top / path).is_symlink()
        ]
        problems += [f"{path}: a directory with other files is in its place" for path in blocked]
        self._write(rewind.target, [path for path in wanted if path not in blocked])
        self._restore_index(rewind.target)
        for path in self._not_ignored([path for path in unwanted if path not in in_the_way]):
            problems += self._remove(path)
        return problems + self._lost_nested(wanted)

    def _write(self, target: str, wanted: list[str]) -> None:
        self._index.unlink(missing_ok=True)
        self._git("read-tree", target, index=self._index)
        self._git("checkout-index", "-f", "-z", "--stdin", index=self._index, stdin=listed(wanted))

    def _not_ignored(self, names: list[str]) -> list[str]:
        ignored = self._git.attempt("check-ignore", "-z", "--stdin", stdin=listed(names))
        return sorted(set(names) - set(paths(ignored.out)))

    @property
    def _top(self) -> Path:
        return self._git.repository.top

    def _remove(self, path: str) -> list[str]:
        """Remove a file and the directories that it leaves empty; never through a link."""
        target = self._top / path
        if any(parent.is_symlink() for parent in target.parents if parent != self._top):
            return [f"{path}: it lies behind a link"]
        try:
            target.unlink(missing_ok=True)
            parent = target.parent
            while parent != self._top:
                os.rmdir(parent)
                parent = parent.parent
        except OSError:
            pass
        return [] if not os.path.lexists(target) else [f"{path}: it could not be removed"]

    def _restore_index(self, commit: str) -> None:
        """The index as it was then: kept beside the tree if something was staged, else as in HEAD."""
        parents = self._git.line("rev-parse", f"{commit}^@").split()
        subjects = {p: self._git.line("log", "-1", "--format=%s", p) for p in parents}
        index = next((p for p, text in subjects.items() if text.startswith("The index of ralph run")), None)
        then = index or next(iter(parents), None)
        if then is None:
            self._git("read-tree", "--empty")
            return
        self._git("read-tree", then)
        self._git.attempt("update-index", "-q", "--refresh")

    def _lost_nested(self, written: list[str]) -> list[str]:
        """Nested repositories whose files came back without their own history."""
        gone = [path for path in self._git.nested() if any(w.startswith(f"{path}/") for w in written)]
        return [
            f"{path}: its files are back, its .git is not"
            for path in gone
            if not repository_at(self._top / path)
        ]


def _conflicts(unwanted: list[str], wanted: list[str]) -> list[str]:
    """Files that stand where a directory is wanted, or below what is to be a file."""
    files, directories = set(wanted), {str(parent) for path in wanted for parent in Path(path).parents}
    return [
        path for path in unwanted if path in directories or any(str(p) in files for p in Path(path).parents)
    ]
