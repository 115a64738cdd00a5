"""`ralph work` driven without its command."""

from __future__ import annotations

import threading

import pytest

from conftest import Project
from ralph.core.model import Limits, Usage
from ralph.process.client import Wakeup
from ralph.runs.location import here
from ralph.scm.repository import find_repository
from ralph.settings import load
from ralph.work.jobs import Choice
from ralph.work.project_repo import locked_project_repo
from ralph.work.scheduler import Work
from work_support import make_site, task


def test_a_reason_to_stop_after_the_last_task_comes_too_late(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last task is merged when a signal arrives or a budget is used up: the result is complete."""
    site = make_site(project)
    site.agents(ralph={"agents": {name: {"enabled": False} for name in ("reviewer", "tester", "qa")}})
    site.add(task())
    monkeypatch.chdir(project.path)
    repository, mine = find_repository(project.path), here(project.path).project
    assert repository is not None
    wakeup = Wakeup()
    with locked_project_repo(project.home, repository, mine, wakeup) as repo:

        def look(limits: Limits, usage: Usage, elapsed: float) -> None:
            for thread in threading.enumerate():
                if thread.name == "ralph T-1":
                    thread.join()
            if site.is_fixed():
                wakeup.interrupt()

        work = Work(project.home, repo, load().settings, wakeup, lambda task, event: None, look)
        assert (work.work(Choice()), work.halt) == (0, None)
    assert site.state()["status"] == "done"
