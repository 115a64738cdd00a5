"""Durable state under kill -9, full and failing disks, foreign stores and swapped directories."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from conftest import RALPH, Project, Result, wait_until
from ralph.core import machine
from ralph.core.model import Plan, Ran, State
from ralph.store import codec, files
from ralph.store.database import VERSION
from ralph.store.home import Home
from ralph.store.journal import Row, rows
from ralph.views.status import Summary, summaries

RUNS = int(os.environ.get("RALPH_FAULT_RUNS", "3"))
"""How often a fault is repeated where its number matters."""

REPEATED = pytest.mark.timeout(120 + 3 * RUNS)

DONE = "echo '<response>DONE</response>'"
NO_ROOM = "No space left on the disk. Waiting until there is some."


def python(code: str, *arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
    """A process of our own that uses the store; the caller waits for it."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


def killed(process: subprocess.Popen[str]) -> None:
    """Kill -9."""
    process.send_signal(signal.SIGKILL)
    process.communicate()


def journal_of(home: Home, run: str) -> list[Row]:
    with closing(home.connect()) as db:
        return list(rows(db, run))


def replayed(home: Home, run: str) -> State:
    """The state after every fact of a run; the stored states are compared on the way."""
    found = journal_of(home, run)
    plan: Plan = codec.decode("plan", found[0].body)
    state = machine.start(plan, found[0].started)
    for row in found:
        if row.kind in codec.COMMANDS:
            state = machine.apply(state, codec.decode(row.kind, row.body))
        elif row.result is not None and row.result_kind is not None:
            state = machine.apply(state, codec.decode(row.result_kind, row.result))
        if row.state is not None:
            assert state == codec.decode_state(row.state, plan), f"row {row.seq}: {row.kind}"
    return state


def newest(project: Project) -> Summary:
    """The newest run, as `ralph status` shows it."""
    runs = project.home.runs()
    with closing(runs.db):
        return summaries(runs)[0]


