"""Agents that print plain text: everything on stdout is the answer, and a tag in it may be a claim."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from ralph.agents.base import Ends, LineText, Reading, Report
from ralph.core import claims
from ralph.core.events import AgentEvent, Noise, Text
from ralph.core.model import Ended, Exit, Usage
from ralph.core.text import clean


class PlainParser:
    """No structure: the exit code says whether it went well."""

    usage = Usage()
    is_over = False
    is_refused = False

    def __init__(self, reading: Reading) -> None:
        self._rule = reading.claim
        self._scanner = claims.Scanner(reading.claim, reading.prompt)
        self._out, self._err = LineText(), LineText()
        self._answer, self._complaint = Ends(), Ends()

    def stdout(self, data: bytes) -> Sequence[AgentEvent]:
        return self._answered(self._out.feed(data))

    def stderr(self, data: bytes) -> Sequence[AgentEvent]:
        return self._complained(self._err.feed(data))

    def finish(self, exit: Exit) -> tuple[Sequence[AgentEvent], Report]:
        last = [*self._answered(self._out.finish()), *self._complained(self._err.finish())]
        claim = claims.matches(self._scanner.finish(), self._rule)
        return last, Report(self._ended(exit), claim, self._answer.text, detail=self._detail(exit))

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
        return Ended.OK if self._answer.text.strip() else Ended.EMPTY

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
