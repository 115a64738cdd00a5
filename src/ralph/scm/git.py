"""Git for Ralph's own purposes. Nothing that an agent has planted in a repository can run.

Hooks, fsmonitor, filters, external diff, pager, editor and ssh command are switched off for every call
through the environment, so that no configuration file is touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from msgspec import Struct

from ralph.errors import RalphError
from ralph.scm.repository import Repository
from ralph.scm.stale import is_freed


class GitOutput(Struct, frozen=True):
    """`died`: git has no exit code, so its output is not an answer; `stopped`: because Ralph stopped it."""

    code: int
    out: bytes
    err: str
    died: bool = False
    stopped: bool = False


Runner = Callable[[list[str], Mapping[str, str], bytes], GitOutput]
"""(command line, variables, stdin) -> output. The loop passes it in, so that git runs under the warden."""

_OFF = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.editor": "true",
    "core.sshCommand": "false",
    "core.askPass": "true",
    "core.safecrlf": "false",
    "core.quotePath": "false",
    "diff.external": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "protocol.file.allow": "always",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
}

CHANGES = ("--porcelain=v1", "-z", "-uall", "--no-renames", "--ignore-submodules=dirty")
"""Options of `status` to list changes without entering nested repositories (see `Git.nested`)."""

_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ralph"), ("EMAIL", "ralph@localhost"))
}

MAX_NAMED = 10
"""Maximum number of files named from an error message of git."""

_READING = frozenset(
    {
        *(
            "cat-file",
            "check-ignore",
            "config",
            "diff",
            "diff-files",
            "diff-index",
            "diff-tree",
            "for-each-ref",
        ),
        *("log", "ls-files", "ls-tree", "merge-base", "rev-list", "rev-parse", "status", "symbolic-ref -q"),
        "worktree list",
    }
)
"""Commands that change nothing, so that one that died can be repeated."""

MAX_REPEATS = 2

UNREPLACED = {"GIT_NO_REPLACE_OBJECTS": "1"}
"""Otherwise an agent's replace ref could swap one tree for another and hide all changes."""

_HINTS = (
    ("dubious ownership", "If you trust it: git config --global --add safe.directory {top}"),
    (".lock': File exists", "Another git process is running there. Try again when it has finished."),
    ("gpg failed to sign", "Unlock your signing key, or: git -C {top} config commit.gpgSign false"),
    (
        "tell me who you are",
        'Set your git identity: git -C {top} config user.email "you@example.org" (and user.name)',
    ),
    ("No configured push destination", "Add a remote: git -C {top} remote add origin URL"),
    ("has no upstream branch", "Set one: git -C {top} push --set-upstream origin HEAD"),
    ("is already checked out at", "Check out another branch there."),
    ("is already used by worktree at", "Check out another branch there."),
    ("'refs/heads/ralph' exists", "Ralph needs branch names ralph/TASK: git branch -m ralph OTHER-NAME"),
    ("would be overwritten by merge", "Commit, stash or move these files."),
    ("would lose untracked files", "Move these directories away."),
    ("No space left", "Free some disk space."),
)


class GitError(RalphError):
    """A git command failed or was refused. It is tried again, then the run stops: an error is not an answer."""

    @classmethod
    def of(cls, what: str, error: str, repository: Repository) -> GitError:
        """The error of a failed command in git's own words, with what to do next."""
        return cls(f"git {what}: {gist(error)}", hint_for(error, repository))


class GitDied(GitError):
    """Git was killed or could not be started: what it would have answered or done is unknown."""