def assert_sound(home: Home) -> None:
    """The store is one that SQLite finds nothing wrong with."""
    with closing(sqlite3.connect(home.database)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def assert_clear(result: Result, *said: str) -> None:
    """Exit 2 and one error for people that says all this; no traceback, no talk of a bug."""
    everything = result.out + result.err
    assert "Traceback" not in everything and "This is a bug" not in everything, everything
    assert result.code == 2, everything
    errors = [line for line in everything.splitlines() if line.startswith(("ralph: error: ", "fatal: "))]
    assert len(errors) == 1, everything
    text = errors[0].removeprefix("ralph: error: ").removeprefix("fatal: ")
    assert text[:1] not in ("", ":"), f"names nothing: {text}"
    for words in said:
        assert words in everything


# ---- D1, D2: files ----

REWRITER = """
import hashlib, itertools, os, sys
from ralph.store import files
directory = os.open(sys.argv[1], os.O_RDONLY)
for number in itertools.count():
    body = b"%d " % number * (1 + number * 7919 % 60_000)
    files.write(directory, "file", hashlib.sha256(body).hexdigest().encode() + b"\\n" + body)
    if number == 0:
        print("ready", flush=True)
"""
"""Writes versions of a file, each with its own checksum and length, as fast as it can."""


def version_of(data: bytes) -> int:
    """Which version of the file this is; a mixture has none."""
    digest, _, body = data.partition(b"\n")
    assert hashlib.sha256(body).hexdigest().encode() == digest, "torn"
    return int(body.split(b" ", 1)[0])


@REPEATED
@pytest.mark.parametrize("part", range(4))
def test_d1_a_file_is_whole_whenever_its_writer_is_killed(tmp_path: Path, part: int) -> None:
    """D1: after kill -9 at any moment the file is a whole version, and what is left over is swept."""
    left = 0
    for _ in range(RUNS):
        writer = python(REWRITER, tmp_path)
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        time.sleep(random.uniform(0, 0.05))
        killed(writer)
        version_of((tmp_path / "file").read_bytes())
        left += len(os.listdir(tmp_path)) - 1
        directory = os.open(tmp_path, os.O_RDONLY)
        files.sweep_temporaries(directory)
        os.close(directory)
        assert os.listdir(tmp_path) == ["file"]
    if RUNS >= 50:
        assert left > 0, "no kill met a write: the test shows nothing"


def test_d1_a_prompt_cut_off_by_kill_is_swept_by_the_next_run(project: Project) -> None:
    """D1: the next run leaves no temporary file of a killed one in `.ralph`."""
    project.agent(DONE)
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name in ("prompt_001.txt", "current_run", ".gitignore"):
        (project.path / f".ralph/.tmp-{dead.pid}-{name}").write_text("half")
    assert project.run("run", "-p", "x").code == 0
    assert [name for name in os.listdir(project.path / ".ralph") if name.startswith(".tmp-")] == []


@REPEATED
def test_d2_a_reader_sees_whole_files_only(tmp_path: Path) -> None:
    """D2: a reader at full speed never sees a file that is half written, or no file, or an older one."""
    writer = python(REWRITER, tmp_path)
    assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    seen, last = 0, -1
    try:
        for _ in range(2000 * RUNS):
            number = version_of((tmp_path / "file").read_bytes())
            assert number >= last
            seen += number != last
            last = number
    finally:
        killed(writer)
    assert seen > 10, "the writer did not write: the test shows nothing"


# ---- D5: the journal ----

JOURNALIST = """
import sys
from pathlib import Path
from ralph.core import machine
from ralph.core.model import *
from ralph.store.home import Home
from ralph.store.journal import Journal
agent = AgentSpec("a", "custom", "a")

def make_plan(id):
    return Plan(id, Flow.RUN, "/work", (agent,), PromptSource("x"), limits=Limits(iterations=10**9))

runs = Home(Path(sys.argv[1])).runs()
run = runs.create(Flow.RUN, "/work", "/work", make_plan)
state, at = machine.start(make_plan(run.id), run.created), run.created
journal = Journal(runs.db, runs.path, run.id)
print(run.id, 0, flush=True)
while True:
    step, at = machine.next_step(state), at + 1
    seq = journal.begin(step, at)
    journal.flush()
    fact = Seen(at) if isinstance(step, Look) else Ran(at, Ended.OK, "a", text="x" * (int(at) * 131 % 9000))
    state = machine.apply(state, fact)
    journal.complete(step, fact, state)
    journal.flush()
    if isinstance(fact, Ran):
        print(run.id, seq, flush=True)
"""
"""Journals a run that never ends, and says which rows it has been promised."""


@REPEATED
@pytest.mark.parametrize("writers", [1, 3])
def test_d5_promised_rows_survive_kill(tmp_path: Path, writers: int) -> None:
    """D5: whenever writers are killed, every row that was promised is there, and the store is sound."""
    home = Home(tmp_path)
    said = [tmp_path / f"said-{number}" for number in range(writers)]
    promised: dict[str, int] = {}
    for _ in range(RUNS):
        processes = []
        for file in said:
            with file.open("w") as output:
                processes.append(
                    subprocess.Popen([sys.executable, "-c", JOURNALIST, tmp_path], stdout=output)
                )
        wait_until(lambda: all(b"\n" in file.read_bytes() for file in said))
        time.sleep(random.uniform(0, 0.1))
        for process in processes:
            process.kill()
            process.wait()
        for file in said:
            *whole, _ = file.read_text().split("\n")
            promised |= {run: int(seq) for run, seq in map(str.split, whole)}
        assert_sound(home)
    assert len(promised) == RUNS * writers
    for run, last in promised.items():
        found = journal_of(home, run)
        assert found[-1].seq >= last
        assert [row.seq for row in found] == list(range(len(found)))
        assert [row.seq for row in found[:-1] if row.state is None] == []
        replayed(home, run)


@REPEATED
def test_d5_a_killed_run_has_lost_nothing(project: Project) -> None:
    """D5: ralph killed at any moment of a real run goes on, and its journal replays from plan to end."""
    project.agent("echo $RALPH_ITERATION >> agents", guardrails=[{"command": "true"}])
    agents = project.path / "agents"
    agents.touch()

    def has_grown(before: int) -> Callable[[], bool]:
        return lambda: agents.stat().st_size > before + 10

    process = project.start("run", "-p", "x", "-m", "100000")
    for _ in range(RUNS):
        wait_until(has_grown(agents.stat().st_size))
        time.sleep(random.uniform(0, 0.02))
        killed(process)
        assert_sound(project.home)
        process = project.start("resume")
    wait_until(has_grown(agents.stat().st_size))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    state = replayed(project.home, newest(project).id)
    done = [int(line) for line in agents.read_text().split()]
    assert done == sorted(done), "an iteration was done again after a later one"
    assert set(done) >= set(range(1, state.iteration + 1))


# ---- D7: full disks ----

ON_A_SMALL_DISK = """
disk=$1 keep=$2 size=$3; shift 3
mkdir -p "$keep" && cp -a "$disk/." "$keep" && mount -t tmpfs -o size="$size" tmpfs "$disk" &&
    cp -a "$keep/." "$disk" && cd "$PWD" || exit 99
"$@"; code=$?
cp -a "$disk/." "$keep"; exit $code
"""
"""Runs a command with a small disk mounted on a directory, and keeps a copy of what it had in the end."""


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words that run a command with a disk of its own, where this machine lets us."""
    words = ["unshare", "-rm", "sh", "-c", ON_A_SMALL_DISK, "sh"]
    disk = tmp_path_factory.mktemp("disk")
    if shutil.which("unshare"):
        tried = subprocess.run([*words, disk, f"{disk}-keep", "1m", "true"], check=False, capture_output=True)
        if tried.returncode == 0:
            return words
    pytest.skip("this machine does not let us mount anything")


class Watched:
    """A ralph process whose output goes to a file, so that it can be read while it works."""

    def __init__(self, project: Project, words: list[str], log: Path) -> None:
        self._log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                words,
                cwd=project.path,
                env=project.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
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


FILL = "head -c 4000000 /dev/zero > {disk}/filler 2>/dev/null"


def test_d7_a_full_disk_under_the_store(project: Project, mounts: list[str], tmp_path: Path) -> None:
    """D7: with no room for the journal the run waits and says so; freed, it goes on, nothing lost."""
    disk = project.home.path
    fill = FILL.format(disk=disk)
    project.agent(f"[ $RALPH_ITERATION = 1 ] && {{ {fill}; echo hm; }} || {DONE}")
    keep = tmp_path / "kept"
    words = [*mounts, str(disk), str(keep), "2m", RALPH, "run", "-p", "x"]
    run = Watched(project, words, tmp_path / "log")
    run.wait_for(NO_ROOM)
    Path(f"/proc/{run.process.pid}/root{disk}/filler").unlink()
    result = run.result()
    assert result.code == 0, result.err
    assert result.err.count(NO_ROOM) == 1
    home = Home(keep)
    assert_sound(home)
    found = newest(Project(project.path, home))
    assert (found.outcome, found.iteration) == ("complete", 2)
    assert replayed(home, found.id).iteration == 2


def test_d7_a_full_disk_under_the_project(project: Project, mounts: list[str], tmp_path: Path) -> None:
    """D7: with no room for a prompt the run waits and says so; freed, it goes on to its end."""
    disk = project.path
    fill = FILL.format(disk=disk)
    project.agent(f"[ $RALPH_ITERATION = 1 ] && {{ {fill}; echo hm; }} || {DONE}")
    keep = tmp_path / "kept"
    words = [*mounts, str(disk), str(keep), "1m", RALPH, "run", "-p", "x" * 20_000]
    run = Watched(project, words, tmp_path / "log")
    run.wait_for(NO_ROOM)
    assert newest(project).state == "running"
    Path(f"/proc/{run.process.pid}/root{disk}/filler").unlink()
    result = run.result()
    assert result.code == 0, result.err
    assert replayed(project.home, newest(project).id).iteration == 2
    assert len((keep / ".ralph/prompt_002.txt").read_text()) > 20_000
    assert [name for name in os.listdir(keep / ".ralph") if name.startswith(".tmp-")] == []


def test_d7_a_log_that_could_not_be_kept_is_said(project: Project, mounts: list[str], tmp_path: Path) -> None:
    """D7: a guardrail's log that was cut off by a full disk is told, as a raw stream is."""
    disk = project.path
    fill = FILL.format(disk=disk)
    project.agent(f"{fill}; {DONE}", guardrails=[{"command": "head -c 100000 /dev/zero"}])
    words = [*mounts, str(disk), str(tmp_path / "kept"), "1m", RALPH, "run", "-p", "x"]
    result = Watched(project, words, tmp_path / "log").result()
    assert result.code == 0, result.err
    assert "No space left on device" in result.err


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(
            "store",
            marks=pytest.mark.xfail(strict=True, reason="it says that it goes on by itself, and ends"),
        ),
        pytest.param(
            "project", marks=pytest.mark.xfail(strict=True, reason="preparing `.ralph` raises a bare OSError")
        ),
    ],
)
def test_d7_a_disk_that_is_full_from_the_start(
    project: Project, mounts: list[str], tmp_path: Path, where: str
) -> None:
    """D7: a run that cannot even begin says that there is no space, and ends."""
    project.agent(DONE)
    disk = project.home.path if where == "store" else project.path
    command = ["sh", "-c", f'{FILL.format(disk=disk)}; exec "$@"', "sh", RALPH, "run", "-p", "x"]
    words = [*mounts, str(disk), str(tmp_path / "kept"), "64k", *command]
    result = Watched(project, words, tmp_path / "log").result()
    assert_clear(result, "o space left")
    assert "goes on by itself" not in result.err


