"""The format of a message bus: Markdown for people that programs can read without loss.

A message is a heading for people with a comment for programs, and its body as a quotation:

    ## FACT · build · 2026-01-02 03:04:05 UTC <!-- {"id":"…",…,"bytes":21} 5b2c7d1e -->

    > All tests pass.

Every line of a body starts with `>`, so a line that starts with `## ` is always a heading: no body can pass for a
message, and after any damage the next message is found. The digits are the CRC-32 of the whole message without
them. docs/formats.md defines the format.
"""

from __future__ import annotations

import json
import os
import re
import time
import zlib
from collections.abc import Iterator
from enum import StrEnum

import msgspec

MAX_BYTES = 16 << 20
"""Maximum size of one message in the file."""

_MAX_HEADING = 8 << 10
_CHUNK = 1 << 20
_BEGIN = b"## "
_BORDER = b"\n## "
_HEADING = re.compile(rb"## [^\n]{1,600} <!-- (\{[^\n]{1,7000}\}) ([0-9a-f]{8}) -->\n")
_AFTER_CRC = b" -->\n"
_NO_LABEL = re.compile(r"[^\w .,:+@/-]+")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_ESCAPES = {
    ord(letter): f"\\u{ord(letter):04x}" for letter in _CONTROL.findall("".join(map(chr, range(0x2070))))
} | {ord("\\"): "\\\\"}
_ESCAPE = re.compile(r"\\(?:u((?!d[89a-f])[0-9a-f]{4})|\\)")


class BusMessage(msgspec.Struct, frozen=True):
    """One message. `task` and `run` may be empty."""

    id: str
    time: float
    type: str
    task: str
    run: str
    body: str


class DamageKind(StrEnum):
    TORN = "torn"
    """The file ends with a message whose writer was killed."""
    DAMAGED = "damaged"
    """A message that was altered, or data that never was one."""


class Damage(msgspec.Struct, frozen=True):
    """A part of the file that is not a message."""

    kind: DamageKind
    offset: int
    bytes: int

    @property
    def is_torn(self) -> bool:
        return self.kind is DamageKind.TORN


class LocatedMessage(msgspec.Struct, frozen=True):
    """A message and its position."""

    offset: int
    bytes: int
    message: BusMessage

    @property
    def end(self) -> int:
        return self.offset + self.bytes


class _Fields(msgspec.Struct):
    """The comment in a heading. `bytes` is the size of what follows it. Unknown fields are ignored."""

    id: str
    time: float
    type: str
    task: str
    run: str
    bytes: int
    escaped: bool = False


_decode_fields = msgspec.json.Decoder(_Fields).decode


def encode(message: BusMessage) -> bytes:
    """Encode a message for the file. A lone surrogate anywhere raises UnicodeEncodeError."""
    for text in (message.id, message.task, message.run):
        text.encode()
    body = message.body
    if escaped := bool(_CONTROL.search(body)):
        body = body.translate(_ESCAPES)
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
    return b"".join((head, _crc(head, quoted), _AFTER_CRC, quoted))


def _crc(head: bytes, quoted: bytes) -> bytes:
    return b"%08x" % zlib.crc32(quoted, zlib.crc32(_AFTER_CRC, zlib.crc32(head)))


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else "\\"


def _decoded(fields: _Fields, quoted: bytes) -> BusMessage | None:
    """The message, if every line of its body is quoted."""
    inner = quoted[:-2]
    if not inner.startswith(b"\n> ") or not quoted.endswith(b"\n\n"):
        return None
    if inner.count(b"\n") != inner.count(b"\n> "):
        return None
    try:
        body = inner[3:].replace(b"\n> ", b"\n").decode()
    except UnicodeDecodeError:
        return None
    if fields.escaped:
        body = _ESCAPE.sub(_unescaped, body)
    return BusMessage(fields.id, fields.time, fields.type, fields.task, fields.run, body)


