"""A project with a PRD loop, and agents written in Python that play it more or less honestly."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed

from bench.agents import prd_project
from bench.agents.prd_project import board as board
from bench.agents.prd_project import story as story

from conftest import Project, Result

HONEST = "play()"


@dataclass(frozen=True)
class Loop:
    """The project, its folder `ralph/`, and its agent, which is outside the repository."""

    project: Project

    @property
    def folder(self) -> Path:
        return self.project.path / "ralph"

    @property
    def outside(self) -> Path:
        return self.project.path.parent

    @property
    def tasks(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "tasks.json").read_text())
        return found

    @property
    def stories(self) -> dict[str, dict[str, Any]]:
        return {each["id"]: each for each in self.tasks["userStories"]}

    def standing(self, id: str = "US-001") -> tuple[bool, str | None, int]:
        """Whether a story passes, its review status, and its number of reviews."""
        found = self.stories[id]
        return found["passes"], found["reviewStatus"], found["reviewCount"]

    def write(self, tasks: dict[str, Any]) -> None:
        (self.folder / "tasks.json").write_text(json.dumps(tasks, indent=2) + "\n")

    def agent(self, body: str = HONEST, **settings: Any) -> None:
        """Set the agent: Python code for every iteration, with the names of the prelude."""
        path = self.outside / "agent"
        prd_project.write_agent(path, self.outside / "calls", body)
        usual = {"agent": {"command": str(path)}, "snapshots": False, "sandbox": {"rung": "direct"}}
        self.project.settings(**(usual | settings))

    def run(self, *arguments: str, timeout: float = 60) -> Result:
        return self.project.run("prd", "run", *arguments, timeout=timeout)

    @property
    def prompts(self) -> list[str]:
        """The prompts of the agent, in order."""
        return prd_project.prompts(self.outside / "calls")

    @property
    def modes(self) -> list[str]:
        """Mode and story of each iteration."""
        return [prompt.partition(": ")[2].partition(",")[0] for prompt in self.prompts]

    @property
    def subjects(self) -> list[str]:
        """The commit subjects, newest first."""
        return self.project.git("log", "--format=%s").splitlines()


def make_loop(project: Project, *stories: dict[str, Any], **values: Any) -> Loop:
    prd_project.make(project.path, board(*stories, **values), project.env)
    loop = Loop(project)
    loop.agent()
    return loop
