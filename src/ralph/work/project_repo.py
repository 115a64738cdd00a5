"""The repository whose tasks are worked on: a worktree for each, and the way back into the user's branch."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ralph.core.board import MergeVerdict
from ralph.core.task_model import TaskProgress
from ralph.errors import RalphError
from ralph.files.paths import real
from ralph.process.client import Wakeup, Warden
from ralph.runs.locking import DYING_SECONDS
from ralph.runs.repository import scm_runner
from ralph.scm.baseline import Baseline
from ralph.scm.git import Git, GitError
from ralph.scm.repository import Repository, repository_at
from ralph.scm.rewind import Rewinder
from ralph.scm.worktrees import Tree, Worktrees, branch_of
from ralph.store import locks
from ralph.store.files import opened_directory
from ralph.store.home import Home
from ralph.store.runs import process_start

_ADVANCING = "refs/ralph/advancing"
"""The commit that the user's checkout is being brought to; what a killed git has left of it is taken back."""


def _proved(task: str) -> str:
    """The commit that waits for the user."""
    return f"refs/ralph/proved/{task}"


def _trusted(task: str) -> str:
    """The commit whose protected files count, where no branch has it."""
    return f"refs/ralph/trusted/{task}"


class Wardens:
    """Wardens for git between the runs: who is done with one leaves it to the next.

    They hold the lock of the project too, so that after a kill nobody begins before the last git command has ended.
    """

    def __init__(self, lock: int) -> None:
        self._lock = lock
        self._idle: list[Warden] = []

    @contextmanager
    def lent(self, wakeup: Wakeup) -> Iterator[Warden]:
        try:
            warden = self._idle.pop()
            warden.heed(wakeup)
        except IndexError:
            warden = Warden(wakeup, self._lock)
        try:
            yield warden
        except BaseException:
            warden.close()
            raise
        self._idle.append(warden)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class ProjectRepo(Struct, frozen=True):
    """A project that one `ralph work` alone works on. `record`: how the user's git was configured at its beginning.

    `runs_hooks`: whether the user's git hooks are run.
    """

    home: Home
    repository: Repository
    project: str
    record: Path
    wardens: Wardens
    runs_hooks: bool = True

    @contextmanager
    def opened(self, wakeup: Wakeup) -> Iterator[OpenProjectRepo]:
        """Git in the user's checkout, under a warden that nobody else uses meanwhile."""
        with (
            opened_directory(str(self.repository.top)) as directory,
            self.wardens.lent(wakeup) as warden,
        ):
            runner = scm_runner(warden, directory, self.repository.top)
            baseline = Baseline(Git(self.repository, runner), self.record, runs_hooks=self.runs_hooks)
            baseline.record()
            yield OpenProjectRepo(self, warden, baseline, Worktrees(self.repository, runner, baseline))

    def worktree(self, task: str, attempt: int) -> Path:
        return self.home.worktree(self.project, task, attempt)

    def merge_worktree(self, task: str) -> Path:
        """A task cannot have this name: ids do not begin with a dot."""
        return self.home.worktree(self.project, f".merge/{task}")


@contextmanager
def locked_project_repo(
    home: Home, repository: Repository, project: str, wakeup: Wakeup, *, runs_hooks: bool = True
) -> Iterator[ProjectRepo]:
    """The project, for nobody else as long as this lasts. Git knows worktrees by their real paths, so do we."""
    home = replace(home, path=real(home.path))
    record = home.path / "work" / home.worktree(project, "any").parent.name
    lock = _lock(home, repository.common, record / "owner", wakeup)
    wardens = Wardens(lock)
    try:
        shutil.rmtree(record, ignore_errors=True)
        record.mkdir(parents=True)
        (record / "owner").write_text(f"{os.getpid()} {process_start(os.getpid())}")
        yield ProjectRepo(home, repository, project, record, wardens, runs_hooks)
    finally:
        wardens.close()
        shutil.rmtree(record, ignore_errors=True)
        os.close(lock)


def _lock(home: Home, common: Path, owner: Path, wakeup: Wakeup) -> int:
    """After a Ralph that was killed, the end of what it had started is waited for."""
    deadline = time.monotonic() + DYING_SECONDS
    while True:
        try:
            return locks.acquire(common, home.path, above=False)
        except locks.Locked:
            if _is_alive(owner) or time.monotonic() > deadline:
                raise RalphError(
                    "Another `ralph work` works on this project.",
                    "`ralph status` shows it; add tasks to it as you like.",
                ) from None
            if wakeup.count:
                raise KeyboardInterrupt from None


def _is_alive(owner: Path) -> bool:
    try:
        pid, _, start = owner.read_text().partition(" ")
    except OSError:
        return False
    return pid.isdigit() and process_start(int(pid)) == start


