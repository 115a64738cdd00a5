"""A repository with a calculator that subtracts, tasks to fix it, and agents that do so more or less honestly."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import Project, Result
from ralph.core.task_model import CompletionCriteria, Task, TaskCompletionSpec
from ralph.runs.location import here
from ralph.store.tasks import Tasks

CHECK = f"{sys.executable} check.py"
FIXES = "sed -i 's/a - b/a + b/' calc.py"
BREAKS = "sed -i 's/a + b/a - b/' calc.py"
ALL_MET = '{"verdicts": [{"criterion": 1, "met": true, "reason": "I looked"}]}'
NOT_MET = '{"verdicts": [{"criterion": 1, "met": false, "reason": "it subtracts"}]}'

HONEST = f"""
case $RALPH_ROLE in
coder) {FIXES}; promise CODED;;
reviewer) promise REVIEW_PASSED;;
tester) promise TESTS_PASSED;;
qa) promise QA_PASSED;;
esac
"""


def external(command: str = CHECK, **more: Any) -> CompletionCriteria:
    return CompletionCriteria("CODED", "add adds", "external", {"command": command, **more})


def task(id: str = "T-1", **values: Any) -> Task:
    """A task whose coder has to make the check pass; `coder` and the other roles, or any field of a task."""
    roles = {role: values.pop(role) for role in ("reviewer", "tester", "qa") if role in values}
    spec = TaskCompletionSpec("add adds", ("add(2, 3) is 5",), values.pop("coder", external()), **roles)
    return Task(id, "calc", "Make add add", **({"completion_spec": spec} | values))


def reviewed(**config: Any) -> CompletionCriteria:
    """A reviewer whose promise is judged."""
    return CompletionCriteria(
        "REVIEW_PASSED", "It is good", "semantic", {"check_for": ["add adds"], **config}
    )


@dataclass(frozen=True)
class Site:
    """The project, with its agent (`agent.sh`) and judge (`judge.sh`) outside the repository."""

    project: Project

    @property
    def outside(self) -> Path:
        return self.project.path.parent

    @property
    def tasks(self) -> Tasks:
        return self.project.home.tasks(here(self.project.path).project)

    def add(self, *tasks: Task) -> None:
        self.tasks.add(tasks)

    def agents(self, body: str = HONEST, judge: str = f"echo '{ALL_MET}'", **settings: Any) -> None:
        """Set up agents that count their calls and save their prompts in `calls/`."""
        common = f"""
mkdir -p {self.outside}/calls
promise() {{ echo "<promise>$1</promise>"; }}
"""
        count = (
            f'n=$(ls {self.outside}/calls | grep -c "^$me")\nprintf %s "$1" > {self.outside}/calls/$me.$n\n'
        )
        agent = self._script("agent.sh", f'{common}me="$RALPH_TASK_ID.$RALPH_ROLE"\n{count}{body}')
        judged = self._script("judge.sh", f'{common}me="judge"\n{count}{judge}')
        ralph = {"judge": {"agent": judged}} | settings.pop("ralph", {})
        self.project.settings(**({"agent": {"command": agent}, "ralph": ralph} | settings))

    def _script(self, name: str, body: str) -> str:
        path = self.outside / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    def prompts(self, who: str) -> list[str]:
        """The prompts of an agent (`T-1.coder`, `judge`), in order."""
        found = sorted((self.outside / "calls").glob(f"{who}.*"), key=lambda path: int(path.suffix[1:]))
        return [path.read_text() for path in found]

    def work(self, *arguments: str, timeout: float = 60) -> Result:
        return self.project.run("work", *arguments, timeout=timeout)

    def state(self, id: str = "T-1") -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.project.run("status", id, "--json").out)
        return state

    def history(self, role: str, id: str = "T-1") -> list[tuple[bool, bool, str]]:
        """Whether each iteration of a role promised, whether that was verified, and why not."""
        return [
            (v["promise_found"], v["verified"], v["reason"])
            for run in self.state(id)["runs"]
            if run["role"] == role
            for v in run["verification_results"]
        ]

    @property
    def worktree(self) -> Path:
        return self.project.home.worktree(here(self.project.path).project, "T-1")

    def is_fixed(self) -> bool:
        return "a + b" in self.project.git("show", "main:calc.py")


def make_site(project: Project) -> Site:
    (project.path / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (project.path / "check.py").write_text("from calc import add\n\nassert add(2, 3) == 5\n")
    (project.path / ".gitignore").write_text("__pycache__/\n.ralph/\n")
    project.git("init", "-q", "-b", "main")
    project.git("config", "user.name", "Ada")
    project.git("config", "user.email", "ada@localhost")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "First")
    site = Site(project)
    site.agents()
    return site


def with_reviewer(site: Site, judge: str, body: str = HONEST, judge_command: str = "", **ralph: Any) -> None:
    """Only the coder and the reviewer work. The judge is a script with this text, or another command."""
    off = {name: {"enabled": False} for name in ("tester", "qa")}
    judged = {"agent": judge_command or str(site.outside / "judge.sh")}
    site.agents(body, judge, ralph={"agents": off, "judge": judged} | ralph)
