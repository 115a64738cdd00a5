"""Many tasks in parallel: Ralph and the shell script do the same work, and git calls are counted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not installed

from bench.agents.project import git
from bench.measure import Scratch

from bench import jobs


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scratch]:
    monkeypatch.setattr(jobs, "TASKS", 3)
    path, state = tmp_path / "project", tmp_path / "state"
    path.mkdir()
    state.mkdir()
    found = Scratch(path, state)
    jobs._make(found)
    yield found


@pytest.mark.slow
@pytest.mark.parametrize("run", [jobs.run_ralph, jobs.run_script])
def test_every_task_is_merged_and_nothing_is_left(place: Scratch, run: jobs.Run) -> None:
    """Both merge all tasks and remove their worktrees and branches."""
    assert run(place).processor > 0
    assert git(place.path, "ls-tree", "--name-only", "main", "out/").split() == [
        f"out/T-00{number}".encode() for number in (1, 2, 3)
    ]
    assert git(place.path, "branch", "--format=%(refname:short)").split() == [b"main"]
    assert len(git(place.path, "worktree", "list").splitlines()) == 1


def test_git_calls_are_counted(place: Scratch) -> None:
    """The script makes six calls per task."""
    assert jobs.count_calls(jobs.run_script)(place) == 3 * 6
