"""Version control for the loop: snapshots before an iteration, changes, commits."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from ralph.core.model import OURS, Commit, Plan, Scm
from ralph.errors import RalphError
from ralph.scm.baseline import Baseline
from ralph.scm.commits import Committer, Done, GitTasks, OtherTasks
from ralph.scm.delivery import Delivery
from ralph.scm.diff import shortened
from ralph.scm.git import Git, Runner
from ralph.scm.history import Change, History
from ralph.scm.repository import Repository, branch_of
from ralph.scm.snapshots import Snapshot, Snapshots, WorkTree
from ralph.scm.trees import ComparedTrees

MAX_DIFF = 20_000
"""Characters of a diff in the prompt for a commit message."""


class VersionControl:
    """Version control for one run. Without a repository there are no snapshots, and nothing fails."""

    def __init__(self, plan: Plan, repository: Repository | None, run: Runner, state: Path) -> None:
        self._plan = plan
        self._repository = repository
        self._snapshots: Snapshots | None = None
        self._baseline: Baseline | None = None
        self._history: History | None = None
        self._scratch = state / "scm"
        self._committer: Committer | None = None
        if repository is not None:
            self._history = History(repository, run, plan.run, self._scratch)
            self._baseline = Baseline(
                Git(repository, run), self._scratch, runs_hooks=not plan.sandbox.is_real
            )
            self._snapshots = Snapshots(
                repository, run, plan.run, self._scratch, self._baseline.contents_as_started
            )
            self._committer = Committer(repository, run, self._baseline, Path(plan.directory))
        self._tasks = self._make_tasks(plan.scm, run)

    def _make_tasks(self, scm: Scm | None, run: Runner) -> GitTasks | OtherTasks | None:
        if scm is None:
            return None
        if os.path.basename(scm.command) != "git":
            return OtherTasks(run, scm)
        if self._repository is None or self._baseline is None:
            return None
        return GitTasks(self._repository, run, scm, self._plan.run, self._baseline, self._scratch)

    @property
    def missing(self) -> str:
        """A message about requested features that are unavailable here; "" if there are none."""
        if self._repository is not None:
            return ""
        wants_git = self._plan.scm is not None and self._tasks is None
        if self._plan.snapshots or wants_git:
            more = " and no commits." if wants_git else "."
            return f"Not a git repository: no snapshots{more}"
        return ""

    def record_baseline(self) -> None:
        if self._baseline is not None and (self._tasks is not None or self._plan.prompt.prd is not None):
            self._baseline.record(self.work_tree_id)

    def has_hooks(self) -> bool:
        """Whether the user has git hooks that Ralph's commits would run."""
        return self._baseline is not None and self._tasks is not None and self._baseline.has_hooks()

    def snapshot(self, name: str) -> Snapshot | None:
        if self._snapshots is None or not self._plan.snapshots:
            return None
        return self._snapshots.take(name)

    def changes_of_run(self) -> list[Change] | None:
        """The changes between the first snapshot and the last; None without snapshots."""
        return self._history.changes_of_run() if self._history is not None and self._plan.snapshots else None

    def compared(self, old: str, new: str) -> ComparedTrees | None:
        """Two trees with their files; None outside git."""
        return self._history.compared(old, new) if self._history is not None and old and new else None

    def put_back(self, tree: str, names: Sequence[str], directory: Path) -> None:
        """Write these files of a tree into a copy of the repository."""
        assert self._snapshots is not None
        self._snapshots.write_some(tree, names, directory)

    def tree(self) -> str:
        """A hash of the current tree, equal as long as nothing changes."""
        return self.work_tree_id() or digest(Path(self._plan.directory))

    def work_tree_id(self) -> str:
        """The id of the work tree; "" outside git."""
        return self.work_tree().tree

    def work_tree(self) -> WorkTree:
        return self._snapshots.work_tree() if self._snapshots is not None else WorkTree("")

    @property
    def top(self) -> Path:
        """The top of the repository; outside git, the project."""
        return self._repository.top if self._repository is not None else Path(self._plan.directory)

    def ignored(self, names: Sequence[str]) -> list[str]:
        """Those of the files that git ignores. Names are relative to the top."""
        found = self._history.git.ignored(names) if self._history is not None else set()
        return [name for name in names if name in found]

    def write_copy(self, target: Path, tree: str = "") -> None:
        """Write a copy of the repository, without git-ignored files: a tree, or what is in the files now."""
        if self._snapshots is None:
            raise RalphError("A clean guardrail needs a git repository.")
        target.mkdir(parents=True)
        self._snapshots.write(target, tree)

    @property
    def has_repository(self) -> bool:
        return self._repository is not None

    @property
    def project(self) -> str:
        """The project's directory in its repository, "." for the top or outside git."""
        top = self._repository.top if self._repository is not None else Path(self._plan.directory)
        return Path(self._plan.directory).relative_to(top).as_posix()

    def known_files(self, base: str) -> set[str]:
        """The files of the repository that git does not ignore, and those of a commit or of the run's start."""
        if self._history is None:
            return set()
        return self._history.files(base) | self._history.present()

    def diff(self, base: str) -> str:
        """All changes since a commit as text, with new files but without git-ignored files and caches."""
        if self._history is None or not base:
            return ""
        return self._history.difference(base, self.work_tree_id())

    def touched(self, globs: Sequence[str], since: str, absent: Sequence[str]) -> list[tuple[Change, str]]:
        """Files of a commit that match a glob and have changed, each with its diff.

        Also new files if a part of their path is a name in `absent`.
        """
        if self._history is None or self._snapshots is None or not (globs or absent):
            return []
        tree = self._snapshots.whole_tree()
        found = self._history.touched(since, tree, globs, absent)
        return [(change, self._history.difference(since, tree, change.path)) for change in found]

    def lost(self, since: str) -> tuple[list[str], list[str]]:
        """Files of a tree that are gone and were not just renamed, and files that have lost lines."""
        if self._history is None or not since:
            return [], []
        tree = self.tree()
        return self._history.removed(since, tree), self._history.cut(since, tree)

    def lacking(self, work_tree: WorkTree) -> tuple[str, ...]:
        """What a work tree lacks of the agent's work: `big.bin is larger than 50 MB`."""
        names = [each.path for each in work_tree.left_out]
        known = self._baseline.known(names) if self._baseline is not None and names else set[str]()
        return tuple(f"{each.path} {each.why}" for each in work_tree.left_out if each.path not in known)

    def delivery(self, checked: str, nested: Sequence[str]) -> Delivery | None:
        """What would be committed of a checked tree with these nested repositories; None if nothing ever is."""
        return self._tasks.delivery(checked, nested) if self._tasks is not None else None

    def changes(self, old: str, new: str) -> list[Change]:
        return self._history.between(old, new) if self._history is not None else []

    def changed_between(self, old: str, new: str) -> list[str]:
        """The paths in which two trees differ."""
        return [change.path for change in self.changes(old, new)]

    def changed_since(self, checked: str, delivered: str, now: str) -> list[str]:
        """The paths that differ from the checked tree. A file with a filter may be there as it was committed."""
        changed = self.changed_between(checked, now)
        if self._history is None or not (changed and delivered):
            return changed
        stored = self._history.git.filtered(changed) - set(self.changed_between(delivered, now))
        return [path for path in changed if path not in stored]

    def diff_to_commit(self, delivery: Delivery) -> str:
        """The changes that a commit would make, shortened; "" if only the command knows them."""
        if self._history is None or not delivery.tree:
            return ""
        old = delivery.head or self._history.git.line("mktree")
        return shortened(self._history.difference(old, delivery.tree), MAX_DIFF)

    def commit_files(self, names: list[str], message: str) -> str:
        """Commit these files and nothing else. Without a repository, do nothing.

        Names are relative to the project. Returns what went wrong.
        """
        return self._committer.commit_files(names, message) if self._committer is not None else ""

    def branch(self) -> str:
        return branch_of(self._repository) if self._repository is not None else ""

    def commit(self, step: Commit) -> Done:
        """Commit what was checked. If a hook or a task has changed the files, the result has their tree."""
        if self._tasks is None:
            return Done()
        if not step.tree and (now := self.work_tree()).tree:  # journalled by an older version, without a look
            delivery = self._tasks.delivery(now.tree, now.nested)
            step = Commit(step.iteration, step.message, delivery.tree, delivery.head, now.tree)
        done = self._tasks.do(step)
        if done.refused or done.is_changed:
            tree = self.work_tree_id()
            if done.is_changed or tree != step.checked:
                return replace(done, tree=tree)
        return done


def digest(directory: Path) -> str:
    """A hash of the files of a directory outside a repository, by name, size and time."""
    found = hashlib.sha256()
    for root, directories, names in os.walk(directory):
        directories[:] = sorted(d for d in directories if d not in (".git", ".ralph"))
        for name in sorted(set(names) - OURS):
            path = os.path.join(root, name)
            try:
                status = os.lstat(path)
            except OSError:
                continue
            found.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return found.hexdigest()[:40]
