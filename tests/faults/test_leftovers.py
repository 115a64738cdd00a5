"""P1, P2, P4, P5, P6: processes left behind by an agent or a guardrail are gone before the next step."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import RALPH, Project, wait_until
from faults.fault_support import (
    DONE,
    REPEATED,
    RUNS,
    WAYS,
    Watched,
    ends,
    iterations,
    killed,
    lines,
    newest,
    starts_all,
    traces,
)
from ralph.process.client import ProcessCommand, Wakeup, Warden


@REPEATED
@pytest.mark.slow
def test_p1_every_descendant_is_dead_before_the_next_step(project: Project) -> None:
    """However a descendant of an agent or a guardrail escaped, the next step finds none of them."""
    left = traces(project)
    look = f"{left.alive_command} >> survivors"
    guardrail = project.script("check.sh", f"{look}; {starts_all(project, left)}")
    project.agent(
        f"{look}; {starts_all(project, left)}; [ $RALPH_ITERATION = {RUNS} ] && {DONE}; true",
        guardrails=[{"command": guardrail}, {"command": look}],
    )
    result = project.run("run", "-p", "x", "-m", str(RUNS), timeout=60 + 10 * RUNS)
    assert result.code == 0, result.err
    assert ends(project) == ["ok"] * RUNS
    found = left.names()
    assert {name: found[name] for name in WAYS} == dict.fromkeys(WAYS, 2 * RUNS)
    assert lines(project.path / "survivors") == []
    assert left.alive() == []


@REPEATED
@pytest.mark.slow
def test_p2_a_tree_that_ignores_everything_is_killed_after_its_grace(project: Project) -> None:
    """At the iteration timeout: TERM, five seconds, KILL, and no process is left."""
    left = traces(project)
    project.agent(
        f"trap '' TERM INT HUP\n{starts_all(project, left)}\necho > ready; while :; do sleep 0.1; done",
        iterationTimeoutSeconds=3,
    )
    repetitions = 1 + RUNS // 10
    result = project.run("run", "-p", "x", "-m", str(repetitions), timeout=60 + 20 * RUNS)
    assert result.code == 1, result.err
    assert (project.path / "ready").exists()
    found = iterations(project)
    assert [iteration.ended for iteration in found] == ["timeout"] * repetitions
    assert left.alive() == []


@REPEATED
def test_p4_an_agent_that_kills_its_parent_is_recorded_as_killed(project: Project) -> None:
    """The tree of a killed warden is swept, the iteration is `killed`, and the run continues."""
    left = traces(project)
    ways = ["sleep 60", "exit 0", "exec setsid sleep 60"] * max(1, RUNS // 3)
    cases = " ".join(f"{number}) {way};;" for number, way in enumerate(ways, 1))
    project.agent(
        f"{left.alive_command} >> survivors; [ $RALPH_ITERATION -gt {len(ways)} ] && {DONE} && exit\n"
        f"{left.me()}; {starts_all(project, left)}; kill -9 $PPID; case $RALPH_ITERATION in {cases} esac",
    )
    result = project.run("run", "-p", "x", "-m", str(len(ways) + 1), timeout=60 + 10 * RUNS)
    assert result.code == 0, result.err
    assert ends(project) == ["killed"] * len(ways) + ["ok"]
    assert lines(project.path / "survivors") == []
    assert left.alive() == []


def test_p4_a_guardrail_that_kills_its_parent_is_red(project: Project) -> None:
    """A check whose warden died proves nothing; its tree is swept, and the run continues."""
    left = traces(project)
    check = project.script(
        "check.sh", f"[ -e once ] && exit; touch once; {left.me()}; kill -9 $PPID; sleep 60"
    )
    project.agent(f"{left.alive_command} >> survivors; {DONE}", guardrails=[{"command": check}])
    result = project.run("run", "-p", "x", "-m", "2")
    assert result.code == 0, result.err
    assert [verdict.green for i in iterations(project) for verdict in i.verdicts] == [False, True]
    assert lines(project.path / "survivors") == []
    assert (left.count, left.alive()) == (1, [])


def test_p4_an_agent_that_kills_ralph_does_not_survive_it(project: Project) -> None:
    """Killing the grandparent stops the agent through the lifeline; the run can be resumed."""
    left = traces(project)
    project.agent(
        f"[ -e killed ] && {DONE} && exit\n{left.me()}; {starts_all(project, left)}; touch killed\n"
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
        open("tired", "w")
        os._exit(0)
time.sleep(0.1)
"""
"""Eight chains of processes that fork without pause; a chain that survives long enough leaves a file."""


