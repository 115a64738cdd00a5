"""Parse a unified diff by its hunks: which lines were added where, and how to shorten a long one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

_HUNK = re.compile(r"@@ -\d{1,12}(?:,(\d{1,12}))? \+(\d{1,12})(?:,(\d{1,12}))? @@")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPED = dict(zip(b"abtnvfr", b"\a\b\t\n\v\f\r", strict=True))
_NOTHING = "/dev/null"
_MORE_FILES = "\n[... more files are not shown]\n"


class AddedLines(Struct, frozen=True):
    """Consecutive lines added to a file. `line` is the number of the first."""

    path: str
    line: int
    text: str


class FileDiff(Struct, frozen=True):
    """The part of a diff about one file."""

    path: str
    text: str
    added: tuple[AddedLines, ...] = ()


def parse(diff: str) -> list[FileDiff]:
    """The files of a diff in order.

    A hunk has as many lines as its header says, so an added line that looks like a file header stays an added line.
    """
    reader = _Reader()
    for line in diff.removesuffix("\n").split("\n") if diff else ():
        reader.read(line)
    reader.end_file()
    return reader.files


def added(diff: str) -> Iterator[AddedLines]:
    """All added lines, in the order of the diff."""
    return (block for file in parse(diff) for block in file.added)


def shortened(diff: str, most: int) -> str:
    """A diff cut to at most `most` characters. Every file gets a share, so that a long one does not hide the others."""
    if len(diff) <= most:
        return diff
    files = parse(diff)
    shares = _shares([len(file.text) for file in files], most)
    text = "".join(_cut(file, share) for file, share in zip(files, shares, strict=True))
    if len(text) <= most:
        return text
    return text[: max(0, most - len(_MORE_FILES))] + _MORE_FILES[:most]


def _shares(sizes: list[int], most: int) -> list[int]:
    """Small files get what they need and leave the rest to the large ones."""
    shares, left = [0] * len(sizes), most
    for done, number in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        shares[number] = min(sizes[number], left // (len(sizes) - done))
        left -= shares[number]
    return shares


def _cut(file: FileDiff, share: int) -> str:
    if len(file.text) <= share:
        return file.text
    note = f"\n[... the rest of {file.path} is not shown; {len(file.text):,} characters total]\n"
    return file.text[: max(0, share - len(note))] + note


class _Reader:
    """Reads a diff line by line. Inside a hunk it counts the lines still to come."""

    def __init__(self) -> None:
        self.files: list[FileDiff] = []
        self._begin("")

    def _begin(self, path: str) -> None:
        self._path = path
        self._lines: list[str] = []
        self._blocks: list[tuple[int, list[str]]] = []
        self._line = self._old_left = self._new_left = 0
        self._has_head = self._is_block = False

    def end_file(self) -> None:
        if not self._lines:
            return
        added = tuple(AddedLines(self._path, line, "\n".join(text)) for line, text in self._blocks)
        self.files.append(FileDiff(self._path, "\n".join(self._lines) + "\n", added))

    def read(self, line: str) -> None:
        is_inside = self._old_left > 0 or self._new_left > 0
        if not is_inside and (line.startswith("diff ") or (line.startswith("--- ") and self._has_head)):
            self.end_file()
            self._begin(_path_of_both(line))
        self._lines.append(line)
        if is_inside:
            self._inside(line)
        else:
            self._head(line)

    def _head(self, line: str) -> None:
        if hunk := _HUNK.match(line):
            self._old_left, self._new_left = int(hunk[1] or 1), int(hunk[3] or 1)
            self._line, self._is_block = int(hunk[2]), False
        elif line.startswith(("--- ", "+++ ")):
            self._has_head = True
            name = _unquoted(line[4:])
            if name != _NOTHING:
                self._path = name.removeprefix("b/") if line[0] == "+" else name.removeprefix("a/")
        elif line.startswith("rename to "):
            self._path = _unquoted(line.removeprefix("rename to "))

    def _inside(self, line: str) -> None:
        mark = line[:1]
        if mark == "\\":
            return
        if mark == "+":
            if not self._is_block:
                self._blocks.append((self._line, []))
            self._blocks[-1][1].append(line[1:])
        self._is_block = mark == "+"
        if mark != "+":
            self._old_left -= 1
        if mark != "-":
            self._new_left -= 1
            self._line += 1


def _path_of_both(line: str) -> str:
    """The path in `diff --git a/x b/x` if both are the same; otherwise later lines name it."""
    names = line.removeprefix("diff --git ")
    half = len(names) // 2
    old, new = _unquoted(names[:half]), _unquoted(names[half + 1 :])
    return new.removeprefix("b/") if old.removeprefix("a/") == new.removeprefix("b/") else ""


def _unquoted(name: str) -> str:
    """A path from git's output: C-quoted if it has unusual characters, otherwise up to a tab."""
    if not (len(name) > 1 and name.startswith('"') and name.endswith('"')):
        return name.partition("\t")[0]
    raw = _ESCAPE.sub(_character, name[1:-1].encode(errors="surrogateescape"))
    return raw.decode(errors="replace")


def _character(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    if len(code) == 3:
        return bytes([int(code, 8) & 255])
    return bytes([_ESCAPED.get(code[0], code[0])])
