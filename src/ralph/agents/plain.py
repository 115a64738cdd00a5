"""Agents that print plain text. Everything on stdout is the answer, and a tag in it may be a claim."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from msgspec.structs import replace

from ralph.agents import limits
from ralph.agents.base import AgentReport, Ends, LineText, Reading
from ralph.core import claims
from ralph.core.events import AgentEvent, Limited, Noise, Text
from ralph.core.model import Ended, Exit, PromptVia, Purpose, Usage
from ralph.core.text import clean


class PlainParser:
    """Reads plain text. Success depends on the exit code, and the last line on stderr explains a failure."""

    usage = Usage()
    is_over = False
    is_refused = False

    def __init__(self, reading: Reading) -> None:
        self._rule, self._is_asked = reading.claim, reading.spec.prompt_via is not PromptVia.NONE
        self._purpose, self._now = reading.purpose, reading.now
        self._scanner = claims.Scanner(reading.claim, reading.prompt)
        self._out, self._err = LineText(), LineText()
        self._answer, self._complaint = Ends(), Ends()

    def stdout(self, data: bytes) -> Sequence[AgentEvent]:
        return self._answered(self._out.feed(data))

    def stderr(self, data: bytes) -> Sequence[AgentEvent]:
        return self._complained(self._err.feed(data))

    def finish(self, exit: Exit) -> tuple[Sequence[AgentEvent], AgentReport]:
        last = [*self._answered(self._out.finish()), *self._complained(self._err.finish())]
        claim = claims.matches(self._scanner.finish(), self._rule)
        unclaimed = self._scanner.unclaimed if self._purpose is Purpose.WORK else ""
        report = AgentReport(self._ended(exit), claim, self._answer.text, unclaimed=unclaimed)
        if limit := self._limit(exit):
            last.append(limit)
            return last, replace(report, ended=limit.kind.ended, retry_at=limit.retry_at, detail=limit.text)
        return last, replace(report, detail=self._detail(exit))

    def _limit(self, exit: Exit) -> Limited | None:
        """A limit by its wording, from the end of stderr, if the process failed by itself.

        Stdout can hold any text. There only the last line counts, and only if it gives a reset time or
        reports a login problem.
        """
        if not exit.code or exit.ended is not None:
            return None
        now = self._now()
        complaint = clean(self._complaint.text).strip()[-2000:]
        if kind := limits.by_wording(complaint):
            return Limited(kind, complaint[-500:], limits.reset_at(complaint, now))
        line = self._answer.text.strip().rpartition("\n")[2][-500:]
        kind, until = limits.by_wording(line), limits.reset_at(line, now)
        if kind is not None and (until is not None or kind.ended is Ended.AUTH):
            return Limited(kind, line, until)
        return None

    def _answered(self, text: str) -> Sequence[AgentEvent]:
        if not text:
            return ()
        text = clean(text)
        self._scanner.feed(text)
        self._answer.add(text)
        return (Text(text),)

    def _complained(self, text: str) -> Sequence[AgentEvent]:
        self._complaint.add(text)
        return (Noise(text),) if text else ()

    def _ended(self, exit: Exit) -> Ended:
        if exit.signal is not None:
            return Ended.KILLED
        if exit.code:
            return Ended.FAILED
        return Ended.EMPTY if self._is_asked and not self._answer.text.strip() else Ended.OK

    def _detail(self, exit: Exit) -> str:
        if exit.signal is not None:
            return f"by signal {exit.signal} ({signal_name(exit.signal)})"
        lines = clean(self._complaint.text).strip().splitlines()
        return lines[-1][:500] if exit.code and lines else ""


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
