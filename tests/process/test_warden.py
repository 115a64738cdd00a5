"""The warden and its client: starting, watching, ending and sweeping real processes."""

from __future__ import annotations

import errno
import os
import pty
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conftest import wait_until
from ralph.core.model import Ended, Exit
from ralph.process import client
from ralph.process.client import Command, Reader, Wakeup, Warden, Watch
from ralph.process.warden import children_by_parent
from ralph.store.runs import process_start

PATH = os.environ.get("PATH", os.defpath)
FOREIGN_MACHINE = 0x00F3 if os.uname().machine != "riscv64" else 0x003E
MINE = frozenset(range(1, 65)) - {32, 33}  # 32 and 33 belong to libc: no program can reset them


def survivors(file: Path) -> list[int]:
    """Processes that wrote their numbers into a file and still run.

    A process that is younger than the last line has the number of one that is dead.
    """
    if not file.exists():
        return []
    age = time.time() - file.stat().st_mtime - 0.05
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    found = []
    for pid in map(int, file.read_text().split()):
        with suppress(OSError):
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if state not in "ZX" and now - int(fields[18]) / os.sysconf("SC_CLK_TCK") >= age:
                found.append(pid)
    return found


class Collected:
    """Everything a command printed."""

    def __init__(self) -> None:
        self.out = b""
        self.err = b""

    def stdout(self, data: bytes) -> None:
        self.out += data

    def stderr(self, data: bytes) -> None:
        self.err += data

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


def after(limit: float, why: Ended = Ended.TIMEOUT) -> Watch:
    return lambda seconds, idle: why if seconds >= limit else None


bounded = after(45.0)


@dataclass
class Rig:
    """A warden, and the directory in which its commands work; a command that hangs is ended for the test."""

    path: Path
    directory: int
    wakeup: Wakeup
    warden: Warden
    ran: list[Exit] = field(default_factory=list)

    def run(
        self,
        argv: Sequence[str],
        watch: Watch = bounded,
        environment: Mapping[str, str] | None = None,
        stdin: int | None = None,
        merged: bool = False,
        reader: Reader | None = None,
    ) -> Collected:
        """Run a command to its end; how it ended is `self.exit`."""
        collected = Collected()
        values = {"PATH": PATH} if environment is None else environment
        command = Command(argv, values, self.directory, stdin, merged)
        self.ran.append(self.warden.run(command, reader or collected, watch))
        return collected

    def sh(self, script: str, watch: Watch = bounded, reader: Reader | None = None) -> Collected:
        return self.run(["/bin/sh", "-c", script], watch, reader=reader)

    def python(self, code: str, *arguments: str, watch: Watch = bounded) -> Collected:
        return self.run([sys.executable, "-I", "-S", "-c", code, *arguments], watch)

    @property
    def exit(self) -> Exit:
        return self.ran[-1]

    def survivors(self) -> list[int]:
        return survivors(self.path / "pids")

    def warden_pid(self) -> int:
        return int(self.sh("echo $PPID").out)

    def wait_for(self, name: str) -> str:
        """What is in a file as soon as there is something in it."""
        path = self.path / name
        wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
        return path.read_text()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    wakeup = Wakeup()
    with Warden(wakeup) as warden:
        yield Rig(tmp_path, directory, wakeup, warden)
    os.close(directory)


# ---- starting ----


@pytest.mark.parametrize("code", [0, 1, 42, 127, 255])
def test_the_exit_code_is_reported(rig: Rig, code: int) -> None:
    """A command's exit code arrives as it was, and nothing else is claimed of its end."""
    rig.sh(f"exit {code}")
    assert rig.exit == Exit(code=code, seconds=rig.exit.seconds)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGHUP])
def test_death_by_a_signal_is_reported(rig: Rig, number: signal.Signals) -> None:
    """A command that a signal killed has that signal and no exit code."""
    rig.sh(f"ulimit -c 0; kill -{number.name[3:]} $$")
    assert rig.exit == Exit(signal=number, seconds=rig.exit.seconds)


def foreign_program(path: Path) -> None:
    """The header of a 64-bit program for another machine."""
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    path.write_bytes(
        ident + struct.pack("<HHIQQQIHHHHHH", 2, FOREIGN_MACHINE, 1, 0, 64, 0, 0, 64, 56, 0, 0, 0, 0)
    )


