"""What every adapter is: it prepares a project for its harness, says how to start it, and reads its outcome."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.agents.model import Shape, Tag

NOWHERE = "http://127.0.0.1:9"
"""A proxy that is not there: what is not on loopback goes nowhere."""


class NotMeasured(Exception):
    """This harness cannot be measured here; the words say why."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run to be made: by which agent, with what to prove it, for how many iterations."""

    shape: Shape
    prompt: str
    guardrail: str
    kept: tuple[str, ...]
    kept_digest: str
    """`git hash-object --no-filters` of the kept files, hashed once more."""
    limit: int
    tasks: int = 1
    """For a harness that works through a list: how many tasks the prompt is made into."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a harness is started in the project. `path`: where its own programs are."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    path: tuple[Path, ...] = ()
    is_starter: bool = False
    """What is started only starts the harness, as its one child, and waits for it."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How the process of a harness ended, and what it said."""

    code: int | None
    out: str
    err: str
    directory: Path


class Harness(Protocol):
    name: str
    title: str
    """What the name stands for, in a few words."""
    tag: Tag
    is_ours: bool = False
    works_a_list: bool = False
    """One iteration for each task of a list, and the tag ends a task; else one task, in many iterations."""

    def find(self) -> str:
        """Its version, once it is ready to be started; else raises NotMeasured."""

    def files(self, job: Job) -> Mapping[str, str]:
        """What it wants to find in the project, by name."""

    def launch(self, job: Job, private: Path) -> Launch:
        """How to start it; `private` is a directory outside the project."""

    def resume(self, job: Job, private: Path) -> Launch:
        """How to go on after it was killed, as its own documents say; where they say nothing, from the start."""
        return self.launch(job, private)

    def is_complete(self, finished: Finished) -> bool:
        """Did it say that the work is done?"""
        return finished.code == 0


def environment(home: Path, programs: Path, launch: Launch) -> dict[str, str]:
    """All that a harness may see: a private home, the scripted agent, no way out."""
    own = [str(place) for place in launch.path]
    path = dict.fromkeys([str(programs), *own, "/usr/local/bin", "/usr/bin", "/bin"])
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return {
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PATH": os.pathsep.join(path),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "HTTP_PROXY": NOWHERE,
        "HTTPS_PROXY": NOWHERE,
        "http_proxy": NOWHERE,
        "https_proxy": NOWHERE,
        "NO_PROXY": "127.0.0.1,localhost",
        "NO_UPDATE_NOTIFIER": "1",
        **launch.env,
    }


def program(name: str, reason: str = "") -> Path:
    """A program on PATH."""
    found = shutil.which(name)
    if found is None:
        raise NotMeasured(reason or f"{name} is not installed")
    return Path(found)
