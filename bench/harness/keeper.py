"""Runs a harness and records what it leaves behind. Standard library only.

    python -I -S keeper.py REPORT SECONDS PROGRAM ARGUMENT…

It is a child subreaper: processes that the harness started and did not stop become its children. Those still alive
SECONDS after the harness exited are recorded as orphans; the warden above kills them. The harness has its own process
group, so that a process that kills its group does not reach the keeper. REPORT.pids has the pids of the keeper and the
harness from the start.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time

PATIENCE = 0.5
"""Seconds that an exiting process may still take."""

_PR_SET_CHILD_SUBREAPER = 36


def main(report: str, seconds: float, argv: list[str]) -> int:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.posix_spawn(argv[0], argv, os.environ, setpgroup=0)
    with open(f"{report}.new", "w") as file:
        file.write(f"{os.getpid()} {child}")
    os.rename(f"{report}.new", f"{report}.pids")
    code = wait_for(child)
    orphans = left_after(seconds)
    with open(report, "w") as file:
        json.dump({"code": code, "orphans": orphans}, file)
    return 0


def wait_for(child: int) -> int:
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def left_after(seconds: float) -> list[str]:
    """Return the commands of the children still alive after this many seconds."""
    deadline = time.monotonic() + seconds
    while reap_any():
        if time.monotonic() > deadline:
            return [command_of(pid) for pid in children()]
        time.sleep(0.005)
    return []


def reap_any() -> bool:
    """Reap exited children; return whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


def command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    except OSError:
        return "?"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
