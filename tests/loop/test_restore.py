"""What is put back after a command in a sandbox, whatever it did to the rights."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralph.loop.restore import OF_GIT, RemovedLinks, RestoredFiles, open_up, take_away
from sandbox_support import NOBODY


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of an ordinary user's, who this test is: root would not notice."""
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
def test_what_is_new_is_taken_away(place: Path, closed: str) -> None:
    """Neither its own rights nor those around it keep it."""
    (place / "made" / "deep").mkdir(parents=True)
    (place / "taken").mkdir()
    (place / closed).chmod(0o500 if closed == "made" else 0)
    open_up(place)
    take_away(place / "made", place / "taken" / "1")
    assert os.listdir(place / "taken" / "1") == ["deep"] and not (place / "made").exists()


@pytest.mark.parametrize("closed", ["git", "git/hooks", "git/hooks/deep", "git/config", "git/logs", "."])
def test_rights_that_were_taken_away_keep_nothing_in_place(place: Path, closed: str) -> None:
    """Hooks and configuration are what they were, and links are gone."""
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
