"""Commits of verified work: the agent's changes with its message, and nothing that was there before."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ralph.core.model import Commit, Scm
from ralph.core.text import clean
from ralph.scm.baseline import Baseline, BaselineRecord, led_elsewhere
from ralph.scm.delivery import Deliverer, Delivery, Head
from ralph.scm.git import Git, GitError, GitOutput, Runner, hint_for, paths
from ralph.scm.repository import Repository, branch_of
from ralph.scm.user_git import UserGit

_MARK = re.compile(rb"^<{7} ", re.MULTILINE)
TRAILER = "Ralph-Run"

HOOK_REFUSED = 1
"""The exit code of a `git commit` that a hook has refused, whatever that hook's own exit code."""


class Done(Struct, frozen=True):
    """The result of the tasks.

    - `commit`: the new commit, with exactly the tree that was to be committed.
    - `refused`: why there is none although there was something to commit.
    - `is_changed`: a hook or a task has changed the files or the branch; `tree` is the work tree to check then.
    - `problems`: other tasks that failed.
    """

    commit: str = ""
    refused: str = ""
    is_changed: bool = False
    tree: str = ""
    problems: tuple[str, ...] = ()


class GitTasks:
    """`scm.tasks` with git."""

    def __init__(
        self, repository: Repository, run: Runner, scm: Scm, run_id: str, baseline: Baseline, scratch: Path
    ) -> None:
        self._git = Git(repository, run)
        self._user_git = UserGit(repository, run, baseline)
        self._scm = scm
        self._run = run_id
        self._baseline = baseline
        self._deliverer = Deliverer(self._git, self._user_git, baseline, scratch)

    def delivery(self, checked: str, nested: Sequence[str]) -> Delivery:
        """What a commit of this checked tree, with these nested repositories, would contain."""
        return self._deliverer.of(checked, nested)

    def do(self, step: Commit) -> Done:
        start, problems, done = self._baseline.load(), [], Done()
        for task in self._scm.tasks:
            words, problem = _words(task)
            if problem and task.split()[:1] == ["commit"]:
                return Done(refused=problem)
            elif problem:
                problems.append(problem)
            elif words[0] == "commit":
                done = self._commit(step, words[1:])
                if done.refused or done.is_changed:
                    return replace(done, problems=tuple(problems))
            elif problem := self._other(start, words):
                problems.append(problem)
        if done.commit and (now := branch_of(self._git.repository)) != start.branch and start.branch:
            problems.append(f"The commit is on {now or 'no branch'}; the run started on {start.branch}.")
        return replace(done, problems=tuple(dict.fromkeys(problems)), is_changed=self._is_moved(step))

    def _is_moved(self, step: Commit) -> bool:
        """Whether another task, such as a merge, has put something else than the checked tree on the branch."""
        tasks = [task.split()[:1] for task in self._scm.tasks]
        return ["commit"] in tasks[:-1] and self._deliverer.head().tree != step.tree

    # ---- commit ----

    def _commit(self, step: Commit, more: list[str]) -> Done:
        mark, head = f"{self._run}/{step.iteration}", self._deliverer.head()
        already = self._find(mark) if head.commit else ""
        if already and (already == head.commit or self._deliverer.tree_of(already) == step.tree):
            return self._proved(Head(already, self._deliverer.tree_of(already)), step)
        if path := self._conflict():
            return Done(refused=f"{path} has a merge conflict. Next: resolve it, then: git commit")
        if head.commit != step.head:
            return Done(is_changed=True)
        if head.tree == step.tree:
            return Done()
        self._git("read-tree", "--reset", step.tree)
        text = f"{clean(step.message).strip()}\n\n{TRAILER}: {mark}\n"
        done = self._user_git("commit", "-q", "--cleanup=verbatim", "-F", "-", *more, stdin=text.encode())
        if done.code:
            return self._refused(done)
        return self._proved(self._deliverer.head(), step)

    def _refused(self, done: GitOutput) -> Done:
        """A hook refused the commit, which the agent may be able to fix; everything else is an error of git."""
        if done.code != HOOK_REFUSED or hint_for(done.err, self._git.repository):
            raise GitError(self._user_git.failure("commit", done))
        if not (done.err.strip() or done.out.strip()):
            return Done(refused="a commit hook refused it without a message")
        return Done(refused=self._user_git.failure("commit", done))

    def _proved(self, made: Head, step: Commit) -> Done:
        """The commit if it has the tree that was checked. One that a hook has changed is taken back; its files stay."""
        if made.tree == step.tree:
            return Done(made.commit)
        what = ("HEAD", step.head, made.commit) if step.head else ("-d", "HEAD", made.commit)
        self._git("update-ref", "-m", "ralph: taken back, because a commit hook changed it", *what)
        return Done(refused="a commit hook changed what was to be committed", is_changed=True)

    def _conflict(self) -> str:
        """A file with unresolved merge conflict markers; "" if there is none."""
        unmerged = (entry.partition("\t")[2] for entry in paths(self._git("ls-files", "--unmerged", "-z")))
        for name in dict.fromkeys(unmerged):
            with suppress(OSError):
                if _MARK.search((self._git.repository.top / name).read_bytes()):
                    return name
        return ""

    def _find(self, mark: str) -> str:
        """A commit of this iteration from before ralph was killed."""
        log = self._git("log", "-50", f"--format=%H %(trailers:key={TRAILER},valueonly,separator=%x20)")
        for line in log.decode(errors="replace").splitlines():
            commit, _, marks = line.partition(" ")
            if mark in marks.split():
                return commit
        return ""

    # ---- the other tasks ----

    def _other(self, start: BaselineRecord, words: list[str]) -> str:
        if changed := led_elsewhere(start, self._baseline.config()):
            return (
                f"git {words[0]} was not run: {changed[0]} has changed since the run started."
                f" If that is intended, run it yourself: git {shlex.join(words)}"
            )
        done = self._user_git(*words)
        return self._user_git.failure(words[0], done) if done.code else ""


