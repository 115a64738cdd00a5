"""The location of the store: chosen, usual, or in the project if the home is read-only."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from conftest import RALPH, Project
from ralph.core.model import Pause
from ralph.store.database import Busy
from ralph.store.home import Home, find_home

NOWHERE = "/dev/null/x"
"""A path that cannot be created, not even by root."""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def without_state_dir(project: Project, **variables: str) -> Project:
    """The project with the usual state directory, or with something in its way."""
    return Project(project.path, project.home, {"RALPH_STATE_DIR": "", "XDG_STATE_HOME": ""} | variables)


@pytest.fixture
def read_only(tmp_path: Path) -> list[str]:
    """The arguments before DIRECTORY COMMAND… that run a command with a directory mounted read-only."""
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    words = ["unshare", "-rm", "sh", "-c", script, "sh"]
    if shutil.which("unshare"):
        tried = subprocess.run([*words, str(tmp_path), "true"], check=False, capture_output=True)
        if tried.returncode == 0:
            return words
    pytest.skip("this machine does not let us mount anything")


def test_the_state_directory_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`RALPH_STATE_DIR` is created for its owner only; a relative one starts at the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RALPH_STATE_DIR", "deep/state")
    home = find_home(tmp_path / "elsewhere")
    assert home == Home(tmp_path / "deep/state")
    assert mode(home.path) == 0o700
    assert home.database == tmp_path / "deep/state/ralph.db"
    assert home.streams("a-run") == tmp_path / "deep/state/runs/a-run"


@pytest.mark.parametrize("command", [["status"], ["run", "-p", "x"], ["steer", "x", "y"]])
def test_a_chosen_directory_that_is_a_file_is_refused(project: Project, command: list[str]) -> None:
    """Every command that needs the store reports that RALPH_STATE_DIR cannot be used, and exits with 2."""
    file = project.path / "file"
    file.write_text("precious")
    project.agent("true")
    project.extra_env["RALPH_STATE_DIR"] = str(file)
    result = project.run(*command)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"ralph: error: RALPH_STATE_DIR: {file} cannot be used: ")
    assert file.read_text() == "precious"


def test_a_chosen_directory_below_a_file_is_refused(project: Project) -> None:
    """A chosen directory is never silently replaced by another one."""
    project.extra_env["RALPH_STATE_DIR"] = NOWHERE
    result = project.run("status")
    assert result.code == 2
    assert result.err.startswith(f"ralph: error: RALPH_STATE_DIR: {NOWHERE} cannot be used: Not a directory.")


def test_the_usual_place_is_in_the_users_state_directory(project: Project, tmp_path: Path) -> None:
    """Without RALPH_STATE_DIR the store is in the platform's directory for user state."""
    state = tmp_path / "xdg"
    usual = without_state_dir(project, XDG_STATE_HOME=str(state))
    result = usual.run("status")
    assert result.code == 0
    assert "warning" not in result.err
    assert (state / "ralph/ralph.db").is_file()
    assert mode(state / "ralph") == 0o700


@pytest.mark.parametrize("variable", ["HOME", "XDG_STATE_HOME"])
def test_a_read_only_home_means_a_store_in_the_project(project: Project, variable: str) -> None:
    """If the home is not writable, the journal is in `.ralph/state`, and a warning says so."""
    project.agent("echo '<response>DONE</response>'")
    poor = without_state_dir(project, **{variable: NOWHERE})
    result = poor.run("run", "-p", "x")
    store = project.path / ".ralph/state"
    assert result.code == 0
    warnings = [line for line in result.err.splitlines() if line.startswith("ralph: warning: ")]
    assert len(warnings) == 1
    assert warnings[0].endswith(f"(Not a directory): using {store} for the journal.")
    assert mode(store) == 0o700
    assert [run["outcome"] for run in poor.status()] == ["complete"]


def test_a_home_on_a_read_only_disk(project: Project, read_only: list[str]) -> None:
    """A home that is mounted read-only is detected before anything is written to it."""
    home = project.home.path
    (home / ".local/state/ralph").mkdir(parents=True)
    poor = without_state_dir(project)
    done = subprocess.run(
        [*read_only, str(home), RALPH, "status"],
        cwd=project.path,
        env=poor.env,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert f"using {project.path}/.ralph/state for the journal." in done.stderr
    assert (project.path / ".ralph/state/ralph.db").is_file()


def test_a_store_in_the_project_is_hidden_from_git(repository: Project) -> None:
    """A run that keeps its journal in the project leaves nothing in `git status`."""
    repository.agent("echo '<response>DONE</response>'")
    repository.git("add", "-A")
    repository.git("commit", "-q", "-m", "Settings")
    without_state_dir(repository, HOME=NOWHERE).run("run", "-p", "x")
    assert repository.git("status", "--porcelain", "-uall") == ""


def test_ralph_status_leaves_nothing_in_git(repository: Project) -> None:
    """`ralph status` with a read-only home leaves nothing in `git status` either."""
    without_state_dir(repository, HOME=NOWHERE).run("status")
    assert repository.git("status", "--porcelain", "-uall") == ""


def test_no_place_at_all_is_an_error(project: Project) -> None:
    """If neither the home nor the project is writable, the error names both, and exit is 2."""
    (project.path / ".ralph").touch()
    result = without_state_dir(project, HOME=NOWHERE).run("status")
    assert result.code == 2
    assert result.err.startswith("ralph: error: Neither /dev/null/x/")
    assert f"{project.path}/.ralph/state" in result.err
    assert "RALPH_STATE_DIR" in result.err


@pytest.mark.parametrize("mask", [0, 0o022])
def test_the_store_is_closed_to_other_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int
) -> None:
    """A new directory is closed to others; in an existing one, the journal itself is."""
    (tmp_path / "shared").mkdir(mode=0o755)
    old = os.umask(mask)
    try:
        for name in ("made", "shared"):
            monkeypatch.setenv("RALPH_STATE_DIR", str(tmp_path / name))
            runs = find_home(tmp_path).runs()
            runs.send("a run", Pause(1.0))
            files = {file.name: mode(file) for file in (tmp_path / name).iterdir()}
            runs.db.close()
            assert files == dict.fromkeys(("ralph.db", "ralph.db-wal", "ralph.db-shm"), 0o600), name
    finally:
        os.umask(old)
    assert (mode(tmp_path / "made"), mode(tmp_path / "shared")) == (0o700, 0o755)


def test_the_time_to_wait_for_others_can_be_chosen(tmp_path: Path) -> None:
    """A store that another process has locked is `Busy` after the given patience."""
    home = Home(tmp_path)
    holder, impatient = home.runs(), home.runs(patience=0.1)
    holder.db.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy, match="locked by another process"):
        impatient.send("a run", Pause(1.0))
    holder.db.execute("ROLLBACK")
    assert impatient.send("a run", Pause(1.0)) == 1
    holder.db.close()
    impatient.db.close()


def test_a_store_is_found_from_everywhere(project: Project, tmp_path: Path) -> None:
    """`ralph status` in another directory sees the runs of this one."""
    project.agent("echo '<response>DONE</response>'")
    project.run("run", "-p", "x")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert [run["directory"] for run in Project(elsewhere, project.home).status()] == [str(project.path)]
