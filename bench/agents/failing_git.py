"""A git that fails when an agent says so: a program before the real one on PATH, armed by a file."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from bench.measure import write_program

FILE = "git-fails"
"""In the directory of the agent's records: which call fails, how often, and how."""

_SCRIPT = """
if [ -s {file} ]; then
    read -r what times how < {file}
    for word in "$@"; do case $word in -*|*=*|/*) ;; *) break;; esac; done
    if [ "$what" = any ] || [ "$what" = "$word" ]; then
        if [ "$times" -gt 1 ]; then echo "$what $((times - 1)) $how" > {file}; else : > {file}; fi
        if [ "$how" = says ]; then echo "fatal: out of luck" >&2; exit 128; fi
        kill -9 $$
    fi
fi
exec {git} "$@"
"""


def fails(what: str, times: int, how: str = "dies") -> str:
    """Return the command by which an agent makes a subcommand of git, or `any`, fail from now on.

    It `dies`, or `says` that it failed.
    """
    return f'echo "{what} {times} {how}" > "$ARENA/{FILE}"'


def install(programs: Path, private: Path) -> None:
    git = shutil.which("git") or "git"
    write_program(
        programs / "git", _SCRIPT.format(file=shlex.quote(str(private / FILE)), git=shlex.quote(git))
    )