def missing(path: Path) -> None:
    pass


def not_executable(path: Path) -> None:
    path.write_text("#!/bin/sh\n")


def without_interpreter_line(path: Path) -> None:
    path.write_text("exit 0\n")


def missing_interpreter(path: Path) -> None:
    path.write_text("#!/no/such/interpreter\n")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def directory_instead(path: Path) -> None:
    path.mkdir()


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("make", "mode", "error"),
    [
        (missing, 0, errno.ENOENT),
        (not_executable, 0o644, errno.EACCES),
        (without_interpreter_line, 0o755, errno.ENOEXEC),
        (empty, 0o755, errno.ENOEXEC),
        (foreign_program, 0o755, errno.ENOEXEC),
        (missing_interpreter, 0o755, errno.ENOENT),
        (directory_instead, 0o755, errno.EACCES),
        (link_to_itself, 0, errno.ELOOP),
    ],
)
def test_what_cannot_be_started_is_reported_by_its_errno(
    rig: Rig, make: Callable[[Path], None], mode: int, error: int
) -> None:
    """A program that cannot be started gives its errno, and the same warden starts the next one."""
    program = rig.path / "program"
    make(program)
    if mode:
        program.chmod(mode)
    before = rig.warden_pid()
    rig.run([str(program)])
    assert rig.exit == Exit(error=error, seconds=rig.exit.seconds)
    assert rig.warden_pid() == before


def test_the_environment_is_exactly_what_was_given(rig: Rig) -> None:
    """Values with newlines, equals signs, nothing at all or invalid UTF-8 arrive; nothing is added."""
    given = {"A": "1", "EMPTY": "", "LINES": "a\nb", "EQUALS": "x=y=z", "LATIN": os.fsdecode(b"\xe9\xff")}
    out = rig.run(["/usr/bin/env", "-0"], environment=given).out
    assert dict(pair.split(b"=", 1) for pair in out.split(b"\0") if pair) == {
        os.fsencode(name): os.fsencode(value) for name, value in given.items()
    }


def test_variables_that_mislead_an_agent_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a child is ours without the marks of an outer agent, and `extra` wins."""
    for name in ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("KEPT", "ours")
    monkeypatch.setenv("CHANGED", "ours")
    environment = client.child_environment({"CHANGED": "theirs", "NEW": "x"})
    expected = {k: v for k, v in os.environ.items() if not k.startswith(("CLAUDECODE", "CLAUDE_CODE_"))}
    assert environment == expected | {"CHANGED": "theirs", "NEW": "x"}


def test_the_working_directory_is_the_opened_one_whatever_its_path_is_now(rig: Rig, tmp_path: Path) -> None:
    """A directory that was renamed, with another in its place, is still the one that was opened."""
    first = tmp_path / "first"
    first.mkdir()
    os.close(rig.directory)
    rig.directory = os.open(first, os.O_RDONLY)
    first.rename(tmp_path / "moved")
    first.mkdir()
    rig.sh("touch here")
    assert [path.name for path in (tmp_path / "moved").iterdir()] == ["here"]
    assert list(first.iterdir()) == []


def test_stdin_is_the_file_that_was_given(rig: Rig) -> None:
    """The whole file is there, and then its end: nothing waits for more."""
    content = bytes(range(256)) * 4096
    (rig.path / "prompt").write_bytes(content)
    stdin = os.open(rig.path / "prompt", os.O_RDONLY)
    out = rig.run(["/bin/cat"], stdin=stdin).out
    os.close(stdin)
    assert out == content


def test_stdin_is_the_null_device_otherwise(rig: Rig) -> None:
    """Without a file a command reads nothing instead of waiting for us."""
    assert rig.sh("readlink /proc/self/fd/0; cat").out == b"/dev/null\n"


def test_streams_are_apart_or_one(rig: Rig) -> None:
    """stdout and stderr are read apart, or as one stream in the order of writing."""
    script = "echo one; echo two >&2; echo three"
    apart = rig.sh(script)
    assert (apart.out, apart.err) == (b"one\nthree\n", b"two\n")
    merged = rig.run(["/bin/sh", "-c", script], merged=True)
    assert (merged.out, merged.err) == (b"one\ntwo\nthree\n", b"")


def test_bytes_pass_through_untouched(rig: Rig) -> None:
    """NUL, invalid UTF-8, escape sequences and a missing last newline arrive as they were written."""
    content = bytes(range(256)) * 50 + b"\xff\xfe\0\x1b]52;c;x\x07\xe2\x82"
    (rig.path / "content").write_bytes(content)
    collected = rig.sh("cat content; cat content >&2")
    assert (collected.out, collected.err) == (content, content)


def test_a_command_leads_its_own_session(rig: Rig) -> None:
    """A signal to our process group or session, such as Ctrl-C, cannot reach it."""
    code = "import os; print(os.getpid(), os.getpgid(0), os.getsid(0))"
    pid, group, session = (int(word) for word in rig.python(code).out.split())
    assert pid == group == session
    assert session not in (os.getpid(), os.getsid(0))
    assert os.getsid(rig.warden_pid()) != os.getsid(0)


def test_there_is_no_terminal_even_if_we_have_one(tmp_path: Path) -> None:
    """A command cannot open /dev/tty, although the process that started the warden can."""
    master, slave = pty.openpty()
    script = tmp_path / "driver.py"
    script.write_text(
        PREAMBLE
        + """
