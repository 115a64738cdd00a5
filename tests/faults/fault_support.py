"""Shared by fault tests: processes that record themselves, and a run as stored, with its end.

`RALPH_FAULT_RUNS` sets how often the random ones are repeated, `RALPH_FAULT_SEED` repeats a failure.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import Project, Result, wait_until
from fork_support import RALPH, start_ralph
from ralph.store import locks
from ralph.store.home import Home
from ralph.views.status import IterationSummary, Summary, detail, summaries

RUNS = int(os.environ.get("RALPH_FAULT_RUNS", "3"))
"""How often a fault is repeated where the number matters."""

IS_FULL = RUNS >= 10
"""Whether to run the full count, including equivalent cases, instead of a quick sample."""

REPEATED = pytest.mark.timeout(120 + 20 * RUNS)

DONE = "echo '<response>DONE</response>'"


def seeded() -> random.Random:
    """A random generator whose seed is in the output of a failed test."""
    seed = int(os.environ.get("RALPH_FAULT_SEED") or secrets.randbits(32))
    print(f"RALPH_FAULT_SEED={seed}")
    return random.Random(seed)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


# ---- processes that record themselves ----


@dataclass(frozen=True)
class Traces:
    """Processes that recorded themselves: number, start time (to detect reused numbers), name."""

    file: Path

    def me(self, name: str = "agent") -> str:
        """Shell code with which a shell records itself, without forking."""
        return f"name={name}; . {self.file.parent}/record"

    @property
    def alive_command(self) -> str:
        """A command that lists the live ones."""
        return f"{self.file.parent}/alive"

    def _lines(self) -> list[tuple[int, str, str]]:
        found = (line.split() for line in lines(self.file))
        return [(int(pid), start, name) for pid, start, name in found]

    def alive(self) -> list[str]:
        return [name for pid, start, name in self._lines() if _is_alive(pid, start)]

    @property
    def count(self) -> int:
        return len(self._lines())

    def names(self) -> Counter[str]:
        return Counter(name for _, _, name in self._lines())


def _is_alive(pid: int, start: str) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[19] == start and fields[0] not in "ZX"


def traces(project: Project) -> Traces:
    """Create what processes need to record themselves and to list each other."""
    file = project.path / "traces"
    file.touch()
    (project.path / "record").write_text(
        f'read -r s < /proc/$$/stat; set -- $s; echo "$1 ${{22}} $name" >> {file}\n'
    )
    project.script(
        "alive",
        f"""
        while read -r pid start name; do
            {{ read -r s < /proc/$pid/stat; }} 2> /dev/null || continue
            set -- $s
            [ "${{22}}" = "$start" ] && [ "$3" != Z ] && echo "$pid $name"
        done < {file}
        """,
    )
    return Traces(file)


WAYS = {
    "background": "sh -c '{me}; exec sleep 60' &",
    "session": "setsid sh -c '{me}; exec sleep 60' &",
    "double-fork": "( ( sh -c '{me}; exec sleep 60' & ) & )",
    "nohup": "nohup sh -c '{me}; exec sleep 60' > /dev/null 2>&1 &",
    "scrubbed-environment": "setsid env -i /bin/sh -c '{me}; exec sleep 60' &",
    "fork-chain": "setsid {chain} 200 &",
    "stdout-holder": "setsid sh -c '{me}; exec sleep 60' 2> /dev/null < /dev/null &",
    "stderr-holder": "setsid sh -c '{me}; exec sleep 60' > /dev/null < /dev/null &",
    "term-ignorer": "setsid sh -c 'trap \"\" TERM INT HUP; {me}; exec sleep 60' &",
    "stopped": "sh -c '{me}; kill -STOP $$; exec sleep 60' &",
    "flood": "setsid sh -c 'trap \"\" TERM; {me}; exec yes' &",
    "disowned": 'sh -c \'trap "" HUP; sh -c "{me}; exec sleep 60" & exit 0\'',
    "process-group": '{python} "os.setpgid(0, 0); {record}" &',
    "daemon": '{python} "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); os.chdir(chr(47));'
    ' os.closerange(0, 4096); [os.open(os.devnull, 2) for _ in range(3)]; {record}"',
    "forks-on-term": "setsid sh -c 'trap \"setsid {late} & exit\" TERM; {me}; sleep 60 & wait' &",
}
"""Ways to escape from a process that exits."""


def starts_all(project: Project, left: Traces) -> str:
    """A snippet that starts one of each and waits until each has recorded itself."""
    chain = project.script(
        "chain.sh",
        f'n=$1; [ "$n" = 200 ] && {{ {left.me("fork-chain")}; }} || {{ {left.me("chain")}; }}\n'
        '[ "$n" -gt 0 ] && sleep 0.05 && setsid "$0" $((n - 1)) &',
    )
    late = project.script("late.sh", f"{left.me('late')}; exec sleep 60")
    snippets = []
    for name, snippet in WAYS.items():
        record = (
            "s = open('/proc/self/stat').read().split(); "
            f"print(s[0], s[21], '{name}', file=open('{left.file}', 'a'), flush=True); time.sleep(60)"
        )
        python = f"{sys.executable} -I -S -c"
        words = snippet.format(me=left.me(name), chain=chain, late=late, python=python, record=record)
        snippets.append(words.replace(f'{python} "', f'{python} "import os, time; '))
    seen = f"$(grep -vc ' \\(chain\\|late\\|agent\\)$' {left.file})"
    wait = (
        f"until [ {seen} -ge $((seen + {len(WAYS)})) ] || [ $i -gt 500 ]; do sleep 0.02; i=$((i + 1)); done"
    )
    return "\n".join([f"seen={seen}", *snippets, f"i=0; {wait}"])


# ---- ralph ----


def finish(ralph: subprocess.Popen[str], timeout: float = 60) -> Result:
    """Wait for a started ralph."""
    try:
        out, err = ralph.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        ralph.kill()
        ralph.communicate()
        raise
    return Result(ralph.returncode, out, err)


def killed(process: subprocess.Popen[str]) -> None:
    """Kill a process with `kill -9`."""
    process.kill()
    process.communicate()


class Watched:
    """A ralph process with its output in a file, which can be read while it works."""

    def __init__(self, project: Project, words: list[str], log: Path) -> None:
        self._log = log
        with log.open("w") as output:
            if words[0] == RALPH:
                self.process = start_ralph(
                    tuple(words[1:]), project.path, project.env, stdout=output, stderr=subprocess.STDOUT
                )
            else:
                self.process = subprocess.Popen(
                    words,
                    cwd=project.path,
                    env=project.env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    text=True,
                )

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, words: str) -> None:
        wait_until(lambda: words in self.said or self.process.poll() is not None)
        assert words in self.said, self.said

    def result(self, timeout: float = 30) -> Result:
        try:
            return Result(self.process.wait(timeout), "", self.said)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


def assert_clear(result: Result, *said: str) -> None:
    """Assert exit code 2 and one clear error with these words, without a traceback or a bug report."""
    everything = result.out + result.err
    assert "Traceback" not in everything and "This is a bug" not in everything, everything
    assert result.code == 2, everything
    errors = [line for line in everything.splitlines() if line.startswith(("ralph: error: ", "Failed: "))]
    assert len(errors) == 1, everything
    text = errors[0].removeprefix("ralph: error: ").removeprefix("Failed: ")
    assert text[:1] not in ("", ":"), f"names nothing: {text}"
    for words in said:
        assert words in everything


# ---- the store ----


def status(project: Project) -> list[Summary]:
    """All runs, as shown by `ralph status`."""
    runs = project.home.runs()
    with closing(runs.db):
        return summaries(runs)


def newest(project: Project) -> Summary:
    return status(project)[0]


def iterations(project: Project) -> tuple[IterationSummary, ...]:
    """The results of the iterations of the newest run."""
    runs = project.home.runs()
    with closing(runs.db):
        return detail(runs, runs.find(summaries(runs)[0].id)).iterations


def ends(project: Project) -> list[str]:
    return [iteration.ended for iteration in iterations(project)]


def is_free(project: Project) -> bool:
    """Whether another run can start here now."""
    try:
        os.close(locks.acquire(project.path, project.home.path))
    except locks.Locked:
        return False
    return True


def assert_sound(home: Home) -> None:
    """Assert that SQLite finds no damage in the store."""
    with closing(sqlite3.connect(home.database)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def contents(path: Path) -> dict[str, str]:
    """Everything below a directory, without following links: its type, and a digest of its content."""
    found = {}
    for place in sorted(path.rglob("*")):
        name = str(place.relative_to(path))
        if place.is_symlink():
            found[name] = f"-> {os.readlink(place)}"
        elif place.is_file():
            found[name] = hashlib.sha256(place.read_bytes()).hexdigest()
        else:
            found[name] = "directory" if place.is_dir() else "special"
    return found


# ---- a system that fails ----

_INJECTED = """
import importlib, os, sys
module, name, number, *arguments = sys.argv[1:]

class Failing:
    def __getattr__(self, attribute):
        real = getattr(os, attribute)
        if attribute != name:
            return real
        def call(*args, **kwargs):
            if os.path.exists("broken"):
                named = [args[0]] if isinstance(args[0], str) else []
                raise OSError(int(number), os.strerror(int(number)), *named)
            return real(*args, **kwargs)
        return call

importlib.import_module(module).os = Failing()
from ralph.cli import main
sys.exit(main(arguments))
"""


def injected(site: str, number: int, *arguments: str) -> list[str]:
    """The command line that starts ralph with one function of `os` failing in one of its modules.

    It fails while the file `broken` exists in the project. `site` is the module, relative to `ralph`, and the
    name of the function.
    """
    module, _, function = site.rpartition(".")
    return [sys.executable, "-c", _INJECTED, f"ralph.{module}", function, str(number), *arguments]
