"""A store of format 1 with one finished and four unfinished runs, made by Ralph 0.1.0 and killed, opens and resumes.

`version1/` holds the store as SQL and the files next to it, with marks where paths depend on where they are unpacked.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import Project
from ralph.store.home import Home

SOURCE = Path(__file__).parent / "version1"


@dataclass(frozen=True)
class Unpacked:
    """The directory with the projects and the state directory."""

    root: Path

    def project(self, name: str) -> Project:
        return Project(self.root / name, Home(self.root / "state"))


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpacked:
    root = tmp_path / "root"
    work = hashlib.sha256(str(root / "work" / ".git").encode()).hexdigest()[:8]
    prd = hashlib.sha256(os.fsencode(root / "prd" / "ralph")).hexdigest()[:32]
    marks = {"@ROOT@": str(root), "@WORK@": f"work-{work}", "@PRD@": prd}

    def filled(data: bytes) -> bytes:
        for mark, value in marks.items():
            data = data.replace(mark.encode(), value.encode())
        return data

    with tarfile.open(SOURCE / "files.tar.gz") as tar:
        for member in tar:
            path = root / filled(member.name.encode()).decode()
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            else:
                file = tar.extractfile(member)
                assert file is not None, f"{member.name} is neither a file nor a directory"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(filled(file.read()))
                path.chmod(member.mode)
    db = sqlite3.connect(root / "state" / "ralph.db")
    db.executescript(filled((SOURCE / "store.sql").read_bytes()).decode())
    db.close()
    (root / "gate").touch()  # without it the agents hang
    return Unpacked(root)


def test_all_runs_are_listed(unpacked: Unpacked) -> None:
    """`ralph status` shows the state of each."""
    found = {
        (Path(run["directory"]).name, run["state"], run["iteration"])
        for run in unpacked.project("plain").status()
    }
    assert found == {
        ("plain", "ended", 1),
        ("plain", "crashed", 1),
        ("job", "crashed", 1),
        ("prd", "crashed", 1),
    }


@pytest.mark.parametrize(
    ("name", "reason"), [("plain", "2 iterations"), ("supervised", "2 attempts"), ("prd", "4 iterations")]
)
def test_an_unfinished_run_resumes(unpacked: Unpacked, name: str, reason: str) -> None:
    """The interrupted iteration is repeated, and the run completes."""
    result = unpacked.project(name).run("resume")
    assert result.code == 0, result.err
    assert reason in result.out


def test_a_resumed_run_commits_what_it_did(unpacked: Unpacked) -> None:
    """Both files are in the branch, the commit names the run and the iteration."""
    project = unpacked.project("plain")
    project.run("resume")
    assert project.git("show", "--format=", "--name-only", "HEAD").split() == ["a.txt", "b.txt"]
    assert project.git("log", "-1", "--format=%(trailers:key=Ralph-Run,valueonly)").strip().endswith("/2")


def test_unfinished_work_continues(unpacked: Unpacked) -> None:
    """The coder's run is resumed in its worktree, and the task is merged."""
    project = unpacked.project("work")
    result = project.run("work")
    assert result.code == 0, result.err
    assert "+" in project.git("show", "main:calc.sh")


def test_the_finished_run_can_be_read(unpacked: Unpacked) -> None:
    """Its log, its report and its diff."""
    project = unpacked.project("plain")
    finished = next(run["id"] for run in project.status() if run["state"] == "ended")
    for command in ("logs", "report", "diff"):
        result = project.run(command, finished)
        assert result.code == 0, result.err
        assert "one.txt" in result.out + result.err
