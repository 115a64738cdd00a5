"""Git as the user configured it: hooks, filters and identity as they were when the work started."""

from __future__ import annotations

from ralph.core.text import clean
from ralph.scm.baseline import Baseline, overrides
from ralph.scm.git import UNREPLACED, GitOutput, Runner, config_variables, gist, hint_for
from ralph.scm.repository import Repository
from ralph.scm.stale import is_freed


class UserGit:
    """Runs git in one working tree on behalf of the user."""

    def __init__(self, repository: Repository, run: Runner, baseline: Baseline) -> None:
        self._repository = repository
        self._runner = run
        self._baseline = baseline

    def __call__(self, *words: str, stdin: bytes = b"") -> GitOutput:
        done = self._call(words, stdin)
        if done.code and is_freed(done.err, self._repository):
            done = self._call(words, stdin)
        return done

    def _call(self, words: tuple[str, ...], stdin: bytes) -> GitOutput:
        pinned = overrides(self._baseline.load(), self._baseline.config(), self._baseline.hooks)
        variables = {
            "GIT_DIR": str(self._repository.git_dir),
            "GIT_WORK_TREE": str(self._repository.top),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_EDITOR": "true",
            "LC_ALL": "C",
        }
        return self._runner(["git", *words], variables | UNREPLACED | config_variables(pinned), stdin)

    def failure(self, what: str, done: GitOutput) -> str:
        """The error in git's own words, with what to do next."""
        error = done.err.strip() or done.out.decode(errors="replace")
        hint = hint_for(error, self._repository)
        text = f"git {what} failed: {clean(gist(error))}"
        return f"{text.rstrip('.')}. Next: {hint}" if hint else text
