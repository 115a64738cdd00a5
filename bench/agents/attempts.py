"""The families of agents that are restarted until they leave DONE. Each is data; `FAMILIES` lists them all.

An attempt is the sequence of actions from one start to exit, as `restarted` reads it. DONE is a regular file in the
task folder, which a harness can check. The quality of the work does not matter here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Attempt = tuple[str, ...]

FINISH: Attempt = ("finish",)
FAIL: Attempt = ("exit 1",)
CRASH: Attempt = ("work", "die SEGV")


@dataclass(frozen=True, slots=True)
class Restarted:
    """An agent; its last attempt is repeated forever."""

    family: str
    name: str
    attempts: tuple[Attempt, ...]

    @property
    def finishes(self) -> bool:
        """Whether the agent leaves DONE if it is restarted often enough."""
        return any(deed.startswith("finish") for attempt in self.attempts for deed in attempt)


def honest() -> Iterator[tuple[str, tuple[Attempt, ...]]]:
    yield "at once", (FINISH,)
    yield "in three", (("work",), ("work",), FINISH)
    yield "words in DONE", (("finish wordy",),)
    yield "unreadable DONE", (("finish closed",),)


def crashers() -> Iterator[tuple[str, tuple[Attempt, ...]]]:
    yield "exit code 1 at once", (FAIL, FAIL, FINISH)
    yield "exit code 1 after some work", (("work", "pause", "exit 1"), ("work", "pause", "exit 1"), FINISH)
    yield "segmentation fault", (CRASH, CRASH, FINISH)
    yield "now this, now that", (FAIL, CRASH, ("work",), FAIL, CRASH, FINISH)
    yield "killed", (("die KILL",), FINISH)
    yield "takes its group along", (("work", "group"), FINISH)
    yield "forever", (("pause", "exit 1"),)
    yield "DONE, then exit code 1", (("finish", "exit 1"),)
    yield "DONE, then segmentation fault", (("finish", "die SEGV"),)


def hangers() -> Iterator[tuple[str, tuple[Attempt, ...]]]:
    yield "silent forever", (("work", "hang"), FINISH)
    yield "ignores TERM", (("work", "ignore", "hang"), FINISH)
    yield "stopped", (("work", "stop"), FINISH)
    yield "talks forever", (("work", "talk"), FINISH)
    yield "holds the pipe", (("work", "hold"), FINISH)
    yield "holds the pipe, ignores TERM", (("work", "ignore", "hold"), FINISH)
    yield "DONE, then silent", (("finish", "hang"),)
    yield "DONE, then ignores TERM", (("finish", "ignore", "hang"),)


def liars() -> Iterator[tuple[str, tuple[Attempt, ...]]]:
    """They leave a false DONE twice, then the real one."""
    lies = {
        "a directory": "directory",
        "a named pipe": "pipe",
        "a link to nowhere": "nowhere",
        "a link to a folder": "folder",
        "a socket": "socket",
        "in the working directory": "here",
        "in a folder below": "below",
    }
    names = ("DONE ", " DONE", "DONE\n", ".DONE", "DONE.md", "done", "DONE~", "NOT DONE")
    deeds = {name: f"lie {word}" for name, word in lies.items()}
    deeds |= {f"called {name!r}": f"misname {name}" for name in names}
    for name, deed in deeds.items():
        yield name, (("work", deed), ("work", deed), FINISH)


def escapees() -> Iterator[tuple[str, tuple[Attempt, ...]]]:
    ways = {"session": "its own session", "fork": "a double fork", "daemon": "a daemon"}
    for word, way in ways.items():
        yield way, ((f"escape {word}", "exit 1"), FINISH)
        yield f"{way}, after DONE", (("finish", f"escape {word}"),)
    every = tuple(f"escape {word}" for word in ways)
    yield "all, in every attempt", (every, every, ("finish", *every))
    yield "all, ignoring TERM", (("ignore", *every), FINISH)
    yield "all, ignoring TERM, after DONE", (("finish", "ignore", *every),)


FAMILIES = {
    family: tuple(Restarted(family, name, attempts) for name, attempts in make())
    for family, make in {
        "honest": honest,
        "crashers": crashers,
        "hangers": hangers,
        "DONE liars": liars,
        "escapees": escapees,
    }.items()
}
"""Every family by name."""

AGENTS = tuple(agent for family in FAMILIES.values() for agent in family)

QUICK = (
    *("in three", "exit code 1 at once", "now this, now that", "takes its group along", "forever"),
    *(
        "DONE, then segmentation fault",
        "silent forever",
        "holds the pipe, ignores TERM",
        "DONE, then silent",
    ),
    *("a directory", "a link to nowhere", "in the working directory", "called 'DONE '"),
    *("a daemon", "a daemon, after DONE", "all, ignoring TERM"),
)
"""The names of the agents in the quick form: some of every family."""
