"""Reading the output of agents and checks into a raw file, events and usage, without secrets."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.agents.base import Reading
from ralph.agents.registry import AGENTS
from ralph.core.command_output import CommandOutput, Gap
from ralph.core.events import Event, Noise, Text, UsageReported
from ralph.loop import output
from ralph.loop.output import CheckLog, Tee
from ralph.redact import MARK, Secrets
from ralph.store import files
from ralph.store.runtime import Capped

SECRETS = Secrets(["correct-horse"])
WORK = Path(__file__).parents[1] / "agents/streams/claude_work.ndjson"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    with files.opened_directory(str(tmp_path)) as found:
        yield found


def tee(directory: int, events: list[Event], agent: str = "custom") -> Tee:
    return Tee(AGENTS[agent].parser(Reading()), events.append, directory, "s", SECRETS)


def test_one_feed_is_a_file_events_and_usage(directory: int, tmp_path: Path) -> None:
    """The raw stream is kept byte for byte, and events and usage are reported as they arrive."""
    events: list[Event] = []
    found = tee(directory, events, "claude")
    data = WORK.read_bytes()
    for start in range(0, len(data), 1000):
        found.stdout(data[start : start + 1000])
    assert found.close() == ""
    assert (tmp_path / "s.stdout").read_bytes() == data and not (tmp_path / "s.stderr").exists()
    usages = [event.usage for event in events if isinstance(event, UsageReported)]
    assert usages and len(usages) == len(set(usages)) < len(events)


def test_both_streams_are_redacted_in_the_file_and_in_the_events(directory: int, tmp_path: Path) -> None:
    """A secret that arrives in two pieces is redacted too."""
    events: list[Event] = []
    found = tee(directory, events)
    for piece in (b"a correct-", b"horse b\n"):
        found.stdout(piece)
        found.stderr(piece)
    found.close()
    safe = f"a {MARK.decode()} b\n"
    assert events == [Text(safe), Noise(safe)]
    assert [(tmp_path / f"s.{name}").read_text() for name in ("stdout", "stderr")] == [safe, safe]


def test_an_unfinished_line_is_written_at_the_end(directory: int, tmp_path: Path) -> None:
    """Text without a newline is held back because it could be the start of a secret."""
    events: list[Event] = []
    found = tee(directory, events)
    found.stdout(b"no newline")
    found.stderr(b"here either")
    assert not list(tmp_path.iterdir())
    found.close()
    kept = [(tmp_path / f"s.{name}").read_text() for name in ("stdout", "stderr")]
    assert kept == ["no newline", "here either"]


@pytest.mark.parametrize("name", ["s.stdout", "s.stderr"])
def test_a_stream_that_cannot_be_created_is_reported_and_still_read(
    directory: int, tmp_path: Path, name: str
) -> None:
    """With a directory in the file's place, events still arrive, and closing returns the error."""
    (tmp_path / name).mkdir()
    events: list[Event] = []
    found = tee(directory, events)
    found.stdout(b"out\n")
    found.stderr(b"err\n")
    assert found.close() != "" and events == [Text("out\n"), Noise("err\n")]


def log_of(directory: int, most: int = 1 << 20) -> Capped:
    return Capped(files.create(directory, "log", 0o644), most)


def small(monkeypatch: pytest.MonkeyPatch, head: int, tail: int) -> None:
    monkeypatch.setattr(output, "MAX_HEAD_BYTES", head)
    monkeypatch.setattr(output, "MAX_TAIL_BYTES", tail)


