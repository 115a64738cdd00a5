"""Runs another ralph process for commands whose processes must outlive the caller.

The caller has no warden and adopts no processes, so a background run is independent from the start.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence

from msgspec import Struct

from ralph.process import orphans, warden

MAX_BYTES = 4 << 20
"""Output beyond this is not read."""


class RalphOutput(Struct, frozen=True):
    code: int
    out: str
    err: str


def ralph_command(*arguments: str) -> list[str]:
    """Return the command line of the running ralph, whatever is on PATH or in the current directory."""
    return [sys.executable, "-P", "-m", "ralph", *arguments]


def ask_ralph(*arguments: str) -> RalphOutput:
    """Run ralph with these arguments until it exits, without a terminal."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = _run(ralph_command(*arguments), out.fileno(), err.fileno())
        return RalphOutput(code, _text(out.fileno()), _text(err.fileno()))


def _run(argv: Sequence[str], out: int, err: int) -> int:
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out, 1),
        (os.POSIX_SPAWN_DUP2, err, 2),
    ]
    environment = os.environ | {"NO_COLOR": "1"}
    with orphans.starting:
        pid = os.posix_spawn(
            argv[0],
            list(argv),
            environment,
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=warden.DEFAULTED,
        )
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _text(file: int) -> str:
    return os.pread(file, MAX_BYTES, 0).decode(errors="replace")
