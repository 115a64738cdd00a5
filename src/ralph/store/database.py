"""The user's SQLite file: opening it, its schema and version, and its errors."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ralph.errors import RalphError

VERSION = 1
"""Schema changes only add. A store with a higher version is refused."""

_APPLICATION_ID = 0x52414C50  # "RALP"
_NETWORK_FILESYSTEMS = ("nfs", "cifs", "smb", "9p", "afs", "fuse.sshfs", "ceph", "glusterfs")

_SCHEMA = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL,
    directory TEXT NOT NULL,
    flow TEXT NOT NULL,
    parent TEXT,
    created REAL NOT NULL,
    pid INTEGER,
    pid_start TEXT
);
CREATE TABLE journal (
    run TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    started REAL NOT NULL,
    result_kind TEXT,
    result TEXT,
    state TEXT,
    ended REAL,
    PRIMARY KEY (run, seq)
);
CREATE TABLE commands (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    created REAL NOT NULL,
    applied REAL,
    delivered INTEGER
);
CREATE INDEX commands_open ON commands (run, id) WHERE applied IS NULL;
"""

_ADDED = """
ALTER TABLE runs ADD COLUMN task TEXT;
ALTER TABLE runs ADD COLUMN role TEXT;
CREATE INDEX runs_task ON runs (project, task) WHERE task IS NOT NULL;
CREATE TABLE tasks (
    project TEXT NOT NULL,
    id TEXT NOT NULL,
    spec_id TEXT NOT NULL,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    status TEXT NOT NULL,
    priority INTEGER NOT NULL,
    dependencies TEXT NOT NULL,
    assignee TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    metadata TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    completion_spec TEXT,
    protect TEXT,
    attempts INTEGER NOT NULL DEFAULT 1,
    progress TEXT,
    PRIMARY KEY (project, id)
);
CREATE INDEX tasks_open ON tasks (project, status, priority);
"""
"""Added to a store without a tasks table when it is opened."""


class Taken(RalphError):
    """The row already exists."""


class Missing(RalphError):
    """There is no store yet."""


class DiskFull(RalphError):
    """The disk is full. The loop waits for space; nothing is lost."""


class Busy(RalphError):
    """Another process has locked the store for too long. The loop waits; nothing is lost."""


def reason_to_wait(error: Exception) -> str:
    """A notice about what to wait for, if the error will pass by itself; otherwise ""."""
    if isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return "No space left on the disk. Waiting for free space."
    return "The store is locked by another process. Waiting for it." if isinstance(error, Busy) else ""


def open_database(path: Path, patience: float = 30.0) -> sqlite3.Connection:
    """Connect to the store, creating or checking its schema. It waits `patience` seconds for other writers."""
    with clear_errors(path):
        _make(path)
        db = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db, path, patience)
        except BaseException:
            db.close()
            raise
    return db


def open_to_read(path: Path, patience: float = 0.25) -> sqlite3.Connection:
    """Connect read-only, creating neither the store, nor its tables, nor a checkpoint.

    It waits only briefly for others. Raises `Missing` if there is no store yet.
    """
    with clear_errors(path):
        if not path.exists():
            raise Missing(f"The store {path} does not exist yet.", "The first run creates it.")
        place = f"{path.absolute().as_uri()}?mode=ro"
        db = sqlite3.connect(place, uri=True, timeout=patience, isolation_level=None, check_same_thread=False)
        try:
            _check(db, path)
        except BaseException:
            db.close()
            raise
    return db


def _check(db: sqlite3.Connection, path: Path) -> None:
    version, tables = _known(db, path)
    if version and "tasks" not in tables:
        raise RalphError(f"{path} was written by an older Ralph.", "`ralph status` upgrades it.")
    if not version:
        raise Missing(f"The store {path} is still empty.", "The first run fills it.")


def _make(path: Path) -> None:
    """Create the file, readable by its owner only.

    An existing file is not opened: closing it would release all locks that connections of this process hold on it,
    and another process might then clean up what they have written.
    """
    place = os.path.realpath(path)
    try:
        os.close(os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if os.path.isdir(place):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), place) from None
        if not os.access(place, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), place) from None


