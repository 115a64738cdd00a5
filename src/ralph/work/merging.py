"""Merges proved work: in a separate worktree, proved again there, and only then into the user's branch."""

from __future__ import annotations

from msgspec.structs import replace

from ralph.core.board import Merge, Merged, MergeVerdict
from ralph.core.model import Outcome
from ralph.core.task_model import Task, TaskProgress
from ralph.core.text import clean
from ralph.scm.worktrees import branch_of
from ralph.work import project_repo, role_plan
from ralph.work.role_plan import MERGE, Assignment
from ralph.work.turns import Halt, TaskTurn, TurnResult, halted, lost, reason_of

MAX_TRIES = 5
"""How often a merge is retried because the base has moved meanwhile."""

LONGEST_SUBJECT = 200


class MergeTurn(TaskTurn):
    """One task's turn to be merged."""

    def take(self, action: Merge) -> TurnResult:
        task = self.tasks.find(action.job)
        progress = replace(self.tasks.progress(task.id), attempt=action.attempt)
        self.wait_for(self.context.repo.merge_worktree(task.id))
        done = project_repo.MergeAttempt(verdict=MergeVerdict.LOST)
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

    def _merge(self, task: Task, progress: TaskProgress) -> tuple[project_repo.MergeAttempt, Halt | None]:
        base, branch = progress.base or self.context.base, branch_of(task.id, progress.attempt)
        with self.context.repo.opened(self.wakeup) as repo:
            if not progress.merged:
                repository, is_new = repo.place(task.id, progress.attempt, progress.began)
                if is_new:
                    self.restore(repo, repository, task, progress.attempt)
            merge = repo.merge(task.id, base, _subject(task), progress)
        if merge.verdict is not None:
            return merge, None
        path = self.context.repo.merge_worktree(task.id)
        began = merge.old if merge.commit != merge.old else progress.began
        proof = Assignment(task, MERGE, path, replace(progress, began=began), budget=self.budget(task))
        self.set_up(path)
        state = self.drive(path, role_plan.merge_plan(self.context.settings, proof, self.context.sandbox))
        assert state.stop is not None
        if state.stop.outcome is Outcome.LIMIT:
            reason = f"On the merged tree: {reason_of(state)}"
            return replace(merge, verdict=MergeVerdict.RED, reason=reason), None
        if state.stop.outcome is not Outcome.COMPLETE:
            return merge, halted(state)
        with self.context.repo.opened(self.wakeup) as repo:
            return repo.advance(task.id, branch, base, merge), None

    def _settle(self, task: Task, done: project_repo.MergeAttempt) -> None:
        """Clean up after a merge. On failure the task returns to the first role, with the base merged into its worktree."""
        if done.verdict is MergeVerdict.OK:
            self.tasks.keep_progress(task.id, merged=done.commit)
        elif done.verdict in (MergeVerdict.CONFLICT, MergeVerdict.RED):
            self.tasks.keep_progress(task.id, began=done.old)
        with self.context.repo.opened(self.wakeup) as repo:
            if done.verdict is MergeVerdict.OK:
                repo.clear(task.id, task.attempts)
            else:
                repo.worktrees.remove(self.context.repo.merge_worktree(task.id))


def _subject(task: Task) -> str:
    """The merge commit subject, always a single line."""
    return clean(" ".join(f"Merge {task.id}: {task.title}".split()))[:LONGEST_SUBJECT]
