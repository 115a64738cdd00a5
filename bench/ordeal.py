"""Puts one harness through one kind of trouble: start it, disturb it, start it again, clean up."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import arena
from bench.agents import families, project, worker
from bench.agents.families import FAMILIES
from bench.agents.model import Shape
from bench.arena import Place
from bench.harness.base import Finished, Harness, Job, Launch
from ralph.core.model import Ended
from ralph.process.client import Wakeup, Warden
from ralph.process.warden import children_by_parent
from ralph.store.runs import process_start

PIECES = 4
LIMIT = 6
"""Iteration limit; two iterations may be interrupted."""

PIECE_SECONDS = 0.3
TROUBLED_PIECE = 2
SILENCE = 20.0
"""Seconds without progress after which a running harness counts as hung."""

SLOW = {"flood": 300.0}
"""The same for cases with much output, where a slow harness is not a hung one."""

LONGEST = 330.0
SETTLING = 2.0
"""Seconds that leftover processes may take to exit."""

DISK = "48m"
FULL_SECONDS = 3.0

ON_A_SMALL_DISK = """
disk=$1 keep=$2 size=$3 project=$4; shift 4; trap : TERM
cp -a "$disk" "$keep" && mount -t tmpfs -o size="$size" tmpfs "$disk" && cp -a "$keep/." "$disk" &&
    rm -rf "$keep" && cd "$project" || exit 99
