"""Faults of processes, met by a real `ralph`: escapes, kills, signals, locks, floods, clocks.

`RALPH_FAULT_RUNS` sets how often the random ones are repeated, `RALPH_FAULT_SEED` repeats a failure.
"""

from __future__ import annotations

import json
import os
import pty
import random
import re
import secrets
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from conftest import RALPH, Project, Result, wait_until
from ralph import loop
from ralph.core import machine
from ralph.core.events import AgentEnded, AgentStarted, Event, Holding
from ralph.core.model import (
    AgentSpec,
    Cause,
    Flow,
    Hold,
    HoldWhy,
    Limits,
    Outcome,
    Pause,
    Plan,
    PromptSource,
    PromptVia,
    State,
)
from ralph.flows import session
from ralph.loop import Clock, Driver, Place
from ralph.process.client import Command, Wakeup, Warden
from ralph.scm.git import Output
from ralph.scm.work import Work
from ralph.store.journal import Journal, rows
from ralph.store.runtime import MOST_STREAM_BYTES, Runtime

RUNS = int(os.environ.get("RALPH_FAULT_RUNS", "3"))

pytestmark = pytest.mark.timeout(120 + 20 * RUNS)


def seeded() -> random.Random:
    """Chance, with its seed in the output of a failed test."""
    seed = int(os.environ.get("RALPH_FAULT_SEED") or secrets.randbits(32))
    print(f"RALPH_FAULT_SEED={seed}")
    return random.Random(seed)


# ---- processes that write down who they are ----


@dataclass(frozen=True)
class Traces:
    """Processes that called `mark`: number, time of birth (a reused number is nobody), maybe a name."""

    file: Path

    def _lines(self) -> list[list[str]]:
        """A process that died before it was recorded has left a line without its number."""
        return [line.split() for line in lines(self.file) if len(line.split()) >= 2]

    def alive(self) -> list[int]:
        return [int(pid) for pid, start, *_ in self._lines() if self._is_alive(pid, start)]

    @property
    def count(self) -> int:
        return len(self._lines())

    def names(self) -> Counter[str]:
        return Counter(line[2] for line in self._lines() if len(line) == 3)

    @staticmethod
    def _is_alive(pid: str, start: str) -> bool:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        return fields[19] == start and fields[0] not in "ZX"


def traces(project: Project) -> Traces:
    """Make `./mark`, by which a process records itself, and `./alive`, which lists those that live."""
    file = project.path / "traces"
    project.script(
        "mark", f'name=$1; set -- $(cat /proc/$PPID/stat); echo "$1 ${{22}}${{name:+ $name}}" >> {file}'
    )
    project.script(
        "alive",
        f"""
        while read -r pid start name; do
            [ -r /proc/$pid/stat ] || continue
            set -- $(cat /proc/$pid/stat 2> /dev/null)
            [ "${{22}}" = "$start" ] && [ "$3" != Z ] && echo "$pid $name"
        done < {file}
        """,
    )
    file.touch()
    return Traces(file)


def mark(project: Project) -> str:
    return str(project.path / "mark")


WAYS = {
    "background": "sh -c '{me}; {rest}' &",
    "session": "setsid sh -c '{me}; {rest}' &",
    "double-fork": "( ( sh -c '{me}; {rest}' & ) & )",
    "nohup": "nohup sh -c '{me}; {rest}' > /dev/null 2>&1 &",
    "scrubbed-environment": "setsid env -i /bin/sh -c '{me}; {rest}' &",
    "fork-chain": "setsid {chain} 200 fork-chain &",
    "stdout-holder": "setsid sh -c '{me}; {rest}' 2> /dev/null < /dev/null &",
    "stderr-holder": "setsid sh -c '{me}; {rest}' > /dev/null < /dev/null &",
    "term-ignorer": "setsid sh -c 'trap \"\" TERM INT HUP; {me}; {rest}' &",
    "stopped": "sh -c '{me}; kill -STOP $$; {rest}' &",
    "flood": "setsid sh -c 'trap \"\" TERM; {me}; exec yes' &",
    "disowned": 'sh -c \'trap "" HUP; sh -c "{me}; {rest}" & exit 0\'',
    "process-group": '{python} "os.setpgid(0, 0); {record}" &',
    "daemon": '{python} "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); os.chdir(chr(47));'
    ' os.closerange(0, 4096); [os.open(os.devnull, 2) for _ in range(3)]; {record}"',
    "forks-on-term": "setsid sh -c 'trap \"setsid sh -c {mark}\\;sleep\\ 60 & exit\" TERM; {me}; sleep 60 & wait' &",
}
"""Ways to get away from a process that ends."""


def starts_all(project: Project) -> str:
    """A snippet that starts one of each and waits until each has recorded itself."""
    file, program = project.path / "traces", mark(project)
    chain = project.script(
        "chain.sh", f'{program} "$2"; [ "$1" -gt 0 ] && sleep 0.05 && setsid "$0" $(($1 - 1)) &'
    )
    snippets = [
        snippet.format(
            me=f"{program} {name}",
            mark=program,
            rest="exec sleep 60",
            chain=chain,
            python=f"{sys.executable} -S -c",
            record=f"import subprocess, time; subprocess.run(['{program}', '{name}']); time.sleep(60)",
        ).replace(f'{sys.executable} -S -c "', f'{sys.executable} -S -c "import os; ')
        for name, snippet in WAYS.items()
    ]
    seen = f"$(grep -c ' [a-z]' {file})"
    wait = (
        f"until [ {seen} -ge $((seen + {len(WAYS)})) ] || [ $i -gt 500 ]; do sleep 0.02; i=$((i + 1)); done"
    )
    return "\n".join([f"seen={seen}", *snippets, f"i=0; {wait}"])


def detail(project: Project, run: str = "") -> dict[str, Any]:
    """One run as `ralph status RUN --json` shows it; by default the only one."""
    chosen = run or project.status()[0]["id"]
    found: dict[str, Any] = json.loads(project.run("status", chosen, "--json").out)
    return found


def ends(project: Project) -> list[str]:
    return [iteration["ended"] for iteration in detail(project)["iterations"]]


