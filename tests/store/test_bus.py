"""The message bus: posted messages are read back exactly, whatever happens to the file."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.errors import RalphError
from ralph.store import bus
from ralph.store.bus import Bus, BusReader, read
from ralph.store.messages import MAX_BYTES, BusMessage, Damage, DamageKind, encode, scan

GOLDEN = Path(__file__).parent.parent / "golden" / "bus.md"

RUN = "20260102-030405-abcd"
AT = 1767323045.25

HOSTILE = {
    "empty": "",
    "one newline": "\n",
    "newlines": "\n\n\n",
    "open fence": "```sh\nrm -rf /\n",
    "front matter": "---\nid: 1\n---\n",
    "quotation": "> a\n>b\n> > c\n>",
    "NUL": "a\0b",
    "CRLF": "a\r\nb\rc\r\n",
    "backslashes": "C:\\new \\u0000 \\\\",
    "backslashes and a control character": "C:\\new \\u0000 \\\\ \x1b[31m",
    "separators": "a\u2028b\u2029c\x85d\x0b\x0ce",
    "another alphabet": "naïve 日本 🦆 \u202eabc",
    "our own heading": encode(BusMessage(f"{RUN}.1", AT, "FACT", "t", RUN, "I was never posted")).decode(),
    "the end of a comment": "--> <!-- {} 00000000 -->\n## FACT",
    "a megabyte": "0123456789abcde\n" * (1 << 16),
    "a megabyte of newlines": "\n" * (1 << 20),
    "a megabyte of NUL": "\0" * (1 << 20),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return bus.task_bus(tmp_path)


def post(path: Path, *bodies: str) -> list[str]:
    return [Bus(path).post(AT, bus.INFO, body).id for body in bodies]


def messages(path: Path, since: str | None = None) -> list[BusMessage]:
    return [item for item in read(path, since) if isinstance(item, BusMessage)]


def bodies(path: Path) -> list[str]:
    return [message.body for message in messages(path)]


def damage(path: Path) -> list[Damage]:
    return [item for item in read(path) if isinstance(item, Damage)]


# ---- the format ----


def test_the_format_is_the_golden_one() -> None:
    """The format in docs/formats.md, as it is written now and as it is read."""
    expected = [
        BusMessage("0000000000-9f3a", AT, "INFO", "", "", "A message of nobody."),
        BusMessage(f"{RUN}.1", AT + 1, "FACT", "build", RUN, "Two lines,\n\n## and a heading inside it."),
        BusMessage(f"{RUN}.2", AT + 2, "ERROR", "<b>`ü`", RUN, "A bell \a and a \\"),
        BusMessage("0000000575-00ff", AT + 3, "wait_without_restart", "build", RUN, ""),
    ]
    text = b"".join(map(encode, expected))
    if os.environ.get("RALPH_UPDATE_GOLDEN"):
        GOLDEN.write_bytes(text)
    assert GOLDEN.read_bytes() == text
    assert list(read(GOLDEN)) == expected


texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\r\0\\>#`- \x1b"))


@given(st.lists(st.tuples(texts, texts, st.floats(0, 4e9)), max_size=5))
def test_any_text_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[str, str, float]]
) -> None:
    """Bodies, names and times come back exactly; the file is text without control characters."""
    wanted = [
        BusMessage(f"m{number}", at, "INFO", task[:255], "", body)
        for number, (body, task, at) in enumerate(said)
    ]
    path = tmp_path_factory.mktemp("bus") / "bus.md"
    path.write_bytes(b"".join(map(encode, wanted)))
    assert list(read(path)) == wanted
    assert all(letter.isprintable() or letter in "\n\t" or ord(letter) > 0x9F for letter in path.read_text())


@given(st.binary(max_size=300), st.integers(0, 3))
def test_any_bytes_can_be_scanned(
    tmp_path_factory: pytest.TempPathFactory, rubbish: bytes, where: int
) -> None:
    """With any bytes between whole messages, all messages are found, and every byte is accounted for."""
    whole = [encode(BusMessage(f"m{number}", AT, "INFO", "", "", f"{number}\n")) for number in range(3)]
    pieces = [*whole[:where], rubbish + b"\n", *whole[where:]]
    path = tmp_path_factory.mktemp("bus") / "bus.md"
    path.write_bytes(b"".join(pieces))
    with path.open("rb") as file:
        found = list(scan(file.fileno(), 0, path.stat().st_size))
    assert sum(item.bytes for item in found) == path.stat().st_size
    assert [item.message.id for item in found if not isinstance(item, Damage)] == ["m0", "m1", "m2"]


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bodies_round_trip(path: Path, body: str) -> None:
    """A body is a body, whatever it looks like, and its neighbours are unaffected."""
    post(path, "before", body, "after")
    assert (bodies(path), damage(path)) == (["before", body, "after"], [])


@pytest.mark.parametrize("body", ["\ud800", "a" * (MAX_BYTES + 1)], ids=["a lone surrogate", "too long"])
def test_a_message_that_cannot_be_stored_is_refused(path: Path, body: str) -> None:
    """There is one clear error, and the bus stays as it was."""
    post(path, "before")
    with pytest.raises(RalphError, match=r"not UTF-8|too long"):
        post(path, body)
    assert list(read(path)) == messages(path)
    assert bodies(path) == ["before"]


def test_types_are_words(path: Path) -> None:
    """Known types have one spelling; any other word is unchanged; everything else is refused."""
    assert [bus.as_type(word) for word in ("fact", "WAIT_WITHOUT_RESTART", "Decision")] == [
        "FACT",
        "wait_without_restart",
        "Decision",
    ]
    for word in ("", "two words", "a\n## b", "é", "x" * 65, "-->"):
        with pytest.raises(RalphError, match="is not a message type"):
            bus.as_type(word)


# ---- ids ----


def test_ids_are_unique_and_in_order(path: Path) -> None:
    """Without a sequence number an id gives the position of the message in the file."""
    ids = post(path, *map(str, range(50)))
    assert ids == sorted(set(ids)) == [message.id for message in messages(path)]


def test_the_same_id_is_one_message(path: Path) -> None:
    """A run that posts again after a crash with the same number has posted once; other runs do not matter."""
    first = Bus(path)
    assert first.post(AT, bus.FACT, "done", run=RUN, seq=1) == bus.Posted(f"{RUN}.1", is_new=True)
    assert first.post(AT, bus.FACT, "done", run=RUN, seq=1).is_new is False
    assert first.post(AT, bus.FACT, "more", run=RUN, seq=11).is_new
    again = Bus(path)
    assert [again.post(AT, bus.FACT, "done", run=RUN, seq=number).is_new for number in (1, 11, 2)] == [
        False,
        False,
        True,
    ]
    assert again.post(AT, bus.FACT, "done", run="another", seq=1).is_new
    assert first.post(AT, bus.FACT, "again", run=RUN, seq=2).is_new is False
    assert bodies(path) == ["done", "more", "done", "done"]


def test_an_id_inside_a_body_is_not_a_message(path: Path) -> None:
    """A quotation in a body does not count as posted."""
    post(path, HOSTILE["our own heading"])
    assert Bus(path).post(AT, bus.FACT, "really", run=RUN, seq=1).is_new
    assert [message.body for message in messages(path, since=f"{RUN}.1")] == []


def test_a_damaged_message_can_be_posted_again(path: Path) -> None:
    """An unreadable message counts as not posted."""
    Bus(path).post(AT, bus.FACT, "done", run=RUN, seq=1)
    path.write_bytes(path.read_bytes().replace(b"> done", b"> dome"))
    assert Bus(path).post(AT, bus.FACT, "done", run=RUN, seq=1).is_new
    assert (bodies(path), len(damage(path))) == (["done"], 1)


def test_since_starts_after_a_message(path: Path) -> None:
    """By any id, even across the pieces in which the file is read; a missing one is an error."""
    ids = post(path, *(f"{number} {'x' * 70_000}" for number in range(40)))
    for number in (0, 14, 15, 38, 39):
        found = [message.id for message in messages(path, since=ids[number])]
        assert found == ids[number + 1 :]
    for unknown in ("nothing", "", ids[0][:-1], '"', "\0"):
        with pytest.raises(RalphError, match=r"message .* not found"):
            read(path, since=unknown)


# ---- damage ----


def test_cut_at_every_byte(path: Path) -> None:
    """D3: whole messages are kept, the rest is reported, and the next writer moves it aside."""
    post(path, "kept", "one\n> ## two", "zwei ü", "drei\n\n")
    data = path.read_bytes()
    with path.open("rb") as file:
        ends = [0, *(item.offset + item.bytes for item in scan(file.fileno(), 0, len(data)))]
    torn = path.with_name(f"{path.name}.torn")
    for cut in range(ends[1], len(data)):
        path.write_bytes(data[:cut])
        torn.unlink(missing_ok=True)
        whole = [end for end in ends if end <= cut]
        kept = bodies(path)
        expected = [Damage(DamageKind.TORN, whole[-1], cut - whole[-1])] if cut > whole[-1] else []
        assert (len(kept), damage(path)) == (len(whole) - 1, expected), cut
        posted = Bus(path).post(AT, bus.INFO, "next")
        assert posted.moved == (expected[0] if expected else None)
        assert (bodies(path), damage(path)) == ([*kept, "next"], []), cut
        assert (torn.read_bytes() if torn.exists() else b"\n") == data[whole[-1] : cut] + b"\n"


def test_every_bit_of_a_message_flipped(path: Path) -> None:
    """D4: the message is not read as something else, all others are, and the bus can be posted to."""
    post(path, "before", "the one\n\n> ü", "after", "and after that")
    data = path.read_bytes()
    with path.open("rb") as file:
        one = list(scan(file.fileno(), 0, len(data)))[1]
    for place in range(one.offset, one.offset + one.bytes):
        for bit in range(8):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
            assert bodies(path) == ["before", "after", "and after that"], (place, bit)
            assert sum(item.bytes for item in damage(path)) == one.bytes, (place, bit)


def test_the_last_message_flipped(path: Path) -> None:
    """Everything after it is read, and nothing of it is lost: it stays, or is moved aside."""
    post(path, "before", "the one")
    data = path.read_bytes()
    torn = path.with_name(f"{path.name}.torn")
    start = len(data) - len(data.split(b"\n## ")[1]) - 3
    for place in range(start, len(data)):
        torn.unlink(missing_ok=True)
        flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        path.write_bytes(flipped)
        Bus(path).post(AT, bus.INFO, "next")
        assert bodies(path) == ["before", "next"], place
        everything = path.read_bytes() + (torn.read_bytes() if torn.exists() else b"")
        assert flipped[start:] in everything, place


@pytest.mark.parametrize("note", ["A note.\n", "A note", "## A heading\n\n> quoted\n", "# x\n"])
def test_handwritten_notes_stay(path: Path, note: str) -> None:
    """Text written into the file by hand is not lost and breaks nothing."""
    path.write_text(note)
    post(path, "one")
    with path.open("a") as file:
        file.write(note)
    post(path, "two")
    assert bodies(path) == ["one", "two"]
    assert path.read_text().count(note) == 2
    assert {item.kind for item in damage(path)} == {DamageKind.DAMAGED}


def test_a_full_disk_leaves_no_half_message(path: Path) -> None:
    """A write that fails in the middle is undone."""
    post(path, "before")
    size = path.stat().st_size
    program = (
        "import resource, sys; from pathlib import Path; from ralph.store.bus import Bus\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 5000}, {size + 5000}))\n"
        "Bus(Path(sys.argv[1])).post(0, 'INFO', 'x' * 10000)"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True)
    assert "the message bus cannot be written: File too large." in done.stderr
    assert path.stat().st_size == size


# ---- files that are not a bus ----


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


NO_BUS: dict[str, Callable[[Path], object]] = {
    "directory": lambda path: path.mkdir(),
    "fifo": os.mkfifo,
    "socket": _socket,
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "huge": _sparse,
    "zeros": lambda path: path.write_bytes(bytes(3_000_000)),
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 1000),
    "a little binary": lambda path: path.write_bytes(b"\xff\xfe"),
}


@pytest.mark.parametrize("make", NO_BUS.values(), ids=NO_BUS)
def test_a_file_that_is_not_a_bus_is_refused(path: Path, make: Callable[[Path], object]) -> None:
    """One clear error that names the file, for readers and writers, and nothing is touched."""
    make(path)
    before = path.lstat()
    for act in (lambda: list(read(path)), lambda: post(path, "x")):
        with pytest.raises(RalphError, match=r"TASK-MESSAGE-BUS\.md: .*message bus"):
            act()
    after = path.lstat()
    assert (before.st_mode, before.st_size, before.st_mtime_ns) == (
        after.st_mode,
        after.st_size,
        after.st_mtime_ns,
    )


def test_a_torn_end_that_cannot_be_moved_stays(path: Path) -> None:
    """Nothing is cut off that could not be saved."""
    post(path, "one", "two")
    path.write_bytes(path.read_bytes()[:-3])
    before = path.read_bytes()
    path.with_name(f"{path.name}.torn").mkdir()
    with pytest.raises(RalphError, match="torn: the message bus is not a regular file"):
        post(path, "three")
    assert path.read_bytes() == before


def test_a_stuck_writer_does_not_block_others_forever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After waiting long enough, a writer gets the reason; readers do not wait at all."""
    monkeypatch.setattr(bus, "PATIENCE", 0.3)
    post(path, "one")
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RalphError, match="another process has locked the message bus"):
            post(path, "two")
        assert bodies(path) == ["one"]
    assert len(post(path, "two")) == 1


