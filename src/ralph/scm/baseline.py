"""The state of a repository at the start of a run: what can be trusted later, and what is not the agent's work.

Kept in the run's state directory, out of the agent's reach: a copy of the user's hooks, the configuration that
makes git start programs or contact other hosts, and a list of the untracked files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ralph.errors import RalphError
from ralph.scm.caches import caches
from ralph.scm.git import CHANGES, Git, GitOutput, listed, paths
from ralph.scm.repository import branch_of

MARKER = ".ralph-active"
"""The marker file of a running PRD loop, which is never part of the work."""

MAX_HOOK_BYTES = 10 << 20
MAX_HASHED = 50 << 20

_PROGRAMS = re.compile(
    r"""core\.(hookspath|fsmonitor|sshcommand|editor|pager|askpass|gitproxy|alternaterefscommand)
      | sequence\.editor | ssh\.variant | pager\..* | gpg\.program | gpg\..*\.program
      | diff\.external | diff\..*\.(command|textconv) | merge\..*\.driver
      | filter\..*\.(clean|smudge|process|required)
      | credential\.helper | credential\..*\.helper
    """,
    re.VERBOSE | re.DOTALL,
)
_PLACES = re.compile(
    r"""remote\..*\.(url|pushurl|vcs|receivepack|uploadpack|proxy)
      | url\..*\.(insteadof|pushinsteadof) | protocol\..* | push\..* | branch\..*\.(remote|pushremote|merge)
      | http\..* | remote\.pushdefault
    """,
    re.VERBOSE | re.DOTALL,
)

_CONTENTS = {
    "core.filemode": "true",
    "core.symlinks": "true",
    "core.trustctime": "true",
    "core.checkstat": "default",
    "core.autocrlf": "false",
    "core.eol": "native",
}
"""Keys that decide what git sees in a file and whether it looks at all, with git's defaults."""


class BaselineRecord(msgspec.Struct, frozen=True):
    """`config` holds the values of each relevant key, `untracked` a fingerprint of each file, `tree` the work tree.

    `ignored` lists ignored files and directories; a directory ends with a slash. `hooks` is the directory of the hooks in
    the copy. Records of older versions lack everything from `tree` on.
    """

    config: dict[str, list[str]]
    untracked: dict[str, str]
    tree: str = ""
    ignored: list[str] = []
    branch: str = ""
    hooks: str = ""


_decode = msgspec.json.Decoder(BaselineRecord).decode


