"""The output of a command, shortened: its start and, the larger part, its end; failure lines from the rest come first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from msgspec import Struct

from ralph.core.failures import FailureSign, failure_sign

MAX_FAILURE_WIDTH = 200
"""Where failure lines are cut if not all of them fit."""

_MIN_PART = 80
"""A shorter part of the first line is left out, so that whole lines can be counted."""

_HEADING = "[Failures in the omitted part:]\n"
_PLAIN_MARK = "\n[...]\n"


class Gap(Struct, frozen=True):
    """What is missing in the middle of output. `lines` is 0 if it starts or ends inside a line."""

    lines: int
    characters: int


class CommandOutput(Struct, frozen=True):
    """What a command printed: all of it in `head`, or its start and its end with a gap between them."""

    head: str = ""
    tail: str = ""
    gap: Gap | None = None


class ShownOutput(Struct, frozen=True):
    """Output as it is shown. `is_cut`: not all of it."""

    text: str
    is_cut: bool


def shorten(output: CommandOutput, limit: int) -> ShownOutput:
    """Output in at most `limit` characters, marks included (0: everything that was kept).

    What does not fit is omitted in the middle. Lines from there that name a failure come first and take up to a quarter
    of the space; the start gets up to a quarter, the end the rest.
    """
    if output.gap is None and (limit <= 0 or len(output.head) <= limit):
        return ShownOutput(output.head, is_cut=False)
    long = _LongOutput(output)
    return ShownOutput(long.all_kept() if limit <= 0 else long.within(limit), is_cut=True)


class _Failure(Struct, frozen=True):
    start: int
    line: str
    sign: FailureSign


class _LongOutput:
    """Output with an omitted part. Positions count characters of what was kept; `seam` is where the gap is."""

    def __init__(self, output: CommandOutput) -> None:
        self._text = output.head + output.tail
        self._seam = len(output.head) if output.gap else None
        self._gap = output.gap or Gap(0, 0)
        longest = _omitted(len(self._text) + self._gap.characters, "character")
        self._mark_room = len(f"\n{longest}\n")

    def all_kept(self) -> str:
        seam = self._seam or 0
        return self._joined(seam, seam)

    def within(self, limit: int) -> str:
        if len(self._text) + self._mark_room <= limit:
            return self.all_kept()
        if self._mark_room > limit // 2:
            return self._tiny(limit)
        head_end = self._line_end(max(0, limit // 4 - self._mark_room))
        tail_start = self._tail_start(limit - limit // 4 - head_end - self._mark_room)
        failures = self._failures(head_end, tail_start)
        width = min(MAX_FAILURE_WIDTH, limit // 10)
        block = _block(self._hidden(failures, head_end, tail_start), limit // 4, width)
        # The tail also gets what the failure lines do not need, and may then show some of them itself.
        tail_start = self._tail_start(limit - len(block) - head_end - self._mark_room)
        block = _block(self._hidden(failures, head_end, tail_start), len(block), width)
        return block + self._joined(head_end, tail_start)

    def _tiny(self, limit: int) -> str:
        """Too short for a count."""
        head = (limit - len(_PLAIN_MARK)) // 4 if 2 * len(_PLAIN_MARK) <= limit else 0
        start = self._text[: min(head, self._seam or head)] + _PLAIN_MARK if head else ""
        tail_start = len(self._text) - (limit - len(start))
        return start + self._text[max(tail_start, self._seam or 0) :]

    def _line_end(self, most: int) -> int:
        """The end of a line in the second half of the first characters, or the end of these."""
        if self._seam is not None and most >= self._seam:
            return self._seam
        newline = self._text.rfind("\n", most // 2 if most >= _MIN_PART else 0, most)
        return newline + 1 if newline >= 0 or most < _MIN_PART else most

    def _tail_start(self, most: int) -> int:
        """The start of a line in the first half of the last characters, or the start of these."""
        at = max(len(self._text) - most, self._seam or 0)
        if self._is_line_start(at):
            return at
        return self._text.find("\n", at, at + (len(self._text) - at) // 2) + 1 or at

    def _is_line_start(self, at: int) -> bool:
        if at == self._seam:
            return self._gap.lines > 0
        return at == 0 or self._text[at - 1] == "\n"

    def _joined(self, head_end: int, tail_start: int) -> str:
        head, tail = self._text[:head_end], self._text[tail_start:]
        is_whole = self._seam is None or self._gap.lines > 0
        if is_whole and self._is_line_start(head_end) and self._is_line_start(tail_start):
            mark = _omitted(self._text.count("\n", head_end, tail_start) + self._gap.lines, "line")
        else:
            mark = _omitted(tail_start - head_end + self._gap.characters, "character")
        return head + "\n" * (head != "" and head[-1] != "\n") + mark + "\n" + tail

    def _failures(self, head_end: int, tail_start: int) -> list[_Failure]:
        """The lines between two positions that name a failure, each text once."""
        seam = self._seam
        parts = [(head_end, tail_start)] if seam is None else [(head_end, seam), (seam, tail_start)]
        found: dict[str, _Failure] = {}
        for failure in (failure for part in parts for failure in self._failures_in(*part)):
            found.setdefault(failure.line.strip(), failure)
        return list(found.values())

    def _hidden(self, failures: list[_Failure], head_end: int, tail_start: int) -> list[_Failure]:
        """The failures that neither the head nor the tail shows."""
        shown = {
            line.strip()
            for part in (self._text[:head_end], self._text[tail_start:])
            for line in part.split("\n")
        }
        return [each for each in failures if each.start < tail_start and each.line.strip() not in shown]

    def _failures_in(self, start: int, end: int) -> Iterator[_Failure]:
        for line in self._text[start:end].split("\n"):
            sign = failure_sign(line)
            if sign is not FailureSign.NONE:
                yield _Failure(start, line.rstrip(), sign)
            start += len(line) + 1


def _omitted(count: int, what: str) -> str:
    return f"[... {count:,} {what}{'s' * (count != 1)} omitted ...]"


def _block(failures: list[_Failure], room: int, width: int) -> str:
    """These lines below a heading. If they do not fit: the first ones, reports of tools first, and the number of others."""
    whole = [f"{each.line}\n" for each in failures]
    if not failures or len(_HEADING) + sum(map(len, whole)) + 1 <= room:
        return f"{_HEADING}{''.join(whole)}\n" if failures else ""
    short = [line if len(line) <= width else f"{line[: width - 2]}…\n" for line in whole]
    order = sorted(range(len(failures)), key=lambda number: -failures[number].sign)
    sizes = accumulate((len(short[number]) for number in order), initial=len(_HEADING) + 1)
    fitting = [count for count, size in enumerate(sizes) if size + len(_more(len(order) - count)) <= room]
    if not fitting or not fitting[-1]:
        return ""
    chosen = sorted(order[: fitting[-1]])
    return f"{_HEADING}{''.join(short[number] for number in chosen)}{_more(len(order) - len(chosen))}\n"


def _more(count: int) -> str:
    return f"[... {count:,} more ...]\n" if count else ""
