"""The repository of a project: a worktree for each task, and merging back into the user's branch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
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
from ralph.scm.checkout import Checkout
from ralph.scm.git import Git, GitDied, GitError
from ralph.scm.overwrites import named, remove
from ralph.scm.repository import Repository, repository_at
from ralph.scm.rewind import Rewinder
from ralph.scm.tree import Tree
from ralph.scm.worktrees import Worktrees, branch_of
from ralph.store import locks
from ralph.store.files import opened_directory
from ralph.store.home import Home
from ralph.store.runs import process_start
from ralph.work.project_lock import Wardens, lock_project
from ralph.work.role_plan import Place

_ADVANCING = "refs/ralph/advancing"
"""The commit the user's checkout is moving to. After a kill, a half-done move is undone."""


def _proved(task: str) -> str:
    """The ref of a proved commit that waits for the user."""
    return f"refs/ralph/proved/{task}"


def _trusted(task: str) -> str:
    """The ref that keeps the commit with the trusted version of protected files, if no branch contains it."""
    return f"refs/ralph/trusted/{task}"


class ProjectRepo(Struct, frozen=True):
    """A project locked by one `ralph work`.

    `record` holds the user's git configuration at the start; `runs_hooks` says whether the user's git hooks run.
    `subdirectory`: where the project lies in the repository.
    """

    home: Home
    repository: Repository
    project: str
    record: Path
    wardens: Wardens
    runs_hooks: bool = True
    subdirectory: str = "."

    @contextmanager
    def opened(self, wakeup: Wakeup) -> Iterator[OpenProjectRepo]:
        """Git in the user's checkout, under a warden that no other thread uses meanwhile."""
        with (
            opened_directory(str(self.repository.top)) as directory,
            self.wardens.lent(wakeup) as warden,
        ):
            runner = scm_runner(warden, directory, self.repository.top)
            baseline = Baseline(Git(self.repository, runner), self.record, runs_hooks=self.runs_hooks)
            baseline.record()
            yield OpenProjectRepo(self, warden, baseline, Worktrees(self.repository, runner, baseline))

    def place_of(self, worktree: Path) -> Place:
        return Place(worktree, self.repository.top, self.subdirectory)

    def worktree(self, task: str, attempt: int) -> Path:
        return self.home.worktree(self.project, task, attempt)

    def merge_worktree(self, task: str) -> Path:
        """The worktree for merging. No task can have this name: ids do not start with a dot."""
        return self.home.worktree(self.project, f".merge/{task}")


@contextmanager
def locked_project_repo(
    home: Home,
    repository: Repository,
    project: str,
    wakeup: Wakeup,
    *,
    runs_hooks: bool = True,
    subdirectory: str = ".",
) -> Iterator[ProjectRepo]:
    """The project, locked while the context is open. Like git, we identify worktrees by their real paths."""
    home = replace(home, path=real(home.path))
    record = home.path / "work" / home.worktree(project, "any").parent.name
    lock = lock_project(home, repository.common, record / "owner", wakeup)
    wardens = Wardens(lock)
    try:
        shutil.rmtree(record, ignore_errors=True)
        record.mkdir(parents=True)
        (record / "owner").write_text(f"{os.getpid()} {process_start(os.getpid())}")
        yield ProjectRepo(home, repository, project, record, wardens, runs_hooks, subdirectory)
    finally:
        wardens.close()
        shutil.rmtree(record, ignore_errors=True)
        os.close(lock)


class MergeAttempt(Struct, frozen=True):
    """The result of a merge: the commit to prove, or why there is none. `old` is the base before the merge."""

    commit: str = ""
    old: str = ""
    verdict: MergeVerdict | None = None
    reason: str = ""


