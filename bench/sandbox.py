"""Overhead of a sandbox, per command and per run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.measure import Measurement, Scratch, alternate, each_in_scratch

FEW, MANY = 5, 25
MAX_MS = 50.0
BACKEND = "bubblewrap"


def suite() -> Iterator[Measurement]:
    yield from each_in_scratch(start_of_a_command, start_of_a_run)


def _seconds(place: Scratch, iterations: int, *options: str) -> Callable[[], float]:
    return lambda: place.ralph("run", "-p", "hello", "-m", str(iterations), *options)[0]


def start_of_a_command(place: Scratch) -> Measurement:
    """One iteration of a trivial agent, alternating inside and outside."""
    place.agent("echo hello", streamAgentOutput=False)
    times = {}
    for count in (MANY, FEW):
        inside = _seconds(place, count, "--sandbox-backend", BACKEND)
        times[count] = alternate(inside, _seconds(place, count), 5)
    inside_ms, outside_ms = ((times[MANY][side] - times[FEW][side]) / (MANY - FEW) * 1e3 for side in (0, 1))
    added = inside_ms - outside_ms
    detail = f"{inside_ms:.1f} ms against {outside_ms:.1f} ms"
    return Measurement(
        f"{BACKEND}: added to each command",
        f"≤ {MAX_MS:.0f} ms",
        added,
        "ms",
        added <= MAX_MS,
        outside_ms,
        detail,
    )


def start_of_a_run(place: Scratch) -> Measurement:
    """A run of one iteration, including finding and testing the backend."""
    place.agent("echo hello", streamAgentOutput=False)
    inside, outside = alternate(_seconds(place, 1, "--sandbox-backend", BACKEND), _seconds(place, 1), 9)
    added = (inside - outside) * 1e3
    detail = f"{inside * 1e3:.0f} ms against {outside * 1e3:.0f} ms, with one command"
    return Measurement(
        f"{BACKEND}: added to a whole run", "≤ 300 ms", added, "ms", added <= 300, outside * 1e3, detail
    )