class _Stretch:
    """A part of a file, read in pieces. Data already passed is dropped."""

    def __init__(self, descriptor: int, start: int, end: int, piece: int = _CHUNK) -> None:
        self._descriptor = descriptor
        self._end = end
        self._piece = piece
        self._data = b""
        self._at = 0
        self.offset = start

    @property
    def left(self) -> int:
        return self._end - self.offset

    def ensure(self, size: int) -> int:
        """Load at least `size` bytes if available, and return the number of loaded bytes."""
        there = len(self._data) - self._at
        if there >= size or there >= self.left:
            return there
        pieces = [self._data[self._at :]]
        while there < size and there < self.left:
            most = min(max(self._piece, size - there), self.left - there)
            piece = os.pread(self._descriptor, most, self.offset + there)
            if not piece:  # the file was truncated
                self._end = self.offset + there
            pieces.append(piece)
            there += len(piece)
        self._data, self._at = b"".join(pieces), 0
        return there

    def skip(self, size: int) -> None:
        self._at += size
        self.offset += size

    def record(self) -> tuple[BusMessage | None, int]:
        """The message at this position and the length its heading states; 0 without a heading."""
        self.ensure(_MAX_HEADING)
        match = _HEADING.match(self._data, self._at)
        if not match:
            return None, 0
        try:
            fields = _decode_fields(match[1])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None, 0
        heading, crc = match[0], match[2]
        size = len(heading) + fields.bytes
        if not len(heading) < size <= MAX_BYTES:
            return None, 0
        if self.ensure(size) < size or self._data.find(_BORDER, self._at, self._at + size) >= 0:
            return None, size
        quoted = self._data[self._at + len(heading) : self._at + size]
        if _crc(heading[: -len(crc) - len(_AFTER_CRC)], quoted) != crc:
            return None, size
        return _decoded(fields, quoted), size

    def is_cut_off(self, size: int) -> bool:
        """Whether this is the start of a message whose rest is missing. `size` is its stated length."""
        there = self.ensure(size or _MAX_HEADING)
        if there < self.left:
            return False
        if size:
            return there < size and self._data.find(_BORDER, self._at) < 0
        begins = self._data.startswith(_BEGIN[:there], self._at)
        return begins and self._data.find(b"\n", self._at) < 0

    def skip_damage(self, size: int) -> None:
        """Skip to where the next message may start: the stated end of this one, or the next heading."""
        if size and self.ensure(size + len(_BEGIN)) >= size:
            end = self._at + size
            if self._data[end : end + len(_BEGIN)] == _BEGIN and self._data.find(_BORDER, self._at, end) < 0:
                return self.skip(size)
        while there := self.ensure(_CHUNK):
            border = self._data.find(_BORDER, self._at)
            if border >= 0:
                return self.skip(border + 1 - self._at)
            self.skip(there if there >= self.left else there - len(_BORDER) + 1)
        return None


def scan(descriptor: int, start: int, end: int) -> Iterator[LocatedMessage | Damage]:
    """Everything between these offsets. A message starts at `start`. Memory use does not grow with the file."""
    stretch = _Stretch(descriptor, start, end)
    lost = start
    while stretch.ensure(1):
        message, size = stretch.record()
        is_torn = message is None and stretch.is_cut_off(size)
        if (message or is_torn) and lost < stretch.offset:
            yield Damage(DamageKind.DAMAGED, lost, stretch.offset - lost)
        if is_torn:
            yield Damage(DamageKind.TORN, stretch.offset, stretch.left)
            return
        if message:
            yield LocatedMessage(stretch.offset, size, message)
            stretch.skip(size)
            lost = stretch.offset
        else:
            stretch.skip_damage(size)
    if lost < stretch.offset:
        yield Damage(DamageKind.DAMAGED, lost, stretch.offset - lost)


def scan_end(descriptor: int, end: int) -> list[LocatedMessage | Damage]:
    """The last message before `end`, and everything after it."""
    size = 4 << 10
    while True:
        start = max(0, end - size)
        border = os.pread(descriptor, end - start, start).rfind(_BORDER)
        if border >= 0:
            return list(scan(descriptor, start + border + 1, end))
        if start == 0 or size > 2 * MAX_BYTES:
            return list(scan(descriptor, start, end))
        size *= 8


def find_ids(descriptor: int, beginning: str, start: int, end: int) -> Iterator[LocatedMessage]:
    """The messages whose ids start with `beginning`. Nothing else is decoded, so this is fast."""
    needle = b'"id":' + json.dumps(beginning)[:-1].encode()
    while start < end:
        piece = os.pread(descriptor, min(_CHUNK, end - start), start)
        if not piece:
            return
        at = piece.find(needle)
        while at >= 0:
            found = _message_around(descriptor, start + at, end)
            if found and found.message.id.startswith(beginning):
                yield found
            at = piece.find(needle, at + 1)
        start += max(1, len(piece) - len(needle) + 1)


def _message_around(descriptor: int, place: int, end: int) -> LocatedMessage | None:
    """The message that has this offset in its heading."""
    before = max(0, place - _MAX_HEADING)
    line = before + os.pread(descriptor, place - before, before).rfind(b"\n") + 1
    message, size = _Stretch(descriptor, line, end, _MAX_HEADING).record()
    return LocatedMessage(line, size, message) if message else None