INJECTED = """
import importlib, os, sys
module, name, number, flag, *arguments = sys.argv[1:]

class Failing:
    def __getattr__(self, attribute):
        real = getattr(os, attribute)
        if attribute != name:
            return real
        def call(*args, **kwargs):
            if os.path.exists(flag):
                named = [args[0]] if isinstance(args[0], str) else []
                raise OSError(int(number), os.strerror(int(number)), *named)
            return real(*args, **kwargs)
        return call

importlib.import_module(module).os = Failing()
from ralph.cli import main
sys.exit(main(arguments))
"""
"""ralph, with one function of `os` failing for one of its modules while a certain file exists."""


def injected(module: str, function: str, number: int, *arguments: str) -> list[str]:
    """The words that start it; the file is `broken` in the project."""
    return [
        sys.executable,
        "-c",
        INJECTED,
        f"ralph.store.{module}",
        function,
        str(number),
        "broken",
        *arguments,
    ]


@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("files", "mkdir"),
        ("files", "open"),
        ("files", "write"),
        ("files", "rename"),
        ("runtime", "open"),
    ],
)
def test_d7_no_room_at_any_place_that_writes(
    project: Project, tmp_path: Path, module: str, function: str
) -> None:
    """D7: wherever the disk turns out to be full during a run, it waits, and then goes on."""
    project.agent(
        f"[ $RALPH_ITERATION = 1 ] && touch broken; {DONE}",
        guardrails=[{"command": "echo x; [ $RALPH_ITERATION = 2 ]"}],
    )
    words = injected(module, function, errno.ENOSPC, "run", "-p", "x")
    run = Watched(project, words, tmp_path / "log")
    run.wait_for(NO_ROOM)
    (project.path / "broken").unlink()
    result = run.result()
    assert result.code == 0, result.err
    assert replayed(project.home, newest(project).id).iteration == 2