open("/dev/tty").close()
code = "import errno\\ntry: open('/dev/tty')\\nexcept OSError as e: print(errno.errorcode[e.errno])"
with Warden(Wakeup()) as warden:
    run(warden, [sys.executable, "-c", code])
"""
    )
    try:
        done = subprocess.run(
            ["setsid", "-c", sys.executable, str(script)],
            stdin=slave,
            stdout=subprocess.PIPE,
            cwd=tmp_path,
            timeout=60,
        )
    finally:
        os.close(master)
        os.close(slave)
    assert (done.returncode, done.stdout) == (0, b"ENXIO\n")


def signal_set(mask: str) -> set[int]:
    bits = int(mask, 16)
    return {number for number in MINE if bits >> (number - 1) & 1}


def test_signals_are_as_a_new_process_expects_them(tmp_path: Path) -> None:
    """What we ignore, block or catch is default and unblocked in a command."""
    script = tmp_path / "driver.py"
    script.write_text(
        PREAMBLE
        + """
import signal
for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD, signal.SIGRTMIN):
    signal.signal(number, signal.SIG_IGN if number != signal.SIGCHLD else signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGTERM, signal.SIGRTMAX})
with Warden(Wakeup()) as warden:
    run(warden, ["/bin/cat", "/proc/self/status"])
"""
    )
    out = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, timeout=60).stdout
    status = dict(line.split(":\t", 1) for line in out.decode().splitlines() if line.startswith("Sig"))
    assert {name: signal_set(status[name]) for name in ("SigIgn", "SigBlk", "SigCgt")} == {
        "SigIgn": set(),
        "SigBlk": set(),
        "SigCgt": set(),
    }


def test_nothing_but_three_descriptors_is_inherited(rig: Rig) -> None:
    """A command has stdin, stdout and stderr; not the lock, the socket or second copies of its pipes."""
    assert own_descriptors(rig) == {0, 1, 2}


def test_a_descriptor_that_ralph_was_started_with_stops_at_the_warden(tmp_path: Path) -> None:
    """An open descriptor of the caller, such as a lock of its own, does not reach a command."""
    held = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(held, True)
    directory = os.open(tmp_path, os.O_RDONLY)
    wakeup = Wakeup()
    with Warden(wakeup) as warden:
        found = own_descriptors(Rig(tmp_path, directory, wakeup, warden))
    os.close(held)
    os.close(directory)
    assert held not in found


def own_descriptors(rig: Rig) -> set[int]:
    """The descriptors of a command, without the one it needs to look."""
    code = (
        "import os\n"
        "for n in os.listdir('/proc/self/fd'):\n"
        "    try: print(n, os.readlink(f'/proc/self/fd/{n}'))\n"
        "    except OSError: pass"
    )
    return {int(line.split()[0]) for line in rig.python(code).lines}


def test_the_largest_argument_arrives_and_a_larger_one_is_refused(rig: Rig) -> None:
    """131,071 bytes fit into one argument; one more is E2BIG, told as such."""
    script = 'printf %s "$1" | wc -c'
    out = rig.run(["/bin/sh", "-c", script, "sh", "x" * 131_071]).out
    assert int(out) == 131_071
    rig.run(["/bin/sh", "-c", script, "sh", "x" * 131_072])
    assert rig.exit.error == errno.E2BIG


def test_more_than_a_megabyte_of_arguments_and_environment_arrives(rig: Rig) -> None:
    """A command line far larger than the socket's buffer reaches the command whole."""
    arguments = [f"{n}" + "a" * 100_000 for n in range(7)]
    environment = {f"V{n}": "b" * 100_000 for n in range(5)} | {"PATH": PATH}
    script = 'cat; printf "%s\\n" "$@" | cksum; printf %s "$V0$V1$V2$V3$V4" | wc -c'
    collected = rig.run(["/bin/sh", "-c", script, "sh", *arguments], environment=environment)
    expected = subprocess.run(
        ["cksum"], input="".join(f"{argument}\n" for argument in arguments).encode(), capture_output=True
    ).stdout.decode()
    assert collected.lines == [expected.strip(), "500000"]


