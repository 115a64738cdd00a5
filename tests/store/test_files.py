"""Files that are complete or missing, and never leave their directory."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ralph.errors import RalphError
from ralph.store import files


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    """An open scratch directory."""
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def finished() -> int:
    """The pid of a process that has exited."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


# ---- writing ----


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_as_a_whole(tmp_path: Path, directory: int, durable: bool) -> None:
    """The file has the new content and nothing of the old, and there is no temporary file."""
    (tmp_path / "file").write_bytes(b"old " * 1000)
    old = (tmp_path / "file").stat().st_ino
    files.write(directory, "file", b"new", durable=durable)
    assert (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "file").stat().st_ino != old
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("data", [b"", b"\0" * 10, bytes(range(256)) * 8192])
def test_any_content_is_kept(tmp_path: Path, directory: int, data: bytes) -> None:
    """Nothing at all, NUL bytes and megabytes are written unchanged."""
    files.write(directory, "file", data)
    assert (tmp_path / "file").read_bytes() == data


def test_the_mode_is_as_asked(tmp_path: Path, directory: int) -> None:
    """A file can be made readable by its owner only."""
    files.write(directory, "secret", b"x", mode=0o600)
    files.write(directory, "open", b"x")
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("secret", "open")}
    umask = os.umask(0)
    os.umask(umask)
    assert modes == {"secret": 0o600 & ~umask, "open": 0o644 & ~umask}


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk fails in any of the calls, the old content stays and the temporary file is removed."""
    (tmp_path / "file").write_bytes(b"old")

    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    for call in ("write", "fsync", "rename"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            with pytest.raises(OSError, match="Input/output error"):
                files.write(directory, "file", b"new")
        assert (call, os.listdir(tmp_path), (tmp_path / "file").read_bytes()) == (call, ["file"], b"old")


def test_a_short_write_is_continued(tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes a few bytes at a time gets all of them."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    files.write(directory, "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_durable_means_synchronised_before_and_after_the_rename(
    directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is on disk before it gets its name, and the name is on disk before the call returns."""
    calls: list[str] = []
    sync, rename = os.fsync, os.rename

    def fsync(descriptor: int) -> None:
        calls.append("fsync directory" if descriptor == directory else "fsync file")
        sync(descriptor)

    def renamed(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        calls.append("rename")
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", renamed)
    files.write(directory, "file", b"x")
    assert calls == ["fsync file", "rename", "fsync directory"]
    calls.clear()
    files.write(directory, "file", b"x", durable=False)
    assert calls == ["rename"]


# ---- links ----


def test_a_link_in_place_of_the_file_is_replaced(tmp_path: Path, directory: int) -> None:
    """A symbolic link with the file's name is not followed."""
    (tmp_path / "outside").write_bytes(b"precious")
    (tmp_path / "file").symlink_to("outside")
    files.write(directory, "file", b"ours")
    assert (tmp_path / "outside").read_bytes() == b"precious"
    assert not (tmp_path / "file").is_symlink()


PLANTS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda place, outside: place.symlink_to(outside),
    "hard link": lambda place, outside: os.link(outside, place),
    "fifo": lambda place, outside: os.mkfifo(place),
    "file": lambda place, outside: place.write_bytes(b"old"),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_guessing_the_temporary_name_gains_nothing(tmp_path: Path, directory: int, plant: str) -> None:
    """A link, a hard link to another file or a pipe with that name is removed, not opened."""
    (tmp_path / "outside").write_bytes(b"precious")
    PLANTS[plant](tmp_path / f".tmp-{os.getpid()}-file", tmp_path / "outside")
    files.write(directory, "file", b"ours")
    assert (tmp_path / "outside").read_bytes() == b"precious"
    assert (tmp_path / "file").read_bytes() == b"ours"
    assert sorted(os.listdir(tmp_path)) == ["file", "outside"]


@pytest.mark.parametrize("plant", PLANTS)
def test_a_new_file_is_new_whatever_has_its_name(tmp_path: Path, directory: int, plant: str) -> None:
    """Whatever has the name is removed first, so that nothing else is written and nothing old is left."""
    (tmp_path / "outside").write_bytes(b"precious")
    PLANTS[plant](tmp_path / "file", tmp_path / "outside")
    descriptor = files.create(directory, "file", 0o600)
    os.write(descriptor, b"new")
    os.close(descriptor)
    assert (tmp_path / "outside").read_bytes() == b"precious"
    assert (tmp_path / "file").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "file").lstat().st_mode) == 0o600


