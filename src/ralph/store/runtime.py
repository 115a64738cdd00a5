"""The runtime files of a run: prompts and guardrail logs in `.ralph/`."""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ralph.core.text import clean
from ralph.errors import RalphError
from ralph.store import files

DIRECTORY = ".ralph"
MAX_LOG_BYTES = 256 << 20

_PIECE = 1 << 20
_LONGEST_ESCAPE = 1000

_GITIGNORE = b""".gitignore
current_run
guardrail_[0-9][0-9][0-9]*_*.log
old/
prompt_[0-9][0-9][0-9]*.txt
settings.local.json
state/
.tmp-*
"""


class Runtime:
    """Writes to the `.ralph` directory of one project through descriptors, so that a swapped path has no effect."""

    def __init__(self, directory: Path) -> None:
        try:
            self.project = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise RalphError(f"{directory} cannot be used: {error.strerror}.") from None

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.project)

    def prepare(self, run: str) -> None:
        """Create `.ralph`, make git ignore runtime files, and move the files of an earlier run away."""
        with self._opened() as directory:
            files.sweep_temporaries(directory)
            ignore_runtime_files(directory)
            earlier = _read(directory, "current_run")
            if earlier != run:
                _move_away(directory, earlier or "unknown")
                files.write(directory, "current_run", run.encode())

    def write_prompt(self, name: str, text: str) -> str:
        """Save a prompt for the record, and return its path relative to the project."""
        with self._opened() as directory:
            files.write(directory, f"prompt_{name}.txt", text.encode(), durable=False)
        return f"{DIRECTORY}/prompt_{name}.txt"

    def open_prompt(self, path: str) -> int:
        """A descriptor of a prompt file, for the stdin of an agent."""
        with self._opened() as directory:
            return os.open(os.path.basename(path), files.OLD_FILE, dir_fd=directory)

    def open_log(self, name: str) -> Capped:
        with self._opened() as directory:
            return Capped(files.create(directory, name, 0o644), MAX_LOG_BYTES)

    def has_logged(self, path: str, text: str) -> bool:
        """Whether a log contains this text. The log is searched in pieces, in its cleaned form."""
        margin = len(text) + _LONGEST_ESCAPE
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        seen = ""
        with self._opened() as directory:
            descriptor = os.open(os.path.basename(path), files.OLD_FILE | os.O_NONBLOCK, dir_fd=directory)
        with open(descriptor, "rb") as log:
            while piece := log.read(_PIECE):
                seen += decoder.decode(piece)
                if text in clean(seen):
                    return True
                seen = seen[-margin:]
        return False

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with files.opened_directory(DIRECTORY, self.project, make=True) as directory:
            yield directory


class Capped:
    """A log file that stops growing at its cap, or when the disk is full, and records that."""

    def __init__(self, descriptor: int, most: int) -> None:
        self._descriptor = descriptor
        self._left = most
        self.lost = 0
        self.problem = ""

    def write(self, data: bytes) -> None:
        kept = data[: self._left] if not self.problem else b""
        self.lost += len(data) - len(kept)
        try:
            files.write_all(self._descriptor, kept)
            self._left -= len(kept)
        except OSError as error:
            self.problem = error.strerror or str(error)
            self.lost += len(kept)

    def close(self) -> None:
        if self.lost and not self.problem:
            with suppress(OSError):
                files.write_all(self._descriptor, b"\n[ralph] %d more bytes were dropped\n" % self.lost)
        os.close(self._descriptor)


def ignore_runtime_files(directory: int) -> None:
    """Make git ignore the runtime files in `.ralph`."""
    if not _exists(directory, ".gitignore"):
        files.write(directory, ".gitignore", _GITIGNORE)


def log_slugs(commands: Sequence[str]) -> dict[str, str]:
    """The part of a log's name that identifies its command. Equal slugs are numbered."""
    slugs: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for command in commands:
        bare = re.sub(r" #\d+$", "", command)  # the number of a repeated command
        name = slug(bare)
        taken[name] += 1
        slugs[command] = name if taken[name] == 1 else f"{name}.{taken[name]}"
    return slugs


def slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:50] or "command"


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _read(directory: int, name: str) -> str:
    try:
        descriptor = os.open(name, files.OLD_FILE | os.O_NONBLOCK, dir_fd=directory)
        try:
            text = os.read(descriptor, 100).decode(errors="replace")
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    return "".join(c for c in text if c.isalnum() or c == "-")


_OURS = re.compile(r"guardrail_\d{3,}_.*\.log|prompt_\d{3,}(_message|_judge_\d+)?\.txt", re.DOTALL)


def _move_away(directory: int, run: str) -> None:
    names = [name for name in os.listdir(directory) if _OURS.fullmatch(name)]
    if not names:
        return
    with (
        files.opened_directory("old", directory, make=True) as old,
        files.opened_directory(run, old, make=True) as target,
    ):
        for name in names:
            with suppress(FileNotFoundError):
                os.rename(name, name, src_dir_fd=directory, dst_dir_fd=target)
