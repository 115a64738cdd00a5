"""The message bus of a task or a project: many processes post to one file without breaking each other's messages.

A writer locks the file, appends with one write, and returns when the message is on disk. A partial message from
a killed writer is not a message to any reader; the next writer moves it to a file next to the bus. messages.py
defines the format.
"""

from __future__ import annotations

import codecs
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ralph.core.model import PROJECT_BUS, TASK_BUS
from ralph.errors import RalphError
from ralph.store.files import opened_directory, write_all
from ralph.store.messages import (
    MAX_BYTES,
    BusMessage,
    Damage,
    LocatedMessage,
    encode,
    find_ids,
    scan,
    scan_end,
)

FACT, INFO, WARNING, ERROR, WAIT = "FACT", "INFO", "WARNING", "ERROR", "wait_without_restart"
TYPES = (FACT, INFO, WARNING, ERROR, WAIT)
"""The types Ralph knows. Any other word is allowed too."""

MAX_FILE = 4 << 30
"""Maximum size of a bus in bytes. A larger file is neither read nor written."""

PATIENCE = 30.0
"""Seconds to wait for other writers."""

_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MOVE_AWAY = "Move it away to start a new one."


class Posted(msgspec.Struct, frozen=True):
    """The result of a post: the message's id, whether it is new, and a torn end that was moved aside."""

    id: str
    is_new: bool
    moved: Damage | None = None


def check_folder(folder: Path) -> None:
    """Raise an error if there is no task folder of this name."""
    if folder.is_dir():
        return
    if os.path.lexists(folder):
        raise RalphError(f"{folder} is not a directory.", "Choose a directory as the task folder.")
    raise RalphError(
        f"{folder}: directory not found.", f"Check the path, or create the task folder: mkdir -p {folder}"
    )


def task_bus(folder: Path) -> Path:
    """The bus of a task, in its folder."""
    return folder / TASK_BUS


def project_bus(folder: Path) -> Path:
    """The bus shared by all tasks of a project, in the parent directory of the task's folder."""
    return Path(os.path.realpath(folder)).parent / PROJECT_BUS


def task_name(folder: Path) -> str:
    """The default name of a task: that of its folder."""
    return os.fsencode(Path(os.path.realpath(folder)).name).decode(errors="backslashreplace")


def as_type(word: str) -> str:
    """A type in its canonical form: known types in their usual case, others unchanged."""
    for known in TYPES:
        if word.casefold() == known.casefold():
            return known
    if not _TYPE.fullmatch(word):
        raise RalphError(
            f"{word!r} is not a message type: use letters, digits, - and _, at most 64 characters.",
            f"Known: {', '.join(TYPES)}.",
        )
    return word


# ---- writing ----


