"""The raw streams of a run: the output of each agent process, and its file names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ralph.core.model import Purpose
from ralph.store import files
from ralph.store.runtime import Capped

MAX_STREAM_BYTES = 64 << 20
STDOUT, STDERR = ".stdout", ".stderr"
"""The output of an agent process is kept in two files with the same name and these extensions."""


def stream_name(iteration: int, seq: int, purpose: Purpose, number: int | str | None = None) -> str:
    """The file name for the agent process of journal row `seq`. Checks may ask a judge several times, by `number`."""
    return f"{iteration:03d}-{seq}.{purpose}" + (f".{number}" if number is not None else "")


def judge_streams(streams: Path, iteration: int, seq: int) -> Iterator[Path]:
    """The judge's output for each question from the checks of a row."""
    return streams.glob(stream_name(iteration, seq, Purpose.JUDGE, "*") + STDOUT)


class Stream:
    """The raw output of one agent process. The file is created with the first byte."""

    def __init__(self, directory: int, name: str) -> None:
        self._directory = directory
        self._name = name
        self._file: Capped | None = None
        self._problem = ""

    def write(self, data: bytes) -> None:
        if self._problem or not data:
            return
        if self._file is None:
            try:
                descriptor = files.create(self._directory, self._name, 0o600)
            except OSError as error:
                self._problem = error.strerror or str(error)
                return
            self._file = Capped(descriptor, MAX_STREAM_BYTES)
        self._file.write(data)

    def close(self) -> str:
        """Close the file, and return why some output could not be saved, or ""."""
        if self._file is not None:
            self._file.close()
            self._problem = self._problem or self._file.problem
        return self._problem
