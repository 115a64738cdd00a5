"""Rewind to a snapshot: restore its files and its index. HEAD and the branches stay where they are."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from ralph.scm.baseline import Baseline
from ralph.scm.git import Git, Runner, listed, paths
from ralph.scm.history import Change, History, changes_between
from ralph.scm.overwrites import in_the_way, incoming, is_behind_link, named
from ralph.scm.repository import Repository, repository_at
from ralph.scm.snapshots import Snapshot, Snapshots
from ralph.scm.user_git import UserGit


class Rewind(Struct, frozen=True):
    """A planned rewind from the current tree, which was saved first, to the target.

    A change of kind `A` restores a file, `D` removes one. `moved_head` is where HEAD was then, if it has moved.
    """

    now: Snapshot
    target: str
    changes: tuple[Change, ...]
    moved_head: str = ""


class Rewinder:
    def __init__(self, repository: Repository, run: Runner, run_id: str, scratch: Path) -> None:
        self._git = Git(repository, run)
        self._baseline = Baseline(self._git, scratch)
        self._user_git = UserGit(repository, run, self._baseline)
        self._snapshots = Snapshots(repository, run, run_id, scratch)
        self.history = History(repository, run, run_id, scratch)
        self._index = scratch / "rewind-index"

    def prepare(self, name: str) -> Rewind:
        """Save the current tree as a separate snapshot, and list what would change."""
        commit = self.history.commit(name)
        number = sum(known.startswith("rewind-") for known in self.history.names()) + 1
        kept = self._snapshots.take(f"rewind-{number}")
        changes = tuple(changes_between(self._git, kept.commit, commit, self._index))
        return Rewind(kept, commit, changes, self._moved_head(commit))

    def _moved_head(self, commit: str) -> str:
        """Where HEAD was then, if it has moved since."""
        message = self._git.line("log", "-1", "--format=%B", commit)
        then = next((line.split()[1] for line in message.splitlines() if line.startswith("Head:")), "")
        now = self._git.value("rev-parse", "-q", "--verify", "HEAD")
        return then if then not in ("", "unborn", now) else ""

    def in_the_way(self, rewind: Rewind) -> list[str]:
        """Files that the rewind would replace and that are not in the snapshot of the current tree.

        Most of them are ignored by git now and were not at that time.
        """
        saved = paths(self._git("ls-tree", "-r", "-z", "--name-only", "--full-tree", rewind.now.commit))
        files = incoming(self._git, rewind.now.commit, rewind.target, self._index)
        return in_the_way(self._top, files, set(saved))

    def apply(self, rewind: Rewind) -> list[str]:
        """Carry out the rewind, and return messages about what could not be restored.

        Files in the way are removed first. Then files are restored, `.gitignore` among them, and only then the rest
        is removed: files that were ignored at that time must stay.
        """
        self._git.disarm_filters()
        wanted = [change.path for change in rewind.changes if change.kind != "D"]
        unwanted = [change.path for change in rewind.changes if change.kind == "D"]
        in_the_way = _conflicts(unwanted, wanted)
        problems = [problem for path in in_the_way for problem in self._remove(path)]
        blocked = [
            path for path in wanted if (self._top / path).is_dir() and not (self._top / path).is_symlink()
        ]
        problems += [f"{path}: blocked by a directory with other files" for path in blocked]
        written = [path for path in wanted if path not in blocked]
        self._write(rewind.target, written)
        self._restore_index(rewind.target)
        problems += self._smudge(written)
        self._git.attempt("update-index", "-q", "--refresh")
        for path in self._not_ignored([path for path in unwanted if path not in in_the_way]):
            problems += self._remove(path)
        return problems + self._lost_nested(wanted)

    def _write(self, target: str, wanted: list[str]) -> None:
        self._index.unlink(missing_ok=True)
        self._git("read-tree", target, index=self._index)
        self._write_as_stored(wanted)

    def _write_as_stored(self, wanted: list[str]) -> None:
        self._git("checkout-index", "-f", "-z", "--stdin", index=self._index, stdin=listed(wanted))

    def _smudge(self, written: list[str]) -> list[str]:
        """Write files again that the snapshot has as a filter stores them, such as the pointers of Git LFS.

        Those are the files that were not changed then: their content is that of the index. The filters are the user's,
        as they were when the run started.
        """
        filtered = self._git.filtered(written) if written and self._git.has_filters else set()
        if not filtered:
            return []
        stored = set(paths(self._git("ls-files", "--stage", "-z"))) & set(
            paths(self._git("ls-files", "--stage", "-z", index=self._index))
        )
        names = sorted({entry.partition("\t")[2] for entry in stored} & filtered)
        if names and not any(key.startswith("filter.") for key in self._baseline.load().config):
            return [
                f"{named(names)}: restored as git stores it. Next: delete it, then restore it with: git checkout"
            ]
        done = self._user_git("checkout-index", "-f", "-u", "-z", "--stdin", stdin=listed(names))
        if done.code == 0:
            return []
        self._write_as_stored(names)
        return [self._user_git.failure("checkout-index", done)]

    def _not_ignored(self, names: list[str]) -> list[str]:
        """Those that git does not ignore. Git refuses to look behind links and, without an option, into repositories."""
        nested = tuple(f"{path}/" for path in self._git.nested())
        asked = {path for path in names if not is_behind_link(self._top, path)}
        inside = {path for path in asked if path.startswith(nested)}
        ignored = self._git.ignored(asked - inside) | self._git.ignored(inside, "--no-index")
        return sorted(set(names) - ignored)

    @property
    def _top(self) -> Path:
        return self._git.repository.top

    def _remove(self, path: str) -> list[str]:
        """Remove a file and the directories it leaves empty, never through a link."""
        target = self._top / path
        if is_behind_link(self._top, path):
            return [f"{path}: behind a symbolic link, not removed"]
        try:
            target.unlink(missing_ok=True)
            parent = target.parent
            while parent != self._top:
                os.rmdir(parent)
                parent = parent.parent
        except OSError:
            pass
        return [] if not os.path.lexists(target) else [f"{path}: could not be removed"]

    def _restore_index(self, commit: str) -> None:
        """Restore the index of that time: saved along with the tree if anything was staged, otherwise HEAD's."""
        parents = self._git.line("rev-parse", f"{commit}^@").split()
        subjects = {p: self._git.line("log", "-1", "--format=%s", p) for p in parents}
        index = next((p for p, text in subjects.items() if text.startswith("The index of ralph run")), None)
        then = index or next(iter(parents), None)
        if then is None:
            self._git("read-tree", "--empty")
            return
        self._git("read-tree", then)

    def _lost_nested(self, written: list[str]) -> list[str]:
        """Nested repositories whose files were restored without their history."""
        gone = [path for path in self._git.nested() if any(w.startswith(f"{path}/") for w in written)]
        return [
            f"{path}: files restored, but not its .git"
            for path in gone
            if not repository_at(self._top / path)
        ]


def _conflicts(unwanted: list[str], wanted: list[str]) -> list[str]:
    """Files where a directory is wanted, or below a path that must become a file."""
    files, directories = set(wanted), {str(parent) for path in wanted for parent in Path(path).parents}
    return [
        path for path in unwanted if path in directories or any(str(p) in files for p in Path(path).parents)
    ]
