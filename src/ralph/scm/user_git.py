"""Git as the user has it: hooks, filters and identity as they were when the work began, and none planted since."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from ralph.core.text import clean
from ralph.scm.git import Output, Runner, config_variables, gist, hint_for
from ralph.scm.repository import Repository
from ralph.scm.start import Recorded, overrides

_STALE_SECONDS = 2.0


class UserGit:
    """Calls git in one working tree for the user."""

    def __init__(self, repository: Repository, run: Runner, recorded: Recorded) -> None:
        self._repository = repository
        self._runner = run
        self._recorded = recorded

    def __call__(self, *words: str, stdin: bytes = b"") -> Output:
        done = self._call(words, stdin)
        if done.code and "index.lock" in done.err and self._remove_stale_lock():
            done = self._call(words, stdin)
        return done

    def _call(self, words: tuple[str, ...], stdin: bytes) -> Output:
        pinned = overrides(self._recorded.load(), self._recorded.config(), self._recorded.hooks)
        variables = {
            "GIT_DIR": str(self._repository.git_dir),
            "GIT_WORK_TREE": str(self._repository.top),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_EDITOR": "true",
            "LC_ALL": "C",
        }
        return self._runner(["git", *words], variables | config_variables(pinned), stdin)

    def failure(self, what: str, done: Output) -> str:
        """What went wrong in git's own words, and what to do next."""
        error = done.err.strip() or done.out.decode(errors="replace")
        hint = hint_for(error, self._repository)
        return f"git {what} failed: {clean(gist(error))}" + (f" Next: {hint}" if hint else "")

    def _remove_stale_lock(self) -> bool:
        """A lock that no process holds open and that is not brand-new was left by a killed git."""
        lock = self._repository.git_dir / "index.lock"
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
