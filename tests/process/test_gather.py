"""Several wardens at once: one thread reads the output of all of them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import wait_until
from process.process_support import Collected, Rig, rigged
from ralph.process import gather
from ralph.process.gather import Gatherer


@pytest.fixture
def rigs(tmp_path: Path) -> Iterator[list[Rig]]:
    """Return two wardens, so that neither is alone."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    with rigged(one) as first, rigged(other) as second:
        yield [first, second]


class Threads(Collected):
    """Records the thread that delivered each output."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def stdout(self, data: bytes) -> None:
        super().stdout(data)
        self.names.add(threading.current_thread().name)


def pipe() -> tuple[int, int]:
    return os.pipe2(os.O_CLOEXEC)


# ---- through wardens ----


def test_a_single_warden_is_read_in_its_own_thread(tmp_path: Path) -> None:
    """With a second warden, the gatherer reads its output."""
    told = Threads()
    with rigged(tmp_path) as alone:
        alone.sh("echo hello", reader=told)
        assert told.names == {threading.current_thread().name}
        with rigged(tmp_path) as another:
            gathered = Threads()
            another.sh("echo hello; sleep 0.2", reader=gathered)
            assert (gathered.names, gathered.lines) == ({"gatherer"}, ["hello"])


def test_output_of_parallel_commands_is_complete_and_in_order(tmp_path: Path) -> None:
    """Every line of eight commands, on both streams, reaches its reader."""
    script = "i=0; while [ $i -lt 500 ]; do i=$((i+1)); echo $1 $i; echo $1 $i >&2; done"

    def run(number: int) -> Collected:
        with rigged(tmp_path) as rig:
            return rig.run(["/bin/sh", "-c", script, "sh", str(number)])

    with rigged(tmp_path), ThreadPoolExecutor(8) as pool:
        for number, found in enumerate(pool.map(run, range(8))):
            expected = "".join(f"{number} {line}\n" for line in range(1, 501))
            assert (found.out.decode(), found.err.decode()) == (expected, expected)


def test_the_last_output_is_read_at_the_exit(rigs: list[Rig]) -> None:
    """Output printed right at the exit is there, however long the gatherer would have slept."""
    for number in range(20):
        assert rigs[number % 2].sh(f"echo first; exec echo {number}").lines == ["first", str(number)]


def test_a_flood_is_read_without_pauses(rigs: list[Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a pause for every pipeful, the command would time out."""
    monkeypatch.setattr(gather, "PERIOD", 0.3)
    size = 128 << 20
    code = f"import os\nfor _ in range({size >> 20}): os.write(1, bytes(1 << 20))"
    counted: list[int] = []

    class Count(Collected):
        def stdout(self, data: bytes) -> None:
            counted.append(len(data))

    rigs[0].run([sys.executable, "-I", "-S", "-c", code], reader=Count())
    assert (sum(counted), rigs[0].exit.code) == (size, 0)


def test_a_held_pipe_delays_no_other_command(rigs: list[Rig]) -> None:
    """A grandchild keeps the pipe open. It is swept, and the other command is still read."""
    found = rigs[0].sh("echo said; (trap '' TERM; sleep 60) & exit 3")
    assert (found.lines, rigs[0].exit.code) == (["said"], 3)
    assert rigs[1].sh("echo next").lines == ["next"]


def test_an_error_in_a_reader_is_raised_in_its_own_run(rigs: list[Rig]) -> None:
    """The run raises the error, and the gatherer keeps running."""

    class Broken(Collected):
        def stdout(self, data: bytes) -> None:
            raise LookupError("no such reader")

    with pytest.raises(LookupError, match="no such reader"):
        rigs[0].sh("echo hello; sleep 30", reader=Broken())
    assert rigs[1].sh("echo still here").lines == ["still here"]


# ---- by itself ----


def test_after_remove_no_data_is_taken_or_lost() -> None:
    """Unread data can still be read, at whatever moment the pipe was removed."""
    gatherer = Gatherer()
    for number in range(50):
        taken: list[bytes] = []
        reader, writer = pipe()
        gatherer.add(reader, taken.append)
        os.write(writer, b"x" * number + b"!")
        gatherer.remove(reader)
        before = list(taken)
        try:
            taken.append(os.read(reader, 100))
        except BlockingIOError:
            pass
        assert b"".join(taken) == b"x" * number + b"!"
        assert len(taken) <= len(before) + 1
        os.close(reader)
        os.close(writer)


def test_remove_waits_for_a_running_call() -> None:
    """When it returns, the taker is not running any more."""
    gatherer = Gatherer()
    begun, go_on = threading.Event(), threading.Event()
    over: list[bool] = []

    def take(data: bytes) -> None:
        begun.set()
        go_on.wait(10)
        over.append(True)

    reader, writer = pipe()
    gatherer.add(reader, take)
    os.write(writer, b"!")
    assert begun.wait(10)
    threading.Timer(0.05, go_on.set).start()
    gatherer.remove(reader)
    assert over == [True]
    os.close(reader)
    os.close(writer)


def test_its_thread_ends_when_there_is_nothing_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts again with the next pipe."""
    monkeypatch.setattr(gather, "_LINGER", 0.02)
    gatherer = Gatherer()
    for _ in range(2):
        taken: list[bytes] = []
        reader, writer = pipe()
        gatherer.add(reader, taken.append)
        os.write(writer, b"!")
        os.close(writer)
        wait_until(lambda: gatherer._thread is None)
        assert taken == [b"!"]
        gatherer.remove(reader)
        os.close(reader)
