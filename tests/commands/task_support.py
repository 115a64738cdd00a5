"""Run `ralph task` inside this process, for tests with many cases; and tasks to start with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Project, Result
from ralph.cli import main
from ralph.core.model import AgentSpec, Flow, Plan, PromptSource
from ralph.store.tasks import Tasks

DONE = ("--outcome", "It works", "--acceptance", "It starts")


class Here:
    """A project in which ralph is called as a function, with the same command line and the same error handling."""

    def __init__(self, project: Project, capture: pytest.CaptureFixture[str]) -> None:
        self.project = project
        self._capture = capture

    @property
    def path(self) -> Path:
        return self.project.path

    def run(self, *arguments: str) -> Result:
        self._capture.readouterr()
        code = main(["task", *arguments])
        said = self._capture.readouterr()
        return Result(code, said.out, said.err)

    def create(self, id: str, *options: str) -> None:
        result = self.run("create", id, "spec", f"Title of {id}", *DONE, *options)
        assert (result.code, result.out, result.err) == (0, f"Created {id}.\n", "")

    def refused(self, *arguments: str) -> str:
        """The error for a command line that must be refused."""
        result = self.run(*arguments)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("ralph: error: ")
        return result.err.removeprefix("ralph: error: ")

    def show(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("show", id, "--json").out)
        return found

    def ids(self, *options: str) -> list[str]:
        return [task["id"] for task in json.loads(self.run("list", "--json", *options).out)]

    @contextmanager
    def tasks(self) -> Iterator[Tasks]:
        found = self.project.home.tasks(str(self.path))
        with closing(found.db):
            yield found


def begin_work(project: Project, id: str) -> None:
    """Let a run of this process work on the task."""

    def plan(run: str) -> Plan:
        spec = AgentSpec("agent", "custom", "agent")
        return Plan(run, Flow.WORK, str(project.path), (spec,), PromptSource("x"), task_id=id, role="coder")

    runs = project.home.runs()
    with closing(runs.db):
        runs.create(plan(""), str(project.path), str(project.path))


@pytest.fixture(name="here")
def in_the_project(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Here:
    monkeypatch.chdir(project.path)
    monkeypatch.setenv("RALPH_STATE_DIR", str(project.home.path))
    return Here(project, capsys)
