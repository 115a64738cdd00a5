"""Merges proved work: in a separate worktree, proved again there, and only then into the user's branch."""

from __future__ import annotations

from msgspec.structs import replace

from ralph.core.board import Merge, Merged, MergeVerdict
from ralph.core.events import Notice
from ralph.core.model import Outcome
from ralph.core.task_model import Task, TaskProgress
from ralph.core.text import clean
from ralph.scm.overwrites import named
from ralph.scm.repository import Repository
from ralph.scm.worktrees import branch_of
from ralph.work import role_plan
from ralph.work.project_repo import MergeAttempt, OpenProjectRepo
from ralph.work.role_plan import MERGE, Assignment
from ralph.work.turns import Halt, TaskTurn, TurnResult, halted, lost, reason_of

MAX_TRIES = 5
"""How often a merge is retried because the base has moved meanwhile."""

LONGEST_SUBJECT = 200

UNCOMMITTED = "Not all of the work was committed. It is committed now, and has to be proved again."


class MergeTurn(TaskTurn):
    """One task's turn to be merged."""

    def take(self, action: Merge) -> TurnResult:
        task = self.tasks.find(action.job)
        progress = replace(self.tasks.progress(task.id), attempt=action.attempt)
        self.wait_for(self.context.repo.merge_worktree(task.id))
        done = MergeAttempt(verdict=MergeVerdict.LOST)
        for _ in range(MAX_TRIES):
            done, halt = self._merge(task, progress)
            if halt is not None:
                return lost(action, halt)
            if done.verdict is not MergeVerdict.LOST:
                break
        else:
            done = replace(done, verdict=MergeVerdict.HELD)
        assert done.verdict is not None
        self._settle(task, done)
        return TurnResult(Merged(task.id, done.verdict, done.reason))

    def _merge(self, task: Task, progress: TaskProgress) -> tuple[MergeAttempt, Halt | None]:
        base, branch = progress.base or self.context.base, branch_of(task.id, progress.attempt)
        with self.context.repo.opened(self.wakeup) as repo:
            if not progress.merged:
                repository, is_new = repo.place(task.id, progress.attempt, progress.began)
                if is_new:
                    self.restore(repo, repository, task, progress.attempt)
                if self._keep(repo, repository, task):
                    return MergeAttempt("", progress.began, MergeVerdict.RED, UNCOMMITTED), None
            merge = repo.merge(task.id, base, _subject(task), progress)
        if merge.verdict is not None:
            return merge, None
        path = self.context.repo.merge_worktree(task.id)
        began = merge.old if merge.commit != merge.old else progress.began
        place = self.context.repo.place_of(path)
        proof = Assignment(task, MERGE, place, replace(progress, began=began), budget=self.budget(task))
        with self.context.repo.opened(self.wakeup) as repo:
            worktree = repo.worktrees.at(path)
        self.prepare(worktree)
        with self.context.repo.opened(self.wakeup) as repo:
            if problem := self._restored(repo, task, merge.commit):
                return replace(merge, verdict=MergeVerdict.HELD, reason=problem), None
        state = self.drive(path, role_plan.merge_plan(self.context.settings, proof, self.context.sandbox))
        assert state.stop is not None
        if state.stop.outcome is Outcome.LIMIT:
            reason = f"On the merged tree: {reason_of(state)}"
            return replace(merge, verdict=MergeVerdict.RED, reason=reason), None
        if state.stop.outcome is not Outcome.COMPLETE:
            return merge, halted(state)
        with self.context.repo.opened(self.wakeup) as repo:
            return repo.advance(task.id, branch, base, merge), None

    def _keep(self, repo: OpenProjectRepo, repository: Repository, task: Task) -> bool:
        """Commit work that the runs of a task have left uncommitted, and return whether there was any."""
        runs = list(self.runs_in(task, repository.top))
        scratch = self.scratch(runs[-1].id) if runs else None
        if scratch is None or not (scratch / "start.json").exists():
            return False
        return repo.keep(repository, f"{task.id}: not committed by its runs", scratch)

    def _restored(self, repo: OpenProjectRepo, task: Task, commit: str) -> str:
        """Make the checks look at the commit that is merged; returns the problem, or "".

        The setup command may have changed tracked files, such as a lock file.
        """
        changed, differing = repo.restore(task.id, commit)
        if changed:
            self.tell(Notice(f"Changed before the checks of the merge, and restored: {named(changed)}"))
        if not differing:
            return ""
        return (
            f"Restored files still differ from the commit {commit[:10]}: {named(differing)}."
            " Fix ralph.setup, line endings or filters, then run `ralph work` again."
        )

    def _settle(self, task: Task, done: MergeAttempt) -> None:
        """Clean up after a merge. On failure the task returns to the first role, with the base merged into its worktree."""
        if done.verdict is MergeVerdict.OK:
            self.tasks.keep_progress(task.id, merged=done.commit)
        elif done.verdict in (MergeVerdict.CONFLICT, MergeVerdict.RED):
            self.tasks.keep_progress(task.id, began=done.old)
        with self.context.repo.opened(self.wakeup) as repo:
            if done.verdict is MergeVerdict.OK:
                problems = repo.clear(task.id, task.attempts)
            else:
                problems = repo.remove(self.context.repo.merge_worktree(task.id))
        for problem in problems:
            self.tell(Notice(problem))


def _subject(task: Task) -> str:
    """The merge commit subject, always a single line."""
    return clean(" ".join(f"Merge {task.id}: {task.title}".split()))[:LONGEST_SUBJECT]