SMALL_STORE = """
import os, sys, threading, time
from ralph.store.home import Home
connections, connect = [], Home.connect

def counted(home):
    connections.append(connect(home))
    return connections[-1]

def watch():
    full = False
    while True:
        if os.path.exists("broken") != full:
            full = not full
            for db in connections:
                try:
                    pages = db.execute("PRAGMA page_count").fetchone()[0] if full else 1_000_000
                    db.execute(f"PRAGMA max_page_count = {pages}")
                except Exception:
                    pass
            os.rename("asked", "answered")
        time.sleep(0.005)

Home.connect = counted
threading.Thread(target=watch, daemon=True).start()
from ralph.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""ralph, with a store that may not grow while the file `broken` exists."""

SMALL_STORE_AGENT = """
if [ "$RALPH_ITERATION" = 1 ]; then
    touch asked broken
    while [ ! -e answered ]; do sleep 0.01; done
fi
head -c 30000 /dev/zero | tr '\\0' x
echo
echo '<response>DONE</response>'
"""


def on_a_small_store(project: Project, log: Path) -> Watched:
    """A run that finds its store full after the first iteration; returns when it waits."""
    project.agent(SMALL_STORE_AGENT, guardrails=[{"command": "[ $RALPH_ITERATION = 2 ]"}])
    run = Watched(project, [sys.executable, "-c", SMALL_STORE, "run", "-p", "x"], log)
    run.wait_for(NO_ROOM)
    return run


def test_d7_a_store_that_may_not_grow(project: Project, tmp_path: Path) -> None:
    """D7: when SQLite finds no room the run waits, views still read, and with room it goes on."""
    run = on_a_small_store(project, tmp_path / "log")
    assert newest(project).state == "running"
    assert_sound(project.home)
    (project.path / "asked").touch()
    (project.path / "broken").unlink()
    result = run.result()
    assert result.code == 0, result.err
    assert replayed(project.home, newest(project).id).iteration == 2


def test_d7_a_run_that_waits_for_room_can_be_interrupted(project: Project, tmp_path: Path) -> None:
    """D7: Ctrl-C while it waits is an interruption like any other: 130, and the run can go on."""
    run = on_a_small_store(project, tmp_path / "log")
    run.process.send_signal(signal.SIGINT)
    result = run.result()
    assert result.code == 130, result.err
    (project.path / "broken").unlink()
    assert project.run("resume").code == 0


def test_d7_an_interrupted_wait_loses_nothing_that_was_promised(project: Project, tmp_path: Path) -> None:
    """D7: however a run without room ends, its journal is sound, and resume finishes the work."""
    run = on_a_small_store(project, tmp_path / "log")
    run.process.send_signal(signal.SIGINT)
    result = run.result()
    assert "Traceback" not in result.err and "This is a bug" not in result.err, result.err
    (project.path / "broken").unlink()
    assert_sound(project.home)
    resumed = project.run("resume")
    assert resumed.code == 0, resumed.err
    assert replayed(project.home, newest(project).id).iteration == 2


# ---- D8: failing disks ----

ERRORS = (errno.EIO, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.EMFILE)[:RUNS]


def bare_at_start() -> pytest.MarkDecorator:
    return pytest.mark.xfail(strict=True, reason="preparing `.ralph` raises a bare OSError: called a bug")


@pytest.mark.parametrize(
    ("module", "function"),
    [
        pytest.param("files", "mkdir", marks=bare_at_start()),
        pytest.param("files", "open", marks=bare_at_start()),
        pytest.param("files", "write", marks=bare_at_start()),
        pytest.param("files", "rename", marks=bare_at_start()),
        pytest.param("files", "fsync", marks=bare_at_start()),
        pytest.param("files", "listdir", marks=bare_at_start()),
        pytest.param("runtime", "listdir", marks=bare_at_start()),
        pytest.param("runtime", "stat", marks=bare_at_start()),
        ("runtime", "open"),
    ],
)
def test_d8_an_error_at_the_start(project: Project, tmp_path: Path, module: str, function: str) -> None:
    """D8: any error of the disk before the first iteration is one clear error, and the store is sound."""
    project.agent(DONE)
    (project.path / "broken").touch()
    (project.path / ".ralph/prompt_001.txt").touch()
    for number in ERRORS:
        words = injected(module, function, number, "run", "-p", "x")
        result = Watched(project, words, tmp_path / "log").result()
        assert_clear(result, os.strerror(number))
        assert_sound(project.home)
    (project.path / "broken").unlink()
    assert project.run("run", "-p", "x").code == 0


