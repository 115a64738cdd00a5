"""Files that an agent may have replaced by anything: read safely and restored reliably."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralph.store.prd_folder import PrdFolder

SECRET = "not to be read"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Path, PrdFolder]]:
    """A project with the folder docs/loop, and something outside it."""
    project = tmp_path / "project"
    (project / "docs" / "loop").mkdir(parents=True)
    (project / "docs" / "loop" / "x").write_text("old")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_text(SECRET)
    descriptor = os.open(project, os.O_RDONLY)
    yield project, PrdFolder(descriptor, "docs/loop")
    os.close(descriptor)


def swapped(project: Path, what: str) -> None:
    """Put something else in place of the file, its folder or the folder above."""
    file, folder, above = project / "docs" / "loop" / "x", project / "docs" / "loop", project / "docs"
    outside = project.parent / "outside"
    target = {"file": file, "folder": folder, "above": above}[what.partition(" ")[0]]
    target.rename(project.parent / "moved")
    kind = what.partition(" ")[2]
    if kind == "link":
        target.symlink_to(outside / "x" if target is file else outside)
    elif kind == "directory":
        target.mkdir()
        (target / "inside").write_text("kept")
    elif kind == "pipe":
        os.mkfifo(target)
    elif kind == "large":
        target.touch()
        os.truncate(target, 1 << 30)
    elif kind == "file":
        target.write_text("kept")


SWAPS = [
    "file link",
    "file directory",
    "file pipe",
    "file large",
    "file gone",
    "folder link",
    "folder file",
    "folder pipe",
    "folder gone",
    "above link",
    "above file",
    "above gone",
]


@pytest.mark.parametrize("what", SWAPS)
def test_anything_in_place_of_a_file_is_not_read_and_is_moved_aside(
    place: tuple[Path, PrdFolder], what: str
) -> None:
    """No link is followed, nothing blocks; after a write the file exists, and nothing outside has changed."""
    project, folder = place
    assert folder.read("x") == b"old"
    swapped(project, what)
    assert folder.read("x") is None
    folder.write("x", b"new")
    assert folder.read("x") == b"new"
    assert not any((project / path).is_symlink() for path in ("docs", "docs/loop", "docs/loop/x"))
    assert (project.parent / "outside" / "x").read_text() == SECRET
    assert len(list((project.parent / "outside").iterdir())) == 1


@pytest.mark.parametrize("what", ["file directory", "folder file", "above link"])
def test_what_was_moved_aside_is_kept(place: tuple[Path, PrdFolder], what: str) -> None:
    """Under another name, and a second time under yet another one."""
    project, folder = place
    for _ in range(2):
        if (project.parent / "moved").exists():
            (project.parent / "moved").rename(project.parent / "moved-before")
        swapped(project, what)
        folder.write("x", b"new")
    names = [path.name for path in project.rglob("*") if ".undone" in path.name]
    assert len(names) == 2 and any(name.endswith(".undone-2") for name in names)


def test_removing_a_missing_file_is_not_an_error(place: tuple[Path, PrdFolder]) -> None:
    """Even if a directory has its name, which is moved aside."""
    project, folder = place
    folder.remove("nothing")
    swapped(project, "file directory")
    folder.remove("x")
    assert not (project / "docs" / "loop" / "x").exists()
    assert (project / "docs" / "loop" / "x.undone" / "inside").read_text() == "kept"


def test_files_without_permissions_become_readable_again(place: tuple[Path, PrdFolder]) -> None:
    """A folder and a file without any permissions, read as their owner."""
    project, folder = place
    (project / "docs" / "loop" / "x").chmod(0)
    assert folder.read("x") == b"old"
    (project / "docs" / "loop").chmod(0)
    folder.write("x", b"new")
    assert folder.read("x") == b"new"
