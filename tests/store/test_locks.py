"""One run per directory and below it: the lock on a directory."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import Project, wait_until
from ralph.errors import RalphError
from ralph.store import locks


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory."""
    path = tmp_path / "state"
    path.mkdir()
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a subdirectory, and a sibling."""
    path = tmp_path / "place"
    (path / "sub/deep").mkdir(parents=True)
    (tmp_path / "sibling").mkdir()
    return path


@contextmanager
def locked(directory: Path, state: Path) -> Iterator[None]:
    descriptor = locks.acquire(directory, state, patience=0)
    try:
        yield
    finally:
        os.close(descriptor)


def holder_of(directory: Path, state: Path) -> str | None:
    """The locked directory that is in the way, or None."""
    try:
        with locked(directory, state):
            return None
    except locks.Locked as error:
        return error.directory


@pytest.fixture(params=["flock", "file"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to lock: the directory itself, and a file for directories that cannot be locked."""
    if request.param == "file":
        refuse_directories(monkeypatch, errno.ENOLCK)
    return str(request.param)


def refuse_directories(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    real = fcntl.flock

    def flock(descriptor: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_locked_directory_is_locked_for_all_below_it(way: str, place: Path, state: Path) -> None:
    """The same directory and every one below it are refused, and the locked one is named."""
    with locked(place, state):
        assert {holder_of(p, state) for p in (place, place / "sub", place / "sub/deep")} == {str(place)}


def test_siblings_and_parents_are_free(way: str, place: Path, state: Path) -> None:
    """A lock does not affect directories next to or above its own."""
    with locked(place / "sub", state):
        assert holder_of(place.parent / "sibling", state) is None
        assert holder_of(place, state) is None
        assert holder_of(place / "sub", state) == str(place / "sub")


def test_a_lock_ends_with_its_descriptor(way: str, place: Path, state: Path) -> None:
    """The directory is free again when the descriptor is closed."""
    with locked(place, state):
        pass
    with locked(place / "sub", state):
        pass
    assert holder_of(place, state) is None


def test_another_name_of_the_same_directory_is_locked_too(way: str, place: Path, state: Path) -> None:
    """A symbolic link to a locked directory has the same lock."""
    link = place.parent / "link"
    link.symlink_to(place)
    with locked(place, state):
        assert holder_of(link, state) is not None
        assert holder_of(link / "sub", state) is not None
    with locked(link, state):
        assert holder_of(place, state) is not None


def test_a_lock_is_waited_for_a_moment(way: str, place: Path, state: Path) -> None:
    """A process that is about to release the lock, or only checks it, does not count as a holder."""
    first = locks.acquire(place, state)
    threading.Timer(0.1, os.close, (first,)).start()
    second = locks.acquire(place, state, patience=10)
    assert holder_of(place, state) is not None
    os.close(second)


def test_a_refused_attempt_leaves_nothing_locked(way: str, place: Path, state: Path) -> None:
    """A process refused because of a lock above keeps neither its own lock nor a descriptor."""
    before = open_descriptors()
    with locked(place, state):
        for _ in range(20):
            assert holder_of(place / "sub", state) == str(place)
    assert (holder_of(place / "sub", state), open_descriptors()) == (None, before)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


@pytest.mark.parametrize("number", sorted(locks._REFUSED))
def test_a_file_is_locked_if_a_directory_cannot_be(
    number: int, place: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a file system refuses to lock a directory, a file in the state directory is locked instead."""
    refuse_directories(monkeypatch, number)
    with locked(place, state):
        assert holder_of(place, state) == str(place)
    assert stat.S_IMODE((state / "locks").stat().st_mode) == 0o700
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in (state / "locks").iterdir())


def test_no_locks_anywhere_is_one_clear_error(
    place: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If neither the directory nor the state directory can be locked, the error says so."""

    def flock(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(RalphError, match="lock"):
        locks.acquire(place, state)


def test_the_lock_of_a_killed_process_is_free(place: Path, state: Path) -> None:
    """A lock needs no cleanup: it ends with its process, however that ends."""
    code = (
        "import sys, time; from pathlib import Path; from ralph.store import locks\n"
        "locks.acquire(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "print('locked', flush=True); time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(place), str(state)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "locked\n"
        assert holder_of(place / "sub", state) == str(place)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    assert holder_of(place, state) is None


# ---- through the command line ----


def test_a_second_run_is_refused_and_the_first_is_named(repository: Project) -> None:
    """In a repository every directory is refused during a run, with the run's id and process."""
    repository.agent(
        "touch started; while [ ! -e go ]; do sleep 0.05; done; echo '<response>DONE</response>'"
    )
    (repository.path / "sub").mkdir()
    first = repository.start("run", "-p", "x")
    try:
        wait_until(lambda: (repository.path / "started").exists())
        run = repository.status()[0]
        below = Project(repository.path / "sub", repository.home)
        for project in (repository, below):
            result = project.run("run", "-p", "y", "--agent", "true")
            assert result.code == 2
            assert result.err.startswith(
                f"ralph: error: Another run is working in {repository.path}: {run['id']} (process {first.pid})."
            )
    finally:
        (repository.path / "go").touch()
        out, _ = first.communicate(timeout=30)
    assert first.returncode == 0, out


def test_projects_side_by_side_run_at_once(project: Project, tmp_path: Path) -> None:
    """Two directories with the same store do not wait for each other."""
    other = Project(tmp_path / "other", project.home)
    other.path.mkdir()
    meet = f"touch {tmp_path}/met-$$; while [ $(ls {tmp_path} | grep -c met-) -lt 2 ]; do sleep 0.05; done"
    for one in (project, other):
        one.agent(f"{meet}; echo '<response>DONE</response>'")
    started = [one.start("run", "-p", "x") for one in (project, other)]
    ended = [process.communicate(timeout=30)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], ended


def test_resuming_in_a_directory_that_is_gone(project: Project, tmp_path: Path) -> None:
    """A run whose directory was removed cannot continue: one clear error that names the directory."""
    project.agent("echo hm")
    project.run("run", "-p", "x", "-m", "1")
    run = project.status()[0]["id"]
    project.path.rename(tmp_path / "moved")
    elsewhere = Project(tmp_path, project.home)
    result = elsewhere.run("resume", run, "-m", "3")
    assert result.code == 2
    assert result.err.startswith("ralph: error: ") and str(project.path) in result.err
    assert "unexpected" not in result.err


def test_a_lock_that_is_held_is_refused_after_some_patience(place: Path, state: Path) -> None:
    """No process waits forever."""
    with locked(place, state), pytest.raises(locks.Locked):
        locks.acquire(place, state, patience=0.2)
