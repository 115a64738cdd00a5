"""Environments that copies share: made once, used by many, removed when nothing has used them for long."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from ralph.environments.shared import digest, last_use, made_once, remove_shared

LONG_AGO = time.time() - 40 * 86400


def shared(cache: Path, key: str = "key") -> Path:
    """A shared environment with one file in a directory that cannot be written."""
    made = cache.parent / "made"

    def make() -> None:
        (made / "lib").mkdir(parents=True)
        (made / "lib" / "file").touch()
        (made / "lib").chmod(0o500)

    return made_once(cache, key, made, make)


def test_it_is_made_once(tmp_path: Path) -> None:
    """The second copy gets what the first one has made."""
    first = shared(tmp_path / "cache")
    assert first == tmp_path / "cache" / "key"
    assert (first / "lib" / "file").exists()
    assert made_once(tmp_path / "cache", "key", tmp_path / "other", pytest.fail) == first


def test_what_cannot_be_made_is_not_kept(tmp_path: Path) -> None:
    """The next copy tries again."""

    def fail() -> None:
        raise RuntimeError("no network")

    with pytest.raises(RuntimeError):
        made_once(tmp_path / "cache", "key", tmp_path / "made", fail)
    assert shared(tmp_path / "cache").is_dir()


def test_each_use_is_remembered(tmp_path: Path) -> None:
    """The time of the directory is that of its last use."""
    found = shared(tmp_path / "cache")
    os.utime(found, (LONG_AGO, LONG_AGO))
    assert last_use(found) == LONG_AGO
    shared(tmp_path / "cache")
    assert last_use(found) > LONG_AGO


def test_only_what_was_not_used_is_removed(tmp_path: Path) -> None:
    """An environment that a copy has used in the meantime stays; its lock file stays in any case."""
    cache = tmp_path / "cache"
    found = shared(cache)
    assert not remove_shared(found, last_use(found))
    assert found.is_dir()
    assert remove_shared(found, last_use(found) + 1)
    assert [path.name for path in cache.iterdir()] == ["key.lock"]
    assert shared(cache).is_dir()


def test_a_locked_one_is_not_removed(tmp_path: Path) -> None:
    """A process that makes it, or is about to use it, holds the lock."""
    found = shared(tmp_path / "cache")
    with open(tmp_path / "cache" / "key.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not remove_shared(found, time.time() + 1)
    assert (found / "lib" / "file").exists()


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    """A half-made environment goes by the same lock."""
    half = tmp_path / "cache" / "key.half"
    (half / "lib").mkdir(parents=True)
    assert remove_shared(half, time.time() + 1)
    assert not half.exists()


def test_the_key_depends_on_every_part() -> None:
    """Parts are not only joined."""
    parts: list[list[str | bytes]] = [["ab", "c"], ["a", "bc"], ["abc"], [b"abc", ""]]
    assert len({digest(each) for each in parts}) == 4
