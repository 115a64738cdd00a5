"""Several connections in one process, and other processes that come and go."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ralph.errors import RalphError
from ralph.store.database import Busy, open_database, transaction
from ralph.store.home import Home

COUNT = "SELECT count(*) FROM commands"

LOOKS = f"""
import sys
from pathlib import Path
from ralph.store.home import Home
print(Home(Path(sys.argv[1])).runs().db.execute("{COUNT}").fetchone()[0])
"""
"""Another process, which would clean up if it were the last to close the store."""


def looked(home: Home) -> int:
    words = [sys.executable, "-c", LOOKS, str(home.path)]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def test_writes_after_another_process_has_closed_the_store(tmp_path: Path) -> None:
    """A second connection of ours releases no lock: no other process cleans up what the first one writes."""
    home = Home(tmp_path)
    first = home.runs().db
    home.tasks("p").db.close()
    assert looked(home) == 0
    with transaction(first):
        first.execute("INSERT INTO commands (run, kind, body, created) VALUES ('r', 'pause', '{}', 0)")
    assert looked(home) == 1
    assert open_database(home.database).execute(COUNT).fetchone() == (1,)


def test_only_the_owner_can_read_the_store(tmp_path: Path) -> None:
    """The file is created so that no one else can read it, even through a link."""
    (tmp_path / "ralph.db").symlink_to(tmp_path / "elsewhere")
    open_database(tmp_path / "ralph.db").close()
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o600


def test_a_directory_in_its_place(tmp_path: Path) -> None:
    """The error names it."""
    (tmp_path / "ralph.db").mkdir()
    with pytest.raises(RalphError, match="Is a directory"):
        open_database(tmp_path / "ralph.db")


@pytest.mark.parametrize("lock", ["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_a_store_that_another_process_is_creating(tmp_path: Path, lock: str) -> None:
    """Whichever lock the other one holds, opening waits for it."""
    path = tmp_path / "ralph.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute(lock)
    other.execute("PRAGMA user_version").fetchall()
    release = threading.Timer(0.3, other.execute, ["COMMIT"])
    release.start()
    db = open_database(path)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    release.join()


def test_a_store_that_stays_locked(tmp_path: Path) -> None:
    """Opening stops waiting when its patience is used up."""
    other = sqlite3.connect(tmp_path / "ralph.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy, match="is locked by another process"):
        open_database(tmp_path / "ralph.db", patience=0.05)
