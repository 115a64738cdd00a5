"""The repository whose tasks are worked on: a worktree for each, and the way back into the user's branch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ralph.core.board import MergeVerdict
from ralph.errors import RalphError
from ralph.flows.repository import scm_runner
from ralph.process.client import Wakeup, Warden
from ralph.scm.git import Git, GitError
from ralph.scm.repository import Repository, repository_at
from ralph.scm.rewind import Rewinder
from ralph.scm.start import Recorded
from ralph.scm.worktrees import Tree, Worktrees, branch_of
from ralph.store import locks
from ralph.store.files import opened_directory
from ralph.store.home import Home


@dataclass(frozen=True, slots=True)
class Ground:
    """`record`: how the user's git was configured when the work began."""

    home: Home
    repository: Repository
    project: str
    record: Path

    @contextmanager
    def opened(self) -> Iterator[Yard]:
        """Git in the user's checkout, under a warden of its own."""
        with (
            opened_directory(str(self.repository.top)) as directory,
            Warden(Wakeup()) as warden,
        ):
            runner = scm_runner(warden, directory, self.repository.top)
            recorded = Recorded(Git(self.repository, runner), self.record)
            recorded.record()
            yield Yard(self, warden, recorded, Worktrees(self.repository, runner, recorded))

    def worktree(self, task: str, attempt: int) -> Path:
        return self.home.worktree(self.project, task, attempt)

    def merge_worktree(self, task: str) -> Path:
        """A task cannot have this name: ids do not begin with a dot."""
        return self.home.worktree(self.project, f".merge/{task}")


@dataclass(frozen=True, slots=True)
class Merge:
    """What came of merging: the commit to prove, or why there is none."""

    commit: str = ""
    old: str = ""
    verdict: MergeVerdict | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Yard:
    """An open ground."""

    ground: Ground
    warden: Warden
    recorded: Recorded
    worktrees: Worktrees

    # ---- before the work ----

    def base_branch(self) -> str:
        """The branch that finished tasks go into: the one that is checked out."""
        branch = self.worktrees.current_branch()
        if not branch:
            raise RalphError(
                "No branch is checked out here: there is nothing to merge finished tasks into.",
                "Check one out first: git switch BRANCH",
            )
        if not self.worktrees.branch_commit(branch):
            raise RalphError(
                f"The branch {branch} has no commit yet.",
                'Make one first: git commit --allow-empty -m "Begin"',
            )
        return branch

    def check_identity(self) -> None:
        """Ralph commits for the user, so git has to know who that is."""
        done = self.worktrees.git.attempt("config", "user.email")
        if done.code and not os.environ.get("GIT_AUTHOR_EMAIL") and not os.environ.get("EMAIL"):
            raise RalphError(
                "Git does not know who commits.",
                'git config --global user.email "you@example.org" (and user.name)',
            )

    def add(self, task: str, attempt: int, start: str) -> Repository:
        return self.worktrees.add(self.ground.worktree(task, attempt), branch_of(task, attempt), start)

    @contextmanager
    def tree(self, repository: Repository) -> Iterator[Tree]:
        with opened_directory(str(repository.top)) as directory:
            runner = scm_runner(self.warden, directory, repository.top)
            yield Tree(repository, runner, self.recorded)

    def put_back(self, repository: Repository, run: str, snapshot: str, scratch: Path) -> list[str]:
        """Make a worktree of ours what it was at a snapshot, HEAD too; returns what could not be put back."""
        with opened_directory(str(repository.top)) as directory:
            runner = scm_runner(self.warden, directory, repository.top)
            rewinder = Rewinder(repository, runner, run, scratch)
            rewind = rewinder.prepare(snapshot)
            if rewind.moved_head:
                Tree(repository, runner, self.recorded).put_back(rewind.moved_head)
            return rewinder.apply(rewind)

    # ---- merging ----

    def merge(self, task: str, attempt: int, base: str, message: str) -> Merge:
        """Merge a task's branch with the base, in a worktree of its own; nothing of the user's is touched."""
        trees, path = self.worktrees, self.ground.merge_worktree(task)
        old, tip = trees.branch_commit(base), trees.branch_commit(branch_of(task, attempt))
        if not old:
            return Merge(verdict=MergeVerdict.HELD, reason=f"the branch {base} is not there any more")
        if not tip or trees.is_ancestor(tip, old):
            return Merge(old, old, MergeVerdict.OK)
        if trees.is_ancestor(old, tip):
            trees.add_detached(path, tip)
            return Merge(tip, old)
        with self.tree(trees.add_detached(path, old)) as tree:
            if conflicts := tree.merge(tip, message):
                return Merge(verdict=MergeVerdict.CONFLICT, reason=_conflict(base, conflicts))
            return Merge(tree.head(), old)

    def bring_in(self, repository: Repository, base: str, message: str) -> str:
        """Merge the base into a task's worktree, conflicts and all, for the coder to resolve; returns its tip."""
        tip = self.worktrees.branch_commit(base)
        with self.tree(repository) as tree:
            tree.keep(message)
            tree.merge(tip, message)
        return tip

    def advance(self, task: str, attempt: int, base: str, merge: Merge) -> Merge:
        """Fast-forward the base to a commit that was proved, and its checkout if there is one."""
        trees = self.worktrees
        checkout = trees.checkout_of(base)
        if checkout is None:
            try:
                trees.git("update-ref", f"refs/heads/{base}", merge.commit, merge.old)
            except GitError as error:
                return Merge(verdict=MergeVerdict.LOST, reason=error.message)
            return Merge(merge.commit, merge.old, MergeVerdict.OK)
        repository = repository_at(checkout)
        if repository is None:
            return self._held(task, attempt, base, merge, f"{checkout} is no git checkout any more")
        try:
            lock = locks.acquire(checkout, self.ground.home.path, above=False)
        except locks.Locked:
            return self._held(task, attempt, base, merge, f"another run works in {checkout}")
        try:
            if trees.branch_commit(base) != merge.old:
                return Merge(verdict=MergeVerdict.LOST, reason=f"{base} has moved meanwhile")
            with self.tree(repository) as tree:
                if problem := tree.advance(merge.commit):
                    return self._held(task, attempt, base, merge, problem)
        finally:
            os.close(lock)
        return Merge(merge.commit, merge.old, MergeVerdict.OK)

    def _held(self, task: str, attempt: int, base: str, merge: Merge, why: str) -> Merge:
        """The proved commit waits on the task's branch for the user."""
        branch = branch_of(task, attempt)
        self.worktrees.git.attempt("update-ref", f"refs/ralph/proved/{task}", merge.commit)
        with_merge = merge.commit != self.worktrees.branch_commit(branch)
        target = f"refs/ralph/proved/{task}" if with_merge else branch
        command = f"git merge --ff-only {target}"
        return Merge(
            verdict=MergeVerdict.HELD, reason=f"{why} Then: {command} (on {base}), or `ralph work` again."
        )

    def clear(self, task: str, attempts: int) -> None:
        """Remove the worktrees and branches of a task that is done."""
        trees = self.worktrees
        trees.remove(self.ground.merge_worktree(task))
        for attempt in range(1, attempts + 1):
            trees.remove(self.ground.worktree(task, attempt))
            trees.delete_branch(branch_of(task, attempt))
        trees.git.attempt("update-ref", "-d", f"refs/ralph/proved/{task}")


def _conflict(base: str, paths: list[str]) -> str:
    files = ", ".join(paths[:20])
    return (
        f"The work conflicts with what {base} has got meanwhile. {base} is merged into this branch already,"
        f" with conflict marks in: {files}. Resolve them, and keep what both sides want."
    )
