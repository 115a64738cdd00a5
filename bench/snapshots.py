"""Cost of a snapshot, against `git status` in the same repository."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.measure import Measurement, scratch
from ralph.process.client import Wakeup, Warden
from ralph.runs.repository import scm_runner
from ralph.scm.repository import repository_at
from ralph.scm.snapshots import Snapshots

SIZES = (20, 2_000, 60_000)
RUN = "20260101-000000-0000"


def suite() -> Iterator[Measurement]:
    for files in SIZES:
        with scratch() as place:
            yield measure(place.path, place.state, files)


def measure(path: Path, state: Path, files: int) -> Measurement:
    _make(path, files)
    repository = repository_at(path)
    assert repository is not None
    directory = os.open(path, os.O_RDONLY)
    with Warden(Wakeup()) as warden:
        snapshots = Snapshots(repository, scm_runner(warden, directory, path), RUN, state)
        snapshots.take(0)
        times: dict[str, list[float]] = {"snapshot": [], "status": []}
        for number in range(1, 8):
            (path / "changed.txt").write_text(f"{number}\n")
            times["snapshot"].append(_timed(partial(snapshots.take, number)))
            times["status"].append(_timed(partial(_git, path, "status", "--porcelain")))
    os.close(directory)
    mine, floor = statistics.median(times["snapshot"]), statistics.median(times["status"])
    detail = f"{mine * 1e3:.0f} ms against {floor * 1e3:.0f} ms"
    name = f"snapshot of {files:,} files, against git status"
    return Measurement(name, "measured", mine / floor, "×", True, 1.0, detail)


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _make(path: Path, files: int) -> None:
    for number in range(files):
        directory = path / f"d{number // 100}"
        directory.mkdir(exist_ok=True)
        (directory / f"f{number}.txt").write_text(f"file {number}\n")
    _git(path, "init", "-q")
    _git(path, "add", "-A")
    _git(path, "-c", "user.name=Bench", "-c", "user.email=bench@localhost", "commit", "-q", "-m", "Files")
    time.sleep(1.1)  # no file may be newer than the index, as in a repository at rest
    _git(path, "status")


def _git(path: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=path, check=True, stdout=subprocess.DEVNULL)
