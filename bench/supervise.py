"""Time until a supervisor notices that its task is done."""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench.measure import RALPH, Measurement, Scratch, each_in_scratch

REPEAT = 15


def suite() -> Iterator[Measurement]:
    yield from each_in_scratch(during_delay, exits_after_done, last_child)


@dataclass(frozen=True, slots=True)
class Noticed:
    """Seconds from the event to its journal row, and to the exit of ralph."""

    journal: float
    exit: float


def during_delay(place: Scratch) -> Measurement:
    """A file is renamed to DONE while ralph waits for the next attempt."""
    found = []
    for number in range(REPEAT):
        folder = _folder(place, number)
        ralph = _start(place, folder, "exit 1", "--restart-delay", "60")
        _wait_for_message(folder, "failed")
        time.sleep(0.1)
        scratch_file = folder.parent / "scratch"
        scratch_file.touch()
        moment = time.time()
        scratch_file.rename(folder / "DONE")
        found.append(_noticed(place, ralph, moment))
    return _measurement("DONE noticed during the restart delay", found, "from its rename")


def exits_after_done(place: Scratch) -> Measurement:
    """An agent leaves DONE and exits immediately, with no children."""
    found = []
    body = 'touch "$TASK_FOLDER/DONE"; echo "$EPOCHREALTIME" > "$TASK_FOLDER/moment"'
    for number in range(REPEAT):
        folder = _folder(place, number)
        ralph = _start(place, folder, body)
        ralph.wait()
        left = time.time()
        moment = float((folder / "moment").read_text())
        found.append(Noticed(_completed_at(place) - moment, left - moment))
    return _measurement("DONE and exit noticed", found, "from the agent's last command, including its exit,")


def last_child(place: Scratch) -> Measurement:
    """The last child exits after DONE; there is no notification for that, so ralph polls."""
    found = []
    body = """
        (until [ -e "$TASK_FOLDER/go" ]; do sleep 0.002; done; echo "$EPOCHREALTIME" > "$TASK_FOLDER/moment") &
        touch "$TASK_FOLDER/DONE"
    """
    for number in range(REPEAT):
        folder = _folder(place, number)
        ralph = _start(place, folder, body)
        while not (folder / "DONE").exists():
            time.sleep(0.002)
        time.sleep(0.3 + 0.017 * number)
        (folder / "go").touch()
        ralph.wait()
        left = time.time()
        moment = float((folder / "moment").read_text())
        found.append(Noticed(_completed_at(place) - moment, left - moment))
    return _measurement("exit of the last child noticed", found, "from its last command", goal=300)


def _measurement(name: str, found: list[Noticed], since: str, goal: int = 20) -> Measurement:
    value = statistics.median(each.journal for each in found) * 1e3
    worst = max(each.journal for each in found) * 1e3
    left = statistics.median(each.exit for each in found) * 1e3
    detail = (
        f"{since} to the journal row; worst of {len(found)}: {worst:.1f} ms; to ralph's exit: {left:.0f} ms"
    )
    return Measurement(name, f"≤ {goal} ms", value, "ms", value <= goal, None, detail)


def _folder(place: Scratch, number: int) -> Path:
    folder = place.path / "tasks" / str(number)
    folder.mkdir(parents=True)
    return folder


def _start(place: Scratch, folder: Path, body: str, *options: str) -> subprocess.Popen[bytes]:
    place.agent(body, shell="/bin/bash")
    words = [RALPH, "supervise", str(folder), *options, "--", str(place.path / "agent")]
    null = subprocess.DEVNULL
    return subprocess.Popen(words, cwd=place.path, env=place.env, stdin=null, stdout=null, stderr=null)


def _wait_for_message(folder: Path, words: str) -> None:
    bus = folder / "TASK-MESSAGE-BUS.md"
    while not (bus.exists() and words in bus.read_text()):
        time.sleep(0.005)


def _noticed(place: Scratch, ralph: subprocess.Popen[bytes], moment: float) -> Noticed:
    ralph.wait()
    left = time.time()
    return Noticed(_completed_at(place) - moment, left - moment)


def _completed_at(place: Scratch) -> float:
    """Return when the newest run noticed DONE: the first row whose state has a stop."""
    query = (
        "SELECT ended, state FROM journal WHERE run = (SELECT id FROM runs ORDER BY rowid DESC LIMIT 1)"
        " AND state IS NOT NULL ORDER BY seq"
    )
    with closing(sqlite3.connect(place.state / "ralph.db")) as db:
        for ended, state in db.execute(query):
            stop = json.loads(state).get("stop")
            if stop:
                assert stop["cause"] == "proved", stop
                return float(ended)
    raise AssertionError(f"the run did not stop ({os.fspath(place.state)})")
