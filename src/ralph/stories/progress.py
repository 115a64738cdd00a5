"""The progress log of a PRD loop: its head may be edited, the part below the line only grows."""

from __future__ import annotations

from collections.abc import Iterator

LINE = b"\n---\n"


def grown(old: bytes, new: bytes | None) -> bytes:
    """The log after an iteration: a new head is accepted, everything below the line stays, new entries are added."""
    if new is None:
        return old
    head, line, log = old.partition(LINE)
    if not line:
        return new if new.startswith(old.rstrip()) else _joined(old, new)
    if any(rest.startswith(log.rstrip()) for rest in _below_lines(new)):
        return new
    new_head, new_line, new_log = new.partition(LINE)
    return (new_head if new_line else head) + LINE + _joined(log, new_log if new_line else new)


def _below_lines(text: bytes) -> Iterator[bytes]:
    start = text.find(LINE)
    while start >= 0:
        yield text[start + len(LINE) :]
        start = text.find(LINE, start + 1)


def _joined(old: bytes, new: bytes) -> bytes:
    """The old lines, followed by the new lines after the common beginning."""
    lines, others = old.splitlines(keepends=True), new.splitlines(keepends=True)
    same = next(
        (n for n, (a, b) in enumerate(zip(lines, others, strict=False)) if a != b),
        min(len(lines), len(others)),
    )
    rest = b"".join(others[same:])
    return old.rstrip(b"\n") + b"\n\n" + rest.lstrip(b"\n") if rest.strip() else old
