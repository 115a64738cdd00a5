"""Agent output, kept next to the journal: file names, and possible errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralph.core.model import Purpose
from ralph.store import streams as module
from ralph.store.streams import STDERR, STDOUT, Stream, judge_streams, stream_name


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    """`tmp_path`, opened for streams."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_a_stream_is_named_after_its_iteration_its_row_and_its_purpose() -> None:
    """The names in docs/formats.md; a judge that is asked several times has a number each time."""
    assert stream_name(1, 2, Purpose.WORK) + STDOUT == "001-2.work.stdout"
    assert stream_name(1000, 20, Purpose.MESSAGE) + STDERR == "1000-20.message.stderr"
    assert stream_name(12, 7, Purpose.JUDGE, 3) == "012-7.judge.3"


def test_the_output_of_a_judge_is_found(tmp_path: Path) -> None:
    """Every answer of one row, and none of another row or purpose."""
    for name in (
        "001-7.judge.1.stdout",
        "001-7.judge.12.stdout",
        "001-7.judge.1.stderr",
        "001-77.judge.1.stdout",
    ):
        (tmp_path / name).touch()
    found = sorted(path.name for path in judge_streams(tmp_path, 1, 7))
    assert found == ["001-7.judge.1.stdout", "001-7.judge.12.stdout"]


def test_a_stream_is_created_with_its_first_byte(tmp_path: Path, directory: int) -> None:
    """A process without output has no stream; other output is kept, readable by its owner only."""
    silent, loud = Stream(directory, "silent"), Stream(directory, "loud")
    silent.write(b"")
    loud.write(b"\x00\xff")
    loud.write(b"more")
    assert (silent.close(), loud.close()) == ("", "")
    assert [file.name for file in tmp_path.iterdir()] == ["loud"]
    assert (tmp_path / "loud").read_bytes() == b"\x00\xffmore"
    assert (tmp_path / "loud").stat().st_mode & 0o777 == 0o600


def test_a_stream_goes_to_the_directory_that_was_opened(tmp_path: Path) -> None:
    """After its directory was replaced by a link, a stream is still in the directory."""
    (tmp_path / "streams").mkdir()
    (tmp_path / "outside").mkdir()
    opened = os.open(tmp_path / "streams", os.O_RDONLY)
    (tmp_path / "streams").rename(tmp_path / "moved")
    (tmp_path / "streams").symlink_to("outside")
    stream = Stream(opened, "x")
    stream.write(b"x")
    assert stream.close() == ""
    os.close(opened)
    assert (os.listdir(tmp_path / "moved"), os.listdir(tmp_path / "outside")) == (["x"], [])


def test_a_stream_that_cannot_be_kept_says_why(tmp_path: Path, directory: int) -> None:
    """Neither a missing directory nor one with the stream's name stops the agent; the reason is reported."""
    (tmp_path / "taken").mkdir()
    taken = Stream(directory, "taken")
    taken.write(b"x")
    taken.write(b"y")
    assert taken.close() == "Is a directory"
    (tmp_path / "taken").rmdir()
    tmp_path.rmdir()
    nowhere = Stream(directory, "x")
    nowhere.write(b"x")
    assert nowhere.close() == "No such file or directory"


def test_a_stream_is_not_written_through_a_link(tmp_path: Path, directory: int) -> None:
    """A link with the stream's name is replaced."""
    (tmp_path / "link").symlink_to("target")
    stream = Stream(directory, "link")
    stream.write(b"x")
    assert stream.close() == ""
    assert not (tmp_path / "target").exists()
    assert (tmp_path / "link").read_bytes() == b"x"


def test_a_stream_has_a_cap(tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that prints without end does not fill the disk."""
    monkeypatch.setattr(module, "MAX_STREAM_BYTES", 1000)
    stream = Stream(directory, "x")
    for _ in range(50):
        stream.write(b"y" * 100)
    stream.close()
    assert (tmp_path / "x").read_bytes() == b"y" * 1000 + b"\n[ralph] 4000 more bytes were dropped\n"
