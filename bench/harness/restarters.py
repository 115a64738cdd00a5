"""Harnesses that restart an agent until it leaves DONE: `ralph supervise`, and shell loops that people write.

All work in the project and wait for `task/DONE`. The loops are copied from common scripts; one uses timeout(1). Exit
code 0 means complete; a loop always exits with 0, whatever its agent returned.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.harness.base import Launch, NotMeasured
from bench.harness.ralph import OURS
from bench.measure import RALPH

FOLDER = "task"
AGENT_SECONDS = 3.0
"""Timeout of an attempt, for harnesses that support one."""

CHILD_SECONDS = 1.0
"""Seconds that ralph waits for children after DONE."""

EXPORT = f'TASK_FOLDER="$PWD/{FOLDER}"; export TASK_FOLDER'


class Restarter(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str:
        """A short description."""

    @property
    def is_ours(self) -> bool: ...

    def find(self) -> str:
        """Return the version, or raise NotMeasured."""

    def launch(self, private: Path) -> Launch:
        """Return the command that starts it; `private` is a directory outside the project."""


class Supervise:
    """`ralph supervise` with quick restarts and timeouts for an attempt and its children."""

    name = "ralph supervise"
    title = f"`ralph supervise --agent-timeout {AGENT_SECONDS:g} --wait-timeout {CHILD_SECONDS:g}`"
    is_ours = True

    def find(self) -> str:
        return OURS.find()

    def launch(self, private: Path) -> Launch:
        state = private / "state"
        state.mkdir(exist_ok=True)
        options = {
            "--restart-delay": 0.05,
            "--max-restarts": 20,
            "--agent-timeout": AGENT_SECONDS,
            "--wait-timeout": CHILD_SECONDS,
        }
        words = [word for option, value in options.items() for word in (option, str(value))]
        return Launch((RALPH, "supervise", FOLDER, *words, "--", "agent"), {"RALPH_STATE_DIR": str(state)})


@dataclass(frozen=True, slots=True)
class Loop:
    name: str
    title: str
    script: str
    needs: str = "sh"
    is_ours = False

    def find(self) -> str:
        if shutil.which(self.needs) is None:
            raise NotMeasured(f"{self.needs} is not installed")
        return "sh"

    def launch(self, private: Path) -> Launch:
        return Launch(("/bin/sh", "-c", f"{EXPORT}\n{self.script}\nexit 0"))


def _loop(name: str, script: str, needs: str = "sh") -> Loop:
    return Loop(name, f"`{script}`", script.replace("DONE", f"{FOLDER}/DONE"), needs)


SUPERVISE = Supervise()
UNTIL = _loop("until -e", "until [ -e DONE ]; do agent; done")
_ALL: tuple[Restarter, ...] = (
    SUPERVISE,
    UNTIL,
    _loop("until -f", "until [ -f DONE ]; do agent; done"),
    _loop(
        "until -f, timeout",
        f"until [ -f DONE ]; do timeout -k 1 {AGENT_SECONDS:g} agent; done",
        "timeout",
    ),
)
RESTARTERS: Mapping[str, Restarter] = {restarter.name: restarter for restarter in _ALL}