# ---- reading ----


def test_a_missing_bus_has_no_messages(path: Path) -> None:
    """It starts with the first message."""
    assert list(read(path)) == []
    with pytest.raises(RalphError, match=r"message .* not found"):
        read(path, since="x")
    with pytest.raises(RalphError, match="directory not found"):
        post(path.parent / "nowhere" / path.name, "x")


def test_a_reader_gets_each_message_once(path: Path) -> None:
    """The messages since the last call; after `skip` only new ones."""
    early, late = BusReader(path), BusReader(path)
    assert list(early.news()) == []
    post(path, "one", "two")
    late.skip()
    post(path, "three")
    assert [item.body for item in early.news() if isinstance(item, BusMessage)] == ["one", "two", "three"]
    assert [item.body for item in late.news() if isinstance(item, BusMessage)] == ["three"]
    assert list(early.news()) == list(late.news()) == []


@pytest.mark.parametrize("skipped", [False, True])
def test_a_reader_continues_after_a_torn_end(path: Path, skipped: bool) -> None:
    """It is reported once, and the message that replaces it is read."""
    post(path, "one", "two")
    path.write_bytes(path.read_bytes()[:-1])
    reader = BusReader(path)
    if skipped:
        reader.skip()
    assert [type(item) for item in reader.news()] == ([Damage] if skipped else [BusMessage, Damage])
    assert list(reader.news()) == []
    post(path, "three")
    assert [item.body for item in reader.news() if isinstance(item, BusMessage)] == ["three"]