class MergeAttempt(Struct, frozen=True):
    """What came of merging: the commit to prove, or why there is none. `old`: where the base was."""

    commit: str = ""
    old: str = ""
    verdict: MergeVerdict | None = None
    reason: str = ""


class OpenProjectRepo(Struct, frozen=True):
    """An open ground."""

    repo: ProjectRepo
    warden: Warden
    baseline: Baseline
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
            raise RalphError(f"The branch {branch} has no commit.", self._first_commit(branch))
        return branch

    def _first_commit(self, branch: str) -> str:
        with self.tree(self.repo.repository) as tree:
            last = tree.last_head()
        if last:
            return f"If it was deleted, bring it back: git update-ref refs/heads/{branch} {last}"
        return 'Make one first: git commit --allow-empty -m "Begin"'

    def check_commits(self) -> None:
        """Ralph commits for the user, so git has to know who that is and how to sign."""
        if problem := self.worktrees.identity_problem() or self.worktrees.signing_problem():
            raise RalphError(problem)

    def repair(self, base: str) -> None:
        """What a killed Ralph may have left: merges in hand, half a fast-forward of the user's checkout."""
        for path in self.repo.merge_worktree("any").parent.glob("*"):
            os.close(locks.acquire(path, self.repo.home.path, DYING_SECONDS, above=False))
            self.worktrees.remove(path)
        commit, checkout = self.worktrees.commit(_ADVANCING), self.worktrees.checkout_of(base)
        if not commit:
            return
        repository = repository_at(checkout) if checkout else None
        if repository and not self.worktrees.is_ancestor(commit, f"refs/heads/{base}"):
            with self.tree(repository) as tree:
                tree.take_back(commit)
        self.worktrees.git("update-ref", "-d", _ADVANCING)

    # ---- the worktree of a task ----

    def place(self, task: str, attempt: int, start: str) -> tuple[Repository, bool]:
        """The worktree of a task on its branch, and whether it had to be made."""
        path, branch = self.repo.worktree(task, attempt), branch_of(task, attempt)
        found = self.worktrees.found(path)
        repository = found or self.worktrees.add(path, branch, start)
        with self.tree(repository) as tree:
            tree.attach(branch)
        return repository, found is None

    @contextmanager
    def tree(self, repository: Repository) -> Iterator[Tree]:
        with opened_directory(str(repository.top)) as directory:
            runner = scm_runner(self.warden, directory, repository.top)
            yield Tree(repository, runner, self.baseline)

    def keep(self, repository: Repository, message: str, scratch: Path) -> None:
        """What a run has made and not committed goes onto the branch; `scratch` tells how it was when it began."""
        with opened_directory(str(repository.top)) as directory:
            runner = scm_runner(self.warden, directory, repository.top)
            found, tree = Baseline(Git(repository, runner), scratch), Tree(repository, runner, self.baseline)
            if found.has_changes() or tree.is_merging():
                tree.keep(message, found.left_out())

    def put_back(
        self, repository: Repository, branch: str, run: str, snapshot: str, scratch: Path
    ) -> list[str]:
        """Make a worktree of ours what it was at a snapshot, else at the last one of a run, HEAD too.

        Returns what could not be put back.
        """
        with opened_directory(str(repository.top)) as directory:
            runner = scm_runner(self.warden, directory, repository.top)
            rewinder = Rewinder(repository, runner, run, scratch)
            known = [name for name in rewinder.history.names() if name[0].isdigit()]
            if snapshot not in known and (snapshot or not known):
                return []
            rewind = rewinder.prepare(snapshot or known[-1])
            Tree(repository, runner, self.baseline).attach(branch, rewind.moved_head)
            return rewinder.apply(rewind)

    def bring_in(self, repository: Repository, task: str, commit: str, trusted: str, scratch: Path) -> str:
        """A task's branch gets a commit of the base, conflicts and all; returns what may be trusted from now on.

        What lies around untracked, as `scratch` tells, gives way to a file of that commit.
        """
        with self.tree(repository) as tree:
            if not tree.has(commit):
                found = Baseline(tree.git, scratch)
                is_clean = not found.has_changes()
                for path in set(found.left_out()).intersection(
                    self.worktrees.files(commit) if is_clean else ()
                ):
                    (repository.top / path).unlink(missing_ok=True)
                tree.bring_in(commit, f"Merge {commit[:10]} into {task}", is_clean=is_clean)
            if commit == trusted or self.worktrees.is_ancestor(commit, trusted):
                return trusted
            trusted = tree.trusted(commit)
        self.worktrees.git("update-ref", _trusted(task), trusted)
        return trusted

    # ---- merging ----

    def merge(self, task: str, base: str, message: str, progress: TaskProgress) -> MergeAttempt:
        """Merge a task's branch with the base, in a worktree of its own; nothing of the user's is touched.

        A single commit that follows on the base needs no merge. Of several, only the last one was proved: the base
        gets them behind a merge commit. What the base has already, whoever has merged it, is proved there as it is.
        """
        trees, path = self.worktrees, self.repo.merge_worktree(task)
        branch = branch_of(task, progress.attempt)
        old, tip = trees.branch_commits(base, branch)
        if not old:
            mending = f"git branch {base} {progress.began}"
            reason = f"The branch {base} is not there any more. Next: {mending}, and `ralph work` again."
            return MergeAttempt(verdict=MergeVerdict.HELD, reason=reason)
        if progress.merged and trees.is_ancestor(progress.merged, old):
            return MergeAttempt(progress.merged, old, MergeVerdict.OK)
        if not tip or trees.is_ancestor(tip, progress.began):
            return MergeAttempt(verdict=MergeVerdict.HELD, reason=f"There is nothing on the branch {branch}.")
        if trees.is_ancestor(tip, old):
            trees.add_detached(path, old)
            return MergeAttempt(old, old)
        if trees.is_next(old, tip):
            trees.add_detached(path, tip)
            return MergeAttempt(tip, old)
        with self.tree(trees.add_detached(path, old)) as tree:
            try:
                conflicts = tree.merge(tip, message)
            except GitError as error:
                return MergeAttempt(verdict=MergeVerdict.HELD, reason=error.text)
            if conflicts:
                return MergeAttempt("", old, MergeVerdict.CONFLICT, _conflict(base, conflicts))
            return MergeAttempt(tree.head(), old)

    def advance(self, task: str, branch: str, base: str, merge: MergeAttempt) -> MergeAttempt:
        """Fast-forward the base to a commit that was proved, and its checkout if there is one."""
        trees = self.worktrees
        if merge.commit == merge.old:
            return MergeAttempt(
                trees.brought(trees.branch_commit(branch), merge.old), merge.old, MergeVerdict.OK
            )
        checkout = trees.checkout_of(base)
        if checkout is None:
            try:
                trees.git("update-ref", f"refs/heads/{base}", merge.commit, merge.old)
            except GitError as error:
                return MergeAttempt(verdict=MergeVerdict.LOST, reason=error.message)
            return replace(merge, verdict=MergeVerdict.OK)
        repository = repository_at(checkout)
        if repository is None:
            return self._held(task, branch, base, merge, f"{checkout} is no git checkout any more.")
        try:
            lock = locks.acquire(checkout, self.repo.home.path, above=False)
        except locks.Locked:
            return self._held(task, branch, base, merge, f"Another run works in {checkout}.")
        try:
            problem = self._advance(repository, base, merge)
        finally:
            os.close(lock)
        if problem and trees.branch_commit(base) != merge.old:
            return MergeAttempt(verdict=MergeVerdict.LOST, reason=f"{base} has moved meanwhile")
        if problem:
            return self._held(task, branch, base, merge, problem)
        return replace(merge, verdict=MergeVerdict.OK)

    def _advance(self, repository: Repository, base: str, merge: MergeAttempt) -> str:
        """Returns why it was not done."""
        if self.worktrees.branch_commit(base) != merge.old:
            return f"{base} has moved"
        self.worktrees.git("update-ref", _ADVANCING, merge.commit)
        with self.tree(repository) as tree:
            problem = tree.advance(merge.commit)
        self.worktrees.git.attempt("update-ref", "-d", _ADVANCING)
        return problem

    def _held(self, task: str, branch: str, base: str, merge: MergeAttempt, why: str) -> MergeAttempt:
        """The proved commit waits for the user, on the task's branch or under a name of its own."""
        target = branch
        if merge.commit != self.worktrees.branch_commit(branch):
            target = _proved(task)
            self.worktrees.git("update-ref", target, merge.commit)
        command = f"git merge --ff-only {target}"
        return MergeAttempt(
            verdict=MergeVerdict.HELD, reason=f"{why} Then: {command} (on {base}), or `ralph work` again."
        )

    def clear(self, task: str, attempts: int) -> None:
        """Remove the worktrees and branches of a task that is done."""
        trees = self.worktrees
        trees.remove(self.repo.merge_worktree(task))
        numbers = range(1, attempts + 1)
        for attempt in numbers:
            trees.remove(self.repo.worktree(task, attempt))
        branches = (f"refs/heads/{branch_of(task, attempt)}" for attempt in numbers)
        trees.delete_refs(*branches, _proved(task), _trusted(task))


def _conflict(base: str, paths: list[str]) -> str:
    files = ", ".join(paths[:20])
    return (
        f"The work conflicts with what {base} has got meanwhile. {base} is merged into this branch already,"
        f" with conflict marks in: {files}. Resolve them, and keep what both sides want."
    )