def gist(error: str) -> str:
    """The line of git's error message that says what is wrong, with the files it names."""
    lines = [line for line in error.splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith(("fatal:", "error:")):
            files = [name.strip() for name in takewhile(lambda line: line.startswith("\t"), lines[number:])]
            more = [f"{len(files) - MAX_NAMED} more"] if len(files) > MAX_NAMED else []
            return f"{line.strip()} {', '.join(files[:MAX_NAMED] + more)}".strip()
    return lines[-1].strip() if lines else "no error message"


def hint_for(error: str, repository: Repository) -> str:
    for words, hint in _HINTS:
        if words in error:
            return hint.format(top=repository.top, git_dir=repository.git_dir)
    return ""


class Git:
    """Safe git calls in one repository."""

    def __init__(self, repository: Repository, run: Runner) -> None:
        self.repository = repository
        self._run = run
        self._filters: dict[str, str] = {}
        self.pinned: Mapping[str, str] = {}
        """Configuration that overrides the repository's."""

    def __call__(self, *arguments: str, index: Path | None = None, stdin: bytes = b"") -> bytes:
        """Run a git command that must succeed, and return its output."""
        return self._answered((0,), arguments, index, stdin).out

    def asks(self, *arguments: str, index: Path | None = None) -> bool:
        """The answer to a question: exit code 0 means yes, 1 means no, and anything else raises."""
        return self._answered((0, 1), arguments, index).code == 0

    def value(self, *arguments: str, index: Path | None = None) -> str:
        """What git prints; "" if it says with exit 1 that there is no such value. Anything else raises."""
        done = self._answered((0, 1), arguments, index)
        return done.out.decode(errors="surrogateescape").strip() if done.code == 0 else ""

    def _answered(
        self, codes: tuple[int, ...], arguments: Sequence[str], index: Path | None, stdin: bytes = b""
    ) -> GitOutput:
        done = self.attempt(*arguments, index=index, stdin=stdin)
        if done.died or done.code not in codes:
            raise self.error(arguments[0], done)
        return done

    def error(self, what: str, done: GitOutput) -> GitError:
        """The error of a command that failed or died."""
        return (GitDied if done.died else GitError).of(what, done.err, self.repository)

    def attempt(self, *arguments: str, index: Path | None = None, stdin: bytes = b"") -> GitOutput:
        """Run a git command that may fail. One that only reads is repeated if it died, unless Ralph stopped it."""
        variables = self.variables() | ({"GIT_INDEX_FILE": str(index)} if index else {})
        done = self._run(["git", *arguments], variables, stdin)
        for _ in range(MAX_REPEATS if _is_reading(arguments) else 0):
            if not done.died or done.stopped:
                break
            done = self._run(["git", *arguments], variables, stdin)
        if done.code and is_freed(done.err, self.repository, index):
            done = self._run(["git", *arguments], variables, stdin)
        return done

    def ignored(self, names: Iterable[str], *options: str) -> set[str]:
        """Those of the files that git ignores."""
        words = ("check-ignore", *options, "-z", "--stdin")
        return set(paths(self._answered((0, 1), words, None, listed(names)).out))

    def line(self, *arguments: str, index: Path | None = None, stdin: bytes = b"") -> str:
        return self(*arguments, index=index, stdin=stdin).decode(errors="surrogateescape").strip()

    def variables(self) -> dict[str, str]:
        where = {"GIT_DIR": str(self.repository.git_dir), "GIT_WORK_TREE": str(self.repository.top)}
        quiet = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        config = config_variables({**self.pinned, **_OFF, **self._filters})
        return where | quiet | UNREPLACED | _IDENTITY | config

    def nested(self, index: Path | None = None) -> list[str]:
        """Nested repositories recorded in the index, submodules or not.

        To list changes, git would run a status in each of them, which starts the programs named in its configuration.
        Our calls therefore pass `--ignore-submodules=dirty`; `add` has no such option and is kept away from them.
        """
        entries = paths(self("ls-files", "--stage", "-z", index=index))
        return [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]

    @property
    def has_filters(self) -> bool:
        """Whether any filter was configured at the last `disarm_filters`."""
        return any(name.startswith("filter.") for name in self._filters)

    def filtered(self, names: Iterable[str]) -> set[str]:
        """Those of the files that have a filter."""
        fields = paths(self("check-attr", "-z", "--stdin", "filter", stdin=listed(names)))
        values = zip(fields[::3], fields[2::3], strict=True)
        return {path for path, value in values if value not in ("unspecified", "unset")}

    def disarm_filters(self) -> None:
        """Disable every configured filter. Call this before anything that reads or writes files of the tree."""
        names = self.value("config", "--name-only", "-z", "--get-regexp", r"^(filter|diff|merge)\..*\.")
        self._filters = {
            name: "false" if name.endswith(".required") else ""
            for name in names.split("\0")
            if re.fullmatch(
                r"filter\..*\.(clean|smudge|process|required)|diff\..*\.(command|textconv)|merge\..*\.driver",
                name,
                re.IGNORECASE | re.DOTALL,
            )
        }


def _is_reading(arguments: Sequence[str]) -> bool:
    return arguments[0] in _READING or " ".join(arguments[:2]) in _READING


_LOCAL = re.compile(
    "GIT_(DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|COMMON_DIR|NAMESPACE|PREFIX"
    "|CONFIG_PARAMETERS|CONFIG_COUNT|CONFIG_KEY_.*|CONFIG_VALUE_.*|EXTERNAL_DIFF|.*_PATHSPECS|GRAFT_FILE"
    "|SHALLOW_FILE|REPLACE_REF_BASE|QUARANTINE_PATH|EDITOR|PAGER)"
)


def without_local(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables that would point git at another repository."""
    return {name: value for name, value in environment.items() if not _LOCAL.fullmatch(name)}


def config_variables(values: Mapping[str, str]) -> dict[str, str]:
    """Configuration for one call, which overrides every file."""
    variables = {"GIT_CONFIG_COUNT": str(len(values))}
    for number, (key, value) in enumerate(values.items()):
        variables[f"GIT_CONFIG_KEY_{number}"] = key
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables


def paths(output: bytes) -> list[str]:
    """Split NUL-separated paths. Bytes that are not UTF-8 survive."""
    return [path.decode(errors="surrogateescape") for path in output.split(b"\0") if path]


def listed(names: Iterable[str]) -> bytes:
    return b"".join(name.encode(errors="surrogateescape") + b"\0" for name in names)