@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("files", "mkdir"),
        ("files", "open"),
        pytest.param(
            "files",
            "write",
            marks=pytest.mark.xfail(strict=True, reason="the reason begins with a colon: no file is named"),
        ),
        ("files", "rename"),
        ("runtime", "open"),
    ],
)
def test_d8_an_error_during_a_run(project: Project, tmp_path: Path, module: str, function: str) -> None:
    """D8: any error of the disk in a run is one clear end with exit 2; with a sound disk it goes on."""
    project.agent(
        f"[ -e broken ] || [ -e mended ] || touch broken; {DONE}",
        guardrails=[{"command": "[ $RALPH_ITERATION = 2 ]"}],
    )
    for number in ERRORS:
        words = injected(module, function, number, "run", "-p", "x")
        result = Watched(project, words, tmp_path / "log").result()
        assert_clear(result, os.strerror(number))
        assert_sound(project.home)
        status = newest(project)
        assert (status.state, status.outcome) == ("ended", "fatal")
        assert os.strerror(number) in (status.reason or "")
        (project.path / "broken").unlink()
    (project.path / "mended").touch()
    assert project.run("resume").code == 0


def limited(process: subprocess.Popen[str], what: int, soft: int) -> None:
    _, hard = resource.prlimit(process.pid, what)
    resource.prlimit(process.pid, what, (soft, hard))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs prlimit")
@pytest.mark.parametrize(
    ("what", "soft"),
    [
        pytest.param(
            resource.RLIMIT_FSIZE,
            0,
            marks=pytest.mark.xfail(strict=True, reason="letting the run go raises once more: two errors"),
        ),
        (resource.RLIMIT_NOFILE, 6),
    ],
    ids=["no byte can be written", "no file can be opened"],
)
def test_d8_a_process_that_the_system_denies_everything(project: Project, what: int, soft: int) -> None:
    """D8: real errors of the system under SQLite and under ralph's own files end in one clear error."""
    project.agent(
        f"touch started; while [ ! -e go ]; do sleep 0.02; done; {DONE}", guardrails=[{"command": "true"}]
    )
    process = project.start("run", "-p", "x")
    wait_until(lambda: (project.path / "started").exists())
    limited(process, what, soft)
    (project.path / "go").touch()
    out, err = process.communicate(timeout=30)
    assert_sound(project.home)
    resumed = project.run("resume")
    assert resumed.code == 0, resumed.err
    assert_clear(Result(process.returncode, out, err))


