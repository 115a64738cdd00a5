"""P3, D1, D2, D5: ralph and its writers are killed with -9 at any moment; nothing is lost, torn or repeated."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import Project, wait_until
from faults.fault_support import (
    DONE,
    REPEATED,
    RUNS,
    Traces,
    assert_sound,
    ends,
    finish,
    killed,
    lines,
    newest,
    seeded,
    status,
    traces,
)
from journal_support import journal_of, replayed
from ralph.core.model import Checked, Ended, Ran, RunAgent, RunChecks
from ralph.store import files
from ralph.store.home import Home

# ---- P3: a run ----

KILLED_AGENT = """
{alive} >> overlap
echo "$RALPH_ITERATION" >> started
{me}
read -r s < /proc/$PPID/stat; set -- $s; echo "$1 ${{22}} warden" >> wardens
setsid sh -c '{me}; exec sleep 60' &
sleep 0.0$((RALPH_ITERATION * 37 % 10))
[ "$RALPH_ITERATION" -ge 4 ] && echo '<response>DONE</response>' || echo working
"""


def acknowledged(project: Project, run: str) -> tuple[list[int], list[tuple[int, str]]]:
    """The iterations and checks that are complete in the journal."""
    iterations, checks = [], []
    for entry in journal_of(project.home, run):
        match entry.step, entry.result:
            case RunAgent() as step, Ran() as ran if ran.ended is not Ended.INTERRUPTED:
                iterations.append(step.iteration)
            case RunChecks() as step, Checked() as checked:
                checks += [(step.iteration, verdict.check) for verdict in checked.verdicts]
    return iterations, checks


def own_runs(project: Project) -> list[str]:
    return [run.id for run in status(project) if run.directory == str(project.path)]


def next_command(project: Project) -> list[str]:
    """What a user would do now: start or resume, or nothing if the run is complete."""
    found = [run for run in status(project) if run.directory == str(project.path)]
    if not found:
        return ["run", "-p", "x", "-m", "9"]
    return [] if found[0].outcome == "complete" else ["resume", found[0].id]


@dataclass(frozen=True)
class Done:
    """How often each iteration's agent and check started, among those complete in the journal."""

    agents: dict[str, int]
    checks: dict[str, int]

    @classmethod
    def so_far(cls, project: Project) -> Done:
        iterations, checks = set[str](), set[str]()
        for run in own_runs(project)[:1]:
            done, checked = acknowledged(project, run)
            assert done == list(range(1, len(done) + 1)), "an iteration is missing or duplicated"
            iterations = {str(iteration) for iteration in done}
            checks = {str(iteration) for iteration, check in checked if check.startswith("echo")}
        started, judged = Counter(lines(project.path / "started")), Counter(lines(project.path / "checked"))
        return cls({n: started[n] for n in iterations}, {n: judged[n] for n in checks})

    def is_kept_in(self, later: Done) -> bool:
        """Assert that nothing was lost or repeated since."""
        return self.agents.items() <= later.agents.items() and self.checks.items() <= later.checks.items()


def survive(project: Project, chance: random.Random) -> int:
    """One run that is killed up to three times, then completes. Returns the number of kills."""
    left, wardens = traces(project), Traces(project.path / "wardens")
    project.agent(
        KILLED_AGENT.format(alive=left.alive_command, me=left.me()),
        guardrails=[
            {"command": 'echo "$RALPH_ITERATION" >> checked; sleep 0.04; [ "$RALPH_ITERATION" -ge 4 ]'},
            {"command": f"{left.me('check')}; echo fine"},
        ],
    )
    kills, most, before = 0, chance.randint(1, 3), Done({}, {})
    while command := next_command(project):
        ralph = project.start(*command)
        if kills < most:
            moment = chance.uniform(0.0, 1.3)
            with suppress(subprocess.TimeoutExpired):
                ralph.wait(moment)
        if kills < most and ralph.poll() is None:
            kills += 1
            print(f"kill {kills}: {' '.join(command)} after {moment:.4f} s")
            killed(ralph)
            wait_until(lambda: not left.alive() and not wardens.alive(), 20)
            assert_sound(project.home)
        else:
            result = finish(ralph)
            assert result.code == 0, result.err
        now = Done.so_far(project)
        assert before.is_kept_in(now), f"{before} {now}"
        before = now
    assert sorted(before.agents) == sorted(before.checks) == ["1", "2", "3", "4"]
    assert lines(project.path / "overlap") == []
    assert left.alive() == []
    return kills


@REPEATED
@pytest.mark.slow
def test_p3_a_run_survives_being_killed_at_any_moment(project: Project) -> None:
    """After kill -9: no process left, an intact store, nothing repeated, and the run completes."""
    chance = seeded()
    kills, trial = 0, 0
    while kills < RUNS:
        trial += 1
        path = project.path / f"trial-{trial}"
        path.mkdir()
        kills += survive(Project(path, project.home), chance)
    assert [run.outcome for run in status(project)] == ["complete"] * trial