class Bus:
    """Posts messages. Reuse one object for many: it remembers the ids of a run it has seen."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: dict[str, _Seen] = {}

    def post(
        self, at: float, type: str, body: str, *, task: str = "", run: str = "", seq: int | None = None
    ) -> Posted:
        """Append a message. It is on disk when this returns.

        With `seq` the id is `<run>.<seq>`, and a message that already exists is not posted again.
        """
        if seq is not None and not _RUN.fullmatch(run):
            raise ValueError(f"a message with a sequence number needs a run, not {run!r}")
        message = BusMessage("", at, as_type(type), task[:255], run[:100], body)
        with _locked(self.path) as descriptor:
            end, moved = self._recovered(descriptor)
            id = f"{run}.{seq}"
            is_new = seq is None or id not in self._ids(run, descriptor, end)
            if is_new:
                start = b"\n" if end and os.pread(descriptor, 1, end - 1) != b"\n" else b""
                if seq is None:
                    id = f"{end + len(start):010d}-{os.urandom(2).hex()}"
                self._append(descriptor, start + _encoded(msgspec.structs.replace(message, id=id)), end)
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # so that several writers can wait for the disk together
            self._sync(descriptor, is_first=end == 0)
        return Posted(id, is_new, moved)

    def _append(self, descriptor: int, data: bytes, end: int) -> None:
        """Write all of it or nothing, normally with one write."""
        if end + len(data) > MAX_FILE:
            raise RalphError(f"{self.path}: the message bus is full ({end:,} bytes).", _MOVE_AWAY)
        try:
            write_all(descriptor, data)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(descriptor, end)
            raise _error(self.path, "cannot be written", error) from None

    def _sync(self, descriptor: int, *, is_first: bool) -> None:
        try:
            os.fsync(descriptor)
            if is_first:
                with opened_directory(str(self.path.parent)) as directory:
                    os.fsync(directory)
        except OSError as error:
            raise _error(self.path, "cannot be written", error) from None

    def _recovered(self, descriptor: int) -> tuple[int, Damage | None]:
        """The offset for the next message. The torn end of a killed writer is moved to a file next to the bus."""
        end = os.fstat(descriptor).st_size
        found = scan_end(descriptor, end)
        if found and isinstance(torn := found[-1], Damage) and torn.is_torn:
            self._move_aside(os.pread(descriptor, torn.bytes, torn.offset))
            os.ftruncate(descriptor, torn.offset)
            return torn.offset, torn
        if found and not any(isinstance(item, LocatedMessage) for item in found):
            _refuse_rubbish(self.path, descriptor)
        return end, None

    def _move_aside(self, tail: bytes) -> None:
        path = self.path.with_name(f"{self.path.name}.torn")
        descriptor = _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            write_all(descriptor, tail + b"\n")
            os.fsync(descriptor)
        except OSError as error:
            raise _error(path, "cannot be written", error) from None
        finally:
            os.close(descriptor)

    def _ids(self, run: str, descriptor: int, end: int) -> set[str]:
        """The ids of a run. Only the new part of the file is searched."""
        file = os.fstat(descriptor).st_ino
        seen = self._seen.get(run)
        if seen is None or seen.file != file or seen.end > end:
            seen = self._seen[run] = _Seen(file)
        seen.ids.update(found.message.id for found in find_ids(descriptor, f"{run}.", seen.end, end))
        seen.end = end
        return seen.ids


class _Seen:
    def __init__(self, file: int) -> None:
        self.file = file
        self.end = 0
        self.ids: set[str] = set()


# ---- reading ----


def read(path: Path, since: str | None = None) -> Iterator[BusMessage | Damage]:
    """All messages, or those after the one with this id. Memory use does not grow with the file."""
    return BusReader(path, since).news()


class BusReader:
    """Reads a bus, and later the new messages. A bus that does not exist yet has none."""

    def __init__(self, path: Path, since: str | None = None) -> None:
        self.path = path
        self._file = -1
        self._offset = 0
        self._told: Damage | None = None
        if since is not None:
            self._go_behind(since)

    def skip(self) -> None:
        """Skip all messages posted so far."""
        with self._opened() as descriptor:
            if descriptor is not None:
                end = _settled_end(descriptor)
                found = scan_end(descriptor, end)
                torn = found and isinstance(found[-1], Damage) and found[-1].is_torn
                self._offset = found[-1].offset if torn else end

    def news(self) -> Iterator[BusMessage | Damage]:
        """The messages since the last call. A torn end is reported once; the next writer moves it aside."""
        with self._opened() as descriptor:
            if descriptor is None:
                return
            torn = yield from self._read(descriptor, os.fstat(descriptor).st_size)
            if torn:  # or a process is writing it right now
                torn = yield from self._read(descriptor, _settled_end(descriptor))
            if torn and torn != self._told:
                self._told = torn
                yield torn

    def _read(self, descriptor: int, end: int) -> Generator[BusMessage | Damage, None, Damage | None]:
        """Read up to `end`, and return the torn end, if there is one."""
        for item in scan(descriptor, self._offset, end):
            if isinstance(item, Damage):
                if item.is_torn:
                    return item
                if item.bytes == end:
                    _refuse_rubbish(self.path, descriptor)
            self._offset = item.offset + item.bytes
            yield item.message if isinstance(item, LocatedMessage) else item
        return None

    def _go_behind(self, since: str) -> None:
        with self._opened() as descriptor:
            if descriptor is not None:
                for found in find_ids(descriptor, since, 0, os.fstat(descriptor).st_size):
                    if found.message.id == since:
                        self._offset = found.end
                        return
        raise RalphError(f"{self.path}: message {since!r} not found.", "`ralph bus read` shows the ids.")

    @contextmanager
    def _opened(self) -> Iterator[int | None]:
        """The open file. If it was replaced or truncated, it is read from the start."""
        try:
            descriptor = _open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            yield None
            return
        try:
            status = os.fstat(descriptor)
            if status.st_ino != self._file or status.st_size < self._offset:
                self._file, self._offset = status.st_ino, 0
            yield descriptor
        finally:
            os.close(descriptor)


# ---- the file ----


def _open(path: Path, flags: int) -> int:
    """Open a regular file of reasonable size, never through a link. Anything else is one clear error."""
    careful = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | careful, 0o644)
    except FileNotFoundError:
        if flags & os.O_CREAT:
            raise RalphError(f"{path.parent}: directory not found.") from None
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RalphError(f"{path}: the message bus is a symbolic link.", _MOVE_AWAY) from None
        if error.errno == errno.EISDIR:
            raise RalphError(f"{path}: the message bus is not a regular file.", _MOVE_AWAY) from None
        raise _error(path, "cannot be opened", error) from None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE:
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(status.st_mode):
        raise RalphError(f"{path}: the message bus is too large ({status.st_size:,} bytes).", _MOVE_AWAY)
    raise RalphError(f"{path}: the message bus is not a regular file.", _MOVE_AWAY)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open the file for appending with an exclusive lock. It is created if missing."""
    deadline = time.monotonic() + PATIENCE
    while True:
        descriptor = _open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            _lock_exclusively(path, descriptor, deadline)
            if _is_at(path, descriptor):  # and was not removed while we waited
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _lock_exclusively(path: Path, descriptor: int, deadline: float) -> None:
    try:
        is_ours = _lock(descriptor, fcntl.LOCK_EX, deadline)
    except OSError as error:
        raise _error(path, "cannot be locked", error) from None
    if not is_ours:
        raise RalphError(
            f"{path}: another process has locked the message bus for {PATIENCE:.0f} s.",
            "It may be stopped. `fuser` shows which process has the file open.",
        )