class Committer:
    """Commits files that Ralph itself has written."""

    def __init__(self, repository: Repository, run: Runner, baseline: Baseline, project: Path) -> None:
        self._user_git = UserGit(repository, run, baseline)
        self._prefix = os.path.relpath(project, repository.top)

    def commit_files(self, names: Iterable[str], message: str) -> str:
        """Commit these files and nothing else, without running hooks. Returns what went wrong.

        Names are relative to the project. Git-ignored files stay out of the repository, and files that cannot be
        committed stay in the working tree.
        """
        paths = [os.path.normpath(os.path.join(self._prefix, name)) for name in names]
        there = [f":(top,literal){path}" for path in paths if self._add(path)]
        if not there or self._user_git("diff", "--cached", "--quiet", "--", *there).code == 0:
            return ""
        done = self._user_git("commit", "-q", "--no-verify", "-F", "-", "--", *there, stdin=message.encode())
        return self._user_git.failure("commit", done) if done.code else ""

    def _add(self, path: str) -> bool:
        """Add a file. One that was committed before is added even if an agent made git ignore it."""
        self._user_git("update-index", "--no-assume-unchanged", "--no-skip-worktree", "--", path)
        if self._user_git("add", "--", f":(top,literal){path}").code == 0:
            return True
        was_there = self._user_git("log", "-1", "--format=%H", "--", f":(top,literal){path}").out.strip()
        return bool(was_there) and self._user_git("add", "-f", "--", f":(top,literal){path}").code == 0


class OtherTasks:
    """`scm.tasks` with another command. Each task runs as given, `commit` with the message."""

    def __init__(self, run: Runner, scm: Scm) -> None:
        self._runner = run
        self._scm = scm

    def delivery(self, checked: str, nested: Sequence[str]) -> Delivery:
        """Only the command knows what it would record."""
        return Delivery("", "")

    def do(self, step: Commit) -> Done:
        problems = []
        for words, problem in map(_words, self._scm.tasks):
            if problem:
                problems.append(problem)
                continue
            message = ["-m", clean(step.message)] if words[0] == "commit" else []
            done = self._runner([self._scm.command, *words, *message], {}, b"")
            if done.code:
                problems.append(f"{self._scm.command} {words[0]} failed: {clean(done.err.strip()[-500:])}")
        return Done(problems=tuple(problems))


def _words(task: str) -> tuple[list[str], str]:
    """The words of a task, and a problem with them."""
    try:
        words = shlex.split(task)
    except ValueError as error:
        return [], f"scm.tasks: {task!r} was not run: {error}."
    return words, "" if words else f"scm.tasks: {task!r} was not run: it is empty."
