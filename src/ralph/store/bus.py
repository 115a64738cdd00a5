"""The message bus: an append-only Markdown file that people read and programs read without loss.

A message is a heading for people with a comment for programs, and its body as a quotation:

    ## FACT · build · 2026-01-02 03:04:05 UTC <!-- {"id":"…",…,"bytes":27} 5b2c7d1e -->

    > All tests pass.

Every line of a body begins with `>`, so that a line that begins with `## ` is always a heading of ours: no body
can pass for a message, and after any damage the next message is found. The digits are the CRC-32 of the whole
message without them. docs/formats.md fixes the format.
"""

from __future__ import annotations

import codecs
import errno
import fcntl
import json
import os
import re
import stat
import time
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from ralph.errors import RalphError

FACT, INFO, WARNING, ERROR, WAIT = "FACT", "INFO", "WARNING", "ERROR", "wait_without_restart"
TYPES = (FACT, INFO, WARNING, ERROR, WAIT)
"""The types that mean something to Ralph; any other word is a type too."""

MOST_RECORD = 16 << 20
"""Bytes of one message in the file."""

MOST_FILE = 4 << 30
"""Bytes of a bus; a larger file is neither read nor written."""

PATIENCE = 30.0
"""Seconds to wait for other writers."""

_MOST_HEADING = 8 << 10
_CHUNK = 1 << 20
_BORDER = b"\n## "
_BEGIN = b"## "
_HEADING = re.compile(rb"## [^\n]{1,600} <!-- (\{[^\n]{1,7000}\}) ([0-9a-f]{8}) -->\n")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NO_LABEL = re.compile(r"[^\w .,:+@/-]+")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SPECIAL = re.compile(rf"{_CONTROL.pattern}|\\")
_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|\\)")


class Message(msgspec.Struct, frozen=True):
    """One message. `task` and `run` are empty where there is none."""

    id: str
    time: float
    type: str
    task: str
    run: str
    body: str


class DamageKind(StrEnum):
    TORN = "torn"
    """The end of the file is a message whose writer was cut off."""
    DAMAGED = "damaged"
    """A message that was changed, or something that never was one."""


class Damage(msgspec.Struct, frozen=True):
    """A stretch of the file that is no message."""

    kind: DamageKind
    offset: int
    bytes: int


class Posted(msgspec.Struct, frozen=True):
    """What became of a message: its id, whether it is new, and the torn end that had to be moved aside."""

    id: str
    is_new: bool
    moved: Damage | None = None


class _Fields(msgspec.Struct):
    """The comment in a heading. `bytes` is what follows the heading; later versions may add fields."""

    id: str
    time: float
    type: str
    task: str
    run: str
    bytes: int
    escaped: bool = False


class _Found(msgspec.Struct, frozen=True):
    offset: int
    bytes: int
    message: Message


_decode_fields = msgspec.json.Decoder(_Fields).decode


def task_bus(folder: Path) -> Path:
    """The bus of a task, in its folder."""
    return folder / "TASK-MESSAGE-BUS.md"


def project_bus(folder: Path) -> Path:
    """The bus that all tasks of a project share: in the directory that has the task's folder."""
    return Path(os.path.realpath(folder)).parent / "PROJECT-MESSAGE-BUS.md"


def as_type(word: str) -> str:
    """A type as it is written: those that Ralph knows in their own case, others as they are."""
    for known in TYPES:
        if word.casefold() == known.casefold():
            return known
    if not _WORD.fullmatch(word):
        raise RalphError(
            f"{word!r} is no message type: letters, digits, - and _, at most 64.",
            f"Known: {', '.join(TYPES)}.",
        )
    return word


# ---- writing ----


