"""Reading the output of a command, and sweeping its leftover processes."""

from __future__ import annotations

import fcntl
import inspect
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from process.process_support import PREAMBLE, Collected, Rig, rigged
from ralph.core.model import Ended, Exit
from ralph.process import client, step
from ralph.process import warden as program
from ralph.store.runs import process_start


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with rigged(tmp_path) as found:
        yield found


def test_idle_time_counts_from_the_last_output(rig: Rig) -> None:
    """A command that prints now and then is not idle, but one that falls silent is."""
    seen: list[tuple[float, float]] = []

    def watch(seconds: float, idle: float) -> Ended | None:
        seen.append((seconds, idle))
        return Ended.IDLE if idle >= 1.2 else None

    collected = rig.sh("for i in 1 2 3 4 5; do echo $i; sleep 0.3; done; sleep 60", watch)
    assert rig.exit.ended is Ended.IDLE
    assert rig.exit.signal == signal.SIGTERM
    assert collected.lines == ["1", "2", "3", "4", "5"]
    assert [seconds for seconds, _ in seen] == sorted(seconds for seconds, _ in seen)


@pytest.mark.slow
def test_a_long_silence_does_not_make_the_warden_count_as_lost(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a command is silent for a long time, the warden answers and the command lives."""
    monkeypatch.setattr(step, "ANSWER_SECONDS", 0.6)
    rig.sh("sleep 2")
    assert rig.exit == Exit(code=0, seconds=rig.exit.seconds)


@pytest.mark.slow
def test_a_slow_reader_does_not_make_the_warden_count_as_lost(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader slower than the answer timeout does not make a healthy warden count as lost."""
    monkeypatch.setattr(step, "ANSWER_SECONDS", 0.3)

    class Slow(Collected):
        def stdout(self, data: bytes) -> None:
            time.sleep(0.4)

    rig.sh("yes | head -c 4000000", reader=Slow())
    assert rig.exit == Exit(code=0, seconds=rig.exit.seconds)


@pytest.mark.slow
def test_much_output_is_read_whole_with_little_memory(tmp_path: Path) -> None:
    """200 MB pass through without making the reading process grow."""
    script = tmp_path / "driver.py"
    script.write_text(
        PREAMBLE
        + """
def peak():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))

class Count:
    size = 0
    def stdout(self, data): self.size += len(data)
    stderr = stdout

count = Count()
with Warden(Wakeup()) as warden:
    run(warden, ["/bin/echo", "warm"], Count())
    before = peak()
    run(warden, ["/bin/sh", "-c", "head -c 100000000 /dev/zero >&2 & head -c 100000000 /dev/zero; wait"], count)
print(count.size, peak() - before)
"""
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, timeout=100)
    size, grown = (int(word) for word in done.stdout.split())
    assert size == 200_000_000
    assert grown < 32_000, f"{grown} kB"


LEFTOVERS = {
    "background": "sleep 60 & echo $! >> pids",
    "session": "setsid sh -c 'echo $$ >> pids; exec sleep 60' &",
    "double fork": "( ( sh -c 'echo $$ >> pids; exec sleep 60' & ) & )",
    "nohup": "nohup sh -c 'echo $$ >> pids; exec sleep 60' > /dev/null 2>&1 &",
    "no environment": "setsid env -i /bin/sh -c 'echo $$ >> pids; exec /bin/sleep 60' &",
    "ignores TERM": "setsid sh -c 'trap \"\" TERM HUP INT; echo $$ >> pids; exec sleep 60' &",
    "stopped": "setsid sh -c 'echo $$ >> pids; kill -STOP $$; exec sleep 60' &",
    "stopped and ignores TERM": "sh -c 'trap \"\" TERM; echo $$ >> pids; kill -STOP $$; exec sleep 60' &",
    "holds stdout": "setsid sh -c 'trap \"\" TERM; echo $$ >> pids; exec sleep 60' 2> /dev/null &",
    "floods": "setsid sh -c 'trap \"\" TERM; echo $$ >> pids; exec yes' &",
    "closed everything": "setsid sh -c 'echo $$ >> pids; exec sleep 60' <&- >&- 2>&- &",
    "elsewhere": '(here=$PWD; cd /; setsid sh -c \'echo $$ >> "$0/pids"; exec sleep 60\' "$here" &)',
    "answers TERM with a fork": """setsid sh -c '
        trap "sh -c '\\''trap : TERM; echo \\$\\$ >> pids; sleep 60; sleep 60'\\'' & exit" TERM
        echo $$ >> pids; sleep 60 & wait' &""",
}


@pytest.mark.parametrize("kind", LEFTOVERS)
def test_leftovers_are_gone_when_a_command_has_ended(rig: Rig, kind: str) -> None:
    """However a descendant detached itself, it is dead when `run` returns, and the exit code is kept."""
    rig.sh(f"{LEFTOVERS[kind]}\nuntil [ -s pids ]; do sleep 0.02; done; exit 3")
    assert rig.exit.code == 3
    assert rig.exit.ended is None
    assert (rig.path / "pids").read_text().strip()
    assert rig.survivors() == []


def test_a_daemon_with_a_new_name_and_nothing_open_is_gone(rig: Rig) -> None:
    """setsid, two forks, closed descriptors, another directory and another name do not help it."""
    code = """
import os, sys, time
here = os.getcwd()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/")
        os.umask(0)
        os.closerange(0, 4096)
        with open(f"{here}/pids", "a") as file:
            file.write(f"{os.getpid()}\\n")
        os.execv("/bin/sh", ["[kworker/0:1]", "-c", "sleep 60; :"])
    os._exit(0)
os.wait()
while not os.path.exists("pids") or not open("pids").read():
    time.sleep(0.01)
"""
    rig.python(code)
    assert rig.exit.code == 0
    assert len((rig.path / "pids").read_text().split()) == 1
    assert rig.survivors() == []


def test_leftovers_may_clean_up_after_themselves(rig: Rig) -> None:
    """Leftover processes get TERM first, and time to react."""
    rig.sh(
        "setsid sh -c 'trap \"echo cleaned > result; exit\" TERM; echo ready > ready; sleep 60 & wait' &\n"
        "until [ -s ready ]; do sleep 0.02; done"
    )
    assert (rig.path / "result").read_text() == "cleaned\n"


def test_a_hundred_processes_are_swept(rig: Rig) -> None:
    """A wide and deep tree is gone too."""
    rig.sh(
        "tree() { sh -c 'trap \"\" TERM; echo $$ >> pids; sleep 60; :' &\n"
        "  [ $1 -eq 0 ] || ( tree $(($1 - 1)); wait ) & }\n"
        "for i in 1 2 3 4 5; do tree 9; done\n"
        "until [ $(wc -l < pids) -ge 50 ]; do sleep 0.05; done"
    )
    assert len((rig.path / "pids").read_text().split()) == 50
    assert rig.survivors() == []


def test_a_grandchild_that_holds_stdout_does_not_delay_the_end(rig: Rig) -> None:
    """A command is over when it exits: a process that holds its pipes gets half a second."""
    rig.sh(
        "setsid sh -c 'trap \"\" TERM; echo $$ >> pids; exec sleep 60' & until [ -s pids ]; do sleep 0.02; done"
    )
    assert (rig.exit.code, rig.exit.ended) == (0, None)
    assert rig.survivors() == []


def test_a_stranger_that_holds_stdout_does_not_delay_the_end(rig: Rig) -> None:
    """A process outside the tree that holds the pipe is not waited for, and the output so far is read."""
    held: list[int] = []

    def watch(seconds: float, idle: float) -> Ended | None:
        if not held and (rig.path / "pid").exists() and (text := (rig.path / "pid").read_text()):
            held.append(os.open(f"/proc/{int(text)}/fd/1", os.O_WRONLY))
            (rig.path / "go").touch()
        return None

    collected = rig.sh("echo $$ > pid; until [ -e go ]; do sleep 0.02; done; echo done", watch)
    os.close(held[0])
    assert (rig.exit.code, rig.exit.ended) == (0, None)
    assert collected.out == b"done\n"


def test_a_chain_of_forks_is_swept(rig: Rig) -> None:
    """Processes that constantly replace themselves are all gone in the end."""
    code = """
import os, sys, time
end = time.monotonic() + 15
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
        open("tired", "w")
        os._exit(0)
time.sleep(0.1)
"""
    rig.python(code, str(rig.path))
    assert rig.exit.code == 0
    assert commands_with(str(rig.path)) == []
    assert not (rig.path / "tired").exists(), "the chains ended by themselves"


def commands_with(word: str) -> list[int]:
    """Return the processes that have a word among their arguments."""
    found = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and word.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a process of another user")
def test_a_descendant_of_another_user_does_not_stop_the_sweep(tmp_path: Path) -> None:
    """A process that we cannot signal (an agent's `sudo`) is left, and all others are still signalled."""
    script = tmp_path / "driver.py"
    script.write_text(
        """
import os, signal, subprocess, sys, time
from ralph.process import warden
foreign = [os.spawnv(os.P_NOWAIT, "/bin/sleep", ["sleep", "30"]) for _ in range(2)]
os.setuid(65534)
mine = [os.spawnv(os.P_NOWAIT, "/bin/sleep", ["sleep", "30"]) for _ in range(2)]
try:
    warden.signal_tree(signal.SIGKILL)
    print(sorted(os.waitpid(pid, 0)[1] for pid in mine))
finally:
    print(*foreign, *mine, file=sys.stderr)
"""
    )
    with open(tmp_path / "out", "w") as out, open(tmp_path / "foreign", "w") as foreign:
        subprocess.run([sys.executable, str(script)], stdout=out, stderr=foreign, timeout=60)
    for pid in (tmp_path / "foreign").read_text().split()[:4]:
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    assert (tmp_path / "out").read_text() == "[9, 9]\n"


UNKILLABLE = """
import os

def _refusing(call):
    def refuse(target, signum):
        try:
            with open(f"/proc/{target}/cmdline", "rb") as file:
                if b"sleep\\x0060" in file.read():
                    raise PermissionError(1, "Operation not permitted")
        except FileNotFoundError:
            pass
        call(target, signum)
    return refuse

os.kill, os.killpg = _refusing(os.kill), _refusing(os.killpg)
"""
"""Refuses to signal a `sleep 60`, as if it belonged to another user, like a `sudo` of an agent."""

STUCK = (
    "setsid sleep 60 & until [ \"$(tr '\\0' ' ' < /proc/$!/cmdline)\" = 'sleep 60 ' ]; do sleep 0.01; done"
)
"""Starts a `sleep 60` and waits until it has replaced the shell."""


@pytest.fixture
def powerless(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A warden that cannot signal every process of its commands, and gives up quickly."""
    source = inspect.getsource(program)
    changed = rig.path / "warden.py"
    changed.write_text(
        source.replace("\nimport errno\n", f"\nimport errno\n{UNKILLABLE}").replace(
            "GIVE_UP = 10.0", "GIVE_UP = 0.5"
        )
    )
    with open(changed) as file:
        monkeypatch.setattr(client, "_PROGRAM", fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 10))
    rig.warden.replace()
    yield rig
    os.close(client._PROGRAM)
    for pid in rig.survivors():
        os.kill(pid, signal.SIGKILL)


def test_an_unkillable_process_is_given_up_and_reported(powerless: Rig) -> None:
    """A descendant that survives KILL is left after a while, the exit says so, and all others are gone."""
    rig = powerless
    rig.sh(
        f"{STUCK}; echo $! > stuck; setsid sh -c 'trap \"\" TERM; echo $$ >> pids; exec sleep 50' &\n"
        "until [ -s pids ]; do sleep 0.02; done; exit 3"
    )
    assert rig.exit == Exit(code=3, seconds=rig.exit.seconds, passes=rig.exit.passes, left=True)
    assert rig.survivors() == []
    stuck = int((rig.path / "stuck").read_text())
    assert process_start(stuck) is not None
    (rig.path / "pids").write_text(f"{stuck}\n")
    assert rig.sh("echo next").out == b"next\n"


def test_a_process_that_was_given_up_is_not_waited_for_again(powerless: Rig) -> None:
    """A descendant that was given up does not delay later commands or count as left over by them."""
    rig = powerless
    rig.sh(f"{STUCK}; echo $! >> pids")
    assert rig.exit.left
    rig.sh("exit 0")
    assert rig.exit == Exit(code=0, seconds=rig.exit.seconds)