def test_a_check_log_keeps_the_start_and_the_end_for_the_agent(
    directory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has all the output; the kept parts end and start with whole lines, and what is missing is counted."""
    small(monkeypatch, 10, 10)
    found = CheckLog(log_of(directory), 0, SECRETS)
    found.stdout(b"0123456\n")
    found.stderr(b"89abc\n")
    assert found.output() == CommandOutput("0123456\n89abc\n")
    found.stdout(b"".join(b"%d\n" % n for n in range(100, 200)))
    assert found.close() == ""
    assert found.output() == CommandOutput("0123456\n", "198\n199\n", Gap(99, 98 * 4 + 6))
    assert (tmp_path / "log").read_bytes().count(b"\n") == 102


def test_a_line_that_is_too_long_to_keep(directory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut between two characters, and only characters are counted."""
    small(monkeypatch, 10, 10)
    found = CheckLog(log_of(directory), 0, SECRETS)
    found.stdout("0123456789{}xy漢字漢\n".format("ä" * 1000).encode())
    found.close()
    assert found.output() == CommandOutput("0123456789", "漢字漢\n", Gap(0, 1002))


@given(
    st.lists(st.text("ab\nä", max_size=60), max_size=20), st.integers(1, 40), st.integers(1, 40), st.data()
)
def test_kept_and_missing_parts_make_up_the_whole(
    pieces: list[str], head: int, tail: int, data: st.DataObject
) -> None:
    """However the output arrives, its start and its end are kept, and the gap counts exactly the rest."""
    text, kept = "".join(pieces), output.HeadAndTail(head, tail)
    for piece in pieces:
        at = data.draw(st.integers(0, len(piece.encode())))
        kept.write(piece.encode()[:at])
        kept.write(piece.encode()[at:])
    found = kept.output()
    if found.gap is None:
        assert found == CommandOutput(text) and len(text.encode()) <= head + tail
        return
    start, end = found.head.rstrip("\ufffd"), found.tail
    assert len(text.encode()) > head + tail
    assert text.startswith(start) and text.endswith(end)
    assert len(found.head) + found.gap.characters + len(end) == len(text)
    if found.gap.lines:
        assert found.head == start and text[: len(text) - len(end)].endswith("\n")
        assert text[len(start) : len(text) - len(end)].count("\n") == found.gap.lines


def test_memory_stays_bounded(directory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is printed, not much more than the two parts is kept."""
    small(monkeypatch, 1 << 10, 3 << 10)
    found = CheckLog(log_of(directory), 0, SECRETS)
    tracemalloc.start()
    for _ in range(5000):
        found.stdout(b"a line of output\n" * 100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    found.close()
    kept = found.output()
    assert kept.gap and kept.gap.lines + kept.head.count("\n") + kept.tail.count("\n") == 500_000
    assert peak < 1 << 20


def test_a_large_truncation_limit_keeps_more(directory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough bytes are kept for the agent's limit even if each character takes several."""
    small(monkeypatch, 1, 1)
    found = CheckLog(log_of(directory), 5, SECRETS)
    found.stdout(("漢字" * 100).encode())
    found.close()
    assert len(found.output().tail) >= 5


def test_a_log_at_its_cap_says_so_in_its_last_line(directory: int, tmp_path: Path) -> None:
    """The last line says how much is missing, and closing reports no error."""
    found = CheckLog(log_of(directory, most=4), 0, SECRETS)
    found.stdout(b"12345678\n")
    assert found.close() == ""
    assert (tmp_path / "log").read_text() == "1234\n[ralph] 5 more bytes were dropped\n"


def test_a_log_that_cannot_be_written_says_why(directory: int) -> None:
    """Closing a log that is open for reading only returns the system's error."""
    os.close(files.create(directory, "log", 0o644))
    found = CheckLog(Capped(os.open("log", os.O_RDONLY, dir_fd=directory), 100), 0, SECRETS)
    found.stdout(b"text\n")
    assert found.close() == os.strerror(9) and found.output() == CommandOutput("text\n")


def test_a_check_log_is_redacted(directory: int, tmp_path: Path) -> None:
    """Neither the log nor what the agent sees has the secret."""
    found = CheckLog(log_of(directory), 0, SECRETS)
    found.stdout(b"correct-")
    found.stdout(b"horse\n")
    found.close()
    assert found.output().head.encode() == (tmp_path / "log").read_bytes() == MARK + b"\n"


@given(st.lists(st.binary(max_size=30), max_size=6))
def test_pieces_may_end_anywhere(pieces: list[bytes]) -> None:
    """However the output is split, the log has all of it in order."""
    descriptor = os.memfd_create("log")
    found = CheckLog(Capped(os.dup(descriptor), 1 << 20), 0, SECRETS)
    for piece in pieces:
        found.stdout(piece)
    found.close()
    with open(descriptor, "rb") as log:
        log.seek(0)
        assert log.read() == SECRETS.redact(b"".join(pieces))
