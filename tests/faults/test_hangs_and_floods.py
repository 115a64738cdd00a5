"""P7, O1, O2: an agent that hangs, and one that prints as much and as fast as it can."""

from __future__ import annotations

import os
import subprocess

import pytest

from conftest import RALPH, Project, some
from faults.fault_support import DONE, RUNS, ends, iterations, newest, traces
from ralph.store.streams import MAX_STREAM_BYTES


def test_p7_a_silent_agent_times_out(project: Project) -> None:
    """An agent that prints nothing or stops itself is killed at the idle limit, long before the total limit."""
    left = traces(project)
    project.agent(
        f"{left.me()}; echo hello; [ $RALPH_ITERATION = 1 ] && kill -STOP $$; sleep 60; echo late",
        idleTimeoutSeconds=1,
        iterationTimeoutSeconds=40,
    )
    assert project.run("run", "-p", "x", "-m", "2").code == 1
    found = iterations(project)
    assert [iteration.ended for iteration in found] == ["idle", "idle"]
    assert (left.count, left.alive()) == (2, [])


@pytest.mark.slow
def test_p7_an_agent_that_talks_is_not_idle(project: Project) -> None:
    """Occasional output on stdout or stderr prevents the idle timeout."""
    project.agent(
        "for i in 1 2 3 4 5; do echo $i; sleep 0.2; echo $i >&2; sleep 0.2; done", idleTimeoutSeconds=1.5
    )
    assert project.run("run", "-p", "x", "-m", "1").code == 1
    assert ends(project) == ["ok"]


def peak_of(project: Project, *more: str) -> tuple[int, int]:
    """Run ralph to its end; returns its exit code and the largest memory of any of its processes, in kB."""
    ralph = subprocess.Popen(
        [RALPH, "run", "-p", "x", *more],
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
def test_o1_endless_lines_cost_little_memory(project: Project) -> None:
    """Huge lines on stdout, on stderr and from a guardrail: little memory, capped files, the claim is found."""
    megabytes = 2000 if RUNS >= 100 else 80
    line = f"head -c {megabytes}000000 /dev/zero | tr '\\0' x"
    project.agent(DONE, guardrails=[{"command": "true"}])
    code, usual = peak_of(project)
    assert code == 0
    project.agent(
        f"[ $RALPH_ITERATION = 1 ] && {{ {line}; {line} >&2; echo; }}; {DONE}",
        guardrails=[{"command": f"[ $RALPH_ITERATION = 2 ] || {{ {line}; exit 1; }}"}],
    )
    code, peak = peak_of(project)
    assert code == 0
    assert peak - usual <= 64_000, f"{peak - usual} kB"
    run = newest(project)
    assert run.iteration == 2
    assert [iteration.claim for iteration in iterations(project)] == [True, True]
    kept = project.home.streams(run.id).glob("001-*")
    sizes = {path.suffix: path.stat().st_size for path in kept}
    assert sorted(sizes) == [".stderr", ".stdout"]
    assert all(MAX_STREAM_BYTES <= size <= MAX_STREAM_BYTES + 1000 for size in sizes.values()), sizes


@pytest.mark.parametrize("flood", some(["exec yes", "exec cat /dev/zero >&2"], 1))
def test_o2_a_flood_does_not_delay_the_timeout(project: Project, flood: str) -> None:
    """An agent that prints as fast as it can and is never idle is killed at its timeout."""
    project.agent(flood, iterationTimeoutSeconds=1, idleTimeoutSeconds=60)
    code, _ = peak_of(project, "-m", "1")
    assert code == 1
    (found,) = iterations(project)
    assert found.ended == "timeout"
