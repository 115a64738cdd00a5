"""The SQLite file itself: several connections and several processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ralph.errors import RalphError
from ralph.store.database import open_database, transaction

LOOK = """
import sys
from pathlib import Path
from ralph.store.database import open_database
db = open_database(Path(sys.argv[1]))
print(db.execute("SELECT count(*) FROM commands").fetchone()[0])
db.close()
"""


def count_elsewhere(path: Path) -> int:
    """How many commands another process sees, which opens the store and closes it again."""
    done = subprocess.run([sys.executable, "-c", LOOK, str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_who_looks_at_it_takes_nothing_away(tmp_path: Path) -> None:
    """With two connections open here, another process may come and go: what is written afterwards is there."""
    path = tmp_path / "ralph.db"
    first, second = open_database(path), open_database(path)
    for number, db in enumerate((first, second, first), 1):
        assert count_elsewhere(path) == number - 1
        with transaction(db):
            db.execute("INSERT INTO commands (run, kind, body, created) VALUES ('r', 'k', '{}', 1)")
        assert count_elsewhere(path) == number
    first.close()
    second.close()


def test_a_new_store_is_for_its_user_alone(tmp_path: Path) -> None:
    """Nobody else may read it, whatever the umask."""
    open_database(tmp_path / "ralph.db").close()
    assert (tmp_path / "ralph.db").stat().st_mode & 0o777 == 0o600


def test_a_directory_in_its_place(tmp_path: Path) -> None:
    """The error says so and what to do."""
    with pytest.raises(RalphError, match=r"cannot be used: Is a directory\.") as error:
        open_database(tmp_path)
    assert "RALPH_STATE_DIR" in error.value.hint
