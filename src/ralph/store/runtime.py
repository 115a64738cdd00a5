"""The runtime files of a run: prompts and guardrail logs in `.ralph/`, raw streams in the state directory."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ralph.errors import RalphError
from ralph.store import files

DIRECTORY = ".ralph"
MOST_LOG_BYTES = 256 << 20
MOST_STREAM_BYTES = 64 << 20

_GITIGNORE = b""".gitignore
current_run
guardrail_*.log
old/
prompt_*.txt
settings.local.json
state/
.tmp-*
"""


class Runtime:
    """Writes into the `.ralph` of one project, through descriptors: a swapped path leads nowhere."""

    def __init__(self, directory: Path) -> None:
        try:
            self.project = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise RalphError(f"{directory}: cannot be used: {error.strerror}.") from None

    def close(self) -> None:
        os.close(self.project)

    def prepare(self, run: str) -> None:
        """Make `.ralph`, keep git from seeing what is not the user's, move an earlier run's files away."""
        with self._opened() as directory:
            files.sweep_temporaries(directory)
            if not _exists(directory, ".gitignore"):
                files.write(directory, ".gitignore", _GITIGNORE)
            earlier = _read(directory, "current_run")
            if earlier != run:
                _move_away(directory, earlier or "unknown")
                files.write(directory, "current_run", run.encode())

    def write_prompt(self, name: str, text: str) -> str:
        """Keep a prompt for the record; returns its path from the project."""
        with self._opened() as directory:
            files.write(directory, f"prompt_{name}.txt", text.encode(), durable=False)
        return f"{DIRECTORY}/prompt_{name}.txt"

    def open_prompt(self, path: str) -> int:
        """A descriptor to read a prompt from, as the stdin of an agent."""
        with self._opened() as directory:
            return os.open(os.path.basename(path), files.OLD_FILE, dir_fd=directory)

    def open_log(self, name: str) -> Capped:
        with self._opened() as directory:
            return Capped(os.open(name, files.NEW_FILE, 0o644, dir_fd=directory), MOST_LOG_BYTES)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with files.opened_directory(DIRECTORY, self.project, make=True) as directory:
            yield directory


class Capped:
    """A growing file that stops growing at its cap, or when the disk is full, and says so."""

    def __init__(self, descriptor: int, most: int) -> None:
        self._descriptor = descriptor
        self._left = most
        self.lost = 0
        self.problem = ""

    def write(self, data: bytes) -> None:
        kept = data[: self._left] if not self.problem else b""
        self._left -= len(kept)
        self.lost += len(data) - len(kept)
        if kept:
            try:
                files.write_all(self._descriptor, kept)
            except OSError as error:
                self.problem = error.strerror or str(error)

    def close(self) -> None:
        if self.lost and not self.problem:
            with suppress(OSError):
                files.write_all(self._descriptor, b"\n[ralph] %d more bytes were not kept\n" % self.lost)
        os.close(self._descriptor)


class Stream:
    """The raw output of one agent process: made when the first byte comes."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self._file: Capped | None = None
        self._problem = ""

    def write(self, data: bytes) -> None:
        if self._problem:
            return
        if self._file is None:
            try:
                descriptor = os.open(self._directory / self._name, files.NEW_FILE, 0o600)
            except OSError as error:
                self._problem = error.strerror or str(error)
                return
            self._file = Capped(descriptor, MOST_STREAM_BYTES)
        self._file.write(data)

    def close(self) -> str:
        """Returns why something could not be kept, if so."""
        if self._file is not None:
            self._file.close()
            self._problem = self._problem or self._file.problem
        return self._problem


def log_slugs(commands: Sequence[str]) -> dict[str, str]:
    """The part of a log's name that tells which command it belongs to; equal slugs are numbered."""
    slugs: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for command in commands:
        bare = re.sub(r" #\d+$", "", command)  # the number that tells equal commands apart
        slug = re.sub(r"[^A-Za-z0-9]+", "_", bare).strip("_")[:50] or "command"
        taken[slug] += 1
        slugs[command] = slug if taken[slug] == 1 else f"{slug}.{taken[slug]}"
    return slugs


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _read(directory: int, name: str) -> str:
    try:
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
        )
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        return "".join(c for c in file.read(100).decode(errors="replace") if c.isalnum() or c == "-")


def _move_away(directory: int, run: str) -> None:
    names = [
        name
        for name in os.listdir(directory)
        if (name.startswith("guardrail_") and name.endswith(".log"))
        or (name.startswith("prompt_") and name.endswith(".txt"))
    ]
    if not names:
        return
    with (
        files.opened_directory("old", directory, make=True) as old,
        files.opened_directory(run, old, make=True) as target,
    ):
        for name in names:
            with suppress(FileNotFoundError):
                os.rename(name, name, src_dir_fd=directory, dst_dir_fd=target)