def test_d8_few_descriptors_from_the_start(project: Project) -> None:
    """D8: with too few descriptors a run is refused in words, with enough it is done."""
    project.agent(DONE)
    codes = set()
    for most in range(12, 25, 2):
        done = subprocess.run(
            ["sh", "-c", f'ulimit -n {most}; exec "$@"', "sh", RALPH, "run", "-p", "x"],
            cwd=project.path,
            env=project.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
        if done.returncode != 0:
            assert_clear(Result(done.returncode, done.stdout, done.stderr), "Too many open files")
        codes.add(done.returncode)
    assert codes == {0, 2}, "the limits met no border: the test shows nothing"
    assert_sound(project.home)


def test_d8_no_place_for_the_report_of_a_bug(project: Project) -> None:
    """D8: an unexpected error is still one error with exit 2 when its details cannot be written."""
    code = (
        "import sys, ralph.cli as cli\n"
        "def broken(argv): raise RuntimeError('hm')\n"
        "cli._invoke = broken\n"
        "sys.exit(cli.main(['status']))\n"
    )
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-c", code],
        cwd=project.path,
        env=project.env,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "hm" in done.stderr


# ---- D12 and foreign stores ----

COMMANDS = {
    "run": ["run", "-p", "x"],
    "status": ["status"],
    "status RUN": ["status", "RUN"],
    "status --json": ["status", "--json"],
    "resume": ["resume"],
    "resume RUN": ["resume", "RUN", "-m", "9"],
    "cancel": ["cancel", "RUN"],
    "pause": ["pause", "RUN"],
    "steer": ["steer", "RUN", "hm"],
}


def contents(path: Path) -> dict[str, str]:
    """Everything below a directory, links not followed: what it is, and a digest of what it holds."""
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


@pytest.fixture
def used(project: Project) -> tuple[Project, str]:
    """A project with a store and an unfinished run in it; returns the run's id too."""
    project.agent("echo hm")
    project.run("run", "-p", "x", "-m", "3")
    return project, newest(project).id


def each_command(project: Project, run: str, *names: str) -> Iterator[tuple[str, Result]]:
    for name in names or COMMANDS:
        yield name, project.run(*(run if word == "RUN" else word for word in COMMANDS[name]))


def test_d12_a_newer_store_is_refused_and_left_alone(used: tuple[Project, str]) -> None:
    """D12: every command refuses a store of a newer format, names both numbers, and changes no byte."""
    project, run = used
    with closing(sqlite3.connect(project.home.database)) as db:
        db.execute("PRAGMA user_version = 99")
    before = contents(project.home.path)
    for name, result in each_command(project, run):
        assert result.out == "", name
        assert_clear(result, str(project.home.database), "99", f"this one knows {VERSION}")
        assert contents(project.home.path) == before, name


def test_d12_the_same_version_is_read(used: tuple[Project, str]) -> None:
    """D12: a store of this format, with a table that was added, is used as ever."""
    project, run = used
    with closing(sqlite3.connect(project.home.database)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
        db.execute("CREATE TABLE added (x)")
        db.execute("ALTER TABLE runs ADD COLUMN colour TEXT")
    assert project.run("status", run).code == 0


def test_d12_added_columns_do_not_stop_an_older_ralph(used: tuple[Project, str]) -> None:
    """D12: schema changes only add, so a column that a later version added is no obstacle."""
    project, _ = used
    with closing(sqlite3.connect(project.home.database)) as db:
        db.execute("ALTER TABLE runs ADD COLUMN colour TEXT")
        db.execute("ALTER TABLE journal ADD COLUMN colour TEXT")
    project.agent(DONE)
    result = project.run("run", "-p", "x")
    assert result.code == 0, result.err


def make_directory(path: Path) -> None:
    path.mkdir()


def make_garbage(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(20_000))


def make_cut_header(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"\0" * 100)


def make_text(path: Path) -> None:
    path.write_text("{}\n" * 1000)


def make_foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE precious (x)")
        db.execute("INSERT INTO precious VALUES (1)")
        db.commit()


def make_foreign_version(path: Path) -> None:
    make_foreign(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {VERSION}")


def make_foreign_runs(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE runs (x)")


def turned_to_wal() -> pytest.MarkDecorator:
    return pytest.mark.xfail(strict=True, reason="the file is turned to WAL before it is looked at")


@pytest.mark.parametrize(
    "make",
    [
        make_directory,
        make_garbage,
        make_cut_header,
        make_text,
        pytest.param(
            make_foreign,
            marks=pytest.mark.xfail(strict=True, reason="any empty format number is taken for a new store"),
        ),
        pytest.param(make_foreign_version, marks=turned_to_wal()),
        pytest.param(make_foreign_runs, marks=turned_to_wal()),
    ],
)
def test_a_store_that_is_none_is_refused_and_left_alone(
    project: Project, make: Callable[[Path], None]
) -> None:
    """Whatever else is named `ralph.db` is named in one clear error, and not touched."""
    project.agent(DONE)
    make(project.home.database)
    before = contents(project.home.path)
    for name, result in each_command(project, "x", "run", "status", "resume"):
        assert_clear(result, str(project.home.database))
        assert contents(project.home.path) == before, name


def test_an_empty_file_becomes_a_store(project: Project) -> None:
    """A file of no bytes, as `touch` or a full disk leave it, is a store that has not begun."""
    project.agent(DONE)
    project.home.database.touch()
    assert project.run("run", "-p", "x").code == 0
    assert_sound(project.home)


def damage_pages(project: Project) -> None:
    with closing(sqlite3.connect(project.home.database)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'journal'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with project.home.database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def damage_states(project: Project) -> None:
    with closing(sqlite3.connect(project.home.database)) as db:
        db.execute("UPDATE journal SET state = '{' WHERE state IS NOT NULL")
        db.commit()


def damage_plan(project: Project) -> None:
    with closing(sqlite3.connect(project.home.database)) as db:
        db.execute("UPDATE journal SET body = '{}' WHERE seq = 0")
        db.commit()


def unguarded() -> pytest.MarkDecorator:
    return pytest.mark.xfail(
        strict=True, reason="reads of rows are outside clear_errors, or a row is bad JSON"
    )


@pytest.mark.parametrize(
    ("command", "damage"),
    [
        pytest.param("status RUN", damage_pages, marks=unguarded()),
        pytest.param("status RUN", damage_states, marks=unguarded()),
        pytest.param("status RUN", damage_plan, marks=unguarded()),
        ("resume RUN", damage_pages),
        pytest.param("resume RUN", damage_states, marks=unguarded()),
        pytest.param("resume RUN", damage_plan, marks=unguarded()),
    ],
)
def test_a_damaged_store_is_one_clear_error(
    used: tuple[Project, str], damage: Callable[[Project], None], command: str
) -> None:
    """A page or a row that cannot be read is one clear error that names the store."""
    project, run = used
    damage(project)
    result = project.run(*(run if word == "RUN" else word for word in COMMANDS[command]))
    assert_clear(result, str(project.home.database))


def test_a_store_that_is_deleted_under_a_run(project: Project) -> None:
    """A run whose store is removed comes to a clean end, and the next command starts a new store."""
    project.agent(f"rm -rf {project.home.path}/*; echo hm; [ $RALPH_ITERATION = 2 ] && {DONE}; true")
    result = project.run("run", "-p", "x")
    assert result.code in (0, 2), result.err
    assert "Traceback" not in result.err and "This is a bug" not in result.err
    assert project.run("status", "--json").code == 0


BACKWARDS = """
import itertools, sys
from ralph import loop
ticks = itertools.count()
loop.Clock.wall = lambda clock: 2_000_000_000.0 - 1000 * next(ticks)
from ralph.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_clock_that_goes_backwards(project: Project, tmp_path: Path) -> None:
    """A clock that falls with every look changes neither the order of rows nor how long things took."""
    project.agent(f"[ $RALPH_ITERATION = 3 ] && {DONE}; true", guardrails=[{"command": "true"}])
    words = [sys.executable, "-c", BACKWARDS, "run", "-p", "x"]
    result = Watched(project, words, tmp_path / "log").result()
    assert result.code == 0, result.err
    status = newest(project)
    state = replayed(project.home, status.id)
    assert (state.iteration, status.outcome) == (3, "complete")
    assert 0 <= state.elapsed < 60
    assert project.run("status", status.id).code == 0


@pytest.mark.parametrize("via", ["stdin", "argument"])
def test_strange_text_survives_a_run(project: Project, via: str) -> None:
    """NUL, emoji, surrogates and bytes that are no text come through prompt, output and journal."""
    prompt = project.path / "prompt.md"
    text = "🦀 é \u2028 \x1b[31m" + ("\0" if via == "stdin" else "")
    prompt.write_text(text)
    rubbish = "printf '\\355\\240\\200 \\377\\376 \\360\\237\\246\\200 \\0 x\\n'"
    project.agent(f'cat > got; printf %s "$1" >> got; {rubbish}; {DONE}', agent={"promptVia": via})
    result = project.run("run", "-f", "prompt.md")
    assert result.code == 0, result.err
    assert (project.path / "got").read_bytes().startswith(text.encode())
    run = newest(project).id
    state = replayed(project.home, run)
    assert isinstance(state.ran, Ran) and "🦀" in state.ran.text
    raw = next(project.home.streams(run).glob("*.stdout")).read_bytes()
    assert raw.startswith(b"\355\240\200 \377\376 \360\237\246\200 \0 x\n")
    json.loads(project.run("status", run, "--json").out)


# ---- T3: swapped directories ----

RALPH_PID = "$(cut -d ' ' -f 4 /proc/$PPID/stat)"
"""In an agent, the process of ralph: the parent of its warden."""

SWAPS = {
    "link": "mv .ralph .r; ln -s {out} .ralph",
    "relative link": "mv .ralph .r; ln -s ../../outside .ralph",
    "link to links": "mv .ralph .r; ln -s {out} a; ln -s a .ralph",
    "dangling link": "rm -r .ralph; ln -s {out}/new .ralph",
    "link to a file": "rm -r .ralph; ln -s {out}/file .ralph",
    "link to itself": "rm -r .ralph; ln -s .ralph .ralph",
    "file": "rm -r .ralph; touch .ralph",
    "fifo": "rm -r .ralph; mkfifo .ralph",
    "removed": "rm -r .ralph",
    "project is a link": "cd ..; mv project moved; ln -s {out} project",
    "project is another": "cd ..; mv project moved; cp -r moved project",
    "parent is a link": "cd ../..; mv top moved; mkdir new; ln -s {out} new/project; ln -s new top",
    "project is removed": "cd ..; rm -r project",
    "prompt is a link": "ln -s {out}/file .ralph/prompt_002.txt",
    "prompt is a hard link": "ln {out}/file .ralph/prompt_002.txt",
    "prompt is a directory": "mkdir .ralph/prompt_002.txt",
    "log is a link": "ln -s {out}/file .ralph/guardrail_001_true.log",
    "log is a directory": "mkdir .ralph/guardrail_001_true.log",
    "temporary is a link": f"ln -s {{out}}/file .ralph/.tmp-{RALPH_PID}-prompt_002.txt",
    "log is a hard link": "ln {out}/file .ralph/guardrail_001_true.log",
    "temporary is a hard link": f"ln {{out}}/file .ralph/.tmp-{RALPH_PID}-prompt_002.txt",
    "log is a fifo": "mkfifo .ralph/guardrail_001_true.log",
}
NOT_YET = {
    "log is a hard link": "an existing log is truncated in place, whoever else has it",
    "temporary is a hard link": "the temporary file is opened with O_TRUNC, not made with O_EXCL",
    "log is a fifo": "opening a FIFO for writing waits for ever, for signals too",
}


HERE = {"command": "./agent.sh"}
"""The agent by its place in the project, so that it is found wherever that has gone."""


@pytest.fixture
def swapped(tmp_path: Path, project: Project) -> tuple[Project, Path]:
    """A project two levels deep, and a directory outside that holds what a link could hit."""
    outside = tmp_path / "outside"
    (outside / ".ralph/old").mkdir(parents=True)
    (outside / "new-run").mkdir()
    for name in ("file", "prompt_002.txt", "guardrail_001_true.log", "current_run", ".ralph/prompt_002.txt"):
        (outside / name).write_text("precious")
    deep = Project(tmp_path / "top/project", project.home)
    deep.path.mkdir(parents=True)
    return deep, outside


@pytest.mark.parametrize(
    "swap",
    [
        pytest.param(
            name, marks=pytest.mark.xfail(strict=True, reason=NOT_YET[name]) if name in NOT_YET else ()
        )
        for name in SWAPS
    ],
)
def test_t3_an_agent_that_swaps_directories(swapped: tuple[Project, Path], swap: str) -> None:
    """T3: whatever an agent puts in place of Ralph's files, nothing is written outside the project."""
    project, outside = swapped
    once = SWAPS[swap].format(out=outside)
    project.agent(
        f"echo hm; [ $RALPH_ITERATION = 1 ] && {{ {once}; }}; true",
        agent=HERE,
        guardrails=[{"command": "true"}],
    )
    before = contents(outside)
    result = project.run("run", "-p", "x", "-m", "3", timeout=6 if swap in NOT_YET else 30)
    assert contents(outside) == before
    if result.code != 1:
        assert_clear(result)
    assert_sound(project.home)


@pytest.mark.parametrize(
    "plant",
    [
        "rm -r .ralph/old; ln -s {out} .ralph/old",
        "rm .ralph/.gitignore; ln -s {out}/file .ralph/.gitignore",
        "rm .ralph/current_run; ln -s {out}/file .ralph/current_run",
        "rm -rf .ralph/old; mkdir .ralph/old; ln -s {out} .ralph/old/$RALPH_RUN_ID",
        "rm .ralph/current_run; mkfifo .ralph/current_run",
        "ln -s {out}/file .ralph/prompt_009.txt",
    ],
)
def test_t3_what_one_run_plants_for_the_next(swapped: tuple[Project, Path], plant: str) -> None:
    """T3: links that an agent leaves behind do not lead the next run outside."""
    project, outside = swapped
    (project.path / ".ralph/old").mkdir(parents=True)
    project.agent(f"{plant.format(out=outside)}; {DONE}")
    before = contents(outside)
    first = project.run("run", "-p", "x")
    assert first.code == 0, first.err
    project.agent(DONE)
    second = project.run("run", "-p", "x")
    assert contents(outside) == before
    if second.code != 0:
        assert_clear(second)


def test_t3_a_run_goes_on_where_it_was_or_not_at_all(swapped: tuple[Project, Path]) -> None:
    """T3: a run whose directory has become a link to somewhere else is not resumed there."""
    project, outside = swapped
    project.agent(f"cd ..; mv project moved; ln -s {outside} project; echo hm", agent=HERE)
    shutil.copy(project.script("harmless.sh", "echo hm"), outside / "agent.sh")
    project.run("run", "-p", "x", "-m", "1")
    before = contents(outside)
    result = Project(outside.parent, project.home).run("resume", newest(project).id, "-m", "2")
    assert contents(outside) == before
    assert_clear(result, str(project.path))


def test_t3_a_store_in_the_project_is_not_led_astray(swapped: tuple[Project, Path]) -> None:
    """T3: with the store in `.ralph/state`, a swapped `.ralph` does not get the agent's stream."""
    project, outside = swapped
    project.extra_env |= {"RALPH_STATE_DIR": "", "XDG_STATE_HOME": "", "HOME": "/dev/null/x"}
    runs = f"{outside}/state/runs/$RALPH_RUN_ID"
    project.agent(f"mv .ralph .r; mkdir -p {runs}; ln -s {outside} .ralph; echo hm; sleep 0.1; echo hm")
    result = project.run("run", "-p", "x", "-m", "2")
    assert [name for name, what in contents(outside / "state").items() if what != "directory"] == []
    assert_clear(result)


def test_t3_a_repository_swapped_for_another(repository: Project, tmp_path: Path) -> None:
    """T3: snapshots and commits do not go into a repository that was put in the place of ours."""
    outside = tmp_path / "outside"
    shutil.copytree(repository.path, outside)
    swap = f"cd ..; mv project moved; ln -s {outside} project; echo new > moved/new; echo new > {outside}/new"
    repository.agent(f"echo hm; [ $RALPH_ITERATION = 1 ] && {{ {swap}; }}; true", agent=HERE)
    settings = json.loads((repository.path / ".ralph/settings.json").read_text())
    scm = {"command": "git", "tasks": ["commit"]}
    repository.settings(**settings | {"snapshots": True, "scm": scm})
    before = contents(outside / ".git")
    result = repository.run("run", "-p", "x", "-m", "3")
    assert contents(outside / ".git") == before, result.out + result.err


@REPEATED
def test_t3_a_directory_that_changes_all_the_time(swapped: tuple[Project, Path]) -> None:
    """T3: somebody who swaps `.ralph` as fast as he can finds no moment to get something written outside."""
    project, outside = swapped
    project.agent("echo hm", guardrails=[{"command": "true"}])
    before = contents(outside)
    ours, away, stopped = project.path / ".ralph", project.path / ".away", threading.Event()

    def swap() -> None:
        while not stopped.is_set():
            ours.rename(away)
            ours.symlink_to(outside)
            ours.unlink()
            away.rename(ours)

    codes = set()
    for _ in range(RUNS):
        thread = threading.Thread(target=swap)
        thread.start()
        result = project.run("run", "-p", "x", "-m", "50", "--settings", "../settings.json")
        stopped.set()
        thread.join()
        stopped.clear()
        codes.add(result.code)
        assert contents(outside) == before
        assert "Traceback" not in result.err
    assert codes <= {1, 2}