@pytest.mark.parametrize(
    ("argv", "environment"),
    [
        (["/bin/sh", "-c", "echo a\0b"], {}),
        (["/bin/sh", "-c", "exit 0"], {"A\0B": "x"}),
        (["/bin/sh", "-c", "exit 0"], {"": "x"}),
    ],
    ids=["NUL in an argument", "NUL in a name", "empty name"],
)
def test_what_no_system_can_pass_does_not_cost_the_warden_its_life(
    rig: Rig, argv: list[str], environment: dict[str, str]
) -> None:
    """A NUL in an argument or a broken name is refused; the warden goes on."""
    before = rig.warden_pid()
    with suppress(ValueError):
        rig.run(argv, environment={"PATH": PATH} | environment)
        assert not rig.exit.lost
    assert rig.warden_pid() == before


def test_a_value_with_nul_is_left_out(rig: Rig) -> None:
    """An environment value that no system can pass is dropped, the others arrive."""
    assert rig.run(["/usr/bin/env"], environment={"A": "x\0y", "B": "z"}).out == b"B=z\n"


def test_nothing_stays_open_after_a_command(rig: Rig) -> None:
    """Commands that work, fail to start or lose their warden leave no descriptor open, here or there."""

    def open_descriptors() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{rig.warden_pid()}/fd"))

    before = open_descriptors()
    for _ in range(10):
        rig.sh("echo out; echo err >&2")
        rig.run(["/no/such/program"], merged=True)
    rig.sh("kill -9 $PPID")
    assert open_descriptors() == before


# ---- reading ----


def test_idle_time_counts_from_the_last_output(rig: Rig) -> None:
    """A command that prints now and then is not idle; one that then falls silent is."""
    seen: list[tuple[float, float]] = []

    def watch(seconds: float, idle: float) -> Ended | None:
        seen.append((seconds, idle))
        return Ended.IDLE if idle >= 1.2 else None

    rig.sh("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.3; done; sleep 60", watch)
    assert rig.exit.ended is Ended.IDLE
    assert rig.exit.signal == signal.SIGTERM
    assert 3.3 <= rig.exit.seconds < 12
    assert [seconds for seconds, _ in seen] == sorted(seconds for seconds, _ in seen)


def test_a_long_silence_is_no_reason_to_give_up_the_warden(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a command says nothing for long the warden answers, and the command lives."""
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.6)
    rig.sh("sleep 2.5")
    assert rig.exit == Exit(code=0, seconds=rig.exit.seconds)


def test_a_slow_reader_is_no_reason_to_give_up_the_warden(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that takes its time (Ctrl-S, a pager) does not make a healthy warden count as lost."""
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.3)

    class Slow(Collected):
        def stdout(self, data: bytes) -> None:
            time.sleep(0.4)

    rig.sh("yes | head -c 12000000", reader=Slow())
    assert rig.exit == Exit(code=0, seconds=rig.exit.seconds)


@pytest.mark.slow
def test_much_output_is_read_whole_with_little_memory(tmp_path: Path) -> None:
    """200 MB pass through, and the process that reads them does not grow with them."""
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


# ---- sweeping ----

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
    assert rig.exit.seconds < 20


