"""Restoring files after a sandboxed command, whatever it did to their permissions."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ralph.loop.restore import OF_GIT, RemovedLinks, RestoredFiles, open_up, take_away
from sandbox_support import NOBODY


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of an ordinary user, which this test becomes because root ignores permissions."""
    found = Path(tempfile.mkdtemp(prefix="ralph-putback-"))
    if os.geteuid() == 0:
        os.chown(found, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        for name in ("hooks", "logs"):
            (found / "git" / name).mkdir(parents=True)
        (found / "git" / "config").write_text("mine")
        yield found
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        shutil.rmtree(found)


@pytest.mark.parametrize("closed", [".", "made", "made/deep"])
def test_new_files_are_moved_away(place: Path, closed: str) -> None:
    """Neither its own permissions nor those of its parent keep a new directory in place."""
    (place / "made" / "deep").mkdir(parents=True)
    (place / "taken").mkdir()
    (place / closed).chmod(0o500 if closed == "made" else 0)
    open_up(place)
    take_away(place / "made", place / "taken" / "1")
    assert os.listdir(place / "taken" / "1") == ["deep"] and not (place / "made").exists()


@pytest.mark.parametrize("closed", ["git", "git/hooks", "git/hooks/deep", "git/config", "git/logs", "."])
def test_removed_permissions_do_not_prevent_a_restore(place: Path, closed: str) -> None:
    """Hooks and configuration are restored, and links are removed."""
    git = place / "git"
    copy = place.parent / f"{place.name}.copy"
    kept: list[RestoredFiles | RemovedLinks] = [
        RestoredFiles(git, OF_GIT, copy),
        RemovedLinks([git], place / "links"),
    ]
    try:
        for each in kept:
            assert each.remember() == []
        (git / "hooks" / "deep").mkdir()
        (git / "hooks" / "pre-commit").write_text("evil")
        (git / "config").write_text("evil")
        (git / "logs" / "HEAD").symlink_to("/etc/passwd")
        (place / closed).chmod(0)
        undone = [path for each in kept for path in each.put_back()]
        assert undone == [str(git / name) for name in ("config", "hooks", "logs/HEAD")]
        assert (git / "config").read_text() == "mine" and not os.listdir(git / "hooks")
        assert not (git / "logs" / "HEAD").is_symlink()
    finally:
        for each in kept:
            each.forget()


def kept(place: Path, *names: str) -> RestoredFiles:
    found = RestoredFiles(place / "git", names, place / "copy")
    assert found.remember() == []
    return found


def test_unchanged_files_are_not_touched(place: Path) -> None:
    """An unchanged file, directory or link is not rewritten, and a missing one is not created."""
    git = place / "git"
    (git / "hooks/pre-commit").write_text("mine")
    (git / "link").symlink_to("/elsewhere")
    before = (git / "config").stat().st_mtime_ns
    assert kept(place, "config", "hooks", "link", "gone").put_back() == []
    assert (git / "config").stat().st_mtime_ns == before


Change = Callable[[Path], object]


def replaced(make: Change) -> Change:
    """Remove the file or directory and make something else in its place."""

    def change(path: Path) -> None:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        make(path)

    return change


def test_changes_between_two_runs_are_kept(place: Path) -> None:
    """Each run makes its own copies and forgets those of the run before."""
    restored = kept(place, "config", "hooks")
    restored.forget()
    (place / "git/config").write_text("mine again")
    assert restored.remember() == [] == restored.remember()
    (place / "git/config").write_text("evil")
    restored.put_back()
    assert (place / "git/config").read_text() == "mine again"


CHANGES: dict[str, tuple[str, Change]] = {
    "content": ("config", lambda path: path.write_text("evil")),
    "mode": ("config", lambda path: path.chmod(0o777)),
    "removed": ("config", Path.unlink),
    "made": ("gone", lambda path: path.write_text("evil")),
    "a link in its place": ("config", replaced(lambda path: path.symlink_to("/etc/passwd"))),
    "a link that leads elsewhere": ("link", replaced(lambda path: path.symlink_to("/evil"))),
    "a directory in its place": ("config", replaced(Path.mkdir)),
    "a file in its place": ("hooks", replaced(lambda path: path.write_text("evil"))),
    "an extra file": ("hooks", lambda path: (path / "post-commit").write_text("evil")),
    "a file deep inside": ("hooks", lambda path: (path / "pre-commit").write_text("evil")),
}


@pytest.mark.parametrize(("name", "change"), CHANGES.values(), ids=CHANGES)
def test_every_kind_of_change_is_undone(place: Path, name: str, change: Change) -> None:
    """The file, link or directory is restored, and a link is never followed."""
    git = place / "git"
    (git / "hooks/pre-commit").write_text("mine")
    (git / "link").symlink_to("/elsewhere")
    restored = kept(place, "config", "hooks", "link", "gone")
    change(git / name)
    assert restored.put_back() == [str(git / name)]
    assert ((git / "config").read_text(), os.readlink(git / "link")) == ("mine", "/elsewhere")
    assert (git / "hooks/pre-commit").read_text() == "mine" and len(os.listdir(git / "hooks")) == 1
    assert not (git / "gone").exists() and restored.put_back() == []


@pytest.mark.parametrize("instead", ["link", "nothing"])
def test_a_swapped_directory_is_not_touched(place: Path, instead: str) -> None:
    """A directory that was replaced is left alone, because it could be somebody else's."""
    restored = kept(place, "config")
    (other := place / "other").mkdir()
    (other / "config").write_text("another's")
    (place / "git").rename(place / "away")
    if instead == "link":
        (place / "git").symlink_to(other)
    assert restored.put_back() == [] and (other / "config").read_text() == "another's"


def test_a_pipe_where_git_writes_is_removed_too(place: Path) -> None:
    """A pipe in the git directory is removed because git would wait for it; objects are not checked."""
    (place / "git/objects").mkdir()
    links = RemovedLinks([place / "git"], place / "state/links")
    assert links.remember() == []
    os.mkfifo(place / "git/logs/HEAD")
    (place / "git/objects/link").symlink_to("/elsewhere")
    assert links.put_back() == [str(place / "git/logs/HEAD")]
    os.mkfifo(place / "git/logs/HEAD")
    assert links.remember() == [str(place / "git/logs/HEAD")], "left by a killed run"
    links.forget()
    links.forget()