def _known(db: sqlite3.Connection, path: Path) -> tuple[int, set[str]]:
    """The version of a store and its tables. A store that this Ralph must not touch is refused."""
    db.execute("BEGIN")  # read all three at once: another process may be creating the store
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    owner = int(db.execute("PRAGMA application_id").fetchone()[0])
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    db.execute("COMMIT")
    if owner != _APPLICATION_ID and (version or owner or tables):
        raise RalphError(f"{path} is not a Ralph store.", _ELSEWHERE)
    if version > VERSION:
        raise RalphError(
            f"{path} was written by a newer Ralph: its version is {version}, this Ralph supports {VERSION}.",
            "Upgrade Ralph, or set RALPH_STATE_DIR to another directory.",
        )
    return version, tables


def _prepare(db: sqlite3.Connection, path: Path, patience: float) -> None:
    version, tables = _known(db, path)
    mode = "TRUNCATE" if is_on_network(path) else "WAL"
    if db.execute("PRAGMA journal_mode").fetchone()[0].upper() != mode:
        _set_journal_mode(db, mode, patience)
    db.execute("PRAGMA synchronous = FULL")
    if version == 0 or "tasks" not in tables:
        _create(db)


def _set_journal_mode(db: sqlite3.Connection, mode: str, patience: float) -> None:
    """Set it patiently: SQLite itself does not wait here while another process creates the store."""
    deadline = time.monotonic() + patience
    while True:
        try:
            db.execute(f"PRAGMA journal_mode = {mode}")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _create(db: sqlite3.Connection) -> None:
    """Create what is missing. Another process may have created it in the meantime."""
    with transaction(db):
        if db.execute("PRAGMA user_version").fetchone()[0] == 0:
            _execute(db, _SCHEMA)
            db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {VERSION}")
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'tasks'").fetchone():
            _execute(db, _ADDED)


def _execute(db: sqlite3.Connection, statements: str) -> None:
    for statement in filter(str.strip, statements.split(";")):
        db.execute(statement)


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Turn errors of the store into plain messages."""
    try:
        yield
    except (IsADirectoryError, NotADirectoryError, PermissionError, FileNotFoundError) as error:
        raise RalphError(f"The store {path} cannot be used: {error.strerror}.", _ELSEWHERE) from None
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise DiskFull(f"No space left for {path}.", "Free some disk space and try again.") from error
        if code == sqlite3.SQLITE_BUSY:
            raise Busy(f"The store {path} is locked by another process.", "Try again in a moment.") from error
        if code == sqlite3.SQLITE_CONSTRAINT:
            raise Taken(f"Already in the store {path}: {error}.") from error
        raise RalphError(f"The store {path} cannot be used: {error}.", _HINTS.get(code, "")) from error


_ELSEWHERE = "Set RALPH_STATE_DIR to another directory."
_HINTS = {
    sqlite3.SQLITE_NOTADB: "It is not a Ralph store. Move it away, or set RALPH_STATE_DIR to another directory.",
    sqlite3.SQLITE_CORRUPT: "Move it away to start a new one, or restore it from a backup.",
    sqlite3.SQLITE_READONLY: "Make it writable, or set RALPH_STATE_DIR to a writable directory.",
    sqlite3.SQLITE_CANTOPEN: "Check its directory, or set RALPH_STATE_DIR to a writable directory.",
    sqlite3.SQLITE_PERM: "Make it writable, or set RALPH_STATE_DIR to a writable directory.",
    sqlite3.SQLITE_IOERR: "The disk reports an error. Check the disk before you continue.",
}


def is_on_network(path: Path) -> bool:
    """Whether the file is on a network mount, which lacks the shared memory that WAL needs."""
    try:
        mounts = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return False
    here = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts:
        _, point, type_, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if len(point) >= len(best) and (here + "/").startswith(point.rstrip("/") + "/"):
            best, kind = point, type_
    return kind.startswith(_NETWORK_FILESYSTEMS)
