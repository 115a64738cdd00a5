"""The settings file is written completely or not at all, and the previous one is kept."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralph.errors import RalphError
from ralph.store import settings_file

NO_SPACE = """
import resource, signal, sys
from pathlib import Path
from ralph.errors import RalphError
from ralph.store import settings_file
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    settings_file.write(Path(sys.argv[1]), b"x" * 100_000)
except RalphError as error:
    print(error.message)
"""

SOMEBODY_ELSE = """
import os, sys
from pathlib import Path
from ralph.errors import RalphError
from ralph.store import settings_file
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    settings_file.check_writable(Path(sys.argv[1]))
    print(settings_file.write(Path(sys.argv[1]), b"new"))
except RalphError as error:
    print(error.message)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that every user can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def python(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.strip()


def tree(path: Path) -> dict[str, str]:
    """Every file below a directory except the ignore file, with its content."""
    files = (f for f in sorted(path.rglob("*")) if f.is_file() and f.name != ".gitignore")
    return {str(f.relative_to(path)): f.read_text() for f in files}


def test_each_earlier_file_is_kept(tmp_path: Path) -> None:
    """The first backup has no number; writing the same content again makes no backup."""
    kept = [settings_file.write(tmp_path, data) for data in (b"1", b"2", b"2", b"3")]
    assert kept == [None, ".ralph/settings.json.bak", None, ".ralph/settings.json.bak.2"]
    assert tree(tmp_path) == {
        ".ralph/settings.json": "3",
        ".ralph/settings.json.bak": "1",
        ".ralph/settings.json.bak.2": "2",
    }


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    """The link's target stays as it is; the link itself is kept."""
    (tmp_path / ".ralph").mkdir()
    (tmp_path / "precious").write_text("old")
    (tmp_path / ".ralph/settings.json").symlink_to(tmp_path / "precious")
    assert settings_file.write(tmp_path, b"new") == ".ralph/settings.json.bak"
    assert (tmp_path / "precious").read_text() == "old"
    assert os.readlink(tmp_path / ".ralph/settings.json.bak") == str(tmp_path / "precious")
    assert stat.S_ISREG((tmp_path / ".ralph/settings.json").lstat().st_mode)


@pytest.mark.parametrize("room", [0, 4096])
def test_a_full_disk_leaves_everything_as_it_was(tmp_path: Path, room: int) -> None:
    """No directory, no partial file and no copy of the old one is left."""
    new, old = tmp_path / "new", tmp_path / "old"
    new.mkdir()
    old.mkdir()
    settings_file.write(old, b"old")
    for project in (new, old):
        said = python(NO_SPACE, str(project), str(room))
        assert said == ".ralph/settings.json cannot be written: File too large."
    assert list(new.iterdir()) == []
    assert tree(old) == {".ralph/settings.json": "old"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_somebody_elses_file_is_kept_too(shared: Path) -> None:
    """A file that cannot be hard-linked is renamed."""
    settings_file.write(shared, b"old")
    (shared / ".ralph").chmod(0o777)
    assert python(SOMEBODY_ELSE, str(shared)) == ".ralph/settings.json.bak"
    assert tree(shared) == {".ralph/settings.json": "new", ".ralph/settings.json.bak": "old"}


def test_a_directory_without_write_permission(shared: Path) -> None:
    """It is refused before anything is asked or created, for the project and its `.ralph`."""
    shared.chmod(0o555)
    assert python(SOMEBODY_ELSE, str(shared)) == f"{shared} is not writable."
    shared.chmod(0o755)
    (shared / ".ralph").mkdir(0o555)
    assert python(SOMEBODY_ELSE, str(shared)) == f"{shared}/.ralph is not writable."
    assert list((shared / ".ralph").iterdir()) == []


def test_a_pipe_is_not_overwritten(tmp_path: Path) -> None:
    """Anything that is neither a file nor a link is left to the user."""
    (tmp_path / ".ralph").mkdir()
    os.mkfifo(tmp_path / ".ralph/settings.json")
    for refuse in (settings_file.check_writable, lambda path: settings_file.write(path, b"x")):
        with pytest.raises(RalphError, match=r"\.ralph/settings\.json is not a regular file"):
            refuse(tmp_path)