def test_a_daemon_with_a_new_name_and_nothing_open_is_gone(rig: Rig) -> None:
    """setsid, two forks, all descriptors closed, another directory and another name do not help it."""
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
    """What is left behind gets TERM first, and time to do something about it."""
    rig.sh(
        "setsid sh -c 'trap \"echo cleaned > result; exit\" TERM; echo ready > ready; sleep 60 & wait' &\n"
        "until [ -s ready ]; do sleep 0.02; done"
    )
    assert (rig.path / "result").read_text() == "cleaned\n"


def test_a_hundred_processes_are_swept(rig: Rig) -> None:
    """A wide and deep tree is gone as well."""
    rig.sh(
        "tree() { sh -c 'trap \"\" TERM; echo $$ >> pids; sleep 60; :' &\n"
        "  [ $1 -eq 0 ] || ( tree $(($1 - 1)); wait ) & }\n"
        "for i in 1 2 3 4 5; do tree 9; done\n"
        "until [ $(wc -l < pids) -ge 50 ]; do sleep 0.05; done"
    )
    assert len((rig.path / "pids").read_text().split()) == 50
    assert rig.survivors() == []


def test_a_grandchild_that_holds_stdout_does_not_delay_the_end(rig: Rig) -> None:
    """The end of a command is its exit: whoever holds its pipes gets half a second."""
    rig.sh(
        "setsid sh -c 'trap \"\" TERM; echo $$ >> pids; exec sleep 60' & until [ -s pids ]; do sleep 0.02; done"
    )
    assert rig.exit.code == 0
    assert rig.exit.seconds < 10
    assert rig.survivors() == []


def test_a_stranger_that_holds_stdout_does_not_delay_the_end(rig: Rig) -> None:
    """A process outside the tree that got hold of the pipe is not waited for, and what came is read."""
    held: list[int] = []

    def watch(seconds: float, idle: float) -> Ended | None:
        if not held and (rig.path / "pid").exists() and (text := (rig.path / "pid").read_text()):
            held.append(os.open(f"/proc/{int(text)}/fd/1", os.O_WRONLY))
            (rig.path / "go").touch()
        return None

    collected = rig.sh("echo $$ > pid; until [ -e go ]; do sleep 0.02; done; echo done", watch)
    os.close(held[0])
    assert rig.exit.code == 0
    assert collected.out == b"done\n"
    assert rig.exit.seconds < 10


def test_a_chain_of_forks_is_swept(rig: Rig) -> None:
    """Processes that replace themselves all the time are all gone in the end."""
    code = """
import os, sys, time
end = time.monotonic() + 15
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
        os._exit(0)
time.sleep(0.1)
"""
    rig.python(code, str(rig.path))
    assert rig.exit.code == 0
    assert commands_with(str(rig.path)) == []
    assert rig.exit.seconds < 14, "the chains ended by themselves"


def commands_with(word: str) -> list[int]:
    """Processes that have a word among their arguments."""
    found = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and word.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a process of another user")
def test_a_descendant_of_another_user_does_not_stop_the_sweep(tmp_path: Path) -> None:
    """What may not be signalled (a `sudo` of the agent) is left, and everything else is still signalled."""
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


# ---- ending ----


def test_a_command_that_obeys_is_ended_at_once(rig: Rig) -> None:
    """TERM reaches the command and its children; nobody waits for the grace to pass."""
    rig.sh(
        "sh -c 'trap \"echo child >> ended; exit\" TERM; echo >> ready; sleep 60 & wait' &\n"
        "trap 'echo parent >> ended; wait; exit 7' TERM; echo >> ready; wait",
        lambda seconds, idle: Ended.TIMEOUT if lines_in(rig.path / "ready") == 2 else None,
    )
    assert rig.exit == Exit(code=7, ended=Ended.TIMEOUT, seconds=rig.exit.seconds, passes=rig.exit.passes)
    assert sorted((rig.path / "ended").read_text().split()) == ["child", "parent"]
    assert rig.exit.seconds < 5


