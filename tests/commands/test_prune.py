"""`ralph prune` removes shared environments that no copy uses, and copies that killed runs have left."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import Project, wait_until

DAY = 86400


def environment(project: Project, name: str, days: float) -> Path:
    """A shared environment that was used last some days ago."""
    path = project.home.environments / name
    (path / "lib").mkdir(parents=True)
    (path / "lib" / "module.py").write_text("x = 1\n")
    (path.parent / f"{name}.lock").touch()
    used = time.time() - days * DAY
    os.utime(path, (used, used))
    return path


def layer(project: Project, below: Path, tree: Path) -> None:
    """A virtual environment in a copy, on top of a shared one."""
    venv = tree / ".venv"
    venv.mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    (venv / "ralph-layer.json").write_text(json.dumps({"below": str(below)}))


def listed(project: Project, kind: str, *options: str) -> list[str]:
    found = json.loads(project.run("prune", "--json", *options).out)
    return [each[kind] for each in found if kind in each]


def test_environments_that_nothing_used_for_long_are_removed(project: Project) -> None:
    """By default those not used for 30 days; --older-than sets another age."""
    old, recent = environment(project, "old", 31), environment(project, "recent", 3)
    assert listed(project, "environment") == [str(old)]
    assert listed(project, "environment", "--older-than", "2d") == [str(old), str(recent)]
    shown = project.run("prune", "--yes")
    assert (shown.code, "no copy uses it any more" in shown.out) == (0, True)
    assert shown.err == "1 environment, 6 bytes.\nRemoved.\n"
    assert (old.exists(), recent.exists()) == (False, True)


def test_an_environment_of_the_last_hour_is_in_use(project: Project) -> None:
    """A copy may still be taking files from it, whatever the age asked for."""
    environment(project, "now", 0)
    assert project.run("prune", "--older-than", "0h", "--yes").err == "Nothing to remove.\n"


def test_an_environment_below_a_worktree_stays(project: Project) -> None:
    """Its Python layer needs it, however long the task has waited."""
    old, other = environment(project, "old", 90), environment(project, "other", 90)
    layer(project, old, project.home.path / "worktrees" / "project-1" / "T-1")
    layer(project, other, project.home.path / "worktrees" / "project-1" / "T-1" / "app")
    third = environment(project, "third", 90)
    assert listed(project, "environment") == [str(third)]


def test_an_environment_that_is_being_made_stays(project: Project) -> None:
    """The process that makes it holds its lock; what else is old is removed."""
    half, old = environment(project, "a.half", 31), environment(project, "old", 31)
    with open(project.home.environments / "a.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = project.run("prune", "--yes")
    assert f"{half} is in use and was not removed." in result.err
    assert (half.exists(), old.exists()) == (True, False)
    assert project.run("prune", "--yes").code == 0
    assert not half.exists()


# ---- copies ----


@contextmanager
def checking(repository: Project) -> Iterator[subprocess.Popen[str]]:
    """A run whose check waits in a clean copy."""
    there = repository.path.parent / "there"
    check = {
        "command": f"mkdir sealed; touch sealed/x; chmod 500 sealed; touch {there}; sleep 60",
        "clean": True,
    }
    repository.agent("echo x > new.txt; echo '<response>DONE</response>'", guardrails=[check])
    with repository.start("run", "-p", "x", real_process=True) as process:
        wait_until(there.exists)
        try:
            yield process
        finally:
            process.kill()


def test_copies_of_a_killed_run_are_removed(repository: Project) -> None:
    """Also what a check has made read-only; the run can be resumed all the same."""
    with checking(repository) as process:
        assert listed(repository, "copy") == []
        process.send_signal(signal.SIGKILL)
    run = repository.status()[0]["id"]
    copies = repository.home.path / "runs" / run / "copies"
    assert listed(repository, "copy") == [str(copies / "1")]
    shown = repository.run("prune", "--yes")
    assert f"left by run {run}, which has ended" in " ".join(shown.out.split())
    assert shown.err.startswith("1 copy, ")
    assert not copies.exists()
    assert (copies.parent.is_dir(), len(repository.status())) == (True, 1)


def test_copies_go_with_their_run(repository: Project) -> None:
    """They are not listed twice."""
    with checking(repository) as process:
        process.send_signal(signal.SIGKILL)
    run = repository.status()[0]["id"]
    assert listed(repository, "copy", "--older-than", "0h") == []
    assert repository.run("prune", "--older-than", "0h", "--yes").code == 0
    assert not (repository.home.path / "runs" / run).exists()