def finish(ralph: subprocess.Popen[str], timeout: float = 60) -> Result:
    try:
        out, err = ralph.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        ralph.kill()
        ralph.communicate()
        raise
    return Result(ralph.returncode, out, err)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def is_free(project: Project) -> bool:
    """Can another run start here now?"""
    return project.run("run", "-p", "x", "-m", "1", "--agent", "true").code == 1


# ---- P1, P2, P4, P5, P6: what an agent leaves behind ----


def test_p1_every_descendant_is_dead_before_the_next_iteration(project: Project) -> None:
    """However a descendant got away, the next iteration finds none of the earlier ones."""
    left = traces(project)
    project.agent(f"./alive >> survivors; {starts_all(project)}; echo working")
    result = project.run("run", "-p", "x", "-m", str(RUNS), timeout=60 + 10 * RUNS)
    assert result.code == 1, result.err
    assert ends(project) == ["ok"] * RUNS
    assert left.names() == dict.fromkeys(WAYS, RUNS)
    assert lines(project.path / "survivors") == []
    assert left.alive() == []


def test_p1_what_a_guardrail_leaves_is_dead_before_the_next_step(project: Project) -> None:
    """Guardrails are swept as agents are."""
    left = traces(project)
    guardrail = project.script("check.sh", starts_all(project))
    project.agent(
        "./alive >> survivors; [ $RALPH_ITERATION = 2 ] && echo '<response>DONE</response>' || echo working",
        guardrails=[{"command": guardrail}, {"command": "./alive >> survivors"}],
    )
    assert project.run("run", "-p", "x", "-m", "2").code == 0
    assert left.names() == dict.fromkeys(WAYS, 2)
    assert lines(project.path / "survivors") == []
    assert left.alive() == []


@pytest.mark.slow
def test_p2_a_tree_that_ignores_everything_is_killed_after_its_grace(project: Project) -> None:
    """At the iteration's timeout: TERM, five seconds, KILL, and nobody is left."""
    left = traces(project)
    project.agent(
        f"trap '' TERM INT HUP\n{mark(project)}\n{starts_all(project)}\necho > ready\nwhile :; do sleep 0.1; done",
        iterationTimeoutSeconds=3,
    )
    repetitions = 1 + RUNS // 10
    result = project.run("run", "-p", "x", "-m", str(repetitions), timeout=60 + 20 * RUNS)
    assert result.code == 1, result.err
    assert (project.path / "ready").exists()
    found = detail(project)["iterations"]
    assert [iteration["ended"] for iteration in found] == ["timeout"] * repetitions
    assert all(8 <= iteration["seconds"] < 8 + 2 + 10 for iteration in found), found
    assert left.alive() == []


