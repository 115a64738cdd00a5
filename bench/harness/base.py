"""The adapter protocol: prepare a project for a harness, start it, and read its outcome."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.agents.model import Shape, Tag

NOWHERE = "http://127.0.0.1:9"
"""A proxy that does not exist, so that only loopback is reachable."""


class NotMeasured(Exception):
    """This harness cannot be measured here; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run to measure: agent, prompt, guardrail and iteration limit."""

    shape: Shape
    prompt: str
    guardrail: str
    kept: tuple[str, ...]
    kept_digest: str
    """`git hash-object --no-filters` of the kept files, hashed again."""
    limit: int
    tasks: int = 1
    """For a harness that works through a list: the number of tasks."""
    allow: tuple[str, ...] = ()
    """Globs of tests that the user has allowed to change."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The command that starts a harness in the project. `path`: directories with its programs."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    path: tuple[Path, ...] = ()
    is_starter: bool = False
    """The command only starts the harness as its single child and waits for it."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The exit code and output of a harness."""

    code: int | None
    out: str
    err: str
    directory: Path


class Harness(Protocol):
    name: str
    title: str
    """A short description."""
    tag: Tag
    is_ours: bool = False
    works_a_list: bool = False
    """One iteration per task of a list, each ended by the tag; otherwise one task in many iterations."""

    def find(self) -> str:
        """Return the version if it can be started; otherwise raise NotMeasured."""

    def files(self, job: Job) -> Mapping[str, str]:
        """Return the files it expects in the project, by name."""

    def launch(self, job: Job, private: Path) -> Launch:
        """Return the command that starts it; `private` is a directory outside the project."""

    def resume(self, job: Job, private: Path) -> Launch:
        """Return the documented command to resume after a kill; by default, start again."""
        return self.launch(job, private)

    def is_complete(self, finished: Finished) -> bool:
        """Return whether it reported completion."""
        return finished.code == 0

    def asks(self, finished: Finished) -> bool:
        """Return whether it left the decision on changed tests to the user."""
        return False


def environment(home: Path, programs: Path, launch: Launch) -> dict[str, str]:
    """Return the environment of a harness: a private home, the scripted agent, no network."""
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
    """Return the path of a program on PATH; raise NotMeasured if it is missing."""
    found = shutil.which(name)
    if found is None:
        raise NotMeasured(reason or f"{name} is not installed")
    return Path(found)