class Bus:
    """Posts messages. Keep it for many: it remembers which ids of a run it has seen."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: dict[str, _Seen] = {}

    def post(
        self, at: float, type: str, body: str, *, task: str = "", run: str = "", seq: int | None = None
    ) -> Posted:
        """Append a message; when this returns it is on the disk.

        With `seq` the id is `<run>.<seq>`, and a message that is there already is not posted again.
        """
        if seq is not None and not _RUN.fullmatch(run):
            raise ValueError(f"a message with a sequence number needs a run, not {run!r}")
        message = Message("", at, as_type(type), task[:255], run[:100], body)
        with _locked(self.path) as descriptor:
            if seq is not None and f"{run}.{seq}" in self._ids(run, descriptor):
                return Posted(f"{run}.{seq}", is_new=False)
            end, moved = self._recovered(descriptor)
            start = b"\n" if end and os.pread(descriptor, 1, end - 1) != b"\n" else b""
            id = f"{run}.{seq}" if seq is not None else f"{end + len(start):010d}-{os.urandom(2).hex()}"
            data = start + self._encoded(msgspec.structs.replace(message, id=id))
            self._append(descriptor, data, end)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.fsync(descriptor)  # after the lock: writers that wait for the disk wait together
        if end == 0:
            _sync_directory(self.path.parent)
        return Posted(id, is_new=True, moved=moved)

    def _encoded(self, message: Message) -> bytes:
        try:
            data = encode(message)
        except UnicodeEncodeError:
            raise RalphError("The message is not UTF-8 text.") from None
        if len(data) > MOST_RECORD:
            raise RalphError(
                f"The message is too long: {len(data):,} bytes as it is written, at most {MOST_RECORD:,}.",
                "Put it into a file and post where it is.",
            )
        return data

    def _append(self, descriptor: int, data: bytes, end: int) -> None:
        """All of it or nothing; normally one write."""
        if end + len(data) > MOST_FILE:
            raise RalphError(f"{self.path}: the message bus is full ({end:,} bytes).", _MOVE_AWAY)
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(descriptor, end)
            raise _error(self.path, "cannot be written", error) from None

    def _recovered(self, descriptor: int) -> tuple[int, Damage | None]:
        """Where the next message goes. What a writer left that was cut off is moved to a file beside the bus."""
        end = os.fstat(descriptor).st_size
        found = list(_scan(descriptor, _last_border(descriptor, end), end))
        if found and isinstance(torn := found[-1], Damage) and _is_torn(torn):
            self._move_aside(os.pread(descriptor, torn.bytes, torn.offset))
            os.ftruncate(descriptor, torn.offset)
            return torn.offset, torn
        if found and not any(isinstance(item, _Found) for item in found):
            _refuse_rubbish(self.path, descriptor)
        return end, None

    def _move_aside(self, tail: bytes) -> None:
        path = self.path.with_name(f"{self.path.name}.torn")
        descriptor = _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, tail + b"\n")
            os.fsync(descriptor)
        except OSError as error:
            raise _error(path, "cannot be written", error) from None
        finally:
            os.close(descriptor)

    def _ids(self, run: str, descriptor: int) -> set[str]:
        """The ids of a run with sequence numbers; only what is new in the file is looked at."""
        status = os.fstat(descriptor)
        seen = self._seen.get(run)
        if seen is None or seen.file != status.st_ino or seen.end > status.st_size:
            seen = self._seen[run] = _Seen(status.st_ino)
        for found in _with_id(descriptor, f"{run}.", seen.end, status.st_size):
            seen.ids.add(found.message.id)
            seen.end = found.offset + found.bytes
        return seen.ids


class _Seen:
    def __init__(self, file: int) -> None:
        self.file = file
        self.end = 0
        self.ids: set[str] = set()


# ---- reading ----


def read(path: Path, since: str | None = None) -> Iterator[Message | Damage]:
    """All messages, or those after the one with this id; memory does not grow with the file."""
    return Reader(path, since).news()


class Reader:
    """Reads a bus, and later what has come since. A bus that is not there yet has no messages."""

    def __init__(self, path: Path, since: str | None = None) -> None:
        self.path = path
        self._file = -1
        self._offset = 0
        self._told: Damage | None = None
        if since is not None:
            self._go_behind(since)

    def skip(self) -> None:
        """Leave out all that is there now."""
        with self._opened() as descriptor:
            if descriptor is not None:
                end = _settled_end(descriptor)
                found = list(_scan(descriptor, _last_border(descriptor, end), end))
                self._offset = found[-1].offset if found and _is_torn(found[-1]) else end

    def news(self) -> Iterator[Message | Damage]:
        """What has come since the last time. A torn end is told once: the next writer moves it aside."""
        with self._opened() as descriptor:
            if descriptor is None:
                return
            torn = yield from self._read(descriptor, os.fstat(descriptor).st_size)
            if torn:  # or somebody is writing it right now
                torn = yield from self._read(descriptor, _settled_end(descriptor))
            if torn and torn != self._told:
                self._told = torn
                yield torn

    def _read(self, descriptor: int, end: int) -> Generator[Message | Damage, None, Damage | None]:
        """Up to `end`; returns the torn end, if there is one."""
        for item in _scan(descriptor, self._offset, end):
            if isinstance(item, Damage):
                if _is_torn(item):
                    return item
                if item.bytes == end:
                    _refuse_rubbish(self.path, descriptor)
            self._offset = item.offset + item.bytes
            yield item.message if isinstance(item, _Found) else item
        return None

    def _go_behind(self, since: str) -> None:
        with self._opened() as descriptor:
            if descriptor is not None:
                for found in _with_id(descriptor, since, 0, os.fstat(descriptor).st_size):
                    if found.message.id == since:
                        self._offset = found.offset + found.bytes
                        return
        raise RalphError(f"{self.path}: there is no message {since!r}.", "`ralph bus read` shows the ids.")

    @contextmanager
    def _opened(self) -> Iterator[int | None]:
        """The file as it is now; one that was put in its place, or cut, is read from its beginning."""
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


# ---- the format ----


def encode(message: Message) -> bytes:
    """A message as it stands in the file."""
    body = message.body
    if escaped := bool(_CONTROL.search(body)):
        body = _SPECIAL.sub(lambda found: _escaped(found[0]), body)
    quoted = b"\n> " + body.encode().replace(b"\n", b"\n> ") + b"\n\n"
    fields = msgspec.structs.asdict(message) | {"bytes": len(quoted)}
    del fields["body"]
    if escaped:
        fields["escaped"] = True
    comment = json.dumps(fields, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")
    date = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(message.time))
    label = _NO_LABEL.sub("_", message.task)[:60].strip()
    visible = " · ".join(part for part in (message.type, label, date) if part)
    head = f"## {visible} <!-- {comment} ".encode()
    return b"%b%08x -->\n%b" % (head, _crc(head, quoted), quoted)


def _crc(head: bytes, quoted: bytes | memoryview) -> int:
    """Of all but its own digits."""
    return zlib.crc32(quoted, zlib.crc32(b" -->\n", zlib.crc32(head)))


def _escaped(character: str) -> str:
    return "\\\\" if character == "\\" else f"\\u{ord(character):04x}"


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else "\\"


def _decoded(fields: _Fields, quoted: bytes) -> Message | None:
    """The message, if every line of its body is quoted."""
    inner = quoted[:-2]
    if not (inner.startswith(b"\n> ") and quoted.endswith(b"\n\n")):
        return None
    if inner.count(b"\n") != inner.count(b"\n> "):
        return None
    try:
        body = inner[3:].replace(b"\n> ", b"\n").decode()
    except UnicodeDecodeError:
        return None
    if fields.escaped:
        body = _ESCAPE.sub(_unescaped, body)
    return Message(fields.id, fields.time, fields.type, fields.task, fields.run, body)


class _Stretch:
    """A part of a file, read in big pieces; what lies behind is forgotten."""

    def __init__(self, descriptor: int, start: int, end: int) -> None:
        self._descriptor = descriptor
        self._end = end
        self._data = b""
        self._at = 0
        self.offset = start

    def ensure(self, size: int) -> int:
        """How many bytes are there, up to `size` and maybe more."""
        there = len(self._data) - self._at
        if there >= size:
            return there
        place = self.offset + there
        pieces = [self._data[self._at :]]
        while there < size and place < self._end:
            piece = os.pread(self._descriptor, min(max(_CHUNK, size - there), self._end - place), place)
            if not piece:  # somebody has cut the file
                self._end = place
                break
            pieces.append(piece)
            there += len(piece)
            place += len(piece)
        self._data, self._at = b"".join(pieces), 0
        return there

    def skip(self, size: int) -> None:
        self._at += size
        self.offset += size

    def heading(self) -> tuple[bytes, _Fields] | None:
        """The heading that stands here, up to its digits and with them, and what it says."""
        self.ensure(_MOST_HEADING)
        match = _HEADING.match(self._data, self._at)
        if not match:
            return None
        try:
            fields = _decode_fields(match[1])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return (match[0], fields) if 0 < fields.bytes <= MOST_RECORD else None

    def record(self) -> tuple[Message | None, int]:
        """The message that stands here, and how long it is or says it is (0: there is no heading here)."""
        found = self.heading()
        if not found:
            return None, 0
        heading, fields = found
        size = len(heading) + fields.bytes
        if self.ensure(size) < size or self._data.find(_BORDER, self._at, self._at + size) >= 0:
            return None, size
        quoted = self._data[self._at + len(heading) : self._at + size]
        if b"%08x" % _crc(heading[:-13], quoted) != heading[-13:-5]:
            return None, size
        return _decoded(fields, quoted), size

    def is_cut_off(self, size: int) -> bool:
        """Is this the beginning of a message, and the rest is missing? `size` is what its heading says."""
        there = self.ensure(size or _MOST_HEADING)
        if self.offset + there < self._end:
            return False
        rest = self._data[self._at :]
        if size:
            return there < size and _BORDER not in rest
        return b"\n" not in rest and rest[:3] == _BEGIN[: len(rest)]

    def skip_damage(self, size: int) -> None:
        """Go to where the next message may begin."""
        if size and self.ensure(size + 3) >= size:
            border = self._data.find(_BORDER, self._at, self._at + size)
            if border < 0 and self._data[self._at + size : self._at + size + 3] in (_BEGIN, b""):
                return self.skip(size)
        while there := self.ensure(_CHUNK):
            border = self._data.find(_BORDER, self._at)
            if border >= 0:
                return self.skip(border + 1 - self._at)
            if self.offset + there >= self._end:
                return self.skip(there)
            self.skip(there - len(_BORDER) + 1)
        return None


def _scan(descriptor: int, start: int, end: int) -> Iterator[_Found | Damage]:
    """All that stands between these places; `start` is the beginning of a line."""
    stretch = _Stretch(descriptor, start, end)
    lost = start
    while stretch.ensure(1):
        message, size = stretch.record()
        is_torn = message is None and stretch.is_cut_off(size)
        if (message or is_torn) and lost < stretch.offset:
            yield Damage(DamageKind.DAMAGED, lost, stretch.offset - lost)
        if is_torn:
            yield Damage(DamageKind.TORN, stretch.offset, stretch.ensure(MOST_RECORD))
            return
        if message:
            yield _Found(stretch.offset, size, message)
            stretch.skip(size)
            lost = stretch.offset
        else:
            stretch.skip_damage(size)
    if lost < stretch.offset:
        yield Damage(DamageKind.DAMAGED, lost, stretch.offset - lost)


def _is_torn(item: _Found | Damage) -> bool:
    return isinstance(item, Damage) and item.kind is DamageKind.TORN


def _with_id(descriptor: int, beginning: str, start: int, end: int) -> Iterator[_Found]:
    """The messages whose ids begin like this. Headings only are looked at, so this is quick."""
    needle = b'"id":' + json.dumps(beginning)[:-1].encode()
    while start < end:
        piece = os.pread(descriptor, min(_CHUNK, end - start), start)
        if not piece:
            return
        at = piece.find(needle)
        if at < 0:
            start += max(1, len(piece) - len(needle) + 1)
            continue
        before = max(0, start + at - _MOST_HEADING)
        line = before + os.pread(descriptor, start + at - before, before).rfind(b"\n") + 1
        start += at + len(needle)
        found = next(_scan(descriptor, line, end), None)
        if isinstance(found, _Found) and found.offset == line and found.message.id.startswith(beginning):
            yield found
            start = max(start, found.offset + found.bytes)


def _last_border(descriptor: int, end: int) -> int:
    """The last place where a message begins, or all but."""
    size = 4 << 10
    while True:
        start = max(0, end - size)
        border = os.pread(descriptor, end - start, start).rfind(_BORDER)
        if border >= 0:
            return start + border + 1
        if start == 0 or size > 2 * MOST_RECORD:
            return start
        size *= 8


# ---- the file ----

_MOVE_AWAY = "Move it away, and a new one begins."


def _open(path: Path, flags: int) -> int:
    """A regular file of a sane size, never through a link; anything else is one clear error."""
    careful = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | careful, 0o644)
    except FileNotFoundError:
        if flags & os.O_CREAT:
            raise RalphError(f"{path.parent}: there is no such directory.") from None
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RalphError(f"{path}: the message bus is a symbolic link.", _MOVE_AWAY) from None
        raise _error(path, "cannot be opened", error) from None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size <= MOST_FILE:
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(status.st_mode):
        raise RalphError(f"{path}: the message bus is too large ({status.st_size:,} bytes).", _MOVE_AWAY)
    raise RalphError(f"{path}: the message bus is no regular file.", _MOVE_AWAY)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file, open for appending and this process its only writer. It is made where there is none."""
    deadline = time.monotonic() + PATIENCE
    while True:
        descriptor = _open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            if not _lock(path, descriptor, fcntl.LOCK_EX, deadline):
                raise RalphError(
                    f"{path}: another process has held the message bus for {PATIENCE:.0f} s.",
                    "Is it stopped? `fuser` shows who has the file open.",
                )
            if _is_at(path, descriptor):  # and was not removed while we waited
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _lock(path: Path, descriptor: int, how: int, deadline: float) -> bool:
    """Asked again and again, so that nobody who holds it for ever holds us up; False after the deadline."""
    pause = 0.0002
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        except OSError as error:
            raise _error(path, "cannot be locked", error) from None
        else:
            return True
        time.sleep(pause)
        pause = min(pause * 1.5, 0.005)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _settled_end(descriptor: int) -> int:
    """The end of the file at a moment when nobody writes; of one who writes for long, as it is now."""
    with suppress(RalphError):
        if _lock(Path(), descriptor, fcntl.LOCK_SH, time.monotonic() + 2):
            end = os.fstat(descriptor).st_size
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            return end
    return os.fstat(descriptor).st_size


def _refuse_rubbish(path: Path, descriptor: int) -> None:
    """Text without any message may stay, and be appended to; binary data are somebody else's."""
    head = os.pread(descriptor, 64 << 10, 0)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
        is_text = b"\0" not in head
    except UnicodeDecodeError:
        is_text = False
    if not is_text and b" <!-- {" not in head:
        raise RalphError(f"{path}: this is no message bus, but binary data.", _MOVE_AWAY)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _error(path: Path, what: str, error: OSError) -> RalphError:
    return RalphError(f"{path}: the message bus {what}: {error.strerror}.")