@pytest.mark.parametrize("last", ["sleep 60", "exit 0", "exec setsid sleep 60"])
def test_p4_an_agent_that_kills_its_parent_is_recorded_as_killed(project: Project, last: str) -> None:
    """The tree of a killed warden is swept, the iteration is `killed`, and the run goes on."""
    left = traces(project)
    times = max(1, RUNS // 3)
    project.agent(
        f"./alive >> survivors; [ $RALPH_ITERATION -gt {times} ] && echo '<response>DONE</response>' && exit\n"
        f"{mark(project)}; {starts_all(project)}; kill -9 $PPID; {last}",
        maximumIterations=times + 1,
    )
    result = project.run("run", "-p", "x", timeout=60 + 10 * RUNS)
    assert result.code == 0, result.err
    assert ends(project) == ["killed"] * times + ["ok"]
    assert lines(project.path / "survivors") == []
    assert left.alive() == []


def test_p4_a_guardrail_that_kills_its_parent_is_red(project: Project) -> None:
    """A check whose warden died proves nothing; its tree is swept, and the run goes on."""
    left = traces(project)
    check = project.script(
        "check.sh", f"[ -e once ] && exit; touch once; {mark(project)}; kill -9 $PPID; sleep 60"
    )
    project.agent("./alive >> survivors; echo '<response>DONE</response>'", guardrails=[{"command": check}])
    result = project.run("run", "-p", "x", "-m", "2")
    assert result.code == 0, result.err
    greens = [verdict["green"] for i in detail(project)["iterations"] for verdict in i["verdicts"]]
    assert greens == [False, True]
    assert lines(project.path / "survivors") == []
    assert (left.count, left.alive()) == (1, [])


def test_p4_an_agent_that_kills_ralph_does_not_survive_it(project: Project) -> None:
    """Killing the grandparent instead ends the agent through the lifeline; resume goes on."""
    left = traces(project)
    project.agent(
        "[ -e killed ] && echo '<response>DONE</response>' && exit\n"
        f"{mark(project)}; {starts_all(project)}; touch killed\n"
        "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 60"
    )
    assert project.run("run", "-p", "x").code == -signal.SIGKILL
    wait_until(lambda: not left.alive(), 20)
    assert project.run("resume").code == 0


CHAINS = """
import os, sys, time
end = time.monotonic() + 20
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
        os._exit(0)
time.sleep(0.1)
"""


def with_argument(word: str) -> list[int]:
    """Processes that have a word among their arguments."""
    found = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and f"\0{word}\0".encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
    return found


def test_p5_tight_chains_of_forks_are_swept(project: Project) -> None:
    """Eight chains that fork without pause are gone before the next iteration, long before they tire."""
    token = f"chain-{secrets.token_hex(8)}"
    (project.path / "chains.py").write_text(CHAINS)
    look = project.script("look", f"grep -lxzs '[{token[0]}]{token[1:]}' /proc/[0-9]*/cmdline")
    project.agent(
        f"{look} >> survivors; {sys.executable} -S chains.py {token}; echo working",
    )
    project.run("run", "-p", "x", "-m", str(RUNS), timeout=60 + 20 * RUNS)
    assert with_argument(token) == []
    found = detail(project)["iterations"]
    assert [iteration["ended"] for iteration in found] == ["ok"] * RUNS
    assert lines(project.path / "survivors") == []
    assert all(iteration["seconds"] < 19 for iteration in found), found


def test_p5_fifty_passes_are_enough(tmp_path: Path) -> None:
    """The sweep of eight tight chains takes at most fifty passes."""
    directory = os.open(tmp_path, os.O_RDONLY)
    passes = []
    with Warden(Wakeup()) as warden:
        for _ in range(max(6, RUNS)):
            command = Command([sys.executable, "-S", "-c", CHAINS], {"PATH": os.environ["PATH"]}, directory)
            passes.append(warden.run(command, Ignored(), lambda seconds, idle: None).passes)
    os.close(directory)
    assert max(passes) <= 50, passes


class Ignored:
    def stdout(self, data: bytes) -> None: ...

    def stderr(self, data: bytes) -> None: ...


@pytest.mark.parametrize("streams", ["2> /dev/null", "> /dev/null", ""])
def test_p6_a_grandchild_that_holds_the_pipes_does_not_hold_up_the_run(
    project: Project, streams: str
) -> None:
    """An iteration ends with its agent, whoever still has its stdout or stderr open."""
    left = traces(project)
    project.agent(
        f"setsid sh -c 'trap \"\" TERM; {mark(project)}; exec sleep 60' {streams} &\n"
        f"until [ $(wc -l < {left.file}) -ge $RALPH_ITERATION ]; do sleep 0.02; done; echo working"
    )
    assert project.run("run", "-p", "x", "-m", "2").code == 1
    found = detail(project)["iterations"]
    assert [iteration["ended"] for iteration in found] == ["ok", "ok"]
    assert all(iteration["seconds"] < 10 for iteration in found), found
    assert (left.count, left.alive()) == (2, [])


# ---- P3: ralph itself is killed ----

KILLED_AGENT = """
./alive >> overlap
echo "$RALPH_ITERATION" >> started
{mark}
echo "$PPID $(cut -d' ' -f22 /proc/$PPID/stat)" >> wardens
setsid sh -c '{mark}; exec sleep 60' &
sleep 0.0$((RALPH_ITERATION * 37 % 10))
echo "$RALPH_ITERATION" >> worked
[ "$RALPH_ITERATION" -ge 4 ] && echo '<response>DONE</response>' || echo working
"""


def acknowledged(project: Project, run: str) -> tuple[list[int], list[tuple[int, str]]]:
    """The iterations and the checks that the journal knows to be done."""
    db = sqlite3.connect(project.home.database)
    try:
        iterations, checks = [], []
        for kind, body, result in db.execute(
            "SELECT kind, body, result FROM journal WHERE run = ? AND result IS NOT NULL ORDER BY seq", (run,)
        ):
            if kind == "run_agent" and json.loads(result)["ended"] != "interrupted":
                iterations.append(json.loads(body)["iteration"])
            if kind == "run_checks":
                iteration = json.loads(body)["iteration"]
                checks += [(iteration, verdict["check"]) for verdict in json.loads(result)["verdicts"]]
        return iterations, checks
    finally:
        db.close()


def integrity(project: Project) -> str:
    db = sqlite3.connect(project.home.database)
    try:
        return str(db.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        db.close()


def runs_of(project: Project) -> list[dict[str, Any]]:
    return [s for s in project.status() if s["directory"] == str(project.path)]


def next_command(project: Project) -> list[str]:
    """What a user would do now: start, or go on; nothing when the run is complete."""
    found = runs_of(project)
    if not found or found[0]["max_iterations"] == 0:
        return ["run", "-p", "x", "-m", "9"]
    return [] if found[0]["outcome"] == "complete" else ["resume", found[0]["id"]]


@dataclass(frozen=True)
class Done:
    """How often each iteration's agent and check began, of those that the journal knows to be done."""

    agents: dict[str, int]
    checks: dict[str, int]

    @classmethod
    def so_far(cls, project: Project) -> Done:
        iterations, checks = set[str](), set[str]()
        for run in runs_of(project)[:1]:
            done, checked = acknowledged(project, run["id"])
            assert done == list(range(1, len(done) + 1)), "an iteration is missing or there twice"
            iterations = {str(iteration) for iteration in done}
            checks = {str(iteration) for iteration, check in checked if check.startswith("echo")}
        started, judged = Counter(lines(project.path / "started")), Counter(lines(project.path / "checked"))
        return cls({n: started[n] for n in iterations}, {n: judged[n] for n in checks})

    def is_kept_in(self, later: Done) -> bool:
        """Nothing has been lost or done again since."""
        return self.agents.items() <= later.agents.items() and self.checks.items() <= later.checks.items()


def survive(project: Project, chance: random.Random) -> int:
    """One run that is killed up to three times and then left alone. Returns how often it was killed."""
    left, wardens = traces(project), Traces(project.path / "wardens")
    project.agent(
        KILLED_AGENT.format(mark=mark(project)),
        guardrails=[
            {"command": 'echo "$RALPH_ITERATION" >> checked; sleep 0.04; [ "$RALPH_ITERATION" -ge 4 ]'},
            {"command": f"{mark(project)}; echo fine"},
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
            ralph.kill()
            finish(ralph)
            wait_until(lambda: not left.alive() and not wardens.alive(), 20)
            assert integrity(project) == "ok"
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


@pytest.mark.slow
def test_p3_a_run_survives_being_killed_at_any_moment(project: Project) -> None:
    """After kill -9: nobody left, a sound store, nothing repeated that was done, and the run completes."""
    chance = seeded()
    kills, trial = 0, 0
    while kills < RUNS + 2:
        trial += 1
        path = project.path / f"trial-{trial}"
        path.mkdir()
        kills += survive(Project(path, project.home), chance)


@pytest.mark.slow
def test_p3_resume_waits_for_a_tree_that_dies_slowly(project: Project) -> None:
    """With a stubborn agent of a killed ralph still there, resume waits: two agents never work at once."""
    left = traces(project)
    project.agent(
        "./alive >> overlap; [ -e second ] && echo '<response>DONE</response>' && exit\n"
        f"trap '' TERM INT HUP; touch second; {mark(project)}; while :; do sleep 0.1; done"
    )
    ralph = project.start("run", "-p", "x")
    wait_until(lambda: left.count == 1)
    ralph.kill()
    finish(ralph)
    assert left.alive()
    result = project.run("resume")
    assert result.code == 0, result.err
    assert "Waiting for the processes of a killed run to end" in result.err
    assert lines(project.path / "overlap") == []
    assert left.alive() == []


def test_p3_a_run_that_was_killed_while_paused_goes_on(project: Project) -> None:
    """A hold that was in hand is no iteration: resume goes on after it."""
    project.agent(
        "echo $RALPH_ITERATION >> started; until [ -e go ]; do sleep 0.02; done\n"
        "[ $RALPH_ITERATION = 2 ] && echo '<response>DONE</response>'"
    )
    ralph = project.start("run", "-p", "x")
    wait_until(lambda: lines(project.path / "started") == ["1"])
    run = project.status()[0]["id"]
    assert project.run("pause", run).code == 0
    time.sleep(2 * loop.COMMAND_SECONDS)
    (project.path / "go").touch()
    wait_until(lambda: project.status()[0]["state"] == "paused")
    ralph.kill()
    finish(ralph)
    assert detail(project, run)["state"] == "crashed"
    assert project.run("resume", run).code == 0
    assert lines(project.path / "started") == ["1", "2"]


# ---- P7: an agent that hangs ----


@pytest.mark.parametrize("way", ["kill -STOP $$", "sleep 60", "exec sleep 60 > /dev/null"])
def test_p7_silence_ends_an_agent(project: Project, way: str) -> None:
    """An agent that stops itself or says nothing is ended at the idle limit, far before the total limit."""
    left = traces(project)
    project.agent(
        f"{mark(project)}; echo hello; {way}; echo late", idleTimeoutSeconds=1, iterationTimeoutSeconds=40
    )
    assert project.run("run", "-p", "x", "-m", "1").code == 1
    found = detail(project)["iterations"]
    assert [iteration["ended"] for iteration in found] == ["idle"]
    assert 1 <= found[0]["seconds"] < 1 + 1 + 5
    assert left.alive() == []


def test_p7_an_agent_that_talks_is_not_idle(project: Project) -> None:
    """Output on stdout or stderr now and then keeps the idle limit away."""
    project.agent(
        "for i in 1 2 3 4; do echo $i; sleep 0.4; echo $i >&2; sleep 0.4; done", idleTimeoutSeconds=2
    )
    assert project.run("run", "-p", "x", "-m", "1").code == 1
    assert ends(project) == ["ok"]


def test_p7_the_total_limit_is_independent_of_the_idle_limit(project: Project) -> None:
    """An agent that talks for ever is ended at the iteration's timeout."""
    project.agent("while :; do echo hello; sleep 0.1; done", idleTimeoutSeconds=30, iterationTimeoutSeconds=2)
    assert project.run("run", "-p", "x", "-m", "1").code == 1
    found = detail(project)["iterations"]
    assert [iteration["ended"] for iteration in found] == ["timeout"]
    assert 2 <= found[0]["seconds"] < 2 + 5


# ---- P9: signals ----

SIGNALS = {
    "INT": (signal.SIGINT,),
    "INT twice": (signal.SIGINT, signal.SIGINT),
    "TERM": (signal.SIGTERM,),
    "HUP": (signal.SIGHUP,),
}
PHASES = ("agent", "guardrail", "pause")


def slow_step(project: Project, name: str) -> str:
    """A snippet that says when it is in hand and, if nobody ends it, when it has finished."""
    me = mark(project)
    return (
        f"{me}; setsid sh -c 'trap \"\" TERM; {me}; exec sleep 60' & echo > {name}-ready\n"
        f"i=0; until [ -e {name}-go ] || [ $i -gt 300 ]; do sleep 0.05; i=$((i + 1)); done; echo > {name}-done"
    )


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("how", SIGNALS)
def test_p9_signals_stop_a_run_cleanly(project: Project, how: str, phase: str) -> None:
    """One signal lets the step in hand finish, two do not; 130, interrupted, nobody left, nothing locked."""
    left = traces(project)
    agent = slow_step(project, "agent") if phase != "guardrail" else "echo hi"
    check = project.script("check.sh", slow_step(project, "guardrail") if phase == "guardrail" else "exit 0")
    project.agent(
        f"[ -e again ] && echo '<response>DONE</response>' && exit\n{agent}", guardrails=[{"command": check}]
    )
    ralph = project.start("run", "-p", "x")
    name = "guardrail" if phase == "guardrail" else "agent"
    wait_until(lambda: (project.path / f"{name}-ready").exists())
    if phase == "pause":
        assert project.run("pause", project.status()[0]["id"]).code == 0
        time.sleep(2 * loop.COMMAND_SECONDS)
        (project.path / "agent-go").touch()
        wait_until(lambda: project.status()[0]["state"] == "paused")
    first, *more = SIGNALS[how]
    ralph.send_signal(first)
    for number in more:
        wait_until(lambda: ralph.poll() is not None or is_told(ralph), 20)
        ralph.send_signal(number)
    if not more:
        time.sleep(0.3)
        (project.path / f"{name}-go").touch()
    sent = time.monotonic()
    result = finish(ralph)
    assert time.monotonic() - sent <= (5 if more else 30)
    ended_by_first = bool(more) and phase == "pause"
    assert result.code == 130 or (ended_by_first and result.code == -signal.SIGINT), result.err
    found = project.status()
    assert [(s["state"], s["outcome"], s["pid"]) for s in found] == [("ended", "interrupted", None)]
    assert (project.path / f"{name}-done").exists() == (not more or phase == "pause")
    assert left.alive() == []
    (project.path / "again").touch()
    (project.path / "guardrail-go").touch()
    resumed = project.run("resume")
    assert resumed.code == 0, resumed.err


def is_told(ralph: subprocess.Popen[str]) -> bool:
    """Has the first signal been heard? Read from its stderr without waiting for more."""
    assert ralph.stderr is not None
    os.set_blocking(ralph.stderr.fileno(), False)
    try:
        text = os.read(ralph.stderr.fileno(), 65536).decode()
    except BlockingIOError:
        text = ""
    finally:
        os.set_blocking(ralph.stderr.fileno(), True)
    return "Received signal, shutting down..." in text


def test_p9_a_second_ctrl_c_kills_an_agent_that_does_not_obey(project: Project) -> None:
    """Two interrupts end a stubborn agent at once, not after its grace."""
    left = traces(project)
    project.agent(f"trap '' TERM INT HUP; {mark(project)}; while :; do sleep 0.1; done")
    ralph = project.start("run", "-p", "x")
    wait_until(lambda: left.count == 1)
    ralph.send_signal(signal.SIGINT)
    wait_until(lambda: is_told(ralph))
    ralph.send_signal(signal.SIGINT)
    sent = time.monotonic()
    assert finish(ralph).code == 130
    assert time.monotonic() - sent <= 4.5, "it waited for the grace"
    assert left.alive() == []
    assert is_free(project)


@pytest.mark.parametrize(
    "how",
    [
        "INT",
        pytest.param(
            "INT twice", marks=pytest.mark.xfail(strict=True, reason="version control hears no interrupt")
        ),
    ],
)
def test_p9_signals_during_a_commit(repository: Project, how: str) -> None:
    """While a hook of the user's commit takes its time: one signal waits for it, two do not."""
    project = repository
    left = traces(project)
    for key, value in (("user.name", "Test"), ("user.email", "test@localhost")):
        project.git("config", key, value)
    hook = project.path / ".git/hooks/pre-commit"
    hook.write_text(f"#!/bin/sh\ncd {project.path}\n{slow_step(project, 'hook')}\n")
    hook.chmod(0o755)
    project.agent("echo new > file; echo 'Write a file'", scm={"command": "git", "tasks": ["commit"]})
    ralph = project.start("run", "-p", "x", "-m", "3")
    wait_until(lambda: (project.path / "hook-ready").exists())
    for number in SIGNALS[how]:
        ralph.send_signal(number)
        time.sleep(0.5)
    sent = time.monotonic()
    if how == "INT":
        (project.path / "hook-go").touch()
    try:
        result = finish(ralph, timeout=6 if how == "INT twice" else 30)
    finally:
        (project.path / "hook-go").touch()
    assert time.monotonic() - sent <= (5 if how == "INT twice" else 30)
    assert result.code == 130, result.err
    assert (project.path / "hook-done").exists() == (how == "INT")
    assert [s["outcome"] for s in project.status()] == ["interrupted"]
    assert left.alive() == []
    assert is_free(project)


def test_p9_a_signal_at_the_very_beginning_leaves_nothing(project: Project) -> None:
    """Whenever it comes, before or after the run is begun: the directory is free, nobody is left."""
    chance = seeded()
    left = traces(project)
    project.agent(f"{mark(project)}; sleep 0.2; echo working", maximumIterations=1)
    for _ in range(2 * RUNS):
        number = chance.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
        moment = chance.uniform(0.0, 0.4)
        print(f"{number.name} after {moment:.4f} s")
        ralph = project.start("run", "-p", "x")
        time.sleep(moment)
        ralph.send_signal(number)
        result = finish(ralph)
        assert result.code != 0, result.err
        if "starts: " in result.err and not result.out.startswith("limit"):
            assert result.code == 130, result.err
        wait_until(lambda: not left.alive(), 10)
        assert not [s for s in project.status() if s["pid"] is not None]
    assert is_free(project)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_p9_a_run_that_is_in_the_store_is_interrupted_not_crashed(
    project: Project, number: signal.Signals
) -> None:
    """As soon as a run can be seen, a signal makes it an interrupted one that can be resumed."""
    project.agent("sleep 0.5; echo working", maximumIterations=1)
    project.home.runs().db.close()
    db = sqlite3.connect(project.home.database)
    for count in range(1, 4):
        ralph = project.start("run", "-p", "x")
        wait_until(lambda count=count: run_count(db) == count, every=0.0)  # type: ignore[misc]
        ralph.send_signal(number)
        finish(ralph)
    db.close()
    assert [s["outcome"] for s in project.status()] == ["interrupted"] * 3


def run_count(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM runs").fetchone()[0])


def test_p9_nohup_is_respected(project: Project) -> None:
    """`nohup ralph run …` goes on when its terminal goes away."""
    project.agent("echo > ready; until [ -e go ]; do sleep 0.02; done; echo '<response>DONE</response>'")
    ralph = subprocess.Popen(
        ["nohup", RALPH, "run", "-p", "x"],
        cwd=project.path,
        env=project.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: (project.path / "ready").exists())
    ralph.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    (project.path / "go").touch()
    assert ralph.wait(30) == 0


def test_p9_a_terminal_that_is_closed_interrupts_the_run(project: Project) -> None:
    """Closing the window is a signal and a dead stream at once: interrupted, nobody left, nothing locked."""
    left = traces(project)
    project.agent(f"{mark(project)}; echo > ready; for i in 1 2 3 4 5; do echo talking; sleep 0.2; done")
    master, slave = pty.openpty()
    ralph = subprocess.Popen(
        ["setsid", "-c", RALPH, "run", "-p", "x"],
        cwd=project.path,
        env=project.env | {"TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    wait_until(lambda: (project.path / "ready").exists())
    os.close(master)
    assert ralph.wait(30) == 130
    found = project.status()
    assert [(s["outcome"], s["cause"], s["iteration"]) for s in found] == [("interrupted", "signal", 1)]
    assert left.alive() == []
    assert is_free(project)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["timeout", "two interrupts"])
def test_p9_a_terminal_that_does_not_read_takes_no_control_away(project: Project, way: str) -> None:
    """With output halted (Ctrl-S, a pager), time limits and a second Ctrl-C still work."""
    left = traces(project)
    project.agent(
        f"{mark(project)}; yes | head -c 2000000; sleep 50",
        iterationTimeoutSeconds=1 if way == "timeout" else 0,
        maximumIterations=1,
    )
    ralph = project.start("run", "-p", "x")
    wait_until(lambda: left.count == 1)
    try:
        if way == "two interrupts":
            for _ in range(2):
                time.sleep(0.5)
                ralph.send_signal(signal.SIGINT)
        wait_until(lambda: not left.alive(), 7)
    finally:
        ralph.kill()
        finish(ralph)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_p9_a_signal_while_ralph_goes_away_does_not_change_its_exit_code(
    project: Project, number: signal.Signals
) -> None:
    """A run that has said how it ended exits with the code of that end."""
    project.agent("echo '<response>DONE</response>'")
    codes = []
    for delay in range(0, 25, 5):
        ralph = project.start("run", "-p", "x")
        assert ralph.stdout is not None
        assert ralph.stdout.readline().startswith("complete")
        time.sleep(delay / 1000)
        ralph.send_signal(number)
        codes.append(finish(ralph).code)
    assert codes == [0] * len(codes)


# ---- P10: a number that belongs to somebody else ----

BYSTANDER = """
import signal, sys, time
def note(number, frame):
    print(number, flush=True)
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, note)
print("ready", flush=True)
end = time.monotonic() + 100
while time.monotonic() < end:
    time.sleep(1)
"""


@pytest.mark.parametrize("command", ["resume", "run", "cancel"])
def test_p10_a_reused_process_number_is_nobody(project: Project, command: str) -> None:
    """A live process with the number of a dead ralph makes no run live and is never signalled."""
    project.agent("echo > ready; [ -e go ] && echo '<response>DONE</response>' && exit; sleep 60")
    ralph = project.start("run", "-p", "x")
    wait_until(lambda: (project.path / "ready").exists())
    ralph.kill()
    finish(ralph)
    (project.path / "go").touch()
    with open(project.path / "heard", "w") as heard:
        bystander = subprocess.Popen([sys.executable, "-c", BYSTANDER], stdout=heard)
    try:
        wait_until(lambda: lines(project.path / "heard") == ["ready"])
        run = project.status()[0]["id"]
        db = sqlite3.connect(project.home.database)
        with db:
            db.execute("UPDATE runs SET pid = ? WHERE id = ?", (bystander.pid, run))
        db.close()
        assert [(s["state"], s["pid"]) for s in project.status()] == [("crashed", None)]
        words = {"resume": ("resume",), "run": ("run", "-p", "y"), "cancel": ("cancel", run)}[command]
        result = project.run(*words)
        assert result.code == 0, result.err
        expected = {"resume": ["complete"], "run": ["complete", None], "cancel": ["interrupted"]}[command]
        assert [s["outcome"] for s in project.status()] == expected
        assert bystander.poll() is None
        assert lines(project.path / "heard") == ["ready"]
    finally:
        bystander.kill()
        bystander.wait()


# ---- P11, P12: one run per directory ----


@pytest.mark.slow
def test_p11_of_twenty_starts_one_wins(project: Project) -> None:
    """Exactly one of twenty runs that start at once begins; the others name it and exit with 2."""
    project.agent("until [ -e release ]; do sleep 0.02; done; echo '<response>DONE</response>'")
    for trial in range(max(1, RUNS // 3)):
        (project.path / "release").unlink(missing_ok=True)
        starts = [project.start("run", "-p", "x") for _ in range(20)]
        wait_until(lambda starts=starts: sum(s.poll() is not None for s in starts) >= 19, 60)  # type: ignore[misc]
        (project.path / "release").touch()
        results = [finish(start) for start in starts]
        assert Counter(result.code for result in results) == {0: 1, 2: 19}, f"trial {trial}"
        newest = project.status()[0]
        assert len(project.status()) == trial + 1, "a loser left a run behind"
        losers = [result.err for result in results if result.code == 2]
        assert all(f"Another run works in {project.path}: {newest['id']}" in err for err in losers), losers


@pytest.mark.slow
def test_p11_of_many_resumes_one_wins(project: Project) -> None:
    """A killed run that is resumed ten times at once is driven by one of them."""
    project.agent(
        "echo $$ >> started; until [ -e release ]; do sleep 0.02; done; echo '<response>DONE</response>'"
    )
    ralph = project.start("run", "-p", "x")
    wait_until(lambda: lines(project.path / "started"))
    ralph.kill()
    finish(ralph)
    starts = [project.start("resume") for _ in range(10)]
    wait_until(lambda: sum(s.poll() is not None for s in starts) >= 9, 60)
    (project.path / "release").touch()
    codes = Counter(finish(start).code for start in starts)
    assert codes == {0: 1, 2: 9}
    assert len(lines(project.path / "started")) == 2


def test_p12_a_cleaned_directory_is_still_locked(repository: Project) -> None:
    """With `.ralph` and everything untracked removed under a running loop, a second start is refused."""
    project = repository
    project.agent(
        "echo > ready; until [ -e release ]; do sleep 0.02; done; echo '<response>DONE</response>'",
        guardrails=[{"command": "echo checked"}],
    )
    ralph = project.start("run", "-p", "x")
    wait_until(lambda: (project.path / "ready").exists())
    run = project.status()[0]["id"]
    project.git("clean", "-fdxq")
    assert not (project.path / ".ralph").exists()
    second = project.run("run", "-p", "x", "--agent", "true")
    assert (second.code, run in second.err) == (2, True), second.err
    (project.path / "release").touch()
    result = finish(ralph)
    assert result.code == 0, result.err


@pytest.mark.parametrize(("first", "second"), [(".", "sub/deep"), ("sub/deep", "."), ("sub/deep", "sub")])
def test_p12_a_repository_is_locked_as_a_whole(repository: Project, first: str, second: str) -> None:
    """Wherever in a repository a run works, another one in it is refused and told of the first."""
    (repository.path / "sub/deep").mkdir(parents=True)
    lower, upper = (Project(repository.path / name, repository.home) for name in (first, second))
    assert_second_is_refused(lower, upper)


def test_p12_a_directory_below_a_running_one_is_locked(project: Project) -> None:
    """Without a repository too: a run below the directory of a running one is refused."""
    (project.path / "sub/deep").mkdir(parents=True)
    assert_second_is_refused(project, Project(project.path / "sub/deep", project.home))


def test_p12_a_link_to_a_directory_is_the_directory(project: Project) -> None:
    """Another name for the same directory is no way around its lock."""
    link = project.path.parent / "link"
    link.symlink_to(project.path)
    assert_second_is_refused(project, Project(link, project.home))


def assert_second_is_refused(first: Project, second: Project) -> None:
    first.agent("echo > ready; until [ -e release ]; do sleep 0.02; done; echo '<response>DONE</response>'")
    ralph = first.start("run", "-p", "x")
    wait_until(lambda: (first.path / "ready").exists())
    run = first.status()[0]["id"]
    refused = second.run("run", "-p", "x", "--agent", "true")
    (first.path / "release").touch()
    assert (refused.code, run in refused.err) == (2, True), refused.err
    assert finish(ralph).code == 0


# ---- P14: an agent that cannot be started ----


def foreign_program(path: Path) -> None:
    machine_number = 0x00F3 if os.uname().machine != "riscv64" else 0x003E
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", 2, machine_number, 1, 0, 64, 0, 0, 64, 56, 0, 0, 0, 0)
    path.write_bytes(ident + header)
    path.chmod(0o755)


def text_without_interpreter(path: Path) -> None:
    path.write_text("echo hello\n")
    path.chmod(0o755)


def lost_interpreter(path: Path) -> None:
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)


UNSTARTABLE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "not executable": lambda path: path.write_text("#!/bin/sh\n"),
    "no interpreter line": text_without_interpreter,
    "lost interpreter": lost_interpreter,
    "other machine": foreign_program,
    "directory": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("kind", UNSTARTABLE)
def test_p14_an_agent_that_cannot_be_started_is_fatal_at_once(project: Project, kind: str) -> None:
    """One attempt, exit code 2, and the message names the command."""
    UNSTARTABLE[kind](project.path / "my-agent")
    project.settings(agent={"command": "./my-agent"}, snapshots=False)
    result = project.run("run", "-p", "x")
    found = detail(project)
    assert result.code == 2, result.err
    assert (found["outcome"], found["cause"]) == ("fatal", "unstartable")
    assert [iteration["ended"] for iteration in found["iterations"]] == ["unstartable"]
    assert "./my-agent: " in result.out


def test_p14_an_agent_that_updates_itself_is_waited_for(project: Project) -> None:
    """An agent that has worked before and is missing for a moment is tried again, at no iteration's cost."""
    project.agent(
        "mv agent.sh away.sh; echo $RALPH_ITERATION >> started\n"
        "[ $RALPH_ITERATION = 2 ] && echo '<response>DONE</response>' || echo working",
        maximumIterations=2,
    )
    ralph = project.start("run", "-p", "x")
    wait_until(lambda: project.status() and "unstartable" in ends(project))
    (project.path / "away.sh").rename(project.path / "agent.sh")
    result = finish(ralph)
    assert result.code == 0, result.err
    assert lines(project.path / "started") == ["1", "2"]
    assert [end for end in ends(project) if end != "unstartable"] == ["ok", "ok"]


# ---- what ralph was started with ----


def test_a_server_of_the_script_that_became_ralph_is_spared(project: Project) -> None:
    """In `server & exec ralph run …` the server is ralph's child; an agent that kills the warden costs it nothing."""
    project.agent("kill -9 $PPID; sleep 60", maximumIterations=1)
    out = project.path / "out"
    with open(out, "w") as file:
        done = subprocess.run(
            ["/bin/sh", "-c", f"sleep 30 & echo $!; exec {RALPH} run -p x"],
            cwd=project.path,
            env=project.env,
            stdout=file,
            stderr=subprocess.DEVNULL,
            timeout=60,
        )
    assert done.returncode == 1
    server = int(lines(out)[0])
    is_alive = Path(f"/proc/{server}").exists()
    if is_alive:
        os.kill(server, signal.SIGKILL)
    assert is_alive


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_obstacle(project: Project, closed: str) -> None:
    """A ralph that was started without stdin, stdout or stderr runs its agent all the same."""
    project.agent("cat; echo '<response>DONE</response>'")
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {RALPH} run -p x {closed}"],
        cwd=project.path,
        env=project.env | {"TMPDIR": str(project.path)},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert [s["outcome"] for s in project.status()] == ["complete"]


# ---- O1, O2: floods ----


def peak_of(project: Project) -> tuple[int, int]:
    """Run ralph to its end; its exit code and the largest memory of any process in it, in kB."""
    ralph = subprocess.Popen(
        [RALPH, "run", "-p", "x", "-m", "1"],
        cwd=project.path,
        env=project.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(ralph.pid, 0)
    ralph.returncode = os.waitstatus_to_exitcode(status)
    return ralph.returncode, usage.ru_maxrss


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_o1_a_line_without_end_costs_little_memory(project: Project, stream: str) -> None:
    """A huge line is survived in little memory and a capped stream; on stdout, the claim after it is found."""
    megabytes = 2000 if RUNS >= 100 else 200
    project.agent("echo '<response>DONE</response>'")
    code, usual = peak_of(project)
    assert code == 0
    project.agent(
        f"head -c {megabytes}000000 /dev/zero | tr '\\0' x {'>&2' if stream == 'stderr' else ''}\n"
        "echo; echo '<response>DONE</response>'"
    )
    code, peak = peak_of(project)
    assert code == 0
    assert peak - usual <= 64_000, f"{peak - usual} kB"
    run = project.status()[0]["id"]
    sizes = {path.suffix: path.stat().st_size for path in project.home.streams(run).iterdir()}
    assert MOST_STREAM_BYTES <= sizes[f".{stream}"] <= MOST_STREAM_BYTES + 1000


@pytest.mark.slow
def test_o1_a_guardrail_without_end_costs_little_memory(project: Project) -> None:
    """The output of a guardrail is held to the same: little memory, and the run goes on."""
    project.agent("echo '<response>DONE</response>'")
    _, usual = peak_of(project)
    project.agent(
        "echo '<response>DONE</response>'",
        guardrails=[{"command": "head -c 200000000 /dev/zero | tr '\\0' x; exit 1"}],
    )
    code, peak = peak_of(project)
    assert code == 1
    assert peak - usual <= 64_000, f"{peak - usual} kB"
    assert (project.path / ".ralph").exists()


@pytest.mark.parametrize("flood", ["exec yes", "exec cat /dev/zero", "exec yes >&2"])
def test_o2_a_flood_does_not_delay_the_timeout(project: Project, flood: str) -> None:
    """An agent that prints as fast as it can is ended when its time is up."""
    project.agent(flood, iterationTimeoutSeconds=2)
    code, _ = peak_of(project)
    assert code == 1
    found = detail(project)["iterations"]
    assert [iteration["ended"] for iteration in found] == ["timeout"]
    assert 2 <= found[0]["seconds"] < 2 + 2 + 4


# ---- R4: the wall clock jumps ----

DAY = 86_400.0


class Jumping(Clock):
    """Time that passes only when somebody waits; the wall clock jumps once, after a while."""

    def __init__(self, jump: float, after: float) -> None:
        self.passed = 0.0
        self._jump, self._after = jump, after

    def monotonic(self) -> float:
        return 5_000.0 + self.passed

    def wall(self) -> float:
        return 1_800_000_000.0 + self.passed + (self._jump if self.passed >= self._after else 0.0)


class Instant(Wakeup):
    """Waiting takes no time but the clock's."""

    def __init__(self, clock: Jumping) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, seconds: float) -> None:
        self._clock.passed += seconds


@dataclass
class Driven:
    """What a run did on a clock: when its agents started, how it ended."""

    state: State
    started: list[float]
    passed: float
    kinds: list[str]


def driven(
    project: Project,
    clock: Jumping,
    prepare: Callable[[State], State],
    command: str,
    heard: Callable[[Event, str, Wakeup], None] = lambda event, run, wakeup: None,
    iterations: int = 1,
) -> Driven:
    """Drive one run on a clock of ours, from a state of ours, with everything else real."""
    started: list[float] = []

    def tell(event: Event) -> None:
        if isinstance(event, AgentStarted):
            started.append(clock.passed)
        heard(event, run.id, wakeup)

    def no_scm(argv: list[str], variables: Mapping[str, str], stdin: bytes) -> Output:
        raise AssertionError(f"there is no repository: {argv}")

    def make_plan(id: str) -> Plan:
        agent = AgentSpec("agent", "custom", command, prompt_via=PromptVia.ARGUMENT)
        return Plan(
            id, Flow.RUN, str(project.path), (agent,), PromptSource("x"), limits=Limits(iterations=iterations)
        )

    run = session.begin(project.home, Flow.RUN, session.here(project.path), make_plan)
    runs = project.home.runs()
    journal = Journal(runs.db, runs.path, run.id)
    wakeup = Instant(clock)
    runtime = Runtime(project.path)
    with Warden(Wakeup()) as warden:
        place = Place(
            runs=runs,
            journal=journal,
            runtime=runtime,
            streams=project.home.streams(run.id),
            work=Work(make_plan(run.id), None, no_scm, project.home.streams(run.id)),
            warden=warden,
            wakeup=wakeup,
            tell=tell,
            clock=clock,
        )
        runtime.prepare(run.id)
        state = Driver(place, prepare(machine.start(make_plan(run.id), clock.wall()))).drive()
    kinds = [row.kind for row in rows(runs.db, run.id)]
    runtime.close()
    runs.db.close()
    return Driven(state, started, clock.passed, kinds)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds look at the clock every few seconds, so that a day of them is short."""
    monkeypatch.setattr(loop, "COMMAND_SECONDS", 7.0)


JUMPS = pytest.mark.parametrize("jump", [DAY, -DAY, 0.0])
SAYS_DONE = "echo '<response>DONE</response>'"


@JUMPS
@pytest.mark.usefixtures("quick")
def test_r4_the_wait_before_a_restart_is_a_duration(project: Project, jump: float) -> None:
    """A hold of so many seconds lasts so long, whatever the wall clock says meanwhile."""
    clock = Jumping(jump, after=30.0)
    command = project.script("agent.sh", SAYS_DONE)
    did = driven(project, clock, lambda s: replace(s, hold=Hold(HoldWhy.RESTART, seconds=100.0)), command)
    assert did.started == [pytest.approx(100.0, abs=0.01)]
    assert did.state.stop is not None
    assert did.state.stop.outcome is Outcome.COMPLETE
    assert did.state.elapsed == pytest.approx(100.0, abs=30.0), "the duration of the run is monotonic as well"
    assert did.kinds == ["plan", "hold", "look", "run_agent", "look", "stop"]


@pytest.mark.parametrize(("jump", "starts"), [(DAY, 30.0), (-DAY, 100.0 + DAY), (0.0, 100.0), (50.0, 50.0)])
@pytest.mark.usefixtures("quick")
def test_r4_the_wait_for_a_limit_follows_the_wall_clock(project: Project, jump: float, starts: float) -> None:
    """A hold until a time of day ends when the wall clock shows it: earlier or later if that jumps."""
    clock = Jumping(jump, after=30.0)
    command = project.script("agent.sh", SAYS_DONE)
    until = clock.wall() + 100.0
    did = driven(project, clock, lambda s: replace(s, hold=Hold(HoldWhy.LIMIT, until=until)), command)
    assert len(did.started) == 1
    late = loop.COMMAND_SECONDS if jump == DAY else 0.01
    assert starts - 0.01 <= did.started[0] <= starts + late
    assert did.state.stop is not None
    assert did.state.stop.outcome is Outcome.COMPLETE
    assert did.kinds == ["plan", "hold", "look", "run_agent", "look", "stop"]


@pytest.mark.parametrize(
    "jump",
    [
        0.0,
        pytest.param(
            300.0, marks=pytest.mark.xfail(strict=True, reason="measured by the wall clock: too early")
        ),
        pytest.param(
            -300.0, marks=pytest.mark.xfail(strict=True, reason="measured by the wall clock: too late")
        ),
    ],
)
@pytest.mark.usefixtures("quick")
def test_r4_the_patience_with_a_missing_agent_is_a_duration(project: Project, jump: float) -> None:
    """An agent that has gone missing is tried for sixty seconds, not for a jump of the clock."""
    clock = Jumping(jump, after=30.0)
    did = driven(project, clock, lambda s: replace(s, started=True), str(project.path / "gone"))
    assert did.state.stop is not None
    assert did.state.stop.cause is Cause.UNSTARTABLE
    assert did.passed == pytest.approx(60.0, abs=3.0)


def test_r4_the_newest_state_of_a_run_is_its_last_whatever_the_clock_said(project: Project) -> None:
    """`ralph status` shows the end of a run during which the clock went back a day."""
    clock = Jumping(-DAY, after=1.0)
    command = project.script("agent.sh", SAYS_DONE)
    driven(project, clock, lambda s: replace(s, hold=Hold(HoldWhy.RESTART, seconds=3.0)), command)
    assert [(s["state"], s["outcome"]) for s in project.status()] == [("ended", "complete")]
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", project.status()[0]["id"])


def test_a_pause_before_the_end_of_a_step_holds_the_next(project: Project) -> None:
    """A command that was queued before a step ended is heard before the next one begins."""
    command = project.script("agent.sh", "echo working")

    def heard(event: Event, run: str, wakeup: Wakeup) -> None:
        if isinstance(event, AgentEnded):
            runs = project.home.runs()
            runs.send(run, Pause(time.time()))
            runs.db.close()
        elif isinstance(event, Holding):
            wakeup.interrupt()

    did = driven(project, Jumping(0.0, 0.0), lambda state: state, command, heard, iterations=2)
    assert did.state.stop is not None
    assert (len(did.started), did.state.stop.cause) == (1, Cause.SIGNAL)
