"""Starting a command under a warden: what it inherits, what it does not, and what cannot be started."""

from __future__ import annotations

import errno
import os
import pty
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from process.process_support import FOREVER, PATH, PREAMBLE, Rig, rigged
from ralph.core.model import Exit
from ralph.process import client
from ralph.process.client import Wakeup, Warden

FOREIGN_MACHINE = 0x00F3 if os.uname().machine != "riscv64" else 0x003E
MINE = frozenset(range(1, 65)) - {32, 33}  # 32 and 33 belong to libc: no program can reset them


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with rigged(tmp_path) as found:
        yield found


@pytest.mark.parametrize("code", [0, 1, 42, 127, 255])
def test_the_exit_code_is_reported(rig: Rig, code: int) -> None:
    """A command's exit code is reported unchanged, and nothing else."""
    rig.sh(f"exit {code}")
    assert rig.exit == Exit(code=code, seconds=rig.exit.seconds)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGHUP])
def test_death_by_a_signal_is_reported(rig: Rig, number: signal.Signals) -> None:
    """A command killed by a signal has that signal and no exit code."""
    rig.sh(f"ulimit -c 0; kill -{number.name[3:]} $$")
    assert rig.exit == Exit(signal=number, seconds=rig.exit.seconds)


def foreign_program(path: Path) -> None:
    """Return the header of a 64-bit program for another architecture."""
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
def test_a_failed_start_is_reported_by_its_errno(
    rig: Rig, make: Callable[[Path], None], mode: int, error: int
) -> None:
    """A program that cannot be started yields its errno, and the same warden starts the next one."""
    program = rig.path / "program"
    make(program)
    if mode:
        program.chmod(mode)
    before = rig.warden_pid()
    rig.run([str(program)])
    assert rig.exit == Exit(error=error, seconds=rig.exit.seconds)
    assert rig.warden_pid() == before


def test_the_environment_is_exactly_what_was_given(rig: Rig) -> None:
    """Values with newlines, equals signs, no content or invalid UTF-8 arrive, and nothing is added."""
    given = {"A": "1", "EMPTY": "", "LINES": "a\nb", "EQUALS": "x=y=z", "LATIN": os.fsdecode(b"\xe9\xff")}
    out = rig.run(["/usr/bin/env", "-0"], environment=given).out
    assert dict(pair.split(b"=", 1) for pair in out.split(b"\0") if pair) == {
        os.fsencode(name): os.fsencode(value) for name, value in given.items()
    }


def test_variables_that_mislead_an_agent_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child's environment is ours without the variables of an outer agent, and `extra` wins."""
    for name in ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("KEPT", "ours")
    monkeypatch.setenv("CHANGED", "ours")
    environment = client.child_environment({"CHANGED": "theirs", "NEW": "x"})
    dropped = ("CLAUDECODE", "CLAUDE_CODE_", "PWD")
    expected = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    assert environment == expected | {"CHANGED": "theirs", "NEW": "x"}


def test_the_working_directory_is_the_opened_one_whatever_its_path_is_now(rig: Rig, tmp_path: Path) -> None:
    """A directory that was renamed and replaced by another is still the one that was opened."""
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
    """The whole file arrives, followed by end of file."""
    content = bytes(range(256)) * 4096
    (rig.path / "prompt").write_bytes(content)
    stdin = os.open(rig.path / "prompt", os.O_RDONLY)
    out = rig.run(["/bin/cat"], stdin=stdin).out
    os.close(stdin)
    assert out == content


def test_without_a_file_stdin_is_the_null_device(rig: Rig) -> None:
    """Without a file, a command reads nothing instead of waiting for us."""
    assert rig.sh("readlink /proc/self/fd/0; cat").out == b"/dev/null\n"


def test_streams_are_separate_or_merged(rig: Rig) -> None:
    """stdout and stderr are read separately, or as one stream in the order of writing."""
    script = "echo one; echo two >&2; echo three"
    apart = rig.sh(script)
    assert (apart.out, apart.err) == (b"one\nthree\n", b"two\n")
    merged = rig.run(["/bin/sh", "-c", script], merged=True)
    assert (merged.out, merged.err) == (b"one\ntwo\nthree\n", b"")