def _lock(descriptor: int, how: int, deadline: float) -> bool:
    """Try to lock until the deadline, so that a stuck process cannot block others forever. False if it failed."""
    pause = 0.0002
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(pause)
        pause = min(pause * 1.5, 0.005)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _settled_end(descriptor: int) -> int:
    """The end of the file while no process writes, or its current end if a writer takes too long."""
    with suppress(OSError):
        if _lock(descriptor, fcntl.LOCK_SH, time.monotonic() + 2):
            end = os.fstat(descriptor).st_size
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            return end
    return os.fstat(descriptor).st_size


def _refuse_rubbish(path: Path, descriptor: int) -> None:
    """Refuse binary data. Text without any message may stay and be appended to."""
    head = os.pread(descriptor, 64 << 10, 0)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
        is_text = b"\0" not in head
    except UnicodeDecodeError:
        is_text = False
    if not is_text and b" <!-- {" not in head:
        raise RalphError(f"{path}: binary data, not a message bus.", _MOVE_AWAY)


def _encoded(message: BusMessage) -> bytes:
    try:
        data = encode(message)
    except UnicodeEncodeError:
        raise RalphError("The message is not UTF-8 text.") from None
    if len(data) > MAX_BYTES:
        raise RalphError(
            f"The message is too long: {len(data):,} bytes encoded, at most {MAX_BYTES:,}.",
            "Put it in a file and post the path.",
        )
    return data


def _error(path: Path, what: str, error: OSError) -> RalphError:
    return RalphError(f"{path}: the message bus {what}: {error.strerror}.")
