"""Commits of what is good: what the agent made, with its own message, and nothing that was there before."""

from __future__ import annotations

import os
import re
import shlex
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ralph.core.model import Scm
from ralph.core.text import clean
from ralph.scm.git import Git, GitError, Output, Runner, config_variables, gist, hint_for, listed, paths
from ralph.scm.repository import Repository
from ralph.scm.start import Recorded, Start, led_elsewhere, overrides

_MARK = re.compile(rb"^<{7} ", re.MULTILINE)
TRAILER = "Ralph-Run"
_STALE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Done:
    """What the tasks came to. `commit` is the new commit; `problems` are shown, and the loop goes on."""

    commit: str = ""
    problems: tuple[str, ...] = ()


class GitTasks:
    """`scm.tasks` with git."""

    def __init__(
        self, repository: Repository, run: Runner, scm: Scm, run_id: str, recorded: Recorded
    ) -> None:
        self._git = Git(repository, run)
        self._runner = run
        self._scm = scm
        self._run = run_id
        self._recorded = recorded

    def has_changes(self) -> bool:
        """Is there anything to commit that is not left out?"""
        self._git.disarm_filters()
        output = self._git("status", "--porcelain=v1", "-z", "-uall", "--no-renames")
        changed = {entry[3:] for entry in paths(output)}
        return bool(changed - set(self._left_out(self._recorded.load())))

    def do(self, iteration: int, message: str) -> Done:
        start = self._recorded.load()
        commit, problems = "", []
        for task in self._scm.tasks:
            words, problem = shlex.split(task), ""
            try:
                if words[:1] == ["commit"]:
                    commit, problem = self._commit(start, iteration, message, words[1:])
                elif words:
                    problem = self._other(start, words)
            except GitError as error:
                problem = f"{error.message} {error.hint}".strip()
            if problem and problem not in problems:
                problems.append(problem)
        return Done(commit, tuple(problems))

    # ---- commit ----

    def _commit(self, start: Start, iteration: int, message: str, more: list[str]) -> tuple[str, str]:
        mark = f"{self._run}/{iteration}"
        if already := self._find(mark):
            return already, ""
        if path := self._conflict():
            return "", f"Not committed: {path} has a conflict of a merge. Next: resolve it, then: git commit"
        left_out = [f":(top,exclude,literal){path}" for path in self._left_out(start)]
        added = self._user_git(
            start,
            ["add", "-A", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul"],
            listed([":/", *left_out]),
        )
        if added.code:
            return "", self._failure("add", added)
        if self._git.attempt("diff", "--cached", "--quiet", "--ignore-submodules=dirty").code == 0:
            return "", ""
        text = f"{clean(message).strip()}\n\n{TRAILER}: {mark}\n"
        done = self._user_git(start, ["commit", "-q", "--cleanup=verbatim", "-F", "-", *more], text.encode())
        if done.code:
            return "", self._failure("commit", done)
        return self._git.line("rev-parse", "HEAD"), ""

    def _conflict(self) -> str:
        """A file that a merge has left with both sides in it; one whose marks are gone is resolved."""
        unmerged = (entry.partition("\t")[2] for entry in paths(self._git("ls-files", "--unmerged", "-z")))
        for name in dict.fromkeys(unmerged):
            with suppress(OSError):
                if _MARK.search((self._git.repository.top / name).read_bytes()):
                    return name
        return ""

    def _find(self, mark: str) -> str:
        """A commit of this iteration that was made before ralph was killed."""
        log = self._git.attempt(
            "log", "-50", f"--format=%H %(trailers:key={TRAILER},valueonly,separator=%x20)"
        )
        for line in log.out.decode(errors="replace").splitlines():
            commit, _, marks = line.partition(" ")
            if mark in marks.split():
                return commit
        return ""

    def _left_out(self, start: Start) -> list[str]:
        """What was untracked when the run began and is unchanged, and nested repositories."""
        now = self._recorded.untracked()
        prints = self._recorded.fingerprints(name for name in now if name in start.untracked)
        unchanged = [name for name, value in prints.items() if value and value == start.untracked[name]]
        return unchanged + [name.rstrip("/") for name in now if name.endswith("/")]

    # ---- the other tasks ----

    def _other(self, start: Start, words: list[str]) -> str:
        if changed := led_elsewhere(start, self._recorded.config()):
            return (
                f"git {words[0]} was not run: {changed[0]} has changed since the run began."
                f" If that is right, run it yourself: git {shlex.join(words)}"
            )
        done = self._user_git(start, words)
        return self._failure(words[0], done) if done.code else ""

    def _user_git(self, start: Start, words: list[str], stdin: bytes = b"") -> Output:
        """Git as the user has it, with hooks and programs as they were when the run began."""
        done = self._call(start, words, stdin)
        if done.code and "index.lock" in done.err and self._remove_stale_lock():
            done = self._call(start, words, stdin)
        return done

    def _call(self, start: Start, words: list[str], stdin: bytes) -> Output:
        repository = self._git.repository
        pinned = overrides(start, self._recorded.config(), self._recorded.hooks)
        variables = {
            "GIT_DIR": str(repository.git_dir),
            "GIT_WORK_TREE": str(repository.top),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_EDITOR": "true",
            "LC_ALL": "C",
        }
        return self._runner(["git", *words], variables | config_variables(pinned), stdin)

    def _failure(self, what: str, done: Output) -> str:
        error = done.err.strip() or done.out.decode(errors="replace")
        hint = hint_for(error, self._git.repository)
        return f"git {what} failed: {clean(gist(error))}" + (f" Next: {hint}" if hint else "")

    def _remove_stale_lock(self) -> bool:
        """A lock that no process holds open and that is not brand-new was left by a killed git."""
        lock = self._git.repository.git_dir / "index.lock"
        try:
            age = time.time() - lock.stat().st_mtime
            if age < _STALE_SECONDS:
                time.sleep(_STALE_SECONDS - max(age, 0.0))
            if is_held(lock):
                return False
            lock.unlink()
        except OSError:
            return False
        return True


class OtherTasks:
    """`scm.tasks` with another command: each is run plainly, `commit` with the message."""

    def __init__(self, run: Runner, scm: Scm) -> None:
        self._runner = run
        self._scm = scm

    def has_changes(self) -> bool:
        return True

    def do(self, iteration: int, message: str) -> Done:
        problems = []
        for task in self._scm.tasks:
            words = shlex.split(task)
            if words[:1] == ["commit"]:
                words += ["-m", clean(message)]
            done = self._runner([self._scm.command, *words], {}, b"")
            if done.code:
                problems.append(f"{self._scm.command} {words[0]} failed: {clean(done.err.strip()[-500:])}")
        return Done("", tuple(problems))


def is_held(path: Path) -> bool:
    """Does a live process have this file open? Where that cannot be known: yes."""
    if not os.path.isdir("/proc/self/fd"):
        return True
    wanted = os.path.realpath(path)
    return any(wanted in _open_files(pid) for pid in os.listdir("/proc") if pid.isdigit())


def _open_files(pid: str) -> set[str]:
    found = set()
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
        for entry in descriptors:
            with suppress(OSError):
                found.add(os.readlink(entry.path))
    return found