def test_bytes_pass_through_untouched(rig: Rig) -> None:
    """NUL, invalid UTF-8, escape sequences and a missing last newline arrive unchanged."""
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


def test_signals_have_their_default_actions(tmp_path: Path) -> None:
    """Signals that we ignore, block or catch are default and unblocked in a command."""
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
    """A command has stdin, stdout and stderr, but not the lock, the socket or copies of its pipes."""
    assert own_descriptors(rig) == {0, 1, 2}


def test_a_descriptor_that_ralph_was_started_with_stops_at_the_warden(tmp_path: Path) -> None:
    """An open descriptor of the caller, such as a lock, does not reach a command."""
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
    """Return the descriptors of a command, without the one it needs to list them."""
    code = (
        "import os\n"
        "for n in os.listdir('/proc/self/fd'):\n"
        "    try: print(n, os.readlink(f'/proc/self/fd/{n}'))\n"
        "    except OSError: pass"
    )
    return {int(line.split()[0]) for line in rig.python(code).lines}


def test_the_largest_argument_arrives_and_a_larger_one_is_refused(rig: Rig) -> None:
    """131,071 bytes fit into one argument, and one more is reported as E2BIG."""
    script = 'printf %s "$1" | wc -c'
    out = rig.run(["/bin/sh", "-c", script, "sh", "x" * 131_071]).out
    assert int(out) == 131_071
    rig.run(["/bin/sh", "-c", script, "sh", "x" * 131_072])
    assert rig.exit.error == errno.E2BIG


def test_more_than_a_megabyte_of_arguments_and_environment_arrives(rig: Rig) -> None:
    """A command line far larger than the socket's buffer reaches the command complete."""
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
def test_impossible_arguments_do_not_crash_the_warden(
    rig: Rig, argv: list[str], environment: dict[str, str]
) -> None:
    """A NUL in an argument or an invalid name is refused, and the warden keeps running."""
    before = rig.warden_pid()
    with suppress(ValueError):
        rig.run(argv, environment={"PATH": PATH} | environment)
        assert not rig.exit.lost
    assert rig.warden_pid() == before


def test_a_value_with_nul_is_left_out(rig: Rig) -> None:
    """An environment value that no system can pass is dropped, and the others arrive."""
    assert rig.run(["/usr/bin/env"], environment={"A": "x\0y", "B": "z"}).out == b"B=z\n"


def test_nothing_stays_open_after_a_command(rig: Rig) -> None:
    """Commands that work, fail to start or lose their warden leave no descriptor open on either side."""

    def open_descriptors() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{rig.warden_pid()}/fd"))

    before = open_descriptors()
    for _ in range(10):
        rig.sh("echo out; echo err >&2")
        rig.run(["/no/such/program"], merged=True)
    rig.sh("kill -9 $PPID")
    assert open_descriptors() == before


def test_a_program_is_found_on_the_path_as_the_command_will_see_it(tmp_path: Path) -> None:
    """The first executable file wins, and relative and empty entries mean the working directory."""
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
        "./folder": ("./folder", "not a regular file"),
        str(tmp_path / "here"): (str(tmp_path / "here"), ""),
    }


def test_a_wakeup_ends_a_wait_and_never_blocks() -> None:
    """Any number of wakes is fine: the next wait returns at once, and the one after it waits again."""
    wakeup = Wakeup()
    for _ in range(100_000):
        wakeup.wake()
    assert wakeup.count == 0
    wakeup.wait(FOREVER)
    while select.select([wakeup], [], [], 0)[0]:
        wakeup.wait(FOREVER)
    wakeup.wait(0.01)
    wakeup.interrupt()
    assert wakeup.count == 1


def test_the_output_of_a_short_command(rig: Rig) -> None:
    """Output, exit status and input of a helper work, and a missing program is named."""
    environment = {"PATH": PATH}
    done = client.output_of(
        rig.warden, ["sh", "-c", "cat; echo two >&2; exit 4"], rig.directory, environment, stdin=b"one\n"
    )
    assert (done.exit.code, done.out, done.err, done.problem) == (4, b"one\n", b"two\n", "")
    gone = client.output_of(rig.warden, ["no-such-helper"], rig.directory, environment)
    assert (gone.exit.error, gone.problem) == (errno.ENOENT, "no-such-helper: command not found")