class Baseline:
    """The recorded start of one run.

    `runs_hooks` says whether the user's hooks run. Hooks may execute code the agent wrote, so they are off when the
    agent runs in a sandbox.
    """

    def __init__(self, git: Git, directory: Path, *, runs_hooks: bool = True) -> None:
        self._git = git
        self._directory = directory
        self._kept_hooks = directory / "hooks"
        self._runs_hooks = runs_hooks
        self._file = directory / "start.json"

    def record(self, tree: Callable[[], str] | None = None) -> None:
        """Record it once: a resumed run keeps its original start. `tree` returns the id of the work tree."""
        if self._file.exists():
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        self._git.disarm_filters()
        config = self.config()
        hooks = self._keep_hooks(self._hooks_path(config)) if self._runs_hooks else ""
        entries = paths(self._git("status", *CHANGES, "--ignored=matching"))
        prints = self.fingerprints(entry[3:] for entry in entries if entry.startswith("??"))
        start = BaselineRecord(
            config,
            untracked={_to_json(name): value for name, value in prints.items()},
            tree=tree() if tree is not None else "",
            ignored=[_to_json(entry[3:]) for entry in entries if entry.startswith("!!")],
            branch=branch_of(self._git.repository),
            hooks=hooks,
        )
        temporary = self._file.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.encode(start))
        temporary.rename(self._file)

    def load(self) -> BaselineRecord:
        """The record; an empty one if nothing was recorded."""
        try:
            start = _decode(self._file.read_bytes())
        except FileNotFoundError:
            return BaselineRecord({}, {})
        except (OSError, msgspec.DecodeError) as error:
            hint = "Start a new run."
            raise RalphError(f"{self._file}: the start of the run cannot be read: {error}", hint) from None
        untracked = {_from_json(name): value for name, value in start.untracked.items()}
        ignored = [*map(_from_json, start.ignored)]
        return replace(start, untracked=untracked, ignored=ignored)

    def config(self) -> dict[str, list[str]]:
        """The keys that can start a program, redirect a push or hide changes, with their current values."""
        fields = self._git("config", "--list", "--show-scope", "--includes", "-z").decode(errors="replace")
        entries = fields.split("\0")
        found: dict[str, list[str]] = {}
        for scope, entry in zip(entries[::2], entries[1::2], strict=False):
            key, _, value = entry.partition("\n")
            is_known = key in _CONTENTS or _PROGRAMS.fullmatch(key) or _PLACES.fullmatch(key)
            if scope != "command" and is_known:
                found.setdefault(key, []).append(value)
        return found

    def contents_as_started(self) -> dict[str, str]:
        """Configuration that makes git see the contents of files as when the run started."""
        start = self.load().config
        if start.keys().isdisjoint(_CONTENTS):  # nothing recorded, or by an older version
            return {}
        now = self.config()
        return {
            key: (start.get(key) or [usual])[-1]
            for key, usual in _CONTENTS.items()
            if start.get(key) != now.get(key)
        }

    def untracked(self) -> list[str]:
        """Untracked files that are not ignored; nested repositories end with a slash."""
        return paths(self._git("ls-files", "--others", "--exclude-standard", "-z", "--", ":/"))

    def fingerprints(self, names: Iterable[str]) -> dict[str, str]:
        top = self._git.repository.top
        return {name: fingerprint(top / name) for name in names if not name.endswith("/")}

    def left_out(self) -> list[str]:
        """Paths that are not the agent's work: unchanged untracked files, caches and nested repositories.

        A directory includes everything in it.
        """
        now = self.untracked()
        markers = [name for name in now if os.path.basename(name) == MARKER]
        nested = [name.rstrip("/") for name in now if name.endswith("/")]
        return [*self.unchanged(now), *self.unignored(now), *markers, *caches(self._git, now), *nested]

    def unchanged(self, names: Iterable[str]) -> list[str]:
        """Those that were untracked at the start and have the same content now."""
        start = self.load().untracked
        prints = self.fingerprints(name for name in names if name in start)
        return [name for name, value in prints.items() if value and value == start[name]]

    def unignored(self, names: Iterable[str]) -> list[str]:
        """Those that git ignored at the start, unchanged since.

        An agent that edits `.gitignore` must not make Ralph commit the user's keys.
        """
        old = self._ignored(names)
        since = self._file.stat().st_mtime_ns if old else 0
        return [name for name in old if _changed_at(self._git.repository.top / name) < since]

    def known(self, names: Iterable[str]) -> set[str]:
        """Those that were untracked or ignored at the start, changed or not."""
        found = list(names)
        return {*self._ignored(found), *(name for name in found if name in self.load().untracked)}

    def _ignored(self, names: Iterable[str]) -> list[str]:
        """Those that git ignored at the start."""
        ignored = set(self.load().ignored)
        return [name for name in names if ignored and not ignored.isdisjoint((name, *_directories(name)))]

    def has_changes(self) -> bool:
        """Whether there is anything to commit that is not left out."""
        self._git.disarm_filters()
        output = self._git("status", *CHANGES)
        changed = [entry[3:].rstrip("/") for entry in paths(output)]
        left_out = set(self.left_out()) if changed else set()
        return any(left_out.isdisjoint(accumulate(name.split("/"), "{}/{}".format)) for name in changed)

    @property
    def hooks(self) -> Path:
        """The directory of the hooks that run."""
        return self._kept_hooks / self.load().hooks if self._runs_hooks else Path(os.devnull)

    def has_hooks(self) -> bool:
        try:
            names = os.listdir(self._hooks_path(self.config()))
        except OSError:
            return False
        return any(not name.endswith(".sample") for name in names)

    def _keep_hooks(self, source: Path) -> str:
        """Copy the hooks, and return their directory in the copy.

        Hooks in a folder of the working tree may call what is next to it: husky's `.husky/_/pre-commit` runs
        `.husky/pre-commit`, and does nothing if it is missing.
        """
        around, repository = source.parent, self._git.repository
        has_own_folder = around.is_relative_to(repository.top)
        if not has_own_folder or around in (repository.top, repository.common):
            _copy_hooks(source, self._kept_hooks)
            return ""
        _copy_hooks(around, self._kept_hooks)
        _copy_hooks(source, self._kept_hooks / source.name)
        return source.name

    def _hooks_path(self, config: dict[str, list[str]]) -> Path:
        repository = self._git.repository
        chosen = config.get("core.hookspath")
        return repository.top / Path(chosen[-1]).expanduser() if chosen else repository.common / "hooks"


