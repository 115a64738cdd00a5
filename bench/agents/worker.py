"""An agent that causes trouble: imitates `agent` or `copilot`. Standard library only; starts fast.

    python -I -S worker.py SETTINGS PROGRAM ARGUMENT…

The work consists of several pieces, one commit each. An invocation does the first uncommitted piece, and prints the
tag after the last one (or always, for a harness with one task per piece). Starts and ends are recorded in a ledger
outside the project: JSON lines with time, kind, pid and its start time. Trouble occurs once, before or after one
piece.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than everything else
    from typing import Any

ASKS_MESSAGE = "commit message for the changes"
ESCAPE_SECONDS = 90
"""Lifetime in seconds of escaped processes."""

FLOOD, LINE = 500_000_000, 50_000_000
CHUNK = 1 << 20


def main(path: str, arguments: list[str]) -> int:
    with open(path) as file:
        settings = json.load(file)
    if {"--version", "-v", "-V", "--help", "-h"} & set(arguments):
        print("1.0.0")
        return 0
    if ASKS_MESSAGE in " ".join(arguments):
        print("Add a piece")
        return 0
    return Worker(settings).work()


class Worker:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.ledger = settings["ledger"]

    def work(self) -> int:
        note(self.ledger, "start")
        done = committed()
        piece = next((n for n in range(1, self.settings["pieces"] + 1) if str(n) not in done), None)
        trouble = self.settings["trouble"]
        is_troubled = trouble is not None and piece == self.settings["at"] and self.is_first(trouble)
        if is_troubled and trouble in BEFORE:
            BEFORE[trouble](self)
        if piece is not None and not self.make(piece):
            note(self.ledger, "failed", piece=piece)
            return 1
        if is_troubled and trouble in AFTER:
            AFTER[trouble](self)
        while os.path.exists(os.path.join(self.ledger, "stay")):
            time.sleep(0.1)
        is_last = piece is None or piece == self.settings["pieces"]
        print(f"Piece {piece} is done.")
        if is_last or self.settings["each"]:
            print(f"\n{self.settings['tag']}")
        sys.stdout.flush()
        note(self.ledger, "end", piece=piece)
        return 0

    def make(self, piece: int) -> bool:
        """Wait, commit the piece, wait again."""
        time.sleep(self.settings["seconds"] / 2)
        os.makedirs("pieces", exist_ok=True)
        with open(f"pieces/{piece}", "w") as file:
            file.write(f"piece {piece}\n")
        if piece == self.settings["pieces"]:
            quietly("/bin/sh", "-c", self.settings["last"])
        is_committed = commit(piece)
        time.sleep(self.settings["seconds"] / 2)
        return is_committed

    def is_first(self, trouble: str) -> bool:
        try:
            os.mkdir(os.path.join(self.ledger, trouble))
        except FileExistsError:
            return False
        return True

    # ---- trouble ----

    def flood(self) -> None:
        """Print 500 MB in short lines."""
        self.pour((b"a line of output that nobody reads\n" * (CHUNK // 35 + 1))[:CHUNK], FLOOD)

    def line(self) -> None:
        """Print one line of 50 MB."""
        self.pour(b"x" * CHUNK, LINE)
        os.write(1, b"\n")

    def pour(self, chunk: bytes, size: int) -> None:
        """Write this many bytes, touching the heartbeat file after every chunk."""
        beat = os.path.join(self.ledger, "beat")
        while size > 0:
            size -= os.write(1, chunk[:size])
            with open(beat, "w"):
                pass

    def held(self) -> None:
        """Leave a grandchild that ignores TERM and keeps stdout and stderr open."""
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.stay_away("held")

    def escape(self) -> None:
        """Leave a process in its own session, one forked twice, and a daemon."""
        ways = {"setsid": self.setsid, "double fork": self.double_fork, "daemon": self.daemon}
        for name, way in ways.items():
            if os.fork() == 0:
                way()
                self.stay_away(name, silent=True)
        while sum(entry == "escaped" for entry in noted(self.ledger)) < len(ways):
            time.sleep(0.01)

    def setsid(self) -> None:
        os.setsid()

    def double_fork(self) -> None:
        if os.fork():
            os._exit(0)

    def daemon(self) -> None:
        os.setsid()
        self.double_fork()
        os.chdir("/")
        os.environ.clear()

    def stay_away(self, name: str, *, silent: bool = False) -> None:
        if silent:
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(null, descriptor)
        note(self.ledger, "escaped", name=name)
        time.sleep(ESCAPE_SECONDS)
        os._exit(0)

    def fill(self) -> None:
        """Fill the disk of the project and of the harness's state completely."""
        with open(self.settings["filler"], "wb", buffering=0) as file:
            for size in (CHUNK, 4096, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass
        note(self.ledger, "full")


BEFORE = {"flood": Worker.flood, "line": Worker.line}
AFTER = {"held": Worker.held, "escape": Worker.escape, "fill": Worker.fill}


# ---- git and the ledger ----


def committed() -> set[str]:
    """Return the committed pieces."""
    words = ("git", "ls-tree", "--name-only", "HEAD", "pieces/")
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return {os.path.basename(name) for name in done.stdout.split()}


def commit(piece: int) -> bool:
    """Commit a piece; after some attempts remove a lock left by a killed git, as an agent would."""
    paths = ["pieces", "sum.sh", "product.sh", "NOTES.md"]
    for attempt in range(40):
        present = [name for name in paths if os.path.exists(name)]
        if quietly("git", "add", "--", *present) and (
            quietly("git", "commit", "-q", "-m", f"Piece {piece}", "--", *present)
            or str(piece) in committed()
        ):
            return True
        time.sleep(0.05)
        if attempt == 20 and os.path.exists(".git/index.lock"):
            os.unlink(".git/index.lock")
    return False


def quietly(*words: str) -> bool:
    null = subprocess.DEVNULL
    return subprocess.run(words, stdin=null, stdout=null, stderr=null, check=False).returncode == 0


def note(ledger: str, kind: str, **more: object) -> None:
    with open("/proc/self/stat") as file:
        start = int(file.read().rpartition(")")[2].split()[19])
    entry = {"at": time.monotonic(), "kind": kind, "pid": os.getpid(), "start": start} | more
    with open(os.path.join(ledger, "starts"), "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(entry) + "\n")


def noted(ledger: str) -> list[str]:
    """Return the kinds of all entries."""
    with open(os.path.join(ledger, "starts")) as file:
        return [json.loads(line)["kind"] for line in file]


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main(sys.argv[1], sys.argv[3:]))
