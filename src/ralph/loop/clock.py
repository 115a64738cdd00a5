"""The clock of a run; tests replace it."""

from __future__ import annotations

import time


class Clock:
    """Wall-clock time for resets and records, monotonic time for durations."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()