def lines_in(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


@pytest.mark.slow
def test_a_command_that_does_not_obey_is_killed_after_five_seconds(rig: Rig) -> None:
    """TERM, five seconds in which it may go on, KILL; its children with it."""
    rig.sh(
        "trap '' TERM INT HUP; echo $$ >> pids; sleep 60 & echo $! >> pids; while :; do sleep 0.1; done",
        lambda seconds, idle: Ended.TIMEOUT if lines_in(rig.path / "pids") == 2 else None,
    )
    assert (rig.exit.signal, rig.exit.ended) == (signal.SIGKILL, Ended.TIMEOUT)
    assert 5.0 <= rig.exit.seconds < 15
    assert rig.survivors() == []


def test_a_stopped_command_is_ended(rig: Rig) -> None:
    """A command that stopped itself is woken to hear of its end."""
    rig.sh("echo $$ >> pids; kill -STOP $$; sleep 60", after(0.5, Ended.IDLE))
    assert (rig.exit.signal, rig.exit.ended) == (signal.SIGTERM, Ended.IDLE)
    assert rig.survivors() == []


STUBBORN = "trap '' TERM INT HUP; echo $$ >> pids; while :; do sleep 0.1; done"


def test_a_second_interrupt_kills_at_once(rig: Rig) -> None:
    """When it has been asked for twice, nobody waits five seconds."""

    def watch(seconds: float, idle: float) -> Ended | None:
        if lines_in(rig.path / "pids") == 1 and not rig.wakeup.count:
            rig.wakeup.interrupt()
            rig.wakeup.interrupt()
        return Ended.INTERRUPTED if rig.wakeup.count > 1 else None

    rig.sh(STUBBORN, watch)
    assert (rig.exit.signal, rig.exit.ended) == (signal.SIGKILL, Ended.INTERRUPTED)
    assert rig.exit.seconds < 4
    assert rig.survivors() == []


def test_an_interrupt_cuts_the_grace_short(rig: Rig) -> None:
    """A command that is being ended and does not obey is killed when somebody interrupts."""
    ended: list[float] = []

    def watch(seconds: float, idle: float) -> Ended | None:
        if lines_in(rig.path / "pids") != 1:
            return None
        ended.append(seconds)
        threading.Timer(0.5, rig.wakeup.interrupt).start()
        return Ended.TIMEOUT

    rig.sh(STUBBORN, watch)
    assert (rig.exit.signal, rig.exit.ended) == (signal.SIGKILL, Ended.TIMEOUT)
    assert rig.exit.seconds - ended[0] < 4
    assert len(ended) == 1


@pytest.mark.slow
def test_an_end_that_comes_too_late_does_not_hit_the_next_command(rig: Rig) -> None:
    """A command that exits just as its time is up costs the next one nothing."""

    class Late(Collected):
        """Takes the output only when the command that printed it has been swept."""

        def stdout(self, data: bytes) -> None:
            wait_until(lambda: process_start(int(data)) is None)
            time.sleep(0.3)
            self.out += data

    late = Late()
    rig.sh("sleep 0.3; echo $$", lambda seconds, idle: Ended.TIMEOUT if late.out else None, late)
    assert rig.exit.code == 0
    rig.sh("sleep 6")
    assert rig.exit == Exit(code=0, seconds=rig.exit.seconds)


# ---- when the warden is lost ----


@pytest.mark.parametrize("last", ["exit 0", "sleep 60", "exec setsid sleep 60"])
def test_a_command_that_kills_its_warden_is_swept_by_us(rig: Rig, last: str) -> None:
    """The loss is told, the whole tree is gone, and another warden does the next command."""
    first = rig.warden_pid()
    rig.sh(
        "echo $$ >> pids; sleep 60 & echo $! >> pids\n"
        "setsid sh -c 'trap \"\" TERM; echo $$ >> pids; exec sleep 60' &\n"
        f"until [ $(wc -l < pids) -ge 3 ]; do sleep 0.02; done; kill -9 $PPID; {last}"
    )
    assert (rig.exit.lost, rig.exit.code, rig.exit.ended) == (True, None, None)
    assert len((rig.path / "pids").read_text().split()) == 3
    assert rig.survivors() == []
    second = rig.warden_pid()
    assert second != first
    assert children_by_parent()[os.getpid()] == [second], "an orphan was not reaped"


def test_what_was_printed_before_the_warden_died_is_not_lost(rig: Rig) -> None:
    """Output that is still in the pipe is read."""
    collected = rig.sh("echo before; kill -9 $PPID; sleep 60")
    assert rig.exit.lost
    assert collected.out == b"before\n"


@pytest.mark.slow
def test_a_command_that_stops_its_warden_is_swept_by_us(rig: Rig) -> None:
    """A warden that does not answer is killed and replaced, its tree swept."""
    first = rig.warden_pid()
    rig.sh("echo $$ >> pids; sleep 60 & echo $! >> pids; kill -STOP $PPID; sleep 60")
    assert (rig.exit.lost, rig.exit.code) == (True, None)
    assert 5 <= rig.exit.seconds < 20
    assert rig.survivors() == []
    assert process_start(first) is None
    assert rig.warden_pid() != first


def test_the_warden_heeds_no_signal_that_can_be_caught(rig: Rig) -> None:
    """TERM, INT, HUP and PIPE, from whomever they come, do not end it."""
    rig.sh("kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; kill -PIPE $PPID; exit 5")
    assert rig.exit == Exit(code=5, seconds=rig.exit.seconds)


def test_another_thread_does_not_suffer_from_a_lost_warden(rig: Rig, tmp_path: Path) -> None:
    """The orphans of one warden are swept; what another one started goes on."""
    other = Wakeup()
    done: list[Exit] = []

    def work() -> None:
        with Warden(other) as warden:
            command = Command(
                ["/bin/sh", "-c", "echo > ready; sleep 2; exit 9"], {"PATH": PATH}, rig.directory
            )
            done.append(warden.run(command, Collected(), bounded))

    thread = threading.Thread(target=work)
    thread.start()
    rig.wait_for("ready")
    for _ in range(3):
        rig.sh("setsid sleep 60 & kill -9 $PPID; sleep 60")
        assert rig.exit.lost
    thread.join(30)
    assert [exit.code for exit in done] == [9]


def test_a_child_that_was_there_before_ralph_is_spared(tmp_path: Path) -> None:
    """`server & exec ralph run …` makes the server our child: losing a warden must not kill it."""
    script = tmp_path / "driver.py"
    script.write_text(
        PREAMBLE
        + """
with Warden(Wakeup()) as warden:
    run(warden, ["/bin/sh", "-c", "sleep 60 & kill -9 $PPID; sleep 60"])
"""
    )
    subprocess.run(
        ["/bin/sh", "-c", f"sleep 30 & echo $! > server; exec {sys.executable} {script}"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        timeout=60,
    )
    server = int((tmp_path / "server").read_text())
    start = process_start(server)
    if start is not None:
        os.kill(server, signal.SIGKILL)
    assert start is not None


@pytest.mark.slow
def test_a_stopped_warden_cannot_hold_a_large_command_for_ever(tmp_path: Path) -> None:
    """A warden that stops reading counts as lost, even while a long command line is sent to it."""
    script = tmp_path / "driver.py"
    script.write_text(
        PREAMBLE
        + """
import os, signal
with Warden(Wakeup()) as warden:
    run(warden, ["/bin/sh", "-c", "echo $PPID > warden"])
    os.kill(int(open("warden").read()), signal.SIGSTOP)
    print(run(warden, ["/bin/sh", "-c", "exit 0", *("x" * 100_000 for _ in range(10))]).lost)
"""
    )
    driver = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        out, _ = driver.communicate(timeout=11)
    except subprocess.TimeoutExpired:
        driver.kill()
        os.kill(int((tmp_path / "warden").read_text()), signal.SIGCONT)
        out, _ = driver.communicate()
    assert out == b"True\n"


# ---- when ralph is lost ----

PREAMBLE = """
import os, sys
from ralph.process.client import Command, Wakeup, Warden

class Print:
    def stdout(self, data): os.write(1, data)
    def stderr(self, data): os.write(2, data)

def run(warden, argv, reader=Print(), watch=lambda seconds, idle: None):
    directory = os.open(".", os.O_RDONLY)
    try:
        return warden.run(Command(argv, dict(os.environ), directory), reader, watch)
    finally:
        os.close(directory)
"""

TREE = (
    "echo $$ >> pids; sleep 60 & echo $! >> pids\n"
    "setsid sh -c 'echo $$ >> pids; exec sleep 60' &\n"
    "( ( sh -c 'echo $$ >> pids; echo $PPID > /dev/null; exec sleep 60' & ) & )\n"
    "echo $PPID >> pids; until [ $(wc -l < pids) -ge 5 ]; do sleep 0.02; done; echo ready > ready; sleep 60"
)
LEAVE = {
    "killed": "os.kill(os.getpid(), 9)",
    "exit without goodbye": "os._exit(0)",
    "exception": "raise RuntimeError",
    "stopped, then killed": "os.kill(os.getpid(), 19)",
}


@pytest.mark.parametrize("way", LEAVE)
def test_the_tree_dies_with_whoever_started_the_warden(tmp_path: Path, way: str) -> None:
    """However the process ends that holds the other end of the socket, warden and tree end too."""
    script = tmp_path / "driver.py"
    script.write_text(
        PREAMBLE
        + f"""
def watch(seconds, idle):
    if os.path.exists("ready"):
        {LEAVE[way]}

with Warden(Wakeup()) as warden:
    run(warden, ["/bin/sh", "-c", {TREE!r}], watch=watch)
"""
    )
    driver = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, stderr=subprocess.DEVNULL)
    wait_until(lambda: (tmp_path / "ready").exists())
    if way == "stopped, then killed":
        wait_until(lambda: state_of(driver.pid) == "T")
        driver.kill()
    driver.wait(30)
    wait_until(lambda: not survivors(tmp_path / "pids"), 15)
    assert len((tmp_path / "pids").read_text().split()) == 5


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.slow
def test_leaving_does_not_leave_the_tree_of_a_stopped_warden(tmp_path: Path) -> None:
    """When the warden has to be killed on the way out, its tree is swept all the same."""
    script = tmp_path / "driver.py"
    script.write_text(
        PREAMBLE
        + """
def watch(seconds, idle):
    if os.path.exists("ready"):
        raise RuntimeError

with Warden(Wakeup()) as warden:
    run(warden, ["/bin/sh", "-c", "echo $$ >> pids; kill -STOP $PPID; echo > ready; exec sleep 40"], watch=watch)
"""
    )
    driver = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, stderr=subprocess.DEVNULL)
    driver.wait(30)
    left = survivors(tmp_path / "pids")
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