def test_a_new_bus_in_its_place_is_read_from_the_start(path: Path) -> None:
    """If the file is moved away or truncated, a follower does not miss what comes then."""
    reader = BusReader(path)
    post(path, "one", "two")
    assert len(list(reader.news())) == 2
    path.rename(path.with_name("old.md"))
    assert list(reader.news()) == []
    post(path, "new")
    assert [item.body for item in reader.news() if isinstance(item, BusMessage)] == ["new"]
    path.write_bytes(b"")
    assert list(reader.news()) == []


def test_memory_does_not_grow_with_the_file(path: Path) -> None:
    """A bus of 60 MB is read, searched and posted to while only some pieces of it are in memory."""
    record = encode(BusMessage("x", AT, "INFO", "", "", "y" * 10_000))
    path.write_bytes(record * (60_000_000 // len(record)))
    last = post(path, "last")[0]
    tracemalloc.start()
    try:
        assert sum(1 for _ in read(path)) > 5_000
        assert messages(path, since=last) == []
        Bus(path).post(AT, bus.INFO, "z", run=RUN, seq=1)
        assert tracemalloc.get_traced_memory()[1] < 6 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.timeout(40)
def test_headings_that_promise_too_much_cost_nothing(path: Path) -> None:
    """A file made to be slow: a hundred thousand headings that each state the largest body."""
    head = encode(BusMessage("x", AT, "INFO", "", "", "")).split(b"\n")[0] + b"\n"
    path.write_bytes(head.replace(b'"bytes":5', b'"bytes":16000000') * 100_000)
    assert [item.kind for item in damage(path)] == [DamageKind.DAMAGED, DamageKind.TORN]


def test_where_a_bus_is(tmp_path: Path) -> None:
    """The bus of a task is in its folder, that of the project next to the folder, even through a link."""
    folder = tmp_path / "project" / "task"
    folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder)
    assert bus.task_bus(folder) == folder / "TASK-MESSAGE-BUS.md"
    for way in (folder, tmp_path / "link", folder / ".." / "task"):
        assert bus.project_bus(way) == tmp_path / "project" / "PROJECT-MESSAGE-BUS.md"
        assert bus.task_name(way) == "task"
    assert bus.task_name(Path(os.fsdecode(b"a\xff"))) == "a\\xff"