@pytest.mark.parametrize("how", [[], ["--detach"]], ids=["here", "detached"])
def test_p3_a_run_killed_at_its_very_beginning_can_be_resumed(project: Project, how: list[str]) -> None:
    """It exists only in the store, and that is enough."""
    project.agent(DONE)
    killer = (
        "import os, sys; from ralph.store.home import Home; from ralph.cli import main\n"
        "Home.make_streams = lambda self, run: os.kill(os.getpid(), 9)\n"
        "main(sys.argv[1:])"
    )
    words = [sys.executable, "-c", killer, "run", "-p", "x"]
    died = subprocess.run(words, cwd=project.path, env=project.env, capture_output=True, timeout=60)
    assert died.returncode == -signal.SIGKILL and newest(project).state == "crashed"
    assert not project.home.streams(newest(project).id).exists()
    assert project.run("resume", *how).code == 0
    wait_until(lambda: newest(project).outcome == "complete" and not newest(project).pid)
    assert ends(project) == ["ok"]


def test_p3_a_run_killed_while_paused_can_be_resumed(project: Project) -> None:
    """The current hold was not an iteration: resume continues after it."""
    project.agent(
        "echo $RALPH_ITERATION >> started; until [ -e go ]; do sleep 0.02; done\n"
        f"[ $RALPH_ITERATION = 2 ] && {DONE}"
    )
    ralph = project.start("run", "-p", "x")
    wait_until(lambda: lines(project.path / "started") == ["1"])
    run = newest(project).id
    assert project.run("pause", run).code == 0
    (project.path / "go").touch()
    wait_until(lambda: newest(project).state == "paused")
    killed(ralph)
    assert newest(project).state == "crashed"
    assert project.run("resume", run).code == 0
    assert lines(project.path / "started") == ["1", "2"]


@REPEATED
def test_d5_a_killed_run_loses_nothing(project: Project) -> None:
    """D5: ralph killed at any moment of a real run can be resumed, and its journal replays from plan to end."""
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
    result = finish(process)
    assert result.code == 130, result.err
    state = replayed(project.home, newest(project).id)
    done = [int(line) for line in agents.read_text().split()]
    assert done == sorted(done), "an iteration was done again after a later one"
    assert set(done) >= set(range(1, state.iteration + 1))


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
run = runs.create(make_plan(""), "/work", "/work")
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
"""Journals an endless run, and prints which rows are confirmed."""


@pytest.mark.slow
@REPEATED
def test_d5_confirmed_rows_survive_kill(tmp_path: Path) -> None:
    """D5: whenever writers are killed, every confirmed row is there, and the store is intact."""
    home = Home(tmp_path)
    home.runs().db.close()
    said = [tmp_path / f"said-{number}" for number in range(3)]
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
    assert len(promised) == RUNS * len(said)
    for run, last in promised.items():
        found = journal_of(home, run)
        assert found[-1].seq >= last
        assert [row.seq for row in found] == list(range(len(found)))
        assert [row.seq for row in found[:-1] if row.is_in_hand] == []
        replayed(home, run)


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
"""Writes versions of a file, each with its checksum and length, as fast as it can."""


def rewriter(directory: Path) -> subprocess.Popen[str]:
    writer = subprocess.Popen(
        [sys.executable, "-c", REWRITER, directory],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    return writer


def version_of(data: bytes) -> int:
    """The version of the file; a mixture has none."""
    digest, _, body = data.partition(b"\n")
    assert hashlib.sha256(body).hexdigest().encode() == digest, "torn"
    return int(body.split(b" ", 1)[0])


@REPEATED
def test_d1_a_file_is_complete_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    """D1: after kill -9 at any moment the file is a complete version, and temporary files are removed."""
    left = 0
    for _ in range(RUNS):
        writer = rewriter(tmp_path)
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


def test_d1_temporary_files_of_a_killed_run_are_removed(project: Project) -> None:
    """D1: the next run leaves no temporary file of a killed one in `.ralph`."""
    project.agent(DONE)
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name in ("prompt_001.txt", "current_run", ".gitignore"):
        (project.path / f".ralph/.tmp-{dead.pid}-{name}").write_text("half")
    assert project.run("run", "-p", "x").code == 0
    assert [name for name in os.listdir(project.path / ".ralph") if name.startswith(".tmp-")] == []


@REPEATED
def test_d2_a_reader_sees_only_complete_files(tmp_path: Path) -> None:
    """D2: a reader at full speed never sees a half-written, missing or older file."""
    writer = rewriter(tmp_path)
    seen, last = 0, -1
    try:
        for _ in range(1000 * RUNS):
            number = version_of((tmp_path / "file").read_bytes())
            assert number >= last
            seen += number != last
            last = number
    finally:
        killed(writer)
    assert seen > 2, "the writer did not write: the test shows nothing"