# ---- small parts ----


def test_a_program_is_found_on_the_path_as_the_command_will_see_it(tmp_path: Path) -> None:
    """The first executable file wins; relative and empty places mean the working directory."""
    for name, mode in (("bin/tool", 0o644), ("other/tool", 0o755), ("here", 0o755)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    (tmp_path / "folder").mkdir()
    directory = os.open(tmp_path, os.O_RDONLY)
    found = {
        name: client.find_program(name, f"{tmp_path}/bin:other::/no/such", directory)
        for name in ("tool", "here", "gone", "bin/tool", "./gone", "./folder", str(tmp_path / "here"))
    }
    os.close(directory)
    assert found == {
        "tool": ("other/tool", ""),
        "here": ("./here", ""),
        "gone": ("gone", "command not found"),
        "bin/tool": ("bin/tool", "not executable"),
        "./gone": ("./gone", "no such file"),
        "./folder": ("./folder", "no program, but something else"),
        str(tmp_path / "here"): (str(tmp_path / "here"), ""),
    }


def test_a_wakeup_ends_a_wait_and_never_blocks() -> None:
    """Any number of wakes is fine, the next wait returns at once, the one after it waits again."""
    wakeup = Wakeup()
    for _ in range(100_000):
        wakeup.wake()
    assert wakeup.count == 0
    started = time.monotonic()
    wakeup.wait(30)
    assert time.monotonic() - started < 10
    while True:
        started = time.monotonic()
        wakeup.wait(0.3)
        if time.monotonic() - started >= 0.3:
            break
    wakeup.interrupt()
    assert wakeup.count == 1


def test_the_output_of_a_short_command(rig: Rig) -> None:
    """A helper's output, its exit and what it was given to read come back; a missing one is named."""
    environment = {"PATH": PATH}
    done = client.output_of(
        rig.warden, ["sh", "-c", "cat; echo two >&2; exit 4"], rig.directory, environment, stdin=b"one\n"
    )
    assert (done.exit.code, done.out, done.err, done.problem) == (4, b"one\n", b"two\n", "")
    gone = client.output_of(rig.warden, ["no-such-helper"], rig.directory, environment)
    assert (gone.exit.error, gone.problem) == (errno.ENOENT, "no-such-helper: command not found")