"$@"; code=$?
rm -f "$disk/filler"; cp -a "$disk" "$keep"; exit $code
"""
"""Runs a command with a small disk mounted on a directory, and keeps a copy of its final content."""


@dataclass(frozen=True, slots=True)
class Session:
    """One start of a harness, from begin to exit. Times are from the monotonic clock."""

    finished: Finished
    hung: bool
    orphans: tuple[str, ...]
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Site:
    """A project for a harness, with the worker as its agent; the ledger is hidden from the harness."""

    harness: Harness
    where: Place
    ledger: Path
    job: Job
    silence: float

    def entries(self) -> list[dict[str, Any]]:
        return arena.recorded(self.ledger)

    def pieces(self) -> set[int]:
        """Return the committed pieces."""
        try:
            names = project.git(self.where.project, "ls-tree", "--name-only", "HEAD", "pieces/")
        except subprocess.CalledProcessError:
            return set()
        return {int(Path(name).name) for name in names.decode().split()}

    @property
    def is_finished(self) -> bool:
        return len(self.pieces()) == PIECES

    def launch(self) -> Launch:
        return self.harness.launch(self.job, self.where.private)

    def resume(self) -> Launch:
        return self.harness.resume(self.job, self.where.private)

    def report(self, number: int) -> Path:
        return self.ledger / f"report-{number}"


def site(base: Place, harness: Harness, trouble: str | None) -> Site:
    """Create a site; everything the harness sees is in one directory, which can be a separate disk."""
    where, ledger = Place(base.path / "disk"), base.path / "ledger"
    for directory in (where.path, ledger, where.project, where.home, where.programs, where.private):
        directory.mkdir()
    job = arena.prepare(where, harness, next(iter(FAMILIES.values()))[0], Shape.PLAIN, LIMIT)
    if harness.works_a_list:
        job = replace(job, tasks=PIECES)
        for name, text in harness.files(job).items():
            (where.project / name).write_text(text)
        project.git(where.project, "commit", "-q", "-a", "-m", "Tasks")
    settings = {
        "ledger": str(ledger),
        "pieces": PIECES,
        "seconds": PIECE_SECONDS,
        "tag": str(harness.tag),
        "each": harness.works_a_list,
        "last": families.FILES,
        "trouble": trouble,
        "at": TROUBLED_PIECE,
        "filler": str(where.path / "filler"),
    }
    (ledger / "worker.json").write_text(json.dumps(settings))
    for name in arena.PROGRAMS[Shape.PLAIN]:
        arena.install(where, name, worker.__file__, str(ledger / "worker.json"), name)
    return Site(harness, where, ledger, job, SLOW.get(trouble or "", SILENCE))


# ---- one session ----


def run(place: Site, launch: Launch, number: int = 1, wrapped: tuple[str, ...] = ()) -> Session:
    """Run the harness until it exits or counts as hung."""
    began = time.monotonic()
    with Warden(Wakeup()) as warden:
        seen = arena.watched(
            warden, place.where, launch, _patience(place), place.report(number), SETTLING, wrapped
        )
    return Session(seen.finished, seen.hung, seen.orphans, began, time.monotonic())


def _patience(place: Site) -> Callable[[float, float], Ended | None]:
    def watch(seconds: float, idle: float) -> Ended | None:
        signs = [sign for name in ("starts", "beat") if (sign := place.ledger / name).exists()]
        quiet = time.time() - max((sign.stat().st_mtime for sign in signs), default=0.0)
        is_hung = min(seconds, quiet) > place.silence or seconds > LONGEST
        return Ended.TIMEOUT if is_hung else None

    return watch


# ---- trouble ----


@dataclass(frozen=True, slots=True)
class Usual:
    """The duration and number of iterations of an undisturbed run."""

    seconds: float
    ends: int


Ordeal = Callable[[Site, random.Random, Usual], list[Session]]


def undisturbed(place: Site, chance: random.Random, usual: Usual) -> list[Session]:
    return [run(place, place.launch())]


def harness_killed(place: Site, chance: random.Random, usual: Usual) -> list[Session]:
    """Kill the harness at a random moment; the current agent does not exit by itself."""
    moment = chance.uniform(0.0, usual.seconds)
    launch = place.launch()

    def kill() -> bool:
        time.sleep(moment)
        pids = _harness_pids(place.report(1), launch)
        (place.ledger / "stay").touch()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return True

    first = _disturbed(place, launch, kill)
    (place.ledger / "stay").unlink(missing_ok=True)
    return [first, *_resumed(place)]


def agent_killed(place: Site, chance: random.Random, usual: Usual) -> list[Session]:
    """Kill a random agent at a random moment of its work."""
    which, moment = chance.randint(1, PIECES), chance.uniform(0.0, PIECE_SECONDS)

    def kill() -> bool:
        starts = [entry for entry in place.entries() if entry["kind"] == "start"]
        if len(starts) < which:
            return False
        time.sleep(moment)
        pid = starts[which - 1]["pid"]
        if (process_start(pid) or "").endswith(f"/{starts[which - 1]['start']}"):
            os.kill(pid, signal.SIGKILL)
        return True

    return [_disturbed(place, place.launch(), kill)]


def started_twice(place: Site, chance: random.Random, usual: Usual) -> list[Session]:
    """Start a second harness while the first is working."""
    moment = chance.uniform(0.0, usual.seconds / 2)
    sessions: list[Session] = []

    def second() -> None:
        time.sleep(moment)
        sessions.append(run(place, place.launch(), 2))

    thread = threading.Thread(target=second)
    thread.start()
    first = run(place, place.launch())
    thread.join()
    return [first, *sessions]


def disk_full(place: Site, chance: random.Random, usual: Usual) -> list[Session]:
    """Fill the disk of the project and the state for three seconds; restart the harness if it exited."""
    disk, kept = place.where.path, place.ledger / "kept"
    words = (_unshare(), "-rm", "/bin/sh", "-c", ON_A_SMALL_DISK, "sh")

    def free() -> bool:
        if not any(entry["kind"] == "full" for entry in place.entries()):
            return False
        time.sleep(FULL_SECONDS)
        pid = int(place.report(1).with_suffix(".pids").read_text().split()[1])
        Path(f"/proc/{pid}/root{disk}/filler").unlink(missing_ok=True)
        return True

    wrapped = (*words, str(disk), str(kept), DISK, str(place.where.project))
    first = _disturbed(place, place.launch(), free, wrapped)
    if kept.exists():
        shutil.rmtree(disk)
        kept.rename(disk)
    return [first] if place.is_finished else [first, *_resumed(place)]


def can_mount() -> bool:
    """Return whether this user can mount a small disk."""
    words = (_unshare(), "-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/tmp")
    return bool(words[0]) and subprocess.run(words, capture_output=True, check=False).returncode == 0


def _unshare() -> str:
    return shutil.which("unshare") or ""


def _resumed(place: Site) -> list[Session]:
    """Resume as documented, or start again if there was nothing to resume."""
    before = len(place.entries())
    sessions = [run(place, place.resume(), 2)]
    if len(place.entries()) == before and not place.is_finished and not sessions[-1].hung:
        sessions.append(run(place, place.launch(), 3))
    return sessions


def _disturbed(
    place: Site, launch: Launch, disturb: Callable[[], bool], wrapped: tuple[str, ...] = ()
) -> Session:
    """Run a session with a thread that disturbs it as soon as possible."""
    over = threading.Event()

    def until_done() -> None:
        pids = place.report(1).with_suffix(".pids")
        while not over.is_set() and not pids.exists():
            time.sleep(0.001)
        try:
            while not over.is_set() and not disturb():
                time.sleep(0.005)
        except (FileNotFoundError, ProcessLookupError):
            pass  # it exited by itself

    thread = threading.Thread(target=until_done)
    thread.start()
    try:
        return run(place, launch, 1, wrapped)
    finally:
        over.set()
        thread.join()


def _harness_pids(report: Path, launch: Launch) -> list[int]:
    """Return the pids to kill; raise ProcessLookupError if the harness exited and its pid may be reused."""
    keeping, pid = map(int, report.with_suffix(".pids").read_text().split())
    below = children_by_parent()
    if pid not in below.get(keeping, ()):
        raise ProcessLookupError
    return [pid, *(below.get(pid, ()) if launch.is_starter else ())]
