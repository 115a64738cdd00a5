"""Commits of verified work: the agent's changes with its message, and nothing that was there before."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from ralph.core.model import Scm
from ralph.core.text import clean
from ralph.scm.baseline import Baseline, BaselineRecord, add_all, led_elsewhere
from ralph.scm.git import Git, GitError, Runner, paths
from ralph.scm.repository import Repository
from ralph.scm.user_git import UserGit

_MARK = re.compile(rb"^<{7} ", re.MULTILINE)
TRAILER = "Ralph-Run"


class Done(Struct, frozen=True):
    """The result of the tasks. `commit` is the new commit; `problems` are shown, and the loop continues."""

    commit: str = ""
    problems: tuple[str, ...] = ()


class GitTasks:
    """`scm.tasks` with git."""

    def __init__(
        self, repository: Repository, run: Runner, scm: Scm, run_id: str, baseline: Baseline
    ) -> None:
        self._git = Git(repository, run)
        self._user_git = UserGit(repository, run, baseline)
        self._scm = scm
        self._run = run_id
        self._baseline = baseline

    def has_changes(self) -> bool:
        return self._baseline.has_changes()

    def do(self, iteration: int, message: str) -> Done:
        start = self._baseline.load()
        commit, problems = "", []
        for task in self._scm.tasks:
            words, problem = _words(task)
            try:
                if words[:1] == ["commit"]:
                    commit, problem = self._commit(iteration, message, words[1:])
                elif words:
                    problem = self._other(start, words)
            except GitError as error:
                problem = error.text
            if problem and problem not in problems:
                problems.append(problem)
        return Done(commit, tuple(problems))

    # ---- commit ----

    def _commit(self, iteration: int, message: str, more: list[str]) -> tuple[str, str]:
        mark = f"{self._run}/{iteration}"
        if already := self._find(mark):
            return already, ""
        if path := self._conflict():
            return "", f"Not committed: {path} has a merge conflict. Next: resolve it, then: git commit"
        added = add_all(self._user_git, self._git, self._baseline.left_out())
        if added.code:
            return "", self._user_git.failure("add", added)
        if self._git.attempt("diff", "--cached", "--quiet", "--ignore-submodules=dirty").code == 0:
            return "", ""
        text = f"{clean(message).strip()}\n\n{TRAILER}: {mark}\n"
        done = self._user_git("commit", "-q", "--cleanup=verbatim", "-F", "-", *more, stdin=text.encode())
        if done.code:
            return "", self._user_git.failure("commit", done)
        return self._git.line("rev-parse", "HEAD"), ""

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
        log = self._git.attempt(
            "log", "-50", f"--format=%H %(trailers:key={TRAILER},valueonly,separator=%x20)"
        )
        for line in log.out.decode(errors="replace").splitlines():
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

    def has_changes(self) -> bool:
        return True

    def do(self, iteration: int, message: str) -> Done:
        problems = []
        for task in self._scm.tasks:
            words, problem = _words(task)
            if problem:
                problems.append(problem)
                continue
            if words[:1] == ["commit"]:
                words += ["-m", clean(message)]
            done = self._runner([self._scm.command, *words], {}, b"")
            if done.code:
                problems.append(f"{self._scm.command} {words[0]} failed: {clean(done.err.strip()[-500:])}")
        return Done("", tuple(problems))


def _words(task: str) -> tuple[list[str], str]:
    """The words of a task, and a problem with them."""
    try:
        return shlex.split(task), ""
    except ValueError as error:
        return [], f"scm.tasks: {task!r} was not run: {error}."