def overrides(start: BaselineRecord, now: dict[str, list[str]], hooks: Path) -> dict[str, str]:
    """Configuration for the user's git commands, with programs as they were when the run started."""
    pinned = {"core.hooksPath": str(hooks), "core.fsmonitor": "false"}
    for key in start.config.keys() | now.keys():
        if _PROGRAMS.fullmatch(key) and start.config.get(key) != now.get(key):
            pinned[key] = (start.config.get(key) or [""])[-1]
    return pinned


def led_elsewhere(start: BaselineRecord, now: dict[str, list[str]]) -> list[str]:
    """Keys that decide where a push goes and have changed since the run started."""
    keys = start.config.keys() | now.keys()
    return sorted(k for k in keys if _PLACES.fullmatch(k) and start.config.get(k) != now.get(k))


def fingerprint(path: Path) -> str:
    """A value that is equal for files with equal content. For very large files it is size and time."""
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return f"link:{os.readlink(path)}"
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_HASHED:
            return f"{status.st_size}:{status.st_mtime_ns}"
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _directories(name: str) -> Iterator[str]:
    """The directories of a path, each with a slash at its end."""
    return (f"{directory}/" for directory in accumulate(name.split("/")[:-1], "{}/{}".format))


def _changed_at(path: Path) -> int:
    """When a file, or its place, changed for the last time, by the clock of its disk; now if it is gone."""
    try:
        return path.lstat().st_ctime_ns
    except OSError:
        return sys.maxsize


def _to_json(name: str) -> str:
    """A path with any bytes as text that JSON can hold."""
    return os.fsencode(name).decode("latin-1")


def _from_json(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))


def all_but(left_out: Iterable[str]) -> list[str]:
    """Pathspecs for the whole repository except some files."""
    return [":/", *(f":(top,exclude,literal){path}" for path in left_out)]


def add_all(call: Callable[..., GitOutput], git: Git, left_out: Iterable[str]) -> GitOutput:
    """Add the whole repository except some files, using `call`. Of nested repositories only HEAD is recorded."""
    links = git.nested()
    options = ("-A", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul")
    added = call("add", *options, stdin=listed(all_but((*left_out, *links))))
    if links:
        noted = git.attempt("update-index", "--add", "--remove", "-z", "--stdin", stdin=listed(links))
        if noted.died:
            raise git.error("update-index", noted)
    return added


def _copy_hooks(source: Path, target: Path) -> None:
    """Copy the hooks and everything in their directory, except samples, broken links and very large directories.

    A hook that cannot be copied is an error: without it, commits would skip it.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        if not source.is_dir():
            return
        kept = [
            each for each in source.iterdir() if each.is_dir() or (each.is_file() and not _is_sample(each))
        ]
        if sum(file.stat().st_size for file in source.rglob("*") if file.is_file()) > MAX_HOOK_BYTES:
            kept = [each for each in kept if each.is_file()]
        for each in kept:
            if each.is_dir():
                shutil.copytree(each, target / each.name, True, _special_files, dirs_exist_ok=True)
            else:
                shutil.copy2(each, target / each.name)
    except OSError as error:
        hint = "Make the folder readable, or move what is not a hook out of it."
        raise RalphError(f"The git hooks in {source} cannot be copied: {error}", hint) from None


def _is_sample(path: Path) -> bool:
    return path.name.endswith(".sample")


def _special_files(directory: str, names: list[str]) -> list[str]:
    """Sockets, named pipes and devices, which are never hooks."""
    modes = {name: os.lstat(os.path.join(directory, name)).st_mode for name in names}
    return [
        name
        for name, mode in modes.items()
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
    ]
