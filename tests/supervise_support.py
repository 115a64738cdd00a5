"""A task folder in a project, and ralph as its supervisor."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from conftest import Project, Result
from ralph.store.bus import project_bus, read, task_bus
from ralph.store.messages import BusMessage

QUICK = ("--restart-delay", "0.02")
"""A short delay, so that no test waits without need."""

LEAVES_DONE = 'touch "$TASK_FOLDER/DONE"'

PATH_TO_RALPH = f"PATH={Path(sys.executable).parent}:$PATH; export PATH"
"""A line that lets an agent start ralph by its name."""


@dataclass(frozen=True)
class Task:
    """A folder `tasks/job`, and a script `task.sh` that logs each attempt outside the project, so it is not progress."""

    project: Project

    @property
    def folder(self) -> Path:
        return self.project.path / "tasks" / "job"

    @property
    def done(self) -> Path:
        return self.folder / "DONE"

    def script(self, body: str) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.project.script("task.sh", f'echo "$RALPH_ATTEMPT" >> {self._attempts}\n{body}')

    @property
    def _attempts(self) -> Path:
        return self.project.path.with_name(f"{self.project.path.name}.attempts")

    @property
    def attempts(self) -> list[str]:
        """The number of each attempt started, as passed to the agent."""
        return self._attempts.read_text().split() if self._attempts.exists() else []

    def run(self, body: str, *options: str, timeout: float = 60) -> Result:
        """Supervise a script to its end."""
        return self.project.run(*self._words(body, options), timeout=timeout)

    def start(self, body: str, *options: str) -> subprocess.Popen[str]:
        return self.project.start(*self._words(body, options))

    def _words(self, body: str, options: tuple[str, ...]) -> list[str]:
        command = self.script(body)
        return ["supervise", "tasks/job", *QUICK, *options, "--", command]

    def bus(self) -> list[tuple[str, str]]:
        return _messages(task_bus(self.folder))

    def project_bus(self) -> list[tuple[str, str]]:
        return _messages(project_bus(self.folder))


def _messages(path: Path) -> list[tuple[str, str]]:
    """Type and body of each message; none may be damaged."""
    found = list(read(path))
    assert all(isinstance(message, BusMessage) for message in found)
    return [(message.type, message.body) for message in found if isinstance(message, BusMessage)]