class OpenProjectRepo(Struct, frozen=True):
    """A project repository opened for git commands."""

    repo: ProjectRepo
    warden: Warden
    baseline: Baseline
    worktrees: Worktrees

    # ---- before the work ----

    def base_branch(self) -> str:
        """The branch that finished tasks are merged into: the one that is checked out."""
        branch = self.worktrees.current_branch()
        if not branch:
            raise RalphError(
                "No branch is checked out, so there is nothing to merge finished tasks into.",
                "Check one out first: git switch BRANCH",
            )
        if not self.worktrees.branch_commit(branch):
            raise RalphError(f"The branch {branch} has no commit.", self._first_commit(branch))
        return branch

    def _first_commit(self, branch: str) -> str:
        with self.tree(self.repo.repository) as tree:
            last = tree.last_head()
        if last:
            return f"If it was deleted, restore it: git update-ref refs/heads/{branch} {last}"
        return 'Create one first: git commit --allow-empty -m "Initial commit"'

    def check_commits(self) -> None:
        """Check that git has an identity and can sign: Ralph commits on behalf of the user."""
        if problem := self.worktrees.identity_problem() or self.worktrees.signing_problem():
            raise RalphError(problem)

    def repair(self, base: str) -> list[str]:
        """Clean up after a killed Ralph: unfinished merges, and a half-done fast-forward of the user's checkout.

        Returns what could not be removed.
        """
        left = list(self.repo.merge_worktree("any").parent.glob("*"))
        for path in left:
            os.close(locks.acquire(path, self.repo.home.path, DYING_SECONDS, above=False))
        problems = self.remove(*left)
        self._take_back(base)
        return problems

    def _take_back(self, base: str) -> None:
        commit, checkout = self.worktrees.commit(_ADVANCING), self.worktrees.checkout_of(base)
        if not commit:
            return
        repository = repository_at(checkout) if checkout else None
        if checkout and os.path.lexists(checkout) and not repository:
            raise GitError(f"{checkout} cannot be read, and a merge into it was cut off.", "Run it again.")
        if repository and not self.worktrees.is_ancestor(commit, f"refs/heads/{base}"):
            with self.checkout(repository) as tree:
                tree.take_back(commit)
        self.worktrees.git("update-ref", "-d", _ADVANCING)

    # ---- the worktree of a task ----

    def place(self, task: str, attempt: int, start: str) -> tuple[Repository, bool]:
        """The worktree of a task on its branch, and whether it was newly created."""
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

    @contextmanager
    def checkout(self, repository: Repository) -> Iterator[Checkout]:
        with opened_directory(str(repository.top)) as directory:
            runner = scm_runner(self.warden, directory, repository.top)
            yield Checkout(repository, runner, self.baseline)

    def keep(self, repository: Repository, message: str, scratch: Path) -> bool:
        """Commit a run's uncommitted changes to its branch, and return whether there were any.

        `scratch` holds the state at the start of the run.
        """
        with opened_directory(str(repository.top)) as directory:
            runner = scm_runner(self.warden, directory, repository.top)
            found, tree = Baseline(Git(repository, runner), scratch), Tree(repository, runner, self.baseline)
            if not found.has_changes() and not tree.is_merging():
                return False
            return tree.keep(message, found.left_out())

    def has_changes(self, repository: Repository, scratch: Path) -> bool:
        """Whether there is anything that `keep` would commit."""
        with self.tree(repository) as tree:
            return Baseline(Git(repository, tree.runner), scratch).has_changes() or tree.is_merging()

    def put_back(
        self, repository: Repository, branch: str, run: str, snapshot: str, scratch: Path
    ) -> list[str]:
        """Restore one of our worktrees, including HEAD, to a snapshot of a run, by default the last one.

        Returns what could not be restored.
        """
        with opened_directory(str(repository.top)) as directory:
            runner = scm_runner(self.warden, directory, repository.top)
            rewinder = Rewinder(repository, runner, run, scratch)
            known = [name for name in rewinder.history.names() if name[0].isdigit()]
            if not known:
                return []
            if snapshot and snapshot not in known:
                return [f"Run {run} has no snapshot {snapshot}: {repository.top} was not restored to it."]
            rewind = rewinder.prepare(snapshot or known[-1])
            Tree(repository, runner, self.baseline).attach(branch, rewind.moved_head)
            remove(repository.top, rewinder.in_the_way(rewind))
            return rewinder.apply(rewind)

    def bring_in(self, repository: Repository, task: str, commit: str, trusted: str, scratch: Path) -> str:
        """Merge a commit of the base into a task's branch, with any conflicts; returns the new trusted commit.

        Without changes since the start, according to `scratch`, untracked files are replaced by files of that commit.
        """
        with self.tree(repository) as tree:
            if not tree.has(commit):
                is_clean = not Baseline(Git(repository, tree.runner), scratch).has_changes()
                tree.bring_in(commit, f"Merge {commit[:10]} into {task}", is_clean=is_clean)
            if commit == trusted or self.worktrees.is_ancestor(commit, trusted):
                return trusted
            trusted = tree.trusted(commit)
        self.worktrees.git("update-ref", _trusted(task), trusted)
        return trusted

    # ---- merging ----

    def merge(self, task: str, base: str, message: str, progress: TaskProgress) -> MergeAttempt:
        """Merge a task's branch with the base in a separate worktree, without touching the user's checkout.

        A single commit directly on top of the base needs no merge. Of several, only the last one was proved, so they
        get a merge commit. If the base already contains the work, the base itself is proved.
        """
        trees, path = self.worktrees, self.repo.merge_worktree(task)
        branch = branch_of(task, progress.attempt)
        old, tip = trees.branch_commits(base, branch)
        if not old:
            command = f"git branch {base} {progress.began}"
            reason = f"The branch {base} no longer exists. Restore it with `{command}`, then run `ralph work` again."
            return MergeAttempt(verdict=MergeVerdict.HELD, reason=reason)
        if progress.merged and trees.commit(progress.merged) and trees.is_ancestor(progress.merged, old):
            return MergeAttempt(progress.merged, old, MergeVerdict.OK)
        if not tip or trees.is_ancestor(tip, progress.began):
            return MergeAttempt(verdict=MergeVerdict.HELD, reason=f"The branch {branch} has no new commits.")
        if trees.is_ancestor(tip, old):
            trees.add_detached(path, old)
            return MergeAttempt(old, old)
        if trees.is_next(old, tip):
            trees.add_detached(path, tip)
            return MergeAttempt(tip, old)
        with self.tree(trees.add_detached(path, old)) as tree:
            try:
                conflicts = tree.merge(tip, message)
            except GitDied:
                raise
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
                if trees.branch_commit(base) == merge.old:
                    raise
                return MergeAttempt(verdict=MergeVerdict.LOST, reason=error.message)
            return replace(merge, verdict=MergeVerdict.OK)
        repository = repository_at(checkout)
        if repository is None:
            return self._held(task, branch, base, merge, f"{checkout} is no longer a git checkout.")
        try:
            lock = locks.acquire(checkout, self.repo.home.path, above=False)
        except locks.Locked:
            return self._held(task, branch, base, merge, f"Another run is working in {checkout}.")
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
        """Fast-forward the checkout of the base; returns the problem, or "" on success."""
        if self.worktrees.branch_commit(base) != merge.old:
            return f"{base} has moved"
        with self.checkout(repository) as tree:
            if lost := tree.in_the_way(merge.commit):
                return (
                    f"The merge would replace files in {repository.top} that git does not track: {named(lost)}."
                    " Move them away."
                )
            self.worktrees.git("update-ref", _ADVANCING, merge.commit)
            problem = tree.advance(merge.commit)
        self.worktrees.git("update-ref", "-d", _ADVANCING)
        return problem

    def restore(self, task: str, commit: str) -> tuple[list[str], list[str]]:
        """Restore the tracked files of a merge worktree; returns which had changed, and which still differ."""
        with self.tree(self.worktrees.at(self.repo.merge_worktree(task))) as tree:
            changed = tree.restore(commit)
            return changed, tree.differences(commit) if changed else []

    def _held(self, task: str, branch: str, base: str, merge: MergeAttempt, why: str) -> MergeAttempt:
        """Keep the proved commit for the user, on the task's branch or under a separate ref."""
        target = branch
        if merge.commit != self.worktrees.branch_commit(branch):
            target = _proved(task)
            self.worktrees.git("update-ref", target, merge.commit)
        command = f"git merge --ff-only {target}"
        return MergeAttempt(
            verdict=MergeVerdict.HELD,
            reason=f"{why} After that, run `{command}` on {base}, or `ralph work` again.",
        )

    def clear(self, task: str, attempts: int) -> list[str]:
        """Remove the worktrees and branches of a task that is done; returns what could not be removed."""
        numbers = range(1, attempts + 1)
        worktrees = [self.repo.worktree(task, attempt) for attempt in numbers]
        problems = self.remove(self.repo.merge_worktree(task), *worktrees)
        self.delete_branches(task, [branch_of(task, attempt) for attempt in numbers])
        return problems

    def delete_branches(self, task: str, branches: Iterable[str]) -> None:
        """Delete these branches of a task, and its refs that only make sense with all of them."""
        names = (f"refs/heads/{branch}" for branch in branches)
        self.worktrees.delete_refs(*names, _proved(task), _trusted(task))

    def remove(self, *worktrees: Path) -> list[str]:
        """Remove worktrees; returns why any could not be removed. Files of another user may be in them."""
        problems = []
        for path in worktrees:
            try:
                self.worktrees.remove(path)
            except GitDied:
                raise
            except GitError as error:
                problems.append(error.text)
        return problems


def _conflict(base: str, paths: list[str]) -> str:
    files = ", ".join(paths[:20])
    return (
        f"The work conflicts with newer changes on {base}. {base} is already merged into this branch,"
        f" with conflict markers in: {files}. Resolve them, and keep what both sides intended."
    )