def with_argument(word: str) -> list[int]:
    """Processes with this word among their arguments."""
    found = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and f"\0{word}\0".encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
    return found


@pytest.mark.slow
@REPEATED
def test_p5_tight_chains_of_forks_are_swept(project: Project) -> None:
    """Eight chains that fork without pause are gone before the next iteration, long before they finish."""
    token = f"chain-{secrets.token_hex(8)}"
    (project.path / "chains.py").write_text(CHAINS)
    look = project.script("look", f"grep -lxzs '[{token[0]}]{token[1:]}' /proc/[0-9]*/cmdline")
    project.agent(f"{look} >> survivors; {sys.executable} -S chains.py {token}; echo working")
    project.run("run", "-p", "x", "-m", str(RUNS), timeout=60 + 20 * RUNS)
    assert with_argument(token) == []
    found = iterations(project)
    assert [iteration.ended for iteration in found] == ["ok"] * RUNS
    assert lines(project.path / "survivors") == []
    assert not (project.path / "tired").exists()


class Ignored:
    def stdout(self, data: bytes) -> None: ...

    def stderr(self, data: bytes) -> None: ...


@pytest.mark.slow
@REPEATED
def test_p5_fifty_passes_are_enough(tmp_path: Path) -> None:
    """The sweep of eight tight chains takes at most fifty passes."""
    directory = os.open(tmp_path, os.O_RDONLY)
    passes = []
    with Warden(Wakeup()) as warden:
        for _ in range(RUNS):
            command = ProcessCommand(
                [sys.executable, "-S", "-c", CHAINS], {"PATH": os.environ["PATH"]}, directory
            )
            passes.append(warden.run(command, Ignored(), lambda seconds, idle: None).passes)
    os.close(directory)
    assert max(passes) <= 50, passes


def test_p6_a_grandchild_that_holds_the_pipes_does_not_hold_up_the_run(project: Project) -> None:
    """An iteration ends with its agent, even if another process still has its stdout or stderr open."""
    left = traces(project)
    hold = f"setsid sh -c 'trap \"\" TERM; {left.me()}; exec sleep 60'"
    project.agent(
        f"case $RALPH_ITERATION in 1) {hold} 2> /dev/null & ;; 2) {hold} > /dev/null & ;; 3) {hold} & ;; esac\n"
        f"until [ $(wc -l < {left.file}) -ge $RALPH_ITERATION ]; do sleep 0.02; done; echo working"
    )
    assert project.run("run", "-p", "x", "-m", "3").code == 1
    found = iterations(project)
    assert [iteration.ended for iteration in found] == ["ok", "ok", "ok"]
    assert (left.count, left.alive()) == (3, [])


def test_a_server_of_the_script_that_became_ralph_survives(project: Project) -> None:
    """In `server & exec ralph run …` the server is ralph's child; it survives when an agent kills the warden."""
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
def test_closed_streams_do_not_matter(project: Project, closed: str) -> None:
    """Without stdin, stdout or stderr, ralph still runs its agent."""
    project.agent(f"cat; {DONE}")
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {RALPH} run -p x {closed}"],
        cwd=project.path,
        env=project.env | {"TMPDIR": str(project.path)},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert newest(project).outcome == "complete"


def test_p3_a_tree_that_dies_slowly_is_waited_for(project: Project) -> None:
    """While an agent of a killed ralph is still alive, resume waits: two agents never work at once."""
    left = traces(project)
    project.agent(
        f"{left.alive_command} >> overlap; [ -e second ] && {DONE} && exit\ntrap '' PIPE; touch second\n"
        "trap 'until [ -e go ]; do sleep 0.02; done; exit' TERM\n"
        f"{left.me()}; while :; do sleep 0.1; done"
    )
    ralph = project.start("run", "-p", "x")
    wait_until(lambda: left.count == 1)
    killed(ralph)
    assert left.alive()
    resumed = Watched(project, [RALPH, "resume"], project.home.path / "said")
    resumed.wait_for("Waiting for the processes of a killed run to exit")
    (project.path / "go").touch()
    assert resumed.result().code == 0, resumed.said
    assert lines(project.path / "overlap") == []
    assert left.alive() == []
