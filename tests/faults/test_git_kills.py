"""G1: after a kill at any moment of snapshots and commits, the repository needs no repair."""

from __future__ import annotations

import time

from conftest import Project
from faults.fault_support import REPEATED, RUNS, newest, seeded

LAST = 6


@REPEATED
def test_g1_a_repository_survives_kills_during_snapshots_and_commits(repository: Project) -> None:
    """However often ralph is killed, each iteration is committed once, no lock is left, and fsck finds nothing."""
    project, chance = repository, seeded()
    project.git("config", "user.name", "Test")
    project.git("config", "user.email", "test@localhost")
    claim = f"[ $RALPH_ITERATION = {LAST} ] && echo '<response>DONE</response>'"
    project.agent(
        'case "$1" in *"commit message"*) echo "Iteration $RALPH_ITERATION"; exit;; esac\n'
        f"mkdir -p $RALPH_ITERATION; for n in 1 2 3 4 5 6 7 8; do echo $n > $RALPH_ITERATION/$n; done; {claim}; true",
        scm={"command": "git", "tasks": ["commit"]},
        snapshots=True,
        maximumIterations=LAST,
    )
    arguments = ["run", "-p", "x"]
    for _ in range(RUNS):
        ralph = project.start(*arguments)
        time.sleep(chance.uniform(0.05, 0.6))
        ralph.kill()
        ralph.communicate()
        if project.status():
            arguments = ["resume"]
        if ralph.returncode == 0:
            break
    project.run(*arguments)
    assert newest(project).outcome == "complete"
    subjects = project.git("log", "--format=%s").splitlines()
    assert subjects == [f"Iteration {n}" for n in range(LAST, 0, -1)] + ["First"]
    assert project.git("fsck", "--no-dangling", "--strict") == ""
    assert not (project.path / ".git/index.lock").exists()
    assert project.git("status", "--porcelain", "--untracked-files=no") == ""