def test_a_directory_with_the_name_of_a_new_file_stays(tmp_path: Path, directory: int) -> None:
    """A directory may be someone's work: it is an error, and not removed."""
    (tmp_path / "file/work").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        files.create(directory, "file", 0o600)
    assert (tmp_path / "file/work").is_dir()


def test_a_name_that_keeps_being_taken_is_given_up(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is taken again and again is one clear error, not an endless loop."""
    unlink = os.unlink

    def unlinked(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        (tmp_path / "file").symlink_to("outside")

    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "unlink", unlinked)
    with pytest.raises(RalphError, match="keeps creating a file"):
        files.create(directory, "file", 0o600)
    assert not (tmp_path / "outside").exists()


def test_a_directory_is_opened_below_another(tmp_path: Path, directory: int) -> None:
    """A directory is created if requested, opened if it exists, and closed at the end."""
    with pytest.raises(FileNotFoundError), files.opened_directory("sub", directory):
        pass
    for _ in range(2):
        with files.opened_directory("sub", directory, make=True) as sub:
            files.write(sub, "file", b"x")
    assert (tmp_path / "sub/file").read_bytes() == b"x"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(sub)


@pytest.mark.parametrize("kind", ["link", "dangling", "file", "fifo", "link to file"])
@pytest.mark.parametrize("make", [True, False])
def test_anything_but_a_directory_is_refused(tmp_path: Path, directory: int, kind: str, make: bool) -> None:
    """A link, even to a directory, a file or a FIFO in place of a directory is one clear error."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "data").touch()
    place = tmp_path / "sub"
    makers: dict[str, Callable[[], object]] = {
        "link": lambda: place.symlink_to("outside"),
        "dangling": lambda: place.symlink_to("nowhere"),
        "file": place.touch,
        "fifo": lambda: os.mkfifo(place),
        "link to file": lambda: place.symlink_to("data"),
    }
    makers[kind]()
    with (
        pytest.raises(RalphError, match=r"^sub is not a directory"),
        files.opened_directory("sub", directory, make=make),
    ):
        pass
    assert os.listdir(tmp_path / "outside") == []
    assert not (tmp_path / "nowhere").exists()


# ---- leftovers of killed writers ----


def test_temporaries_of_the_dead_are_swept(tmp_path: Path, directory: int) -> None:
    """Files of killed processes are removed; those of live processes and of the user stay."""
    parent = os.getppid()
    keep = ["file", "tmp-1-x", f".tmp-{parent}-prompt_001.txt", ".tmp-notes", ".tmp-", ".tmp-x-1"]
    gone = [f".tmp-{finished()}-prompt_001.txt", f".tmp-{finished()}-x-y.log", f".tmp-{os.getpid()}-x"]
    for name in keep + gone:
        (tmp_path / name).touch()
    (tmp_path / f".tmp-{finished()}-directory").mkdir()
    files.sweep_temporaries(directory)
    left = {name for name in os.listdir(tmp_path) if not name.endswith("-directory")}
    assert left == set(keep)


@pytest.mark.parametrize("owner", ["9" * 30, "²"])
def test_a_temporary_without_a_pid_is_ignored(tmp_path: Path, directory: int, owner: str) -> None:
    """A name that looks like ours but has no pid in it is not an error."""
    (tmp_path / f".tmp-{owner}-x").touch()
    files.sweep_temporaries(directory)
    assert os.listdir(tmp_path) == [f".tmp-{owner}-x"]
